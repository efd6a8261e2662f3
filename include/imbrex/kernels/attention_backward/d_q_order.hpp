// The order in which blocks of keys add to dQ of a query block. In a fixed order (deterministic) they take turns: each
// part of dQ has a counter that names the key block which added last, and a key block waits for the one before it that
// visits this query block.
//
//     key block 0   add  turn = 1
//     key block 1                    wait for 1   add  turn = 2
//     key block 2                                                 wait for 2   add  turn = 3
//
// A block may wait only for blocks that have started, so key blocks are numbered by tickets. A key block that follows
// closely behind the one before it hardly waits: the delay of the first ones lasts for the whole launch. Query blocks are
// visited from the last to the first: under a causal mask all key blocks begin with the same one, and later ones, which
// wait longer, have less to do.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex {

enum class attention_d_q_order {
    any,       // in the kernel of dK and dV, in an order that varies between runs
    ordered,   // in the kernel of dK and dV, in the order of key blocks
    separate,  // in a kernel of its own, in a fixed order
};

// The counters are zero before the launch: turns[0] counts tickets. None without queries.
struct attention_d_q_turns {
    int* turns;

    IMBREX_FN int* tickets() const { return turns; }
    IMBREX_FN int* of(std::int64_t part) const { return turns + 1 + part; }
};

// The number of this block among all that have started; without counters its index.
template <class Block>
IMBREX_KERNEL int take_ticket(Block& block, const attention_d_q_turns& counters, shared_vector<int, 1>& shared) {
    const int index = block.index().x;
    block.each_warp([&](warp& self) {
        if (self.index() != 0) return;
        const bool counted = counters.turns != nullptr;
        put(self, shared, 0, counted ? atomic_fetch_add<memory_order::relaxed>(self, counters.tickets(), 1) : index);
    });
    block.sync();
    return get(block, shared, 0);
}

// The key block before this one that visits the query block, or -1.
template <int BlockM, int BlockN, class Mask>
IMBREX_KERNEL int previous_key_block(const attention_extents& sequence, int key_block, int query_block,
                                     const Mask& mask) {
    for (int before = key_block - 1; before >= 0; --before) {
        const query_block_range visited =
            visible_query_blocks<BlockM>(sequence, {before * BlockN, before * BlockN + BlockN}, mask);
        if (visited.first <= query_block && query_block < visited.end) return before;
    }
    return -1;
}

// The turn of a dQ warp. It is passed on when the additions have been performed, which takes about as long as a look
// whether the next turn has come: the two overlap.
template <bool Ordered>
class attention_d_q_turn {
  public:
    IMBREX_KERNEL void take(const warp& self, int* turn, int previous, int key_block, source here = source::current()) {
        const bool has_come = atomic_load<memory_order::acquire>(self, turn, here) == previous + 1;
        pass(self, key_block, here);
        if (!has_come) {
            wait_for_value<memory_order::acquire>(
                self, turn, [previous](int last) { return last == previous + 1; }, here);
        }
        turn_ = turn;
    }
    IMBREX_KERNEL void pass(const warp& self, int key_block, source here = source::current()) {
        if (turn_ == nullptr) return;
        wait_stores(self, here);
        atomic_store<memory_order::release>(self, turn_, key_block + 1, here);
    }

  private:
    int* turn_ = nullptr;
};

template <>
class attention_d_q_turn<false> {};

}  // namespace imbrex
