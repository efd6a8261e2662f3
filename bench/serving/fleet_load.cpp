#include "serving/fleet_load.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <vector>

namespace bench {

using imbrex::require;
using namespace imbrex::engine;

namespace {

// In (0, 1].
double unit(std::mt19937_64& chance) {
    return (static_cast<double>(chance() >> 11) + 1) * 0x1p-53;
}

double exponential(std::mt19937_64& chance, double mean) {
    return -mean * std::log(unit(chance));
}

double normal(std::mt19937_64& chance) {
    const double radius = std::sqrt(-2 * std::log(unit(chance)));
    return radius * std::cos(2 * std::numbers::pi * unit(chance));
}

// Exponential, or with more variance one of two exponentials, with balanced means: short gaps in a burst, long ones
// between bursts.
double gap(std::mt19937_64& chance, double mean, double burstiness) {
    const double p = (1 + std::sqrt((burstiness - 1) / (burstiness + 1))) / 2;
    const double share = unit(chance) <= p ? p : 1 - p;
    return exponential(chance, mean / (2 * share));
}

std::vector<double> numbers_of(const std::string& text) {
    std::vector<double> all;
    for (const char* at = text.data(); at != text.data() + text.size();) {
        double value = 0;
        const auto [end, error] = std::from_chars(at, text.data() + text.size(), value);
        if (error != std::errc() || !(std::abs(value) < 1e9)) return {};
        all.push_back(value);
        if (end == text.data() + text.size()) break;
        if (*end != ',') return {};
        at = end + 1;
    }
    return all;
}

void check(const load_options& options) {
    require(options.rate > 0, "rate: ", options.rate, "; it must be more than 0 conversations a second");
    require(options.seconds > 0, "seconds: ", options.seconds, "; it must be more than 0");
    require(options.burstiness >= 1, "burstiness: ", options.burstiness, "; it must be 1 (Poisson) or more");
    require(options.systems >= 0, "systems: ", options.systems, "; it must be 0 (none) or more");
    require(options.max_tokens >= 0, "max_tokens: ", options.max_tokens, "; it must be 0 (no limit) or more");
}

trace_conversation conversation_at(double arrival, const load_options& options, const std::vector<int>& systems,
                                   std::mt19937_64& chance) {
    trace_conversation made{.arrival = arrival};
    if (!systems.empty()) {
        made.system = static_cast<int>(chance() % systems.size());
        made.system_tokens = systems[static_cast<std::size_t>(made.system)];
    }
    int left = (options.max_tokens == 0 ? 1 << 28 : options.max_tokens) - made.system_tokens;
    const int turns = options.turns.draw_count(chance, 1);
    for (int i = 0; i < turns; ++i) {
        trace_turn turn{.think = i == 0 ? 0 : std::max(options.think.draw(chance), 0.0),
                        .input = options.input.draw_count(chance, 1),
                        .output = options.output.draw_count(chance, 1)};
        if (i == 0) {
            turn.output = std::min(turn.output, std::max(left - 1, 1));
            turn.input = std::min(turn.input, std::max(left - turn.output, 1));
        }
        left -= turn.input + turn.output;
        if (i > 0 && left < 0) break;
        made.turns.push_back(turn);
    }
    return made;
}

}  // namespace

distribution::distribution(const std::string& text) : text_(text) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const std::string name = text.substr(0, colon);
    const std::vector<double> values = numbers_of(text.substr(std::min(colon + 1, text.size())));
    const bool has_two = name == "uniform" || name == "lognormal";
    const bool is_known = has_two || name == "fixed" || name == "exponential";
    require(
        is_known && values.size() == (has_two ? 2u : 1u) &&
            std::ranges::all_of(values, [](double v) { return v >= 0; }),
        "distribution: ", text,
        "; it must be fixed:value, uniform:least,most, lognormal:median,sigma or exponential:mean, of numbers from 0");
    kind_ = name == "fixed"       ? kind::fixed
            : name == "uniform"   ? kind::uniform
            : name == "lognormal" ? kind::lognormal
                                  : kind::exponential;
    first_ = values[0];
    second_ = has_two ? values[1] : 0;
    require(kind_ != kind::uniform || first_ <= second_, "distribution: ", text, "; least must not exceed most");
}

double distribution::draw(std::mt19937_64& chance) const {
    switch (kind_) {
        case kind::fixed:
            return first_;
        case kind::uniform:
            return first_ + (second_ - first_) * unit(chance);
        case kind::lognormal:
            return first_ * std::exp(second_ * normal(chance));
        case kind::exponential:
            return exponential(chance, first_);
    }
    return 0;
}

int distribution::draw_count(std::mt19937_64& chance, int least) const {
    // Uniform counts: every whole number from least to most is equally likely.
    if (kind_ == kind::uniform) {
        const auto low = static_cast<std::uint64_t>(first_), high = static_cast<std::uint64_t>(second_);
        return std::max(static_cast<int>(low + chance() % (high - low + 1)), least);
    }
    return std::max(static_cast<int>(std::lround(std::min(draw(chance), 1e8))), least);
}

request_trace generate_load(const load_options& options) {
    check(options);
    std::mt19937_64 chance(options.seed);
    std::vector<int> systems;
    for (int i = 0; i < options.systems; ++i) systems.push_back(options.system_tokens.draw_count(chance, 1));
    request_trace trace;
    for (double at = gap(chance, 1 / options.rate, options.burstiness); at < options.seconds;
         at += gap(chance, 1 / options.rate, options.burstiness))
        trace.push_back(conversation_at(at, options, systems, chance));
    require(!trace.empty(), "load: no conversation arrives in ", options.seconds, " seconds at a rate of ",
            options.rate, "; a higher rate or more seconds are needed");
    return trace;
}

}  // namespace bench
