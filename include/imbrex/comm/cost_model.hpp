// What a schedule would take on machines that need not be there: a model of devices and links, and the time line of all ranks on them.
// It is a simulation: what it says holds as far as the speeds that it was given do.
//
//     const cluster_machine machine{.device = {.attention_rate = 600e12, .launch_time = 5e-6},
//                                   .ranks_per_node = 8,
//                                   .within_node = {.bandwidth = 360e9, .latency = 10e-6},
//                                   .between_nodes = {.bandwidth = 45e9, .latency = 20e-6}};
//     const timeline line = simulate(schedule, machine);     a ring_schedule, a ulysses_schedule, or any other
//
//     line.time()                     seconds until the last rank is done
//     line.efficiency()               the part of it that all devices together need
//     line.at(rank, step).begin       when a step begins, when its block does, when that is done
//     line.transfers                  when each of them was posted, began and ended
//     time_breakdown_of(line)[rank].exposed   how long a rank waited for its transfers, and how much of them work has hidden
#pragma once

#include <imbrex/comm/cost_model/machine.hpp>
#include <imbrex/comm/cost_model/simulation.hpp>
#include <imbrex/comm/cost_model/timeline.hpp>
