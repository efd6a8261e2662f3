// The kernels of one stream in checked mode. They run one after the other, but the checker orders two of them only as
// far as the hardware does: a kernel launched with PDL may start while its predecessor runs, and is ordered after it by
// pdl_wait alone. The history of global memory spans the stream.
#pragma once

#include <imbrex/core/owned.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/machine.hpp>
#include <imbrex/hw/host/timeline.hpp>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace imbrex::hw {

class checked_stream {
  public:
    explicit checked_stream(host_options given) : options(with_seed_of_replay(std::move(given))) {
        for (const memory_range& range : options.uninitialised) memory.mark_uninitialised(range);
        for (const memory_range& range : options.exempt) memory.exempt(range);
    }

    const host_options options;  // of all kernels
    global_memory memory;

    // Prepares the machine of the next kernel.
    machine& add(const char* name, bool uses_pdl) {
        machines_.push_back(make_owned<machine>(name, options, options.track_global_memory ? &memory : nullptr));
        machine& made = *machines_.back();
        if (options.records_timeline()) made.events = &events_;
        made.kernel.number = static_cast<int>(machines_.size()) - 1;
        made.kernel.overlaps = uses_pdl && made.kernel.number > 0;
        if (made.kernel.number > 0) order_after(made.kernel, *machines_[machines_.size() - 2]);
        return made;
    }
    // The numbers of a kernel's clusters: the first of `count`.
    int reserve_clusters(int count) { return std::exchange(clusters_, clusters_ + count); }

    // The stream that checked launches of this thread belong to; null: each is alone.
    static checked_stream*& current() {
        static thread_local checked_stream* one = nullptr;
        return one;
    }

  private:
    static host_options with_seed_of_replay(host_options given) {
        if (!given.replay.empty()) given.seed = replayed_schedule::parse(given.replay).seed;
        return given;
    }

    static void order_after(kernel_state& kernel, const machine& previous) {
        kernel.complete_after_wait = previous.kernel.known_at_end;
        kernel.complete_after_wait.kernel_is_complete(previous.kernel.number);
        if (!kernel.overlaps) {
            kernel.known_at_start = kernel.complete_after_wait;
        } else {
            kernel.known_at_start = kernel.known_before_launch = previous.kernel.known_at_start;
            kernel.started_by = previous.kernel.launches;
            add_known_by_all(kernel.known_at_start, previous);
            for (const auto& cluster : previous.clusters()) {
                kernel.started_after.of(cluster->number).seen = cluster->at_launch.seen;
            }
        }
        kernel.known_at_end = kernel.known_at_start;
    }

    // Kernels that every block of the previous kernel knew to be complete when it allowed the next kernel to start.
    static void add_known_by_all(grid_clock& known, const machine& previous) {
        for (int number = 0; number < previous.kernel.number; ++number) {
            bool by_all = true;
            for (const auto& cluster : previous.clusters()) {
                by_all = by_all && cluster->at_launch.grid.knows_complete(number);
            }
            if (by_all) known.kernel_is_complete(number);
        }
    }

    std::vector<owned<machine>> machines_;  // kept: the history names their scopes
    timeline events_;
    int clusters_ = 0;
};

// While it lives, the checked launches of this thread form one stream.
class launches_in_one_stream {
  public:
    explicit launches_in_one_stream(const host_options& options)
        : stream_(options), outer_(std::exchange(checked_stream::current(), &stream_)) {}
    launches_in_one_stream(const launches_in_one_stream&) = delete;
    launches_in_one_stream& operator=(const launches_in_one_stream&) = delete;
    ~launches_in_one_stream() { checked_stream::current() = outer_; }

  private:
    checked_stream stream_;
    checked_stream* outer_;
};

}  // namespace imbrex::hw
