// The timeline of a simulated schedule, and its breakdown. The time of a rank has three parts: it computes, it waits
// while its own transfers are in flight (exposed communication), or it is idle because other ranks are behind or it is
// done. Transfers that overlap compute are hidden.
//
//     compute      ##########                         ##########
//     transfers    --------------------               --------
//                  hidden    exposed    idle          hidden
#pragma once

#include <imbrex/comm/schedule/transfer.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace imbrex {

struct step_times {
    double begin = 0;          // the previous block is done and arrivals are there: transfers are posted
    double compute_begin = 0;  // the device is free: equal to begin unless it is shared
    double end = 0;            // the block is done
};

struct transfer_times {
    transfer what = {};
    double posted = 0;  // both sides have begun the step
    double begin = 0;   // and earlier transfers are done
    double end = 0;
};

struct timeline {
    int ranks = 0;
    int steps = 0;
    double single_device_time = 0;          // one device, one kernel, for the whole attention
    std::vector<step_times> all;            // rank-major
    std::vector<transfer_times> transfers;  // in step order
    std::vector<double> finished;           // when a rank has its results

    const step_times& at(int rank, int step) const { return all[static_cast<std::size_t>(rank) * steps + step]; }
    double time() const { return *std::max_element(finished.begin(), finished.end()); }
    // 1 if all devices compute all the time, without extra work.
    double efficiency() const { return time() > 0 ? single_device_time / (ranks * time()) : 1; }
    double compute_time() const {
        double sum = 0;
        for (const step_times& step : all) sum += step.end - step.compute_begin;
        return sum;
    }
};

// Seconds, of one rank.
struct time_breakdown {
    double compute = 0;
    double communication = 0;  // time with at least one transfer in flight
    double exposed = 0;
    double idle = 0;

    double hidden() const { return std::max(communication - exposed, 0.0); }
};

namespace detail {

struct time_interval {
    double begin;
    double end;
};

// Union of intervals, disjoint and sorted.
inline std::vector<time_interval> union_of_intervals(std::vector<time_interval> spans) {
    std::sort(spans.begin(), spans.end(),
              [](const time_interval& a, const time_interval& b) { return a.begin < b.begin; });
    std::vector<time_interval> made;
    for (const time_interval& span : spans) {
        if (!made.empty() && span.begin <= made.back().end) {
            made.back().end = std::max(made.back().end, span.end);
        } else {
            made.push_back(span);
        }
    }
    return made;
}

// Total overlap of two sets of disjoint, sorted intervals.
inline double overlap_time(const std::vector<time_interval>& some, const std::vector<time_interval>& others) {
    double sum = 0;
    std::size_t at = 0;
    for (const time_interval& span : some) {
        while (at < others.size() && others[at].end <= span.begin) ++at;
        for (std::size_t i = at; i < others.size() && others[i].begin < span.end; ++i) {
            sum += std::min(span.end, others[i].end) - std::max(span.begin, others[i].begin);
        }
    }
    return sum;
}

}  // namespace detail

// Per rank. On a shared device the wait for the device counts as idle time of the rank.
inline std::vector<time_breakdown> time_breakdown_of(const timeline& line) {
    using detail::time_interval;
    std::vector<std::vector<time_interval>> busy(line.ranks);
    for (const transfer_times& one : line.transfers) {
        busy[one.what.from].push_back({one.begin, one.end});
        busy[one.what.to].push_back({one.begin, one.end});
    }
    const double time = line.time();
    std::vector<time_breakdown> made(line.ranks);
    for (int rank = 0; rank < line.ranks; ++rank) {
        time_breakdown& shares = made[rank];
        std::vector<time_interval> waits;
        double done = 0;
        for (int step = 0; step < line.steps; ++step) {
            const step_times& times = line.at(rank, step);
            shares.compute += times.end - times.compute_begin;
            waits.push_back({done, times.begin});
            done = times.end;
        }
        waits.push_back({done, line.finished[rank]});
        const std::vector<time_interval> transfers = detail::union_of_intervals(std::move(busy[rank]));
        for (const time_interval& span : transfers) shares.communication += span.end - span.begin;
        shares.exposed = detail::overlap_time(waits, transfers);
        shares.idle = std::max(time - shares.compute - shares.exposed, 0.0);  // rounding may make it negative
    }
    return made;
}

}  // namespace imbrex
