// All-reduce of a small buffer over a thread block cluster through distributed shared memory (DSMEM). Each block has a
// zero-filled exchange buffer and writes to slots of its own. Summing the buffers of all blocks then gathers every
// slot. A block needs no knowledge of how much the others wrote, and one pass over their shared memory fetches
// everything.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/kernels/sample/threshold.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

// XOR code of a score in the exchange buffer, its own inverse: -infinity (no score) is 0.
IMBREX_FN float encoded_score(float score) {
    const std::int32_t none = __builtin_bit_cast(std::int32_t, minus_infinity);
    return __builtin_bit_cast(float, __builtin_bit_cast(std::int32_t, score) ^ none);
}

struct exchange_slots {
    static constexpr int count = 256;
    shared_vector<float, count> scores;
    shared_vector<int, count> tokens;
    shared_vector<int, count> words;
};
// The same bytes as tiles for the reduction.
struct exchange_tiles {
    static constexpr int count = 6;
    shared_tile<std::int32_t, 16, 8> tiles[count];
};
using exchange_buffer = overlay<exchange_slots, exchange_tiles>;
static_assert(sizeof(exchange_slots) == sizeof(exchange_tiles), "imbrex: the exchange buffer is reduced as a whole");

// Gathers elements of a shared vector, one per lane.
template <int Count, class Vector, class Function>
IMBREX_KERNEL auto warp_gather_from(const warp& self, const Vector& vector, Function function,
                                    source here = source::current()) {
    hw::visit_vector(
        self, hw::use::read, here, [](int, const auto&) {}, vector);
    return warp_gather<Count>(self, function, here);
}

// Two reductions per launch: the first to all blocks, the second to block 0 only.
template <int Warps, int ClusterSize>
struct cluster_exchange {
    static_assert(Warps >= exchange_tiles::count, "imbrex: each tile of the exchange buffer has a warp to reduce it");
    exchange_buffer own[2], all;
    transaction_barrier arrived[2];

    template <class Block>
    IMBREX_KERNEL void init(const Block& block) {
        for (int i = 0; i < 2; ++i) {
            arrived[i].init(block, ClusterSize);
            exchange_slots& slots = own[i].template as<exchange_slots>();
            const auto zero = [](int) { return 0; };
            fill_indexed(block, slots.scores, zero);
            fill_indexed(block, slots.tokens, zero);
            fill_indexed(block, slots.words, zero);
        }
    }

    IMBREX_KERNEL exchange_slots& first() { return own[0].template as<exchange_slots>(); }
    IMBREX_KERNEL exchange_slots& second() { return own[1].template as<exchange_slots>(); }
    IMBREX_KERNEL const exchange_slots& sum() { return all.template as<exchange_slots>(); }

    IMBREX_KERNEL void all_reduce(const warp& self, source here = source::current()) {
        sample_block_barrier<Warps>::sync(self, here);
        if (self.index() == 0) {
            fence_cluster(self, here);
            for (int rank = 0; rank < ClusterSize; ++rank) arrived[0].arrive_at(self, rank, here);
        }
        reduce(self, 0, here);
    }
    // Only block 0 may read the sum.
    IMBREX_KERNEL void reduce_to_first(const warp& self, int rank, source here = source::current()) {
        sample_block_barrier<Warps>::sync(self, here);
        if (self.index() == 0) {
            fence_cluster(self, here);
            arrived[1].arrive_at(self, 0, here);
        }
        if (rank == 0) reduce(self, 1, here);
    }

  private:
    IMBREX_KERNEL void reduce(const warp& self, int which, source here) {
        if (self.index() < exchange_tiles::count) {
            arrived[which].wait(self, 0, here);
            fence_cluster(self, here);
            const auto& from = own[which].template as<exchange_tiles>().tiles[self.index()];
            // Issue all loads before the first use.
            warp_tile<std::int32_t, 16, 8> parts[ClusterSize];
            for (int rank = 0; rank < ClusterSize; ++rank) dsmem_load(self, parts[rank], from, rank, here);
            for (int rank = 1; rank < ClusterSize; ++rank)
                combine(self, parts[0], parts[rank], functional::add{}, here);
            store(self, all.template as<exchange_tiles>().tiles[self.index()], parts[0], here);
        }
        sample_block_barrier<Warps>::sync(self, here);
    }
};

// The scores of an exchange buffer as a row tile.
using exchange_row = vector_row_tile<float, 1, exchange_slots::count>;
IMBREX_KERNEL void load_scores(const warp& self, exchange_row& row, const exchange_slots& slots,
                               source here = source::current()) {
    hw::visit_vector(
        self, hw::use::read, here, [](int, const float&) {}, slots.scores);
    load_rows_from<row_alignment::aligned>(
        self, row, [&](int) { return slots.scores.address(0); }, exchange_slots::count, here);
    map_columns(
        self, row, [](int, float one) { return encoded_score(one); }, row, here);
}

}  // namespace imbrex::detail
