// The time of a step as a linear function of its load (engine/serving/step_load.hpp), fitted to measured steps. Steps
// that only decode have coefficients of their own: on a GPU they replay a CUDA graph and read the weights, while steps
// with prompts compute.
//
//   decode   step + sequence * decodes + context_token * decode_context
//   mixed    step + prompt * prompts + prompt_token * prompt_tokens + pair * prompt_context
//                 + sequence * decodes + context_token * decode_context
#pragma once

#include <nlohmann/json.hpp>

#include <engine/serving/block_manager.hpp>
#include <engine/serving/scheduler.hpp>
#include <engine/serving/step_load.hpp>

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace bench {

// In seconds.
struct step_coefficients {
    double step = 0;
    double prompt = 0;
    double prompt_token = 0;
    double pair = 0;  // a query and a key of a prompt
    double sequence = 0;
    double context_token = 0;

    double seconds(const imbrex::engine::step_load& load) const;
};

struct step_costs {
    step_coefficients decode{}, mixed{};

    double seconds(const imbrex::engine::step_load& load) const {
        return (load.prompts == 0 ? decode : mixed).seconds(load);
    }
};

struct measured_step {
    std::string source;  // a row or a trace of `imbrex bench`
    imbrex::engine::step_load load{};
    double seconds = 0;
};

// The scheduler and KV cache of a replica.
struct replica_options {
    imbrex::engine::scheduler_options scheduler{};
    std::vector<imbrex::engine::cache_group> groups{{.blocks = 4096}};
    int block_size = 16;
    bool overlaps = false;  // a step is scheduled before the requests that arrived during the one before
};

// A file of `imbrex bench --step-costs`.
struct measured_steps {
    std::string model, world;
    replica_options replica{};
    std::vector<measured_step> steps{};
};
measured_steps read_steps(std::istream& lines, const std::string& name);

// Errors of the fitted times.
struct fit_error {
    int steps = 0;
    double mean = 0;   // of |fitted - measured| / measured
    double p90 = 0;    // of the same
    double total = 0;  // (sum of fitted - sum of measured) / sum of measured
};

// Least squares of the relative errors, with coefficients that are not negative. Throws without a step.
step_costs fitted_costs(std::span<const measured_step> steps);
fit_error error_of(const step_costs& costs, std::span<const measured_step> steps);

// A file of costs: what `bench_fleet fit` writes and `bench_fleet simulate` reads.
struct cost_file {
    std::string model, world;
    replica_options replica{};
    step_costs costs{};
};
nlohmann::ordered_json json_of(const cost_file& file);
cost_file read_costs(const std::string& text, const std::string& name);

}  // namespace bench
