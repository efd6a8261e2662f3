// The ranks of a loopback transport: their number, world and devices, and the mailboxes that they share. The group
// outlives its ranks. On the device it enables peer access between the GPUs of the ranks.
#pragma once

#include <imbrex/comm/loopback/message_queues.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

namespace imbrex {

struct loopback_options {
    std::chrono::milliseconds timeout{60000};  // for a rank that does not make progress (watchdog)
    std::vector<int> devices = {};             // one per rank; empty: the current device for all
    std::uint64_t seed = 0;                    // checked world: which groups arrive early, which late
};

inline namespace IMBREX_WORLDS {

class loopback_group {
  public:
    explicit loopback_group(world where, int ranks, const loopback_options& options = {})
        : where_(where), options_(options), queues_(required(ranks, options), options.timeout) {
        if (where != world::device) return;
        if (options_.devices.empty()) options_.devices.assign(ranks, current_device());
        enable_peer_access(options_.devices);
    }

    world where() const { return where_; }
    int ranks() const { return queues_.ranks(); }
    const loopback_options& options() const { return options_; }
    detail::message_queues& queues() { return queues_; }

    // Makes the device of a rank current in this thread.
    void set_device([[maybe_unused]] int rank) const {
#if defined(__CUDACC__)
        if (where_ == world::device) detail::require_success(cudaSetDevice(options_.devices[rank]), "cudaSetDevice");
#endif
    }

  private:
    static int required(int ranks, const loopback_options& options) {
        require(ranks >= 1 && ranks <= 4096, "ranks: ", ranks, "; 1 to 4096 are allowed, one thread each");
        require(options.devices.empty() || static_cast<int>(options.devices.size()) == ranks,
                "options.devices: ", options.devices.size(), " devices; must be empty or name one for each of the ",
                ranks, " ranks");
        require(options.timeout.count() > 0, "options.timeout: ", options.timeout.count(), " ms; it must be positive");
        return ranks;
    }
    static int current_device() {
#if defined(__CUDACC__)
        int device = 0;
        detail::require_success(cudaGetDevice(&device), "no current device");
        return device;
#else
        throw error(detail::host_world_only);
#endif
    }
    // Without peer access, cudaMemcpy stages copies through the host.
    static void enable_peer_access([[maybe_unused]] const std::vector<int>& devices) {
#if defined(__CUDACC__)
        const int before = current_device();
        for (const int from : devices) {
            for (const int to : devices) {
                int can = 0;
                if (from == to || cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess || can == 0) continue;
                detail::require_success(cudaSetDevice(from), "cudaSetDevice");
                cudaDeviceEnablePeerAccess(to, 0);
                cudaGetLastError();  // already enabled is not an error
            }
        }
        detail::require_success(cudaSetDevice(before), "cudaSetDevice");
#endif
    }

    world where_;
    loopback_options options_;
    detail::message_queues queues_;
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
