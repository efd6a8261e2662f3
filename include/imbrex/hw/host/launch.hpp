// Launches a kernel in the host world. A kernel is a type with
//
//   static constexpr int warps;                 warps per block
//   static constexpr int cluster;               blocks per thread block cluster (optional, 1)
//   struct arguments;                           the kernel's arguments, passed by value
//   struct shared_memory;                       the block's shared memory (optional)
//   template <class Block> IMBREX_KERNEL static void run(Block&, const arguments&, shared_memory&);
//
// hw/cuda/launch.hpp launches the same type on a device. `host::launch` runs it, plain or checked. `host::check` runs
// it checked under many seeds (schedules) and returns the first hazard. `host::mutate` (hw/host/mutate.hpp) tests the
// check.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/owned.hpp>
#include <imbrex/hw/host/check_options.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/options.hpp>
#include <imbrex/hw/kernel_traits.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if !IMBREX_DEVICE_WORLD
#include <imbrex/hw/host/barrier.hpp>
#include <imbrex/hw/host/check.hpp>
#include <imbrex/hw/host/deadlock.hpp>
#include <imbrex/hw/host/pdl.hpp>
#include <imbrex/hw/host/stream.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#endif

namespace imbrex::host {

#if !IMBREX_DEVICE_WORLD
namespace detail {

inline constexpr int shared_memory_limit = 227 * 1024;

// One block's shared memory, returned to the thread's pool for the following blocks.
class memory_lease {
  public:
    memory_lease() {
        auto& free = spare().blocks;
        if (free.empty()) {
            bytes_ = static_cast<unsigned char*>(::operator new (shared_memory_limit + 1024, std::align_val_t{1024}));
        } else {
            bytes_ = free.back();
            free.pop_back();
        }
    }
    memory_lease(const memory_lease&) = delete;
    memory_lease& operator=(const memory_lease&) = delete;
    ~memory_lease() { spare().blocks.push_back(bytes_); }

    unsigned char* bytes() const { return bytes_; }

  private:
    struct owner {
        std::vector<unsigned char*> blocks;
        ~owner() {
            for (unsigned char* block : blocks) ::operator delete (block, std::align_val_t{1024});
        }
    };
    static owner& spare() {
        thread_local owner blocks;
        return blocks;
    }
    unsigned char* bytes_;
};

// At the end of a cluster, every copy bound to a barrier must have been waited for, and no barrier may have only some of
// its arrivals.
inline void check_barriers_at_exit(hw::machine& m, const hw::cluster_state& cluster) {
    for (const auto& [word, state] : m.barriers) {
        if (state.block->cluster != &cluster) continue;
        bool known = state.bound == 0;
        for (const hw::simulated_warp* one : cluster.warps)
            known = known || one->knows.seen[state.actor] >= state.bound;
        if (known) continue;
        m.report(hazard_kind::in_flight_at_exit, *state.block, "no scope waited for this copy",
                 {m.location_of(state.last_copy)});
    }
    for (const auto& [word, state] : m.barriers) {
        if (state.block->cluster != &cluster) continue;
        const hw::barrier_counters counters = hw::barrier_counters::of(*word);
        if (counters.pending == counters.expected) continue;
        m.report(hazard_kind::incomplete_collective, *state.block,
                 str_cat("the kernel ends while a barrier that expects ", int{counters.expected}, " warps still lacks ",
                         int{counters.pending}),
                 {m.location_of(state.last_arrive), m.location_of(state.init)});
    }
}

// A kernel without its type: the functions below are compiled once for all kernels.
struct launched_kernel {
    std::string name;
    int warps, cluster, shared_bytes;
    bool wholly_resident, uses_pdl;
    void (*run)(hw::simulated_warp& block, const void* arguments);
};

template <class Kernel>
void run_block(hw::simulated_warp& one, const void* arguments) {
    block_scope<Kernel::warps, hw::cluster_of<Kernel>> scope{&one};
    Kernel::run(scope, *static_cast<const typename Kernel::arguments*>(arguments),
                *reinterpret_cast<hw::shared_memory_of<Kernel>*>(one.block->memory));
}

template <class Kernel>
const launched_kernel& launched() {
    constexpr int shared_bytes = sizeof(hw::shared_memory_of<Kernel>);
    static_assert(shared_bytes <= shared_memory_limit,
                  "imbrex: a kernel's shared_memory must not exceed 227 KB, the limit of a block on Hopper");
    static const launched_kernel one{
        hw::name_of_kernel<Kernel>(),   Kernel::warps,        hw::cluster_of<Kernel>, shared_bytes,
        hw::is_wholly_resident<Kernel>, hw::uses_pdl<Kernel>, &run_block<Kernel>};
    return one;
}

// Starts the clusters of a grid on a machine, in a given order.
class grid_clusters final : public hw::cluster_source {
  public:
    grid_clusters(hw::machine& m, const launched_kernel& kernel, grid_dim grid, const void* arguments,
                  std::vector<int> order, int first_number = 0)
        : m_(m),
          kernel_(kernel),
          grid_(grid),
          arguments_(arguments),
          order_(std::move(order)),
          next_number_(first_number) {}

    int left() const override { return static_cast<int>(order_.size()) - started_; }
    void start_next() override {
        hw::cluster_state& cluster = add_cluster();
        for (hw::block_state* block : cluster.blocks) {
            m_.start(*block, nullptr, "block", -1, kernel_.warps, body());
        }
    }
    // A block of one warp runs in place: switching fibers would take most of the time of a small block.
    void run_alone() { m_.run_alone(*add_cluster().blocks.front(), body()); }
    void ended(hw::cluster_state& cluster) override {
        for (hw::block_state* block : cluster.blocks) {
            std::erase_if(memory_, [&](const owned<memory_lease>& one) { return one->bytes() == block->memory; });
        }
    }

  private:
    hw::cluster_state& add_cluster() {
        hw::cluster_state& cluster = m_.add_cluster(next_number_++);
        const int number = order_[started_++];
        for (int rank = 0; rank < kernel_.cluster; ++rank) {
            hw::block_state& block = m_.add_block(cluster);
            memory_.push_back(make_owned<memory_lease>());
            block.number = number * kernel_.cluster + rank;
            block.index = {block.number % grid_.x, block.number / grid_.x % grid_.y, block.number / grid_.x / grid_.y};
            block.count = grid_;
            block.memory = memory_.back()->bytes();
            block.bytes = kernel_.shared_bytes;
            if (m_.checked) {
                block.shadow.emplace(block.bytes);
                std::memset(block.memory, 0xff, block.bytes);
            }
        }
        return cluster;
    }

    hw::warp_body body() const {
        return {this,
                [](const void* self, hw::simulated_warp& one) { static_cast<const grid_clusters*>(self)->run(one); }};
    }

    void run(hw::simulated_warp& one) const {
        kernel_.run(one, arguments_);
        one.block->finished = true;
        if (!m_.checked) return;
        hw::check_nothing_in_flight(m_, one);
        hw::check_remote_arrivals_over(m_, one);
        one.knows.join(one.clocks_of_children);
        hw::allow_dependents(one);
        if (one.block->cluster->running == 1) check_barriers_at_exit(m_, *one.block->cluster);
    }

    hw::machine& m_;
    const launched_kernel& kernel_;
    grid_dim grid_;
    const void* arguments_;
    std::vector<int> order_;  // numbers of clusters
    int started_ = 0;
    int next_number_;
    std::vector<owned<memory_lease>> memory_;
};

// Runs one cluster in plain mode; appends to the trace, if any.
inline std::optional<hazard> run_cluster(const launched_kernel& kernel, grid_dim grid, int cluster_number,
                                         const void* arguments, const host_options& options,
                                         hw::trace_writer* trace = nullptr) {
    hw::machine m(kernel.name.c_str(), options);
    grid_clusters clusters(m, kernel, grid, arguments, {cluster_number});
    if (kernel.warps == 1 && kernel.cluster == 1 && trace == nullptr) {
        clusters.run_alone();
        return m.found();
    }
    m.run(clusters, 1);
    if (trace != nullptr) trace->add(m.trace);
    return m.found();
}

// The order in which a seed starts the clusters of a grid: CUDA does not specify it. Even seeds rotate it, odd ones
// shuffle it.
inline std::vector<int> order_of_clusters(int clusters, std::uint64_t seed) {
    std::vector<int> order(clusters);
    for (int i = 0; i < clusters; ++i) {
        order[i] = static_cast<int>((seed % clusters + static_cast<std::uint64_t>(i)) % clusters);
    }
    hw::schedule_rng random(seed + 0x5eed);
    for (int i = clusters - 1; seed % 2 == 1 && i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    return order;
}

inline void require_grid(grid_dim grid, int cluster) {
    require(grid.x > 0 && grid.y > 0 && grid.z > 0, "grid: (", grid.x, ", ", grid.y, ", ", grid.z,
            ") has no blocks; each extent must be positive");
    require(grid.y <= 65535 && grid.z <= 65535, "grid: (", grid.x, ", ", grid.y, ", ", grid.z,
            "); the second and third extent must be at most 65535");
    require(std::int64_t{grid.x} * grid.y <= std::numeric_limits<int>::max() / grid.z, "grid: (", grid.x, ", ", grid.y,
            ", ", grid.z, ") has more than 2147483647 blocks");
    require(grid.x % cluster == 0, "grid: ", grid.x, " blocks along x do not fill clusters of ", cluster);
}

// Runs all clusters on one machine: in checked mode, and cooperative grids in plain mode. A launch inside check_launches
// is part of its stream and has its options.
inline std::optional<hazard> run_together(const launched_kernel& kernel, grid_dim grid, int clusters,
                                          const void* arguments, const host_options& options) {
    owned<hw::checked_stream> alone;
    hw::checked_stream* stream = hw::checked_stream::current();
    if (stream == nullptr) {
        alone = make_owned<hw::checked_stream>(options);
        stream = alone.get();
    }
    hw::machine& m = stream->add(kernel.name.c_str(), kernel.uses_pdl);
    const std::uint64_t seed = stream->options.seed;
    grid_clusters source(m, kernel, grid, arguments, order_of_clusters(clusters, m.checked ? seed : 0),
                         stream->reserve_clusters(clusters));
    // Without a cooperative launch, one to three clusters are resident at a time.
    const int resident = kernel.wholly_resident ? clusters : 1 + static_cast<int>(seed / 4 % 3);
    m.run(source, resident);
    if (!stream->options.trace_file.empty()) m.trace.write(stream->options.trace_file);
    return m.found();
}

// Checks the grid; returns its number of clusters.
inline int clusters_of(const launched_kernel& kernel, grid_dim grid) {
    require_grid(grid, kernel.cluster);
    return grid.x * grid.y * grid.z / kernel.cluster;
}

inline std::optional<hazard> run_grid(const launched_kernel& kernel, grid_dim grid, const void* arguments,
                                      const host_options& options) {
    const int clusters = clusters_of(kernel, grid);
    if (options.mode == host_mode::checked || (kernel.wholly_resident && options.trace_file.empty())) {
        return run_together(kernel, grid, clusters, arguments, options);
    }
    if (options.trace_file.empty()) {
        hw::thread_pool::shared().for_each(clusters, options.threads, [&](int number) {
            if (auto found = run_cluster(kernel, grid, number, arguments, options)) throw hazard_error(*found);
        });
        return std::nullopt;
    }
    // With a trace, clusters run one after the other.
    hw::trace_writer trace;
    for (int number = 0; number < clusters; ++number) {
        if (auto found = run_cluster(kernel, grid, number, arguments, options, &trace)) return found;
    }
    trace.write(options.trace_file);
    return std::nullopt;
}

// Runs the grid in checked mode.
template <class Kernel>
std::optional<hazard> run_checked(grid_dim grid, const typename Kernel::arguments& arguments,
                                  const host_options& options) {
    const launched_kernel& kernel = launched<Kernel>();
    return run_together(kernel, grid, clusters_of(kernel, grid), &arguments, options);
}

}  // namespace detail
#endif

// Runs the kernel; throws hazard_error on a hazard (in plain mode, only if the kernel cannot proceed).
template <class Kernel>
void launch([[maybe_unused]] grid_dim grid, [[maybe_unused]] const typename Kernel::arguments& arguments,
            [[maybe_unused]] const host_options& options = {}) {
#if !IMBREX_DEVICE_WORLD
    const detail::launched_kernel& kernel = detail::launched<Kernel>();
    if (auto found = detail::run_grid(kernel, grid, &arguments, options)) throw hazard_error(*found);
#endif
}

// The default preparation: none.
struct no_preparation {
    void operator()() const {}
};

// Runs the kernel checked under the seeds first_seed, first_seed + 1, ...; returns the first hazard, or none. `prepare`
// is called before each run, for kernels that change their input, such as a counter that must start at zero.
template <class Kernel, class Prepare = no_preparation>
std::optional<hazard> check([[maybe_unused]] grid_dim grid,
                            [[maybe_unused]] const typename Kernel::arguments& arguments,
                            [[maybe_unused]] const check_options& options,
                            [[maybe_unused]] const Prepare& prepare = {}) {
#if !IMBREX_DEVICE_WORLD
    const auto run = [&](const host_options& one) {
        prepare();
        return detail::run_checked<Kernel>(grid, arguments, one);
    };
    return hw::check_schedules(hw::checked_run(run), options);
#else
    return std::nullopt;
#endif
}
template <class Kernel, class Prepare = no_preparation>
std::optional<hazard> check(grid_dim grid, const typename Kernel::arguments& arguments, int schedules = 1000,
                            std::uint64_t first_seed = 0, const Prepare& prepare = {}) {
    return check<Kernel>(grid, arguments, check_options{.schedules = schedules, .first_seed = first_seed}, prepare);
}

// Runs `work`, which launches kernels in the checked host world, under the seeds of `options`: its launches are one
// stream, in which kernels with PDL overlap. Returns the first hazard, or none.
template <class Work>
std::optional<hazard> check_launches([[maybe_unused]] const Work& work,
                                     [[maybe_unused]] const check_options& options = {}) {
#if !IMBREX_DEVICE_WORLD
    const auto run = [&](const host_options& one) -> std::optional<hazard> {
        hw::launches_in_one_stream stream(one);
        try {
            work();
        } catch (const hazard_error& caught) {
            return caught.reported_hazard();
        }
        return std::nullopt;
    };
    return hw::check_schedules(hw::checked_run(run), options);
#else
    return std::nullopt;
#endif
}

}  // namespace imbrex::host
