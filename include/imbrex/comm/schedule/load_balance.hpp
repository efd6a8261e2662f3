// Load balance of a schedule: bytes and work of each rank in each step. Work is counted in unmasked scores over all
// heads and the batch; bytes count in the step in which their transfer is posted.
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/transfer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex {

struct step_load {
    std::int64_t sent = 0;
    std::int64_t received = 0;
    std::int64_t work = 0;
};

struct schedule_load {
    int ranks = 0;
    int steps = 0;
    std::vector<step_load> all;  // rank-major

    const step_load& at(int rank, int step) const { return all[static_cast<std::size_t>(rank) * steps + step]; }
    step_load of_rank(int rank) const {
        step_load sum{};
        for (int step = 0; step < steps; ++step) {
            sum.sent += at(rank, step).sent;
            sum.received += at(rank, step).received;
            sum.work += at(rank, step).work;
        }
        return sum;
    }
    std::int64_t total_work() const {
        std::int64_t sum = 0;
        for (const step_load& one : all) sum += one.work;
        return sum;
    }
    std::int64_t max_bytes_sent() const {
        std::int64_t most = 0;
        for (int rank = 0; rank < ranks; ++rank) most = std::max(most, of_rank(rank).sent);
        return most;
    }
    std::int64_t max_work() const {
        std::int64_t most = 0;
        for (int rank = 0; rank < ranks; ++rank) most = std::max(most, of_rank(rank).work);
        return most;
    }
    // Work on the critical path if all ranks synchronise after every step.
    std::int64_t critical_path_work() const {
        std::int64_t sum = 0;
        for (int step = 0; step < steps; ++step) {
            std::int64_t most = 0;
            for (int rank = 0; rank < ranks; ++rank) most = std::max(most, at(rank, step).work);
            sum += most;
        }
        return sum;
    }
    // Mean work divided by maximum work: 1 is perfect balance.
    double load_balance() const { return balance_for(max_work()); }
    double load_balance_per_step() const { return balance_for(critical_path_work()); }

  private:
    double balance_for(std::int64_t most) const {
        return most == 0 ? 1.0 : static_cast<double>(total_work()) / ranks / static_cast<double>(most);
    }
};

template <attention_schedule Schedule>
schedule_load load_of(const Schedule& schedule) {
    require_schedule(schedule);
    schedule_load made{schedule.ranks, schedule.steps(), {}};
    const auto bytes_of = [](const std::vector<transfer>& transfers) {
        std::int64_t sum = 0;
        for (const transfer& one : transfers) sum += one.bytes;
        return sum;
    };
    for (int rank = 0; rank < made.ranks; ++rank) {
        for (int step = 0; step < made.steps; ++step) {
            made.all.push_back({bytes_of(schedule.sends(rank, step)), bytes_of(schedule.receives(rank, step)),
                                schedule.block(rank, step).work() * schedule.sizes.batches});
        }
    }
    return made;
}

}  // namespace imbrex
