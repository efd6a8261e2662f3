// When each rank does what, and what that comes to. A rank's time has three parts: it attends, it waits while transfers of its own are
// under way (they are exposed), or it is idle, since others have not come as far or all is done. Transfers beside work are hidden.
//
//     attends      ##########                         ##########
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
    double begin = 0;          // the block before is done and what the step needs is there: its transfers are posted
    double compute_begin = 0;  // the device is free for it: at once, unless it is shared
    double end = 0;            // the block is done
};

struct transfer_times {
    transfer what = {};
    double posted = 0;  // both sides have begun the step
    double begin = 0;   // and all that was posted before is done
    double end = 0;
};

struct timeline {
    int ranks = 0;
    int steps = 0;
    double single_device_time = 0;          // what one device would take for the same attention in one piece
    std::vector<step_times> all;            // rank by rank
    std::vector<transfer_times> transfers;  // in the order of their steps
    std::vector<double> finished;           // when a rank has all its results

    const step_times& at(int rank, int step) const { return all[static_cast<std::size_t>(rank) * steps + step]; }
    double time() const { return *std::max_element(finished.begin(), finished.end()); }
    // 1 if all devices work all the time, and no more than one would have to.
    double efficiency() const { return time() > 0 ? single_device_time / (ranks * time()) : 1; }
    double compute_time() const {
        double sum = 0;
        for (const step_times& step : all) sum += step.end - step.compute_begin;
        return sum;
    }
};

// Seconds of one rank.
struct time_breakdown {
    double compute = 0;
    double communication = 0;  // sends or receives, or both at once
    double exposed = 0;
    double idle = 0;

    double hidden() const { return std::max(communication - exposed, 0.0); }
};

namespace detail {

struct time_interval {
    double begin;
    double end;
};

// The times in which at least one of these is.
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

// How much of spans that are apart, in order, is in others of that kind.
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

// Of every rank. On a shared device a rank also waits for the device, which is idleness of the rank, not of the device.
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
        shares.idle = std::max(time - shares.compute - shares.exposed, 0.0);  // sums are rounded
    }
    return made;
}

}  // namespace imbrex
