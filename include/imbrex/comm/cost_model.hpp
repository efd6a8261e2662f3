// Cost model for context-parallel attention: simulates a schedule on a model of devices and links that need not exist,
// and returns the timeline of all ranks. The result is as good as the speeds given.
//
//     const cluster_machine machine{.device = {.attention_rate = 600e12, .launch_time = 5e-6},
//                                   .ranks_per_node = 8,
//                                   .within_node = {.bandwidth = 360e9, .latency = 10e-6},
//                                   .between_nodes = {.bandwidth = 45e9, .latency = 20e-6}};
//     const timeline line = simulate(schedule, machine);     any attention_schedule
//
//     line.time()                     seconds until the last rank is done
//     line.efficiency()               single-device time / (ranks * time)
//     line.at(rank, step).begin       when a step begins, when its block does, when that is done
//     line.transfers                  when each transfer was posted, began and ended
//     time_breakdown_of(line)[rank].exposed   communication time of a rank that is not hidden by compute
#pragma once

#include <imbrex/comm/cost_model/machine.hpp>
#include <imbrex/comm/cost_model/simulation.hpp>
#include <imbrex/comm/cost_model/timeline.hpp>
