// What the two Ampere-class kernels of the backward pass share: tile shapes, arguments, and dS of a block of keys and
// queries. All products are mma.sync of tiles in shared memory, and scores are transposed: rows are keys, columns are
// queries.
//
//     warps            queries             S^T = K Q^T, dP^T = V dO^T: each warp some keys and some queries
//     of the block     0    1              P^T and dS^T go to shared memory, rounded
//          keys  0     w0   w1
//                1     w2   w3             products over keys or queries then have a free choice of rows and columns
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/fetch_rows.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_backward/options.hpp>
#include <imbrex/kernels/attention_backward/scores.hpp>
#include <imbrex/kernels/attention_backward/workspace.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

struct attention_backward_ampere_shape {
    int key_warps;     // a block has key_warps x query_warps warps,
    int warp_keys;     // key_warps * warp_keys keys
    int query_warps;   //
    int warp_queries;  // and query_warps * warp_queries queries
    int stages;        // of what passes by: 1, or 2 to load during the products
};

// Shapes that fit 99 KB of shared memory, which every such GPU has, and the registers with any mask and score_mod.
// `differentiated`: the score_mod needs registers of its own.
constexpr attention_backward_ampere_shape attention_backward_ampere_shape_for(int head_dim_qk, int head_dim_v,
                                                                              bool differentiated) {
    const int larger = head_dim_qk > head_dim_v ? head_dim_qk : head_dim_v;
    if (larger <= 64) return {4, 32, 2, differentiated ? 16 : 32, 2};
    if (larger <= 96) return {2, 32, 2, 16, 2};
    if (larger <= 128 || (larger <= 192 && head_dim_v <= 128)) return {4, 16, 2, 32, 1};
    if (larger <= 192) return {4, 16, 2, 16, 1};
    return {2, 16, 2, 16, 1};
}

// The head dims for which there are shapes: smaller ones are padded with zeros. Of a pair, only both can be 96.
constexpr int attention_backward_ampere_head_dim(int head_dim, int other) {
    if (head_dim <= 64) return 64;
    if (head_dim <= 96 && other <= 96) return 96;
    return head_dim <= 128 ? 128 : head_dim <= 192 ? 192 : 256;
}

// dQ by rows, for atomic additions of any warp.
template <int HeadDimQK>
struct attention_backward_row_workspace : attention_backward_workspace<64, HeadDimQK, 64, 32> {
    using base = attention_backward_workspace<64, HeadDimQK, 64, 32>;

    IMBREX_FN global_tile<float> d_q_block(int index) const {
        return {base::part_of_d_q(index, 0).values, HeadDimQK, base::block_m, HeadDimQK};
    }
    IMBREX_FN global_tile<float> part_of_d_q(int index, int part) const {
        return d_q_block(index).from(base::part_row(part), base::part_column(part));
    }
    static attention_backward_row_workspace in(void* memory, int members, int heads, int blocks) {
        return {base::in(memory, members, heads, blocks)};
    }
};

template <class In, int HeadDimQK, int HeadDimV, class Mask, class Score, attention_gradients Gradients>
struct attention_backward_ampere_tiles {
    static_assert(sizeof(In) == 2, "imbrex: attention multiplies bf16 or fp16");
    static constexpr int head_dim_qk = attention_backward_ampere_head_dim(HeadDimQK, HeadDimV);
    static constexpr int head_dim_v = attention_backward_ampere_head_dim(HeadDimV, HeadDimQK);
    static constexpr attention_backward_ampere_shape shape =
        attention_backward_ampere_shape_for(head_dim_qk, head_dim_v, score_is_differentiated<Score>());
    static constexpr int warps = shape.key_warps * shape.query_warps;
    static constexpr int warp_keys = shape.warp_keys;
    static constexpr int warp_queries = shape.warp_queries;
    static constexpr int block_n = shape.key_warps * warp_keys;
    static constexpr int block_m = shape.query_warps * warp_queries;
    static constexpr int stages = shape.stages;
    static_assert(stages == 1 || stages == 2, "imbrex: stages must be 1 or 2");

    static constexpr int d_q_columns = head_dim_qk / shape.key_warps;  // of a warp

    using gradient = attention_gradient<In, Gradients>;
    using workspace = attention_backward_row_workspace<head_dim_qk>;
    using q_tile = shared_tile<In, block_m, head_dim_qk>;
    using d_out_tile = shared_tile<In, block_m, head_dim_v>;
    using k_tile = shared_tile<In, block_n, head_dim_qk>;
    using v_tile = shared_tile<In, block_n, head_dim_v>;
    using d_s_tile = shared_tile<In, block_n, block_m>;  // transposed, as P
    using scores = warp_tile<float, warp_keys, warp_queries>;
    using rounded_scores = warp_tile<In, warp_keys, warp_queries>;

    // The views may have fewer columns than the head dims; missing columns are zero.
    struct arguments {
        attention_view<const In> q;
        attention_view<const In> k;
        attention_view<const In> v;
        attention_view<const In> d_out;
        attention_view<gradient> d_q;
        attention_view<gradient> d_k;
        attention_view<gradient> d_v;
        workspace from;
        Mask mask;
        Score score;
        float scale;
        attention_tile_scheduler scheduler;  // of the blocks that the kernel's blocks own
        attention_seqlens lengths;
        int q_heads_per_kv_head;
    };

    struct all_warps {};
    using barriers = named_barriers<all_warps>;
    IMBREX_KERNEL static void sync(const warp& self, source here = source::current()) {
        barriers::template of<all_warps>().sync(self, warps, here);
    }

    // The keys and queries of a warp, and its columns of a tile that query_warps or key_warps share.
    IMBREX_KERNEL static int first_key(const warp& self) { return self.index() / shape.query_warps * warp_keys; }
    IMBREX_KERNEL static int first_query(const warp& self) { return self.index() % shape.query_warps * warp_queries; }
    template <int Columns>
    IMBREX_KERNEL static int first_column_of_keys(const warp& self) {
        return self.index() % shape.query_warps * Columns;
    }
    IMBREX_KERNEL static int first_column_of_queries(const warp& self) {
        return self.index() / shape.query_warps * d_q_columns;
    }

    // Rows of a sequence from `first` on; those behind its end, which may hold anything, do not exist.
    template <class T>
    IMBREX_KERNEL static global_tile<T> rows_of(const attention_view<T>& from, int member, int head, int first_row,
                                                int first, int seqlen) {
        global_tile<T> rows = from.at(member, head, first_row + first, 0);
        rows.rows = seqlen - first;
        return rows;
    }
    IMBREX_KERNEL static void fetch_keys(warp& self, const attention_extents& s, int first, const arguments& args,
                                         k_tile& k, v_tile& v) {
        const int member = args.lengths.member(s.batch), row = args.lengths.first_key(s.batch);
        const int head = s.head / args.q_heads_per_kv_head;
        fetch_rows<warps>(self, k, rows_of(args.k, member, head, row, first, s.seqlen_k));
        fetch_rows<warps>(self, v, rows_of(args.v, member, head, row, first, s.seqlen_k));
    }
    IMBREX_KERNEL static void fetch_queries(warp& self, const attention_extents& s, int first, const arguments& args,
                                            q_tile& q, d_out_tile& d_out) {
        const int member = args.lengths.member(s.batch), row = args.lengths.first_query(s.batch);
        fetch_rows<warps>(self, q, rows_of(args.q, member, s.head, row, first, s.seqlen_q));
        fetch_rows<warps>(self, d_out, rows_of(args.d_out, member, s.head, row, first, s.seqlen_q));
    }

    // A block of the workspace has as many queries as one of the kernel, or a multiple.
    static_assert(workspace::block_m % block_m == 0);
    IMBREX_KERNEL static int workspace_block(const attention_extents& s, int query, const arguments& args) {
        return args.from.index(args.lengths.member(s.batch), s.head,
                               workspace::first_block(args.lengths, s.batch) + query / workspace::block_m);
    }

    // This warp's part of dS^T, and of P^T unless `p_tile` is null, to shared memory. `at` is the corner of the block;
    // `score` is args.score, perhaps without the gradients of its parameters.
    template <class ScoreMod>
    IMBREX_KERNEL static void compute_d_s(warp& self, attention_score_corner at, const arguments& args,
                                          const ScoreMod& score, const q_tile& q, const k_tile& k, const v_tile& v,
                                          const d_out_tile& d_out, d_s_tile& d_s, d_s_tile* p_tile) {
        constexpr bool p_with_d_s = score_keeps_products<ScoreMod>();
        const int key = first_key(self), query = first_query(self);
        at.first_key += key;
        at.first_query += query;
        const int block = workspace_block(at.sequence, at.first_query, args);
        const int row = at.first_query % workspace::block_m;
        column_values<float, warp_queries> of_queries;
        const auto load_lse2 = [&](auto& to) { load(self, to, args.from.lse2[block].address(row), warp_queries); };
        load_lse2(of_queries);
        scores s, d_p;
        rounded_scores rounded;
        const auto store_p = [&] {
            if (p_tile != nullptr) store(self, p_tile->template subtile<warp_keys, warp_queries>(key, query), rounded);
        };
        fill(self, s, 0.0f);
        mma_abt(self, s, k.template subtile<warp_keys>(key), q.template subtile<warp_queries>(query));
        probabilities_from(self, s, rounded, of_queries, at, args.mask, score, args.scale);
        if constexpr (!p_with_d_s) store_p();
        load(self, of_queries, args.from.delta[block].address(row), warp_queries);
        fill(self, d_p, 0.0f);
        mma_abt(self, d_p, v.template subtile<warp_keys>(key), d_out.template subtile<warp_queries>(query));
        d_scores_from(self, d_p, s, rounded, of_queries, load_lse2, at, score, args.scale);
        if constexpr (p_with_d_s) store_p();
        convert(self, rounded, d_p);
        store(self, d_s.template subtile<warp_keys, warp_queries>(key, query), rounded);
    }

    // dQ += dS K of this warp's queries, and the columns of K from `column` on.
    template <int Columns>
    IMBREX_KERNEL static void add_d_q(warp& self, warp_tile<float, warp_queries, Columns>& d_q, const d_s_tile& d_s,
                                      const k_tile& k, int column) {
        mma_atb(self, d_q, d_s.template subtile<block_n, warp_queries>(0, first_query(self)),
                k.template subtile<block_n, Columns>(0, column));
    }
};

}  // namespace imbrex
