// dQ of the Ampere-class backward pass in a fixed order: a block owns a block of queries and computes dS anew. Q and dO
// stay in shared memory, dQ in registers, while the blocks of keys that these queries see pass by.
//
//     sync   S^T = K Q^T, dP^T = V dO^T; dS^T to shared memory
//     sync   dQ += dS K
//     sync   the next K and V in flight
//
// With two stages the next K and V are in flight during all of it. Each element of dQ is written once.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention_backward/ampere_tiles.hpp>
#include <imbrex/kernels/attention_backward/gradient_rows.hpp>
#include <imbrex/ops/grid/pdl.hpp>

namespace imbrex {

template <class In, int HeadDimQK, int HeadDimV, class Mask = full_mask, class Score = score_mod::identity,
          attention_gradients Gradients = attention_gradients::rounded>
struct attention_backward_ampere_d_q
    : attention_backward_ampere_tiles<In, HeadDimQK, HeadDimV, Mask, Score, Gradients> {
    using tiles = attention_backward_ampere_tiles<In, HeadDimQK, HeadDimV, Mask, Score, Gradients>;
    using tiles::block_m, tiles::block_n, tiles::stages;
    using typename tiles::arguments;
    static constexpr bool uses_pdl = true;

    struct shared_memory {
        typename tiles::q_tile q;
        typename tiles::d_out_tile d_out;
        typename tiles::k_tile k[stages];
        typename tiles::v_tile v[stages];
        typename tiles::d_s_tile d_s;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const attention_work work =
            attention_work_at(block.index().x, block_m, block_m, args.scheduler, args.lengths, args.mask);
        if (!work.exists()) return;
        block.each_warp([&](warp& self) {
            d_q_accumulator d_q;
            fill(self, d_q, 0.0f);
            if (work.has_keys()) accumulate(self, work, args, shared, d_q);
            map(self, d_q, [&](float x) { return x * args.scale; });
            write(self, work, args, d_q);
        });
    }

  private:
    using d_q_accumulator = warp_tile<float, tiles::warp_queries, tiles::d_q_columns>;

    IMBREX_KERNEL static void accumulate(warp& self, const attention_work& work, const arguments& args,
                                         shared_memory& shared, d_q_accumulator& d_q) {
        const int last = (work.keys.end - 1) / block_n;
        int stage = 0;
        const auto fetch = [&](int block, int to) {
            tiles::fetch_keys(self, work.sequence, block * block_n, args, shared.k[to], shared.v[to]);
            commit_copies(self);
        };
        tiles::fetch_queries(self, work.sequence, work.queries.first, args, shared.q, shared.d_out);
        fetch(work.keys.first / block_n, stage);
        for (int block = work.keys.first / block_n; block <= last; ++block) {
            const int next = stages - 1 - stage;
            wait_copies(self);
            tiles::sync(self);
            if constexpr (stages == 2) {
                if (block < last) fetch(block + 1, next);
            }
            const attention_score_corner at{work.sequence, block * block_n, work.queries.first};
            const score_with_constants<Score> score{args.score};  // the kernel of dK and dV adds its gradients
            tiles::compute_d_s(self, at, args, score, shared.q, shared.k[stage], shared.v[stage], shared.d_out,
                               shared.d_s, nullptr);
            tiles::sync(self);
            tiles::add_d_q(self, d_q, shared.d_s, shared.k[stage], tiles::first_column_of_queries(self));
            if constexpr (stages == 1) {
                tiles::sync(self);
                if (block < last) fetch(block + 1, next);
            }
            stage = next;
        }
    }

    IMBREX_KERNEL static void write(warp& self, const attention_work& work, const arguments& args,
                                    const d_q_accumulator& d_q) {
        const attention_extents& s = work.sequence;
        const int query = work.queries.first + tiles::first_query(self);
        if (query >= s.seqlen_q) return;
        write_gradient_rows(self,
                            tiles::rows_of(args.d_q, args.lengths.member(s.batch), s.head,
                                           args.lengths.first_query(s.batch), query, s.seqlen_q)
                                .from(0, tiles::first_column_of_queries(self)),
                            d_q);
    }
};

}  // namespace imbrex
