// How fast devices and links are, as far as attention over many ranks is concerned. Times are seconds. There are two machines:
//
//     cluster_machine     a device for each rank; ranks of a node, which follow one another, have faster links between them than nodes have
//     shared_device       one device that is all ranks in turn: what virtual ranks on one GPU have
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/core/error.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>

namespace imbrex {

struct device_speed {
    double attention_rate = 0;  // FLOP/s; a score that is seen is 2 (head_dim + head_dim_v) of them
    double launch_time = 0;     // what a kernel takes besides: each part of a block is one

    double time_of(std::int64_t scores, const attention_sizes& sizes, int launches) const {
        const double flops = 2.0 * (sizes.head_dim + sizes.head_dim_v) * static_cast<double>(scores);
        return flops / attention_rate + launches * launch_time;
    }
    double time_of(const attention_block& block, const attention_sizes& sizes) const {
        return time_of(block.work() * sizes.batches, sizes, block.rectangles.count);
    }
};

// From one rank to another, as a whole: of a way that has several parts the slowest counts. Both directions at once are no slower than
// one, and transfers of the same direction take turns.
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

// Blocks of all ranks take turns; copies take turns too, beside them, and slow nothing down: attention leaves most of the memory's
// bandwidth alone.
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
    // Whose work, and whose transfers of one direction, take turns.
    { machine.device_of(rank) } -> std::same_as<int>;
    { machine.transfer_time(rank, rank, bytes) } -> std::same_as<double>;
    require_machine(machine);
};

namespace detail {

inline void require_time(double value, const char* name) {
    require(value >= 0 && std::isfinite(value), name, ": ", value, " s; a time of 0 or more is needed");
}
inline void require_bandwidth(double value, const char* name) {
    require(value > 0, name, ": ", value, " bytes/s; it must be more than 0");
}
inline void require_device(const device_speed& device) {
    require(device.attention_rate > 0 && std::isfinite(device.attention_rate),
            "device.attention_rate: ", device.attention_rate, " FLOP/s; a number above 0 is needed");
    require_time(device.launch_time, "device.launch_time");
}

}  // namespace detail

inline void require_machine(const cluster_machine& machine) {
    detail::require_device(machine.device);
    require(machine.ranks_per_node >= 1, "ranks_per_node: ", machine.ranks_per_node, "; there is one at least");
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
