// The state of simulated warps, barriers and blocks: plain data that machine.hpp, barrier.hpp and the operations update
// and the checker reads.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/owned.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/clock.hpp>
#include <imbrex/hw/host/fiber.hpp>
#include <imbrex/hw/host/mutation.hpp>
#include <imbrex/hw/host/shadow.hpp>
#include <imbrex/hw/host/trace.hpp>

#include <array>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace imbrex::hw {

struct block_state;

// What a scope is ordered after, and what barriers pass on.
struct visible_clocks {
    vector_clock seen;          // for ordinary accesses
    vector_clock async_seen;    // for operations of the async proxy on shared memory
    vector_clock phases;        // phases of barriers that are known to be complete
    vector_clock cluster_seen;  // what fence_cluster has ordered for other blocks of the cluster
    vector_clock cluster_view;  // writes of other blocks that a later fence_cluster has made visible
    // The same for operations of the async proxy on global memory: ordered by a proxy fence for global memory.
    vector_clock global_async_seen;
    grid_clock grid;     // other clusters and kernels
    grid_clock claimed;  // what it would know if every atomic operation were acq_rel at device scope: for reports
    // Scopes that have arrived at this barrier. It is what a barrier knows, not a scope: `join` leaves it out.
    std::vector<int> arrived;

    void join(const visible_clocks& other) {
        seen.join(other.seen);
        async_seen.join(other.async_seen);
        phases.join(other.phases);
        if (!other.cluster_seen.empty()) cluster_seen.join(other.cluster_seen);
        if (!other.cluster_view.empty()) cluster_view.join(other.cluster_view);
        if (!other.global_async_seen.empty()) global_async_seen.join(other.global_async_seen);
        if (!other.grid.empty()) grid.join(other.grid);
        if (!other.claimed.empty()) claimed.join(other.claimed);
    }
};

// Asynchronous operations of one simulated warp that complete in groups: committed together, waited for oldest first.
struct group_queue {
    int actor = -1;
    std::uint32_t committed = 0;
    std::uint32_t waited = 0;
    std::uint32_t synced = 0;    // waited for, and known to all warps of the scope
    std::uint32_t occupied = 0;  // the latest group with an operation
    int open = 0;                // operations since the last commit
    double done_at = 0;          // in trace time
    source last_issue{};

    std::uint32_t open_tick() const { return committed + 1; }
};

// A register tile that an asynchronous mma of this group uses: the count to decrement when it completes.
struct lent_register_tile {
    std::uint32_t tick;
    int* uses;
};

// A wait for stores that completed the groups up to a tick.
struct completed_wait {
    std::uint32_t tick;
    source where;
};

struct simulated_warp;

// What a simulated warp runs: a function of an object that outlives it. It hides the types of kernels and roles, so that
// the code that starts simulated warps is compiled once and not for each kernel.
struct warp_body {
    const void* object;
    void (*function)(const void* object, simulated_warp& one);
    void operator()(simulated_warp& one) const { function(object, one); }
};

struct simulated_warp {
    owned<fiber> context;  // null if it runs on the stack of its parent
    bool ended = false;    // used in that case
    int number = 0;        // in the machine, in the order of creation
    block_state* block = nullptr;
    simulated_warp* parent = nullptr;
    std::string role;
    int index = 0;
    int warps = 1;
    int actor = -1;
    int children = 0;    // still running
    int divergence = 0;  // nesting of branches that only some of its warps may have taken

    visible_clocks knows;             // what this scope is ordered after
    std::uint32_t tick = 0;           // of its own clock
    std::uint32_t synced = 0;         // its accesses up to here are known to all its warps
    std::uint32_t fenced = 0;         // its writes up to here have passed a proxy fence in the warps that made them
    std::uint32_t fenced_copies = 0;  // and its groups of cp.async
    std::uint32_t async_synced = 0;   // fenced, and known to all its warps
    std::uint32_t global_fenced = 0;  // its writes to global memory up to here have passed a proxy fence
    std::uint32_t global_async_synced = 0;
    visible_clocks clocks_of_children;  // of ended children

    group_queue copies, stores, mmas;
    group_queue written;  // the groups of `stores`, waited for until they have also written global memory
    std::vector<completed_wait> written_waits;  // while sites are listed
    std::array<const group_queue*, 4> queues() const { return {&copies, &stores, &mmas, &written}; }
    std::vector<lent_register_tile> lent;

    // The condition that it waits for, if any.
    bool (*may_go_on)(void*) = nullptr;
    void* may_go_on_data = nullptr;
    std::string waiting_for;
    source waiting_at{};
    const void* waiting_on = nullptr;     // the state of the barrier that it waits at, if any
    bool waiting_for_memory = false;      // for a value in global memory, which another block may write
    const char* last_operation = "none";  // for reports of scopes that do not end
    source last_where{};

    source released_at{};  // of the last stage that it used after its release
    double time = 0;

    bool finished() const { return context ? context->finished() : ended; }
    std::string name() const;  // with its block, in a cluster of several
};

struct named_barrier_state {
    int actor = -1;
    int expected = 0;
    int arrived = 0;
    std::uint32_t generation = 0;
    visible_clocks gathering, completed;
    const simulated_warp* last = nullptr;
    source last_where{};
    double ready_at = 0;
};

struct barrier_state {
    int actor = -1;
    block_state* block = nullptr;
    std::uint32_t generation = 0;  // phases completed
    std::uint32_t bound = 0;       // the latest phase a copy was bound to, counted from 1
    bool init_fenced = false;
    visible_clocks gathering, completed;
    access init, last_arrive, last_copy;
    double gathering_ready = 0, ready_at = 0;
};

struct stage_label {
    const unsigned char* begin;
    const unsigned char* end;
    int stage;
};

// A kernel of a stream.
struct kernel_state {
    int number = 0;                  // in the stream
    bool overlaps = false;           // starts before its predecessor has ended: launched with PDL
    grid_clock started_after;        // what the blocks of the predecessor had done when they allowed it to start
    grid_clock known_at_start;       // by all of its scopes
    grid_clock complete_after_wait;  // known after pdl_wait
    grid_clock known_at_end;         // by scopes of this kernel
    grid_clock
        known_before_launch;  // by the predecessor at its start: known here wherever it allowed this kernel to start
    // While sites are listed: where it allows the next kernel to start, and where the predecessor allowed this one.
    std::vector<synchronisation_site> launches, started_by;
};

// A thread block cluster, often of one block.
struct cluster_state {
    int number = 0;  // in the stream: kernels of one stream number their clusters consecutively
    kernel_state* kernel = nullptr;
    int actors = 0;
    int running = 0;            // blocks that have not ended
    bool started_late = false;  // started only because the resident clusters could not proceed
    std::vector<block_state*> blocks;
    std::vector<const simulated_warp*> warps;  // all that it has had
    named_barrier_state barrier;
    visible_clocks at_launch;  // what its blocks knew when they allowed the next kernel to start (PDL)

    int new_actor() { return actors++; }
};

struct block_state {
    grid_dim index;
    grid_dim count;
    int number = 0;  // in the grid
    int cluster_rank = 0;
    cluster_state* cluster = nullptr;
    unsigned char* memory = nullptr;
    int bytes = 0;
    std::optional<shadow_memory> shadow;
    named_barrier_state named[16];
    std::vector<stage_label> stages;
    std::vector<access>
        remote_uses;  // arrivals and loads of other blocks of the cluster here, the latest of each actor
    shared_unit tma, tensor_cores;
    bool finished = false;
    bool dependents_launched = false;  // by pdl_launch_dependents, or at its end
};

inline std::string simulated_warp::name() const {
    const std::string own = index < 0 ? role : role + " " + std::to_string(index);
    if (block->cluster->blocks.size() == 1) return own;
    const std::string of = str_cat("block ", block->cluster_rank, " of the cluster");
    return parent == nullptr ? of : of + ", " + own;
}

// The memory behind handles of released pipeline stages.
struct released_memory {
    static constexpr int bytes = 228 * 1024;
    static unsigned char* first() {
        static unsigned char* const memory =
            static_cast<unsigned char*>(::operator new (bytes, std::align_val_t{1024}));
        return memory;
    }
    static bool holds(const void* address) {
        const auto* const at = static_cast<const unsigned char*>(address);
        return at >= first() && at < first() + bytes;
    }
};

// Thrown through a simulated warp to end it when the run is over early.
struct stopped {};

}  // namespace imbrex::hw
