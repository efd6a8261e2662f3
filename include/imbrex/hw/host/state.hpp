// The state of simulated warps, barriers and blocks: plain data that machine.hpp, barrier.hpp and the operations update
// and the checker reads.
#pragma once

#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/owned.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/clock.hpp>
#include <imbrex/hw/host/fiber.hpp>
#include <imbrex/hw/host/shadow.hpp>
#include <imbrex/hw/host/trace.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imbrex::hw {

struct block_state;

// The clocks that barriers pass on (see simulated_warp).
struct visible_clocks {
    vector_clock seen, async_seen, phases;

    void join(const visible_clocks& other) {
        seen.join(other.seen);
        async_seen.join(other.async_seen);
        phases.join(other.phases);
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

struct simulated_warp {
    owned<fiber> context;  // null if it runs on the stack of its parent
    bool ended = false;    // used in that case
    block_state* block = nullptr;
    simulated_warp* parent = nullptr;
    std::string role;
    int index = 0;
    int warps = 1;
    int actor = -1;
    int children = 0;    // still running
    int divergence = 0;  // nesting of branches that only some of its warps may have taken

    // What this scope is ordered after: for ordinary accesses, for operations that it issues to the async proxy, and
    // the phases of barriers that it knows to be complete.
    vector_clock seen, async_seen, phases;
    std::uint32_t tick = 0;             // of its own clock
    std::uint32_t synced = 0;           // its accesses up to here are known to all its warps
    std::uint32_t fenced = 0;           // its writes up to here have passed a proxy fence in the warps that made them
    std::uint32_t fenced_copies = 0;    // and its groups of cp.async
    std::uint32_t async_synced = 0;     // fenced, and known to all its warps
    visible_clocks clocks_of_children;  // of ended children

    group_queue copies, stores, mmas;
    std::vector<lent_register_tile> lent;

    // The condition that it waits for, if any.
    bool (*may_go_on)(void*) = nullptr;
    void* may_go_on_data = nullptr;
    std::string waiting_for;
    source waiting_at{};
    const void* waiting_on = nullptr;  // the state of the barrier that it waits at, if any

    double time = 0;

    bool finished() const { return context ? context->finished() : ended; }
    std::string name() const { return index < 0 ? role : role + " " + std::to_string(index); }
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

struct block_state {
    grid_dim index;
    grid_dim count;
    int number = 0;  // in the grid
    int cluster_rank = 0;
    unsigned char* memory = nullptr;
    int bytes = 0;
    std::optional<shadow_memory> shadow;
    named_barrier_state named[16];
    std::vector<stage_label> stages;
    std::vector<access> remote_arrivals;  // of other blocks of the cluster at barriers here, the latest of each actor
    shared_unit tma, tensor_cores;
    bool finished = false;
};

// An asynchronous operation that was issued. Operations of one queue complete in order.
struct operation {
    virtual ~operation() = default;
    virtual void perform() = 0;
    const void* in_order_with = nullptr;
    std::uint32_t group = 0;
};

// Thrown through a simulated warp to end it when the run is over early.
struct stopped {};

}  // namespace imbrex::hw
