// The plan of one rank: block, sends, receives and arrivals of each step, evaluated once from a schedule.
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <utility>
#include <vector>

namespace imbrex {

struct planned_step {
    attention_block block;
    std::vector<transfer> sends;     // posted in this step
    std::vector<transfer> receives;  // posted in this step
    std::vector<transfer> arrivals;  // must have arrived before this step
};

struct rank_plan {
    int rank = 0;
    token_ranges tokens = {};
    std::vector<planned_step> steps;
    std::vector<transfer> arrivals;  // needed after the last step: partial results to merge, or outputs
};

template <attention_schedule Schedule>
rank_plan plan_of(const Schedule& schedule, int rank) {
    require_schedule(schedule);
    require(rank >= 0 && rank < schedule.ranks, "rank: ", rank, "; there are ", schedule.ranks,
            " ranks, 0 is the first");
    rank_plan made{};
    made.rank = rank;
    made.tokens = schedule.tokens_of(rank);
    made.steps.resize(schedule.steps());
    for (int step = 0; step < schedule.steps(); ++step) {
        planned_step& planned = made.steps[step];
        planned.block = schedule.block(rank, step);
        planned.sends = schedule.sends(rank, step);
        planned.receives = schedule.receives(rank, step);
        for (const transfer& one : planned.receives) {
            (one.needed_step < schedule.steps() ? made.steps[one.needed_step].arrivals : made.arrivals).push_back(one);
        }
    }
    return made;
}

}  // namespace imbrex
