// Machine models for the cost model: attention throughput, launch time, link bandwidth and latency. Times are in
// seconds. Two machines:
//
//     cluster_machine     one device per rank; nodes of consecutive ranks, with faster links within a node
//     shared_device       one device shared by all ranks, as with virtual ranks on one GPU
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>

namespace imbrex {

struct device_speed {
    double attention_rate = 0;  // FLOP/s; an unmasked score takes 2 (head_dim + head_dim_v) FLOP
    double launch_time = 0;     // per kernel: each rectangle of a block is one

    double time_of(std::int64_t scores, const attention_sizes& sizes, int launches) const {
        const double flops = 2.0 * (sizes.head_dim + sizes.head_dim_v) * static_cast<double>(scores);
        return flops / attention_rate + launches * launch_time;
    }
    double time_of(const attention_block& block, const attention_sizes& sizes) const {
        return time_of(block.work() * sizes.batches, sizes, block.rectangles.count);
    }
};

// End to end from one rank to another, limited by the slowest hop. Full duplex; transfers of the same direction are
// serialised.
struct link_speed {
    double bandwidth = 0;  // bytes/s in one direction; infinity is allowed
    double latency = 0;

    double time_of(std::int64_t bytes) const { return latency + static_cast<double>(bytes) / bandwidth; }
};

struct cluster_machine {
    device_speed device = {};
    int ranks_per_node = 8;
    link_speed within_node = {};
    link_speed between_nodes = {};

    int device_of(int rank) const { return rank; }
    double transfer_time(int from, int to, std::int64_t bytes) const {
        const bool same_node = from / ranks_per_node == to / ranks_per_node;
        return (same_node ? within_node : between_nodes).time_of(bytes);
    }
};

// The blocks of all ranks are serialised. Copies are serialised too but overlap the blocks at no cost: attention uses
// little of the memory bandwidth.
struct shared_device {
    device_speed device = {};
    double memory_bandwidth = 0;  // bytes/s, read or written
    double copy_latency = 0;

    int device_of(int) const { return 0; }
    double transfer_time(int, int, std::int64_t bytes) const {
        return link_speed{memory_bandwidth / 2, copy_latency}.time_of(bytes);
    }
};

template <class Machine>
concept attention_machine = requires(const Machine& machine, int rank, std::int64_t bytes) {
    { machine.device } -> std::convertible_to<device_speed>;
    // Work of one device, and its transfers of one direction, are serialised.
    { machine.device_of(rank) } -> std::same_as<int>;
    { machine.transfer_time(rank, rank, bytes) } -> std::same_as<double>;
    require_machine(machine);
};

namespace detail {

inline void require_time(double value, const char* name) {
    require(value >= 0 && std::isfinite(value), name, ": ", value, " s; must be finite and not negative");
}
inline void require_bandwidth(double value, const char* name) {
    require(value > 0, name, ": ", value, " bytes/s; must be greater than 0");
}
inline void require_device(const device_speed& device) {
    require(device.attention_rate > 0 && std::isfinite(device.attention_rate),
            "device.attention_rate: ", device.attention_rate, " FLOP/s; must be finite and greater than 0");
    require_time(device.launch_time, "device.launch_time");
}

}  // namespace detail

inline void require_machine(const cluster_machine& machine) {
    detail::require_device(machine.device);
    require(machine.ranks_per_node >= 1, "ranks_per_node: ", machine.ranks_per_node, "; must be at least 1");
    detail::require_bandwidth(machine.within_node.bandwidth, "within_node.bandwidth");
    detail::require_time(machine.within_node.latency, "within_node.latency");
    detail::require_bandwidth(machine.between_nodes.bandwidth, "between_nodes.bandwidth");
    detail::require_time(machine.between_nodes.latency, "between_nodes.latency");
}
inline void require_machine(const shared_device& machine) {
    detail::require_device(machine.device);
    detail::require_bandwidth(machine.memory_bandwidth, "memory_bandwidth");
    detail::require_time(machine.copy_latency, "copy_latency");
}

}  // namespace imbrex
