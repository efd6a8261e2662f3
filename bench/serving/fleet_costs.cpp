#include "serving/fleet_costs.hpp"

#include <engine/loading/json_text.hpp>
#include <engine/serving/request_latencies.hpp>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <istream>

namespace bench {

using namespace imbrex::engine;
using imbrex::require;
using imbrex::str_cat;

namespace {

constexpr int num_coefficients = 6;
using row = std::array<double, num_coefficients>;

constexpr std::array<std::pair<const char*, double step_coefficients::*>, num_coefficients> names{
    {{"step", &step_coefficients::step},
     {"prompt", &step_coefficients::prompt},
     {"prompt_token", &step_coefficients::prompt_token},
     {"pair", &step_coefficients::pair},
     {"sequence", &step_coefficients::sequence},
     {"context_token", &step_coefficients::context_token}}};

// What the coefficients multiply.
row row_of(const step_load& load) {
    return {1,
            static_cast<double>(load.prompts),
            static_cast<double>(load.prompt_tokens),
            static_cast<double>(load.prompt_context),
            static_cast<double>(load.decodes),
            static_cast<double>(load.decode_context)};
}

// Minimises the sum of ((row . x - seconds) / seconds)^2 over x >= 0 by coordinate descent.
step_coefficients least_squares(std::span<const measured_step> steps) {
    std::array<row, num_coefficients> products{};
    row right{}, x{};
    for (const measured_step& one : steps) {
        row a = row_of(one.load);
        for (double& value : a) value /= one.seconds;
        for (std::size_t i = 0; i < a.size(); ++i) {
            right[i] += a[i];
            for (std::size_t j = 0; j < a.size(); ++j) products[i][j] += a[i] * a[j];
        }
    }
    constexpr int most_rounds = 200000;
    for (int round = 0; round < most_rounds; ++round) {
        double change = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            if (products[i][i] == 0) continue;
            double rest = right[i];
            for (std::size_t j = 0; j < x.size(); ++j) rest -= products[i][j] * x[j];
            const double next = std::max(x[i] + rest / products[i][i], 0.0);
            change = std::max(change, std::abs(next - x[i]) * std::sqrt(products[i][i]));
            x[i] = next;
        }
        if (change < 1e-9 * std::sqrt(static_cast<double>(steps.size()))) break;
    }
    step_coefficients made;
    for (std::size_t i = 0; i < names.size(); ++i) made.*names[i].second = x[i];
    return made;
}

std::vector<measured_step> steps_that(std::span<const measured_step> steps, bool have_prompts) {
    std::vector<measured_step> found;
    std::ranges::copy_if(steps, std::back_inserter(found),
                         [&](const measured_step& one) { return (one.load.prompts > 0) == have_prompts; });
    return found;
}

int small_member(const json& object, const char* key, const std::string& name) {
    const auto value = int_member(object, key, name);
    require(value && *value >= 0 && *value < (1 << 30), name, ": \"", key, "\" ",
            value ? str_cat("is ", *value) : "is missing", "; it must be 0 or more");
    return static_cast<int>(*value);
}

replica_options read_replica(const json& value, const std::string& name) {
    replica_options made{.scheduler = {.context = small_member(value, "context", name),
                                       .max_num_batched_tokens = small_member(value, "max_num_batched_tokens", name),
                                       .max_num_seqs = small_member(value, "max_num_seqs", name)},
                         .groups = {},
                         .block_size = small_member(value, "block_size", name),
                         .overlaps = bool_member(value, "overlaps", name).value_or(false)};
    for (const json& each : member(value, "groups", name)) {
        made.groups.push_back({.blocks = small_member(each, "blocks", name),
                               .window = small_member(each, "window", name),
                               .block_bytes = int_member(each, "block_bytes", name).value_or(1)});
    }
    return made;
}

measured_step read_step(const json& value, const std::string& name) {
    measured_step made{.source = string_member(value, "source", name).value_or(""),
                       .load = {.prompts = small_member(value, "prompts", name),
                                .prompt_tokens = small_member(value, "prompt_tokens", name),
                                .prompt_context = int_member(value, "prompt_context", name).value_or(0),
                                .decodes = small_member(value, "decodes", name),
                                .decode_context = int_member(value, "decode_context", name).value_or(0)},
                       .seconds = double_member(value, "seconds", name).value_or(0)};
    require(made.seconds > 0, name, ": \"seconds\" is ", made.seconds, "; a measured step takes more than 0");
    return made;
}

step_coefficients read_coefficients(const json& value, const std::string& name) {
    step_coefficients made;
    for (const auto& [key, field] : names) {
        made.*field = double_member(value, key, name).value_or(0);
        require(made.*field >= 0, name, ": \"", key, "\" is ", made.*field, "; it must be 0 or more seconds");
    }
    return made;
}

}  // namespace

double step_coefficients::seconds(const step_load& load) const {
    const row a = row_of(load);
    double all = 0;
    for (std::size_t i = 0; i < names.size(); ++i) all += a[i] * this->*names[i].second;
    return all;
}

measured_steps read_steps(std::istream& lines, const std::string& name) {
    std::string line;
    require(static_cast<bool>(std::getline(lines, line)), name, ": it is empty; imbrex bench --step-costs writes it");
    const std::string first = name + ", line 1";
    const json header = parse_json(line, first);
    measured_steps made{.model = string_member(header, "model", first).value_or(""),
                        .world = string_member(header, "world", first).value_or(""),
                        .replica = read_replica(member(header, "replica", first), first)};
    for (int number = 2; std::getline(lines, line); ++number) {
        const std::string place = str_cat(name, ", line ", number);
        made.steps.push_back(read_step(parse_json(line, place), place));
    }
    return made;
}

step_costs fitted_costs(std::span<const measured_step> steps) {
    require(!steps.empty(), "fit: there is no step; there must be at least one");
    const std::vector<measured_step> decode = steps_that(steps, false), mixed = steps_that(steps, true);
    return {.decode = least_squares(decode), .mixed = least_squares(mixed)};
}

fit_error error_of(const step_costs& costs, std::span<const measured_step> steps) {
    std::vector<double> errors;
    double fitted = 0, measured = 0;
    for (const measured_step& one : steps) {
        const double seconds = costs.seconds(one.load);
        errors.push_back(std::abs(seconds - one.seconds) / one.seconds);
        fitted += seconds;
        measured += one.seconds;
    }
    const latency_percentiles all = percentiles_of(std::move(errors));
    return {.steps = static_cast<int>(steps.size()),
            .mean = all.mean,
            .p90 = all.p90,
            .total = measured > 0 ? fitted / measured - 1 : 0};
}

nlohmann::ordered_json json_of(const cost_file& file) {
    using ordered = nlohmann::ordered_json;
    const auto of = [](const step_coefficients& one) {
        ordered made = ordered::object();
        for (const auto& [key, field] : names) made[key] = one.*field;
        return made;
    };
    ordered groups = ordered::array();
    for (const cache_group& each : file.replica.groups)
        groups.push_back({{"blocks", each.blocks}, {"window", each.window}, {"block_bytes", each.block_bytes}});
    const scheduler_options& scheduler = file.replica.scheduler;
    return {{"model", file.model},
            {"world", file.world},
            {"replica",
             {{"context", scheduler.context},
              {"max_num_batched_tokens", scheduler.max_num_batched_tokens},
              {"max_num_seqs", scheduler.max_num_seqs},
              {"overlaps", file.replica.overlaps},
              {"block_size", file.replica.block_size},
              {"groups", groups}}},
            {"decode", of(file.costs.decode)},
            {"mixed", of(file.costs.mixed)}};
}

cost_file read_costs(const std::string& text, const std::string& name) {
    const json value = parse_json(text, name);
    return {.model = string_member(value, "model", name).value_or(""),
            .world = string_member(value, "world", name).value_or(""),
            .replica = read_replica(member(value, "replica", name), name),
            .costs = {.decode = read_coefficients(member(value, "decode", name), name),
                      .mixed = read_coefficients(member(value, "mixed", name), name)}};
}

}  // namespace bench
