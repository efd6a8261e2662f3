// Ampere-class attention backward for every GPU from sm_80 on, with any strides and any alignment of the elements, as
// FlashAttention-2: a block owns a block of keys. K and V stay in shared memory, dK and dV in registers, while the blocks
// of queries that see these keys pass by.
//
//     sync   S^T = K Q^T, dP^T = V dO^T; P^T and dS^T to shared memory
//     sync   dV += P^T dO, dK += dS^T Q
//     sync   dQ = dS K is added to the workspace in fp32 (atomic additions), the next Q and dO in flight
//
// With two stages the next Q and dO are in flight during all of it, without the last sync. With
// DQ == attention_d_q_order::separate the kernel leaves out dQ, for that of ampere_d_q.hpp, and all sums have a fixed
// order.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention_backward/ampere_tiles.hpp>
#include <imbrex/kernels/attention_backward/d_q_order.hpp>
#include <imbrex/kernels/attention_backward/gradient_rows.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/atomic.hpp>

namespace imbrex {

template <class In, int HeadDimQK, int HeadDimV, class Mask = full_mask, class Score = score_mod::identity,
          attention_gradients Gradients = attention_gradients::rounded,
          attention_d_q_order DQ = attention_d_q_order::any>
struct attention_backward_ampere : attention_backward_ampere_tiles<In, HeadDimQK, HeadDimV, Mask, Score, Gradients> {
    using tiles = attention_backward_ampere_tiles<In, HeadDimQK, HeadDimV, Mask, Score, Gradients>;
    using tiles::block_m, tiles::block_n, tiles::stages;
    using typename tiles::arguments;
    static constexpr bool uses_pdl = true;

    struct shared_memory {
        typename tiles::k_tile k;
        typename tiles::v_tile v;
        typename tiles::q_tile q[stages];
        typename tiles::d_out_tile d_out[stages];
        typename tiles::d_s_tile p;
        typename tiles::d_s_tile d_s;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const attention_key_block_scheduler order{args.scheduler.batches, args.scheduler.heads, args.scheduler.blocks,
                                                  1};
        const attention_key_block work = order.at(block.index().x, block_n, args.q_heads_per_kv_head, args.lengths);
        block.each_warp([&](warp& self) {
            d_k_accumulator d_k;
            d_v_accumulator d_v;
            fill(self, d_k, 0.0f);
            fill(self, d_v, 0.0f);
            query_block_cursor<block_m, Mask> blocks(work, args.q_heads_per_kv_head, args.mask);
            if (!blocks.done()) accumulate(self, work, args, shared, blocks, d_k, d_v);
            map(self, d_k, [&](float x) { return x * args.scale; });
            write(self, work, args, d_k, d_v);
        });
    }

  private:
    static constexpr int d_k_columns = tiles::head_dim_qk / tiles::shape.query_warps;
    static constexpr int d_v_columns = tiles::head_dim_v / tiles::shape.query_warps;
    using d_k_accumulator = warp_tile<float, tiles::warp_keys, d_k_columns>;
    using d_v_accumulator = warp_tile<float, tiles::warp_keys, d_v_columns>;

    template <class Blocks>
    IMBREX_KERNEL static void accumulate(warp& self, const attention_key_block& work, const arguments& args,
                                         shared_memory& shared, Blocks& blocks, d_k_accumulator& d_k,
                                         d_v_accumulator& d_v) {
        int stage = 0;
        const auto fetch = [&](int to) {
            tiles::fetch_queries(self, blocks.sequence(), blocks.block() * block_m, args, shared.q[to],
                                 shared.d_out[to]);
            commit_copies(self);
        };
        tiles::fetch_keys(self, work.sequence, work.keys.first, args, shared.k, shared.v);
        fetch(stage);
        while (!blocks.done()) {
            const attention_score_corner at{blocks.sequence(), work.keys.first, blocks.block() * block_m};
            blocks.advance();
            const int next = stages - 1 - stage;
            wait_copies(self);
            tiles::sync(self);
            if constexpr (stages == 2) {
                if (!blocks.done()) fetch(next);
            }
            tiles::compute_d_s(self, at, args, args.score, shared.q[stage], shared.k, shared.v, shared.d_out[stage],
                               shared.d_s, &shared.p);
            tiles::sync(self);
            const int key = tiles::first_key(self);
            mma_ab(self, d_v, shared.p.template subtile<tiles::warp_keys>(key),
                   shared.d_out[stage].template subtile<block_m, d_v_columns>(
                       0, tiles::template first_column_of_keys<d_v_columns>(self)));
            mma_ab(self, d_k, shared.d_s.template subtile<tiles::warp_keys>(key),
                   shared.q[stage].template subtile<block_m, d_k_columns>(
                       0, tiles::template first_column_of_keys<d_k_columns>(self)));
            if constexpr (stages == 1) {
                tiles::sync(self);
                if (!blocks.done()) fetch(next);
            }
            if constexpr (DQ == attention_d_q_order::any) add_d_q(self, at, args, shared);
            stage = next;
        }
    }

    // In parts, since dK and dV take most of the registers.
    IMBREX_KERNEL static void add_d_q(warp& self, const attention_score_corner& at, const arguments& args,
                                      shared_memory& shared) {
        constexpr int parts = tiles::warp_queries * tiles::d_q_columns > 1536 ? 2 : 1;
        constexpr int columns = tiles::d_q_columns / parts;
        const int query = at.first_query + tiles::first_query(self);
        const auto to = args.from.d_q_block(tiles::workspace_block(at.sequence, query, args));
        for (int part = 0; part < parts; ++part) {
            const int column = tiles::first_column_of_queries(self) + part * columns;
            warp_tile<float, tiles::warp_queries, columns> d_q;
            fill(self, d_q, 0.0f);
            tiles::add_d_q(self, d_q, shared.d_s, shared.k, column);
            atomic_add(self, to.from(query % tiles::workspace::block_m, column), d_q);
        }
    }

    // In a padded batch keys behind seqused_k get zeros.
    IMBREX_KERNEL static void write(warp& self, const attention_key_block& work, const arguments& args,
                                    const d_k_accumulator& d_k, const d_v_accumulator& d_v) {
        const int batch = work.sequence.batch, member = args.lengths.member(batch);
        const int key = work.keys.first + tiles::first_key(self), row = args.lengths.first_key(batch);
        const int seqlen = args.lengths.varlen() ? work.sequence.seqlen_k : args.d_k.rows();
        if (key >= seqlen) return;
        write_gradient_rows(self,
                            tiles::rows_of(args.d_k, member, work.kv_head, row, key, seqlen)
                                .from(0, tiles::template first_column_of_keys<d_k_columns>(self)),
                            d_k);
        write_gradient_rows(self,
                            tiles::rows_of(args.d_v, member, work.kv_head, row, key, seqlen)
                                .from(0, tiles::template first_column_of_keys<d_v_columns>(self)),
                            d_v);
    }
};

}  // namespace imbrex
