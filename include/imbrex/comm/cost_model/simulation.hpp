// Discrete simulation of a schedule: the loop of every rank (docs/ring_attention.md) with times instead of work:
//
//     for each step:   wait for arrivals needed now   post sends and receives   attend
//
//   - A step begins when the previous block is done and what it needs has arrived.
//   - A transfer starts when both its ranks have begun the step in which it is posted.
//   - A rank has one communication stream. Transfers of a step start when those of earlier steps are done. Within a
//     step, sends run in order, and receives run in order, concurrently with the sends.
//   - A rank has finished when its last block is done and what is needed after it has arrived. Merging takes no time.
//
// Steps are processed in order: everything a step waits for was posted before it, so no event queue is needed.
#pragma once

#include <imbrex/comm/cost_model/machine.hpp>
#include <imbrex/comm/cost_model/timeline.hpp>
#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace imbrex {

namespace detail {

// Assigns times to transfers, step by step.
template <class Machine>
class simulated_streams {
  public:
    simulated_streams(const Machine& machine, int ranks)
        : machine_(machine), stream_free_(ranks), sending_free_(ranks), receiving_free_(ranks) {}

    // Appends the transfers posted in a step, which the ranks begin at times `begun`.
    template <class Schedule>
    void post(const Schedule& schedule, int step, const std::vector<double>& begun, std::vector<transfer_times>& all) {
        const int ranks = schedule.ranks;
        std::vector<queue> sends(ranks), receives(ranks);
        std::vector<double> open(ranks);  // when a rank's stream reaches this step
        std::size_t left = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            sends[rank].transfers = schedule.sends(rank, step);
            receives[rank].transfers = schedule.receives(rank, step);
            open[rank] = std::max(begun[rank], stream_free_[rank]);
            left += sends[rank].transfers.size();
        }
        while (left > 0) {
            const std::vector<transfer_times> next = next_of(sends, receives, begun, open);
            require(!next.empty(), "schedule: ", left, " transfers of step ", step,
                    " deadlock; every send needs a matching receive, in the same order on both ranks");
            for (const transfer_times& one : next) all.push_back(placed(one));
            left -= next.size();
        }
    }

  private:
    struct queue {
        std::vector<transfer> transfers;
        std::size_t at = 0;

        const transfer* front() const { return at < transfers.size() ? &transfers[at] : nullptr; }
    };

    // Transfers at the front of both their queues, earliest first: on a shared device they are serialised.
    std::vector<transfer_times> next_of(std::vector<queue>& sends, std::vector<queue>& receives,
                                        const std::vector<double>& begun, const std::vector<double>& open) const {
        std::vector<transfer_times> found;
        for (queue& own : sends) {
            const transfer* const send = own.front();
            if (send == nullptr) continue;
            const transfer* const receive = receives[send->to].front();
            if (receive == nullptr || !(*receive == *send)) continue;
            found.push_back(
                {*send, std::max(begun[send->from], begun[send->to]), std::max(open[send->from], open[send->to]), 0});
        }
        for (const transfer_times& one : found) {
            ++sends[one.what.from].at;
            ++receives[one.what.to].at;
        }
        std::stable_sort(found.begin(), found.end(),
                         [](const transfer_times& a, const transfer_times& b) { return a.begin < b.begin; });
        return found;
    }

    transfer_times placed(transfer_times one) {
        double& sending = sending_free_[machine_.device_of(one.what.from)];
        double& receiving = receiving_free_[machine_.device_of(one.what.to)];
        one.begin = std::max({one.begin, sending, receiving});
        one.end = one.begin + machine_.transfer_time(one.what.from, one.what.to, one.what.bytes);
        sending = receiving = one.end;
        for (const int rank : {one.what.from, one.what.to}) {
            stream_free_[rank] = std::max(stream_free_[rank], one.end);
        }
        return one;
    }

    const Machine& machine_;
    std::vector<double> stream_free_;     // per rank: earlier steps are done
    std::vector<double> sending_free_;    // per device
    std::vector<double> receiving_free_;  // per device
};

}  // namespace detail

template <attention_schedule Schedule, attention_machine Machine>
timeline simulate(const Schedule& schedule, const Machine& machine) {
    require_schedule(schedule);
    require_machine(machine);
    const int ranks = schedule.ranks, steps = schedule.steps();
    timeline made{ranks, steps, 0, std::vector<step_times>(static_cast<std::size_t>(ranks) * steps), {}, {}};
    made.finished.assign(ranks, 0);

    detail::simulated_streams<Machine> streams(machine, ranks);
    // When everything that a rank needs in a step has arrived; one extra entry after the last step.
    std::vector<double> arrived(static_cast<std::size_t>(ranks) * (steps + 1));
    const auto arrival = [&](int rank, int step) -> double& {
        return arrived[static_cast<std::size_t>(rank) * (steps + 1) + step];
    };
    std::vector<double> done(ranks), begun(ranks), device_free(ranks);
    std::vector<int> order(ranks);
    std::int64_t scores = 0;
    for (int step = 0; step < steps; ++step) {
        for (int rank = 0; rank < ranks; ++rank) begun[rank] = std::max(done[rank], arrival(rank, step));
        // First come, first served, which matters on a shared device.
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return begun[a] < begun[b]; });
        for (const int rank : order) {
            const attention_block block = schedule.block(rank, step);
            double attend = begun[rank];
            if (block.rectangles.count > 0) {
                double& free = device_free[machine.device_of(rank)];
                attend = std::max(attend, free);
                free = done[rank] = attend + machine.device.time_of(block, schedule.sizes);
                scores += block.work() * schedule.sizes.batches;
            } else {
                done[rank] = attend;
            }
            made.all[static_cast<std::size_t>(rank) * steps + step] = {begun[rank], attend, done[rank]};
        }
        const std::size_t before = made.transfers.size();
        streams.post(schedule, step, begun, made.transfers);
        for (std::size_t i = before; i < made.transfers.size(); ++i) {
            const transfer_times& one = made.transfers[i];
            double& there = arrival(one.what.to, one.what.needed_step);
            there = std::max(there, one.end);
        }
    }
    for (int rank = 0; rank < ranks; ++rank) made.finished[rank] = std::max(done[rank], arrival(rank, steps));
    made.single_device_time = machine.device.time_of(scores, schedule.sizes, scores > 0 ? 1 : 0);
    return made;
}

}  // namespace imbrex
