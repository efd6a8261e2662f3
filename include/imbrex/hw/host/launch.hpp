// Launches a kernel in the host world. A kernel is a type with
//
//   static constexpr int warps;                 warps per block
//   static constexpr int cluster;               blocks per thread block cluster (optional, 1)
//   struct arguments;                           the kernel's arguments, passed by value
//   struct shared_memory;                       the block's shared memory (optional)
//   template <class Block> IMBREX_KERNEL static void run(Block&, const arguments&, shared_memory&);
//
// hw/cuda/launch.hpp launches the same type on a device. `host::launch` runs it, plain or checked. `host::check` runs
// it checked under many seeds (schedules) and returns the first hazard. `host::mutate` mutates each of its
// synchronisations in turn and counts the mutations that the checker detects.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/owned.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/options.hpp>
#include <imbrex/hw/kernel_traits.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <vector>

#if !IMBREX_DEVICE_WORLD
#include <imbrex/hw/host/barrier.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#endif

namespace imbrex::host {

// The checker's finding for one mutation.
struct mutation_result {
    mutation made;
    std::optional<hazard> found;
};
struct mutation_score {
    std::vector<mutation_result> results;
    int killed() const {
        int count = 0;
        for (const mutation_result& one : results) count += one.found.has_value() ? 1 : 0;
        return count;
    }
    int total() const { return static_cast<int>(results.size()); }
    std::string text() const {
        std::string out = str_cat(killed(), " / ", total(), " mutations detected\n");
        for (const mutation_result& one : results) {
            out += str_cat("  ", one.found ? name_of(one.found->kind) : "SURVIVED", ": ", one.made.text(), "\n");
        }
        return out;
    }
};

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

// At the end of a kernel, every copy bound to a barrier must have been waited for, and no barrier may have only some of
// its arrivals.
inline void check_barriers_at_exit(hw::machine& m) {
    for (const auto& [word, state] : m.barriers) {
        bool known = state.bound == 0;
        for (const auto& one : m.simulated_warps()) known = known || one->seen[state.actor] >= state.bound;
        if (known) continue;
        m.report(hazard_kind::in_flight_at_exit, *state.block, "no scope waited for this copy",
                 {m.location_of(state.last_copy)});
    }
    for (const auto& [word, state] : m.barriers) {
        const hw::barrier_counters counters = hw::barrier_counters::of(*word);
        if (counters.pending == counters.expected) continue;
        m.report(hazard_kind::incomplete_collective, *state.block,
                 str_cat("the kernel ends while a barrier that expects ", int{counters.expected}, " warps still lacks ",
                         int{counters.pending}),
                 {m.location_of(state.last_arrive), m.location_of(state.init)});
    }
}

// Runs one cluster; returns its hazard, if any, and appends to the trace, if any.
template <class Kernel>
std::optional<hazard> run_cluster(grid_dim grid, int cluster_number, const typename Kernel::arguments& arguments,
                                  const host_options& options, hw::trace_writer* trace = nullptr) {
    constexpr int cluster = hw::cluster_of<Kernel>;
    using shared_memory = hw::shared_memory_of<Kernel>;
    static const std::string name = hw::name_of_kernel<Kernel>();
    hw::machine m(name.c_str(), options);
    const memory_lease memory[cluster];
    int blocks_left = cluster;
    for (int rank = 0; rank < cluster; ++rank) {
        auto block = make_owned<hw::block_state>();
        block->number = cluster_number * cluster + rank;
        block->index = {block->number % grid.x, block->number / grid.x % grid.y, block->number / grid.x / grid.y};
        block->count = grid;
        block->cluster_rank = rank;
        block->memory = memory[rank].bytes();
        block->bytes = static_cast<int>(sizeof(shared_memory));
        if (m.checked) {
            block->shadow.emplace(block->bytes);
            std::memset(block->memory, 0xff, block->bytes);
        }
        m.blocks.push_back(std::move(block));
    }
    const auto work = [&](hw::simulated_warp& one) {
        block_scope<Kernel::warps, cluster> scope{&one};
        Kernel::run(scope, arguments, *reinterpret_cast<shared_memory*>(one.block->memory));
        one.block->finished = true;
        if (!m.checked) return;
        hw::check_nothing_in_flight(m, one);
        hw::check_remote_arrivals_over(m, one);
        if (--blocks_left == 0) check_barriers_at_exit(m);
    };
    // A block of one warp runs in place: switching fibers would take most of the time of a small block.
    if (Kernel::warps == 1 && cluster == 1 && !m.checked && trace == nullptr) {
        m.run_alone(*m.blocks.front(), work);
        return m.found();
    }
    for (auto& block : m.blocks) m.start(*block, nullptr, "block", -1, Kernel::warps, work);
    m.run();
    if (trace != nullptr) trace->add(m.trace);
    return m.found();
}

template <class Kernel>
std::optional<hazard> run_grid(grid_dim grid, const typename Kernel::arguments& arguments,
                               const host_options& options) {
    constexpr int cluster = hw::cluster_of<Kernel>;
    require(grid.x > 0 && grid.y > 0 && grid.z > 0, "grid: (", grid.x, ", ", grid.y, ", ", grid.z,
            ") has no blocks; each extent must be positive");
    require(grid.y <= 65535 && grid.z <= 65535, "grid: (", grid.x, ", ", grid.y, ", ", grid.z,
            "); the second and third extent must be at most 65535");
    require(std::int64_t{grid.x} * grid.y <= std::numeric_limits<int>::max() / grid.z, "grid: (", grid.x, ", ", grid.y,
            ", ", grid.z, ") has more than 2147483647 blocks");
    require(grid.x % cluster == 0, "grid: ", grid.x, " blocks along x do not fill clusters of ", cluster);
    static_assert(sizeof(hw::shared_memory_of<Kernel>) <= shared_memory_limit,
                  "imbrex: a kernel's shared_memory must not exceed 227 KB, the limit of a block on Hopper");
    const int clusters = grid.x * grid.y * grid.z / cluster;
    if (options.mode == host_mode::plain && options.trace_file.empty()) {
        hw::thread_pool::shared().for_each(clusters, options.threads, [&](int number) {
            if (auto found = run_cluster<Kernel>(grid, number, arguments, options)) throw hazard_error(*found);
        });
        return std::nullopt;
    }
    // Checked, or with a trace, clusters run one after the other; in checked mode the seed selects the order.
    hw::trace_writer trace;
    const bool traced = !options.trace_file.empty();
    const int first = options.mode == host_mode::checked ? static_cast<int>(options.seed % clusters) : 0;
    for (int i = 0; i < clusters; ++i) {
        const int number = static_cast<int>((std::int64_t{first} + i) % clusters);
        if (auto found = run_cluster<Kernel>(grid, number, arguments, options, traced ? &trace : nullptr)) return found;
    }
    if (traced) trace.write(options.trace_file);
    return std::nullopt;
}

}  // namespace detail
#endif

// Runs the kernel; throws hazard_error on a hazard (in plain mode, only if the kernel cannot proceed).
template <class Kernel>
void launch([[maybe_unused]] grid_dim grid, [[maybe_unused]] const typename Kernel::arguments& arguments,
            [[maybe_unused]] const host_options& options = {}) {
#if !IMBREX_DEVICE_WORLD
    if (auto found = detail::run_grid<Kernel>(grid, arguments, options)) throw hazard_error(*found);
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
                            [[maybe_unused]] int schedules = 1000, [[maybe_unused]] std::uint64_t first_seed = 0,
                            [[maybe_unused]] const Prepare& prepare = {}) {
#if !IMBREX_DEVICE_WORLD
    for (int i = 0; i < schedules; ++i) {
        host_options options;
        options.mode = host_mode::checked;
        options.seed = first_seed + i;
        prepare();
        if (auto found = detail::run_grid<Kernel>(grid, arguments, options)) return found;
    }
#endif
    return std::nullopt;
}

// Mutates each synchronisation of the kernel in turn, and runs each mutation checked until the checker detects it,
// under at most `schedules` seeds.
template <class Kernel, class Prepare = no_preparation>
mutation_score mutate([[maybe_unused]] grid_dim grid, [[maybe_unused]] const typename Kernel::arguments& arguments,
                      [[maybe_unused]] int schedules = 20, [[maybe_unused]] const Prepare& prepare = {}) {
    mutation_score score;
#if !IMBREX_DEVICE_WORLD
    std::vector<synchronisation_site> sites;
    host_options options;
    options.mode = host_mode::checked;
    options.sites = &sites;
    prepare();
    if (auto found = detail::run_grid<Kernel>(grid, arguments, options)) throw hazard_error(*found);
    options.sites = nullptr;
    for (const synchronisation_site& site : sites) {
        for (const mutation_operator how : mutation_operators_of(site.kind)) {
            mutation_result result{{site, how}, std::nullopt};
            options.mutate = result.made;
            for (int seed = 0; seed < schedules && !result.found; ++seed) {
                options.seed = seed;
                prepare();
                result.found = detail::run_grid<Kernel>(grid, arguments, options);
            }
            score.results.push_back(std::move(result));
        }
    }
#endif
    return score;
}

}  // namespace imbrex::host
