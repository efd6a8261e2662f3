// Preprocess and postprocess of the backward pass, one block of threads per block of queries.
//
//   preprocess     delta = rowsum(dO * O); the LSE and delta of a block, padded; dQ = 0
//   postprocess    dQ in the type of the inputs, multiplied by the scale
//
// Both are limited by memory and use vectorised rows: O, dO and dQ must be aligned to 16 bytes. They overlap their
// neighbours in the stream by PDL.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_backward/workspace.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_values.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

namespace imbrex {

// A block of queries: its place in the workspace, and its rows in the tensors.
struct attention_query_block {
    int index;
    int member, head, row;
    int valid_rows;  // not positive if the block has no query
};

template <class Workspace>
IMBREX_KERNEL attention_query_block attention_query_block_at(const Workspace& workspace,
                                                             const attention_seqlens& lengths, int batches,
                                                             int number) {
    constexpr int block_m = Workspace::block_m;
    const attention_tile_scheduler order{batches, workspace.heads, workspace.blocks, 0};
    const auto at = order.at(number, lengths, block_m);
    const int member = lengths.member(at.batch), first_row = at.block * block_m;
    return {workspace.index(member, at.head, Workspace::first_block(lengths, at.batch) + at.block), member, at.head,
            lengths.first_query(at.batch) + first_row, lengths.of(at.batch, at.head).seqlen_q - first_row};
}

// Vectorised rows of a head_dim, as many as a warp holds at a time.
template <class T, int HeadDim>
using attention_vector_rows = vector_row_tile<T,
                                              HeadDim <= 64    ? 8
                                              : HeadDim <= 128 ? 4
                                                               : 2,
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

template <class In, int HeadDimQK, int HeadDimV, int BlockM>
struct attention_backward_preprocess {
    static constexpr int warps = 4;
    static constexpr bool uses_pdl = true;
    using workspace = attention_backward_workspace<BlockM, HeadDimQK>;

    struct arguments {
        attention_view<const In> out;
        attention_view<const In> d_out;
        attention_row_view lse2;
        workspace to;
        attention_seqlens lengths;
        int batches;
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const attention_query_block at = attention_query_block_at(args.to, args.lengths, args.batches, block.index().x);
        block.each_warp([&](warp& self) {
            constexpr int share = BlockM / warps;
            clear_d_q<share>(self, args, at);
            for (int i = 0; i < share; i += rows::rows) write_rows(self, args, at, self.index() * share + i);
        });
    }

  private:
    using rows = attention_vector_rows<In, HeadDimV>;
    using products = attention_vector_rows<float, HeadDimV>;
    using d_q_rows = attention_vector_rows<float, HeadDimQK>;
    static constexpr row_alignment aligned = row_alignment::aligned;

    // The LSE and delta of the rows from `first` on.
    IMBREX_KERNEL static void write_rows(warp& self, const arguments& args, const attention_query_block& at,
                                         int first) {
        global_tile<const In> out = args.out.at(at.member, at.head, at.row, 0);
        global_tile<const In> d_out = args.d_out.at(at.member, at.head, at.row, 0);
        out.rows = d_out.rows = at.valid_rows;
        rows a, b;
        load_rows_from<aligned>(self, a, rows_of_tile<const In>{out, first}, out.columns);
        load_rows_from<aligned>(self, b, rows_of_tile<const In>{d_out, first}, out.columns);
        products product;
        transform(self, product, functional::multiply{}, a, b);
        vector_row_values<products> delta, lse2;
        fill(self, delta, 0.0f);
        fold_rows(self, delta, product, functional::add{});
        finish_rows(self, delta, functional::add{});
        const float* const of_block = args.lse2.at(at.member, at.head, at.row);
        load_values_from(
            self, lse2, [&](int row) { return first + row < at.valid_rows ? of_block + first + row : nullptr; },
            minus_infinity);
        map(self, lse2, [](float x) { return x == minus_infinity ? -x : x; });
        store_values_to(
            self, [&](int row) { return args.to.lse2[at.index].address(first + row); }, lse2);
        store_values_to(
            self, [&](int row) { return args.to.delta[at.index].address(first + row); }, delta);
    }

    template <int Share>
    IMBREX_KERNEL static void clear_d_q(warp& self, const arguments& args, const attention_query_block& at) {
        d_q_rows zeros;
        const global_tile<float> d_q = args.to.d_q_block(at.index);
        load_rows_from<aligned>(
            self, zeros, [](int) -> const float* { return nullptr; }, HeadDimQK);
        for (int i = 0; i < Share; i += d_q_rows::rows) {
            store_rows_to<aligned>(self, rows_of_tile<float>{d_q, self.index() * Share + i}, zeros, HeadDimQK);
        }
    }
};

template <class In, int HeadDimQK, int BlockM>
struct attention_backward_postprocess {
    static constexpr int warps = 4;
    static constexpr bool uses_pdl = true;
    using workspace = attention_backward_workspace<BlockM, HeadDimQK>;

    struct arguments {
        attention_view<In> d_q;
        workspace from;
        attention_seqlens lengths;
        int batches;
        float scale;
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const attention_query_block at =
            attention_query_block_at(args.from, args.lengths, args.batches, block.index().x);
        global_tile<In> to = args.d_q.at(at.member, at.head, at.row, 0);
        to.rows = at.valid_rows;
        const global_tile<float> from = args.from.d_q_block(at.index);
        block.each_warp([&](warp& self) {
            constexpr int share = BlockM / warps;
            for (int i = 0; i < share; i += sums::rows) {
                const int first = self.index() * share + i;
                sums d_q;
                rows rounded;
                load_rows_from<aligned>(self, d_q, rows_of_tile<const float>{from, first}, HeadDimQK);
                transform(
                    self, rounded, [&](float x) { return x * args.scale; }, d_q);
                store_rows_to<aligned>(self, rows_of_tile<In>{to, first}, rounded, to.columns);
            }
        });
    }

  private:
    using rows = attention_vector_rows<In, HeadDimQK>;
    using sums = attention_vector_rows<float, HeadDimQK>;
    static constexpr row_alignment aligned = row_alignment::aligned;
};

}  // namespace imbrex
