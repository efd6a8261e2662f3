// A fleet in virtual time: each replica is the engine's scheduler and block manager, and a step takes the time that the
// costs say. Nothing is computed, so an hour of load takes seconds. Events are arrivals and ends of steps:
//
//   arrival       the policy chooses a replica, which schedules the request in its next step; an idle one begins at once
//   end of step   the sequences get their tokens; those that end free their blocks, and their conversation goes on
//                 after the user's think time; the next step begins at the same time
//
// The router takes no time, and the network none.
#pragma once

#include "serving/fleet_costs.hpp"
#include "serving/fleet_routing.hpp"

#include <engine/serving/request_latencies.hpp>
#include <engine/serving/request_trace.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bench {

// One server, between steps or in one.
class replica {
  public:
    replica(const replica_options& options, const step_costs& costs);

    imbrex::engine::sequence_id add(std::vector<int> prompt, int output);
    // Begins the next step and returns its seconds; nothing while a step runs, or without work.
    std::optional<double> begin_step();
    // The tokens of the step. They are made from the id of the sequence and its length.
    std::vector<imbrex::engine::progress> end_step();

    bool is_busy() const { return !work_.entries.empty(); }
    double busy_seconds() const { return busy_seconds_; }
    std::int64_t steps() const { return steps_; }
    const imbrex::engine::scheduler& state() const { return scheduler_; }

  private:
    imbrex::engine::scheduler scheduler_;
    step_costs costs_;
    imbrex::engine::batch work_;  // empty between steps
    double busy_seconds_ = 0;
    std::int64_t steps_ = 0;
};

struct fleet_options {
    int replicas = 1;
    std::string policy = "least-loaded";
    bounded_load bounded{};
    replica_options replica{};
    step_costs costs{};
};

struct fleet_result {
    imbrex::engine::latency_summary latencies{};
    double hit_rate = 0;     // of prompt tokens, in the prefix cache
    double utilisation = 0;  // mean share of the time in which a replica has a step
    std::int64_t steps = 0, preemptions = 0;
};

fleet_result simulate(const fleet_options& options, const imbrex::engine::request_trace& trace,
                      const imbrex::engine::latency_limits& limits);

struct fleet_size {
    int replicas = 0;  // 0: not even `most` are enough
    fleet_result result{};
};

// The smallest number of replicas, up to `most`, with at least this goodput: by doubling, then by bisection, as if more
// replicas were never worse.
fleet_size smallest_fleet(fleet_options options, const imbrex::engine::request_trace& trace,
                          const imbrex::engine::latency_limits& limits, double goodput, int most);

}  // namespace bench
