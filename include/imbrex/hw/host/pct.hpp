// Probabilistic concurrency testing (PCT): Burckhardt, Kothari, Musuvathi and Nagarakatti, "A randomized scheduler with
// probabilistic guarantees of finding bugs" (ASPLOS 2010). Every thread gets a random priority, and the runnable thread
// of the highest priority runs. At d - 1 random steps of k, the thread that would run falls to a low priority. A bug
// of depth d, one that shows whenever d pairs of steps happen in a certain order, then shows in a schedule with
// probability at least 1 / (n k^(d-1)), where n is the number of threads. Here a thread is a scope, a queue of
// asynchronous operations that complete in order, or an operation without a queue; a step is a scope up to its next
// synchronisation, or the completion of an operation.
//
// A scope that spins would keep all scopes below it from running. It counts as blocked and falls below all others.
#pragma once

#include <imbrex/hw/host/random.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex {

// The least probability that one schedule shows a bug of this depth.
constexpr double pct_bound(int threads, int steps, int bug_depth) {
    double bound = 1.0 / (threads < 1 ? 1 : threads);
    for (int i = 1; i < bug_depth; ++i) bound /= steps < 1 ? 1 : steps;
    return bound;
}
// The least probability that one of several schedules shows it.
inline double pct_probability(int threads, int steps, int bug_depth, int schedules) {
    return -std::expm1(schedules * std::log1p(-pct_bound(threads, steps, bug_depth)));
}

namespace hw {

class pct_priorities {
  public:
    // Without an estimate of the steps (0) there are no change points.
    pct_priorities(std::uint64_t seed, int bug_depth, int steps) : random_(seed + 0x9c7) {
        for (int i = 1; i < bug_depth && steps > 0; ++i) change_points_.push_back(1 + random_.below(steps));
    }

    int threads() const { return static_cast<int>(priority_.size()); }
    // The number of a new thread.
    int add() {
        priority_.push_back(lowest_initial + static_cast<std::int64_t>(random_.next() >> 2));
        return threads() - 1;
    }
    bool is_higher(int thread, int other) const { return priority_[thread] > priority_[other]; }

    // The thread would run at this step: whether it falls instead, so that another may run.
    bool falls_at(int step, int thread) {
        for (std::size_t i = 0; i < change_points_.size(); ++i) {
            if (change_points_[i] != step) continue;
            change_points_[i] = 0;
            priority_[thread] = static_cast<std::int64_t>(i) + 1;
            return true;
        }
        return false;
    }
    void put_below_all(int thread) { priority_[thread] = lowest_--; }

  private:
    static constexpr std::int64_t lowest_initial = std::int64_t{1} << 32;

    schedule_rng random_;
    std::vector<int> change_points_;  // 0: passed
    std::vector<std::int64_t> priority_;
    std::int64_t lowest_ = 0;
};

}  // namespace hw
}  // namespace imbrex
