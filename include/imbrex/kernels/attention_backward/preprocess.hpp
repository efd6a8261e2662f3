// Preprocess of the backward pass, one block of threads per block of queries: delta = rowsum(dO * O) or the delta that
// is given, the LSE and delta of a block, padded, and dQ = 0. It is limited by memory and uses vectorised rows. It
// overlaps its neighbours in the stream by PDL.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_backward/query_block.hpp>
#include <imbrex/kernels/attention_backward/workspace.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/fragment_buffer.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_values.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

namespace imbrex {

// Vectorised rows of a head_dim, as many as a warp loads at a time.
template <class T, int HeadDim, int Rows>
using attention_vector_rows = vector_row_tile<T, Rows,
                                              HeadDim <= 64    ? 64
                                              : HeadDim <= 128 ? 128
                                                               : 256>;

// The rows of a tile from `first` on, as load_rows_from and store_rows_to take them.
template <class T>
struct rows_of_tile {
    global_tile<T> tile;
    int first;

    IMBREX_FN T* operator()(int row) const { return first + row < tile.rows ? tile.at(first + row, 0) : nullptr; }
};

// Known: the alignment of O and dO.
template <class In, int HeadDimV, class Workspace, row_alignment Known>
struct attention_backward_preprocess {
    static constexpr int warps = 4;
    static constexpr bool uses_pdl = true;

    struct arguments {
        attention_view<const In> out;  // not used if delta is given
        attention_view<const In> d_out;
        attention_row_view lse2;
        attention_row_view delta;  // or without a pointer
        Workspace to;              // without d_q: nothing to clear
        attention_seqlens lengths;
        int batches;
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const attention_query_block at = attention_query_block_at(args.to, args.lengths, args.batches, block.index().x);
        if (args.to.d_q != nullptr) block.each_warpgroup([&](warpgroup& self) { clear_d_q(self, args, at); });
        if constexpr (Workspace::ordered) block.each_warp([&](warp& self) { clear_turns(self, args, at.index); });
        block.each_warp([&](warp& self) {
            for (int i = 0; i < warp_rows; i += rows::rows) write_rows(self, args, at, self.index() * warp_rows + i);
        });
    }

  private:
    static constexpr int warp_rows = Workspace::block_m / warps;
    static constexpr int rows_at_once = HeadDimV <= 64 && warp_rows % 32 == 0 ? 32 : HeadDimV <= 128 ? 16 : 8;
    using rows = attention_vector_rows<In, HeadDimV, rows_at_once>;
    using products = attention_vector_rows<float, HeadDimV, rows_at_once>;
    static constexpr row_alignment aligned = row_alignment::aligned;  // of the workspace

    // The LSE and delta of the rows from `first` on.
    IMBREX_KERNEL static void write_rows(warp& self, const arguments& args, const attention_query_block& at,
                                         int first) {
        vector_row_values<products> delta, lse2;
        const auto load_values = [&](auto& values, const attention_row_view& from, float otherwise) {
            const float* const of_block = from.at(at.member, at.head, at.row);
            load_values_from(
                self, values, [&](int row) { return first + row < at.valid_rows ? of_block + first + row : nullptr; },
                otherwise);
        };
        if (args.delta.pointer != nullptr) {
            load_values(delta, args.delta, 0.0f);
        } else {
            compute_delta(self, args, at, first, delta);
        }
        load_values(lse2, args.lse2, minus_infinity);
        map(self, lse2, [](float x) { return x == minus_infinity ? -x : x; });
        store_values_to(
            self, [&](int row) { return args.to.lse2[at.index].address(first + row); }, lse2);
        store_values_to(
            self, [&](int row) { return args.to.delta[at.index].address(first + row); }, delta);
    }

    IMBREX_KERNEL static void compute_delta(warp& self, const arguments& args, const attention_query_block& at,
                                            int first, vector_row_values<products>& delta) {
        global_tile<const In> out = args.out.at(at.member, at.head, at.row, 0);
        global_tile<const In> d_out = args.d_out.at(at.member, at.head, at.row, 0);
        out.rows = d_out.rows = at.valid_rows;
        rows a, b;
        load_rows_from<Known>(self, a, rows_of_tile<const In>{out, first}, out.columns);
        load_rows_from<Known>(self, b, rows_of_tile<const In>{d_out, first}, out.columns);
        products product;
        transform(self, product, functional::multiply{}, a, b);
        fill(self, delta, 0.0f);
        fold_rows(self, delta, product, functional::add{});
        finish_rows(self, delta, functional::add{});
    }

    IMBREX_KERNEL static void clear_turns(warp& self, const arguments& args, int index) {
        if (self.index() != 0) return;
        for (int i = 0; i < Workspace::d_q_parts; ++i) put(self, args.to.turn(index, i), 0);
        if (index == 0) put(self, args.to.turns.tickets(), 0);
    }

    IMBREX_KERNEL static void clear_d_q(warpgroup& self, const arguments& args, const attention_query_block& at) {
        using part = typename Workspace::d_q_part;
        warpgroup_tile<float, part::rows, part::columns> zeros;
        fill(self, zeros, 0.0f);
        for (int i = 0; i < Workspace::d_q_parts; ++i) store(self, args.to.part_of_d_q(at.index, i), zeros);
    }
};

}  // namespace imbrex
