// The frequencies of a rotary position embedding, from what a model's configuration says of them: base, rotated columns and
// scaling, by the formulas with which Hugging Face's transformers initialise theirs (ROPE_INIT_FUNCTIONS). Everything is computed
// in double, on the host and once.
//
//     pair i of n / 2 turns by base^(-2 i / n) radians a position; then by what the scaling makes of it:
//
//     rotary_plain     nothing
//     rotary_linear    all of them divided by a factor
//     rotary_llama3    those that turn seldom in the original context are divided, those that turn often are not
//     rotary_yarn      the same along a ramp over the pairs; and what is rotated is multiplied by an attention factor
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/kernels/rotary/embedding.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace imbrex {

struct rotary_plain {};

struct rotary_linear {
    double factor = 1;
};

struct rotary_llama3 {
    double factor = 8;
    double low_frequency_factor = 1;   // pairs with fewer turns in the original context are divided
    double high_frequency_factor = 4;  // those with more are not
    double original_context = 8192;
};

struct rotary_yarn {
    double factor = 1;
    double original_context = 0;
    double beta_fast = 32;  // pairs with more turns in the original context are left as they are
    double beta_slow = 1;   // those with fewer are divided
    std::optional<double> attention_factor = {};
    std::optional<double> mscale = {};  // with the next one, says the attention factor if that is left out
    std::optional<double> mscale_all_dim = {};
    bool truncate = true;  // the ramp begins and ends at whole pairs
};

using rotary_scaling = std::variant<rotary_plain, rotary_linear, rotary_llama3, rotary_yarn>;

namespace detail {

inline constexpr double pi = 3.14159265358979323846;

inline void require_positive(double value, const char* name) {
    require(std::isfinite(value) && value > 0, name, ": ", value, "; a positive number is needed");
}

inline void require_scaling(const rotary_plain&) {}
inline void require_scaling(const rotary_linear& scaling) {
    require_positive(scaling.factor, "scaling.factor");
}
inline void require_scaling(const rotary_llama3& scaling) {
    require_positive(scaling.factor, "scaling.factor");
    require_positive(scaling.low_frequency_factor, "scaling.low_frequency_factor");
    require_positive(scaling.high_frequency_factor, "scaling.high_frequency_factor");
    require(scaling.high_frequency_factor > scaling.low_frequency_factor,
            "scaling.high_frequency_factor: ", scaling.high_frequency_factor,
            "; it must be greater than the low one, which is ", scaling.low_frequency_factor);
    require_positive(scaling.original_context, "scaling.original_context");
}
inline void require_scaling(const rotary_yarn& scaling) {
    require_positive(scaling.factor, "scaling.factor");
    require_positive(scaling.original_context, "scaling.original_context");
    require_positive(scaling.beta_slow, "scaling.beta_slow");
    require_positive(scaling.beta_fast, "scaling.beta_fast");
    require(scaling.beta_fast >= scaling.beta_slow, "scaling.beta_fast: ", scaling.beta_fast,
            "; it must not be less than the slow one, which is ", scaling.beta_slow);
    if (scaling.attention_factor) require_positive(*scaling.attention_factor, "scaling.attention_factor");
    for (const auto& part : {scaling.mscale, scaling.mscale_all_dim}) {
        require(!part || (std::isfinite(*part) && *part >= 0),
                "scaling.mscale, scaling.mscale_all_dim: ", part.value_or(0), "; neither may be negative");
    }
}

// Frequencies without scaling are given; they are in radians a position.
inline void scale_frequencies(const rotary_plain&, double, std::vector<double>&) {}

inline void scale_frequencies(const rotary_linear& scaling, double, std::vector<double>& frequencies) {
    for (double& frequency : frequencies) frequency /= scaling.factor;
}

inline void scale_frequencies(const rotary_llama3& scaling, double, std::vector<double>& frequencies) {
    const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
    for (double& frequency : frequencies) {
        const double turns = scaling.original_context * frequency / (2 * pi);
        const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
        frequency = (1 - kept) * frequency / scaling.factor + kept * frequency;
    }
}

inline void scale_frequencies(const rotary_yarn& scaling, double base, std::vector<double>& frequencies) {
    const double pairs = static_cast<double>(frequencies.size());
    // The pair, counted in parts of one, that turns so often in the original context.
    const auto pair_of = [&](double turns) {
        return pairs * std::log(scaling.original_context / (turns * 2 * pi)) / std::log(base);
    };
    double first = pair_of(scaling.beta_fast), last = pair_of(scaling.beta_slow);
    if (scaling.truncate) {
        first = std::floor(first);
        last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, 2 * pairs - 1);  // columns, as the formula of the others has it
    if (first == last) last += 0.001;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double divided = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
        frequencies[i] = divided * frequencies[i] / scaling.factor + (1 - divided) * frequencies[i];
    }
}

template <class Scaling>
double attention_factor_of(const Scaling&) {
    return 1;
}
inline double attention_factor_of(const rotary_yarn& scaling) {
    if (scaling.attention_factor) return *scaling.attention_factor;
    const auto grown = [&](double by) { return scaling.factor <= 1 ? 1.0 : 0.1 * by * std::log(scaling.factor) + 1; };
    const double all = scaling.mscale_all_dim.value_or(0), own = scaling.mscale.value_or(0);
    return own != 0 && all != 0 ? grown(own) / grown(all) : grown(1);
}

// In 2^-64 turns, without whole ones.
inline std::uint64_t turns_of(double radians) {
    const double turns = radians / (2 * pi);
    return static_cast<std::uint64_t>(std::ldexp(turns - std::floor(turns), 64));
}

}  // namespace detail

struct rotary_frequencies {
    double base = 10000;
    int columns = 0;  // that are rotated: all of a head, or fewer
    rotary_scaling scaling = rotary_plain{};

    // One for each pair of columns, in radians a position.
    std::vector<double> in_double() const {
        require_valid();
        std::vector<double> frequencies(static_cast<std::size_t>(columns / 2));
        for (std::size_t i = 0; i < frequencies.size(); ++i) {
            frequencies[i] = std::pow(base, -2 * static_cast<double>(i) / columns);
        }
        std::visit([&](const auto& kind) { detail::scale_frequencies(kind, base, frequencies); }, scaling);
        return frequencies;
    }
    // The same as others have them.
    std::vector<float> inverse() const {
        const std::vector<double> all = in_double();
        return {all.begin(), all.end()};
    }
    // And as kernels do, in parts of a turn.
    std::vector<std::uint64_t> turns() const {
        std::vector<std::uint64_t> all;
        for (const double frequency : in_double()) all.push_back(detail::turns_of(frequency));
        return all;
    }

    float attention_factor() const {
        require_valid();
        return static_cast<float>(
            std::visit([](const auto& kind) { return detail::attention_factor_of(kind); }, scaling));
    }

    // What a kernel takes, with the turns where it can read them.
    rotary_embedding embedding(const std::uint64_t* turns_there, rotary_style style) const {
        require(turns_there != nullptr, "turns_there: null; ", columns / 2, " numbers are needed");
        return {turns_there, columns, style, attention_factor()};
    }

  private:
    void require_valid() const {
        require(std::isfinite(base) && base > 1, "base: ", base, "; a number greater than 1 is needed");
        require(columns >= 2 && columns <= 256 && columns % 2 == 0, "columns: ", columns,
                "; pairs are rotated, an even number of columns from 2 to 256");
        std::visit([](const auto& kind) { detail::require_scaling(kind); }, scaling);
    }
};

// Frequencies from elsewhere, in radians a position, as kernels have them. Then embedding is rotary_embedding{turns, columns, style}.
template <class Number = float>
std::vector<std::uint64_t> rotary_turns(const std::vector<Number>& inverse) {
    std::vector<std::uint64_t> all;
    for (const Number frequency : inverse) {
        require(std::isfinite(frequency) && frequency >= 0, "inverse[", all.size(), "]: ", frequency,
                "; a frequency is finite and not negative");
        all.push_back(detail::turns_of(frequency));
    }
    return all;
}

}  // namespace imbrex
