// Consumer warpgroup of the Hopper attention backward kernel: 64 keys, with dK and dV in registers (hopper.hpp has the
// diagram). All products of scores are transposed: rows are keys, columns are queries.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention_backward/epilogue.hpp>
#include <imbrex/kernels/attention_backward/scores.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/ops/memory/fragment_buffer.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

template <class Kernel>
class attention_backward_consumer {
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using element = typename Kernel::element;
    static constexpr int block_m = Kernel::block_m;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int warpgroup_keys = 64;

    using scores = warpgroup_tile<float, warpgroup_keys, block_m>;
    using operand = warpgroup_tile<element, warpgroup_keys, block_m>;
    using d_q_accumulator = warpgroup_tile<float, Kernel::d_q_rows, Kernel::d_q_columns>;
    using d_k_accumulator = warpgroup_tile<float, warpgroup_keys, Kernel::head_dim_qk>;
    using d_v_accumulator = warpgroup_tile<float, warpgroup_keys, Kernel::head_dim_v>;
    using row_of_queries = column_values<float, block_m>;

    using d_s_tile = shared_tile<element, block_n, block_m>;  // transposed

  public:
    static constexpr int d_q_warps = Kernel::consumer_warpgroups;

    struct shared_tiles {
        d_s_tile d_s[2];
        typename Kernel::d_q_part d_q[Kernel::consumer_warpgroups];
        transaction_barrier d_s_full[2];
        transaction_barrier d_q_full[Kernel::consumer_warpgroups];
        transaction_barrier d_q_empty[Kernel::consumer_warpgroups];

        template <class Block>
        IMBREX_KERNEL void init(Block& block) {
            for (auto& full : d_s_full) full.init(block, Kernel::consumer_warps);
            for (auto& full : d_q_full) full.init(block, 4);
            for (auto& empty : d_q_empty) empty.init(block, 1);
        }
    };

    IMBREX_KERNEL static void run(warpgroup& self, const attention_key_block& work, const arguments& args,
                                  shared_memory& shared) {
        d_k_accumulator d_k;
        d_v_accumulator d_v;
        fill(self, d_k, 0.0f);
        fill(self, d_v, 0.0f);
        auto q = shared.q.consumer(self, shared.queries);
        auto d_out = shared.d_out.consumer(self, shared.gradients);
        unsigned step = 0;
        for (auto blocks = Kernel::query_blocks(work, args); !blocks.done(); blocks.advance(), ++step) {
            if (step == 0) begin(self, shared);
            const attention_score_corner at{blocks.sequence(), work.keys.first + self.index() * warpgroup_keys,
                                            blocks.block() * block_m};
            add_query_block(self, at, args, shared, q, d_out, d_k, d_v, step);
        }
        if (step > 0) add_last_d_q(self, shared, step);
        map(self, d_k, [&](float x) { return x * args.scale; });
        const int first_row = self.index() * warpgroup_keys;
        attention_backward_epilogue<Kernel>::write(
            self, work, args, {first_row, 0}, shared.k.part[0].template subtile<warpgroup_keys>(first_row),
            shared.v.part[0].template subtile<warpgroup_keys>(first_row), d_k, d_v);
    }

  private:
    // Before the first query block: dS = 0 stands for that of the block before.
    IMBREX_KERNEL static void begin(warpgroup& self, shared_memory& shared) {
        operand zeros;
        fill(self, zeros, element(0.0f));
        store_d_s(self, shared, zeros, 0);
        shared.exchange.d_s_full[0].arrive(self);
        shared.k_full.wait_converged(self, 0);
        shared.v_full.wait_converged(self, 0);
    }

    // The order of the products: the exponentials of S overlap dP, the store of dS overlaps dV, and the store of dQ
    // overlaps dK. dQ is that of the query block before, whose dS all consumers have stored by now. (To begin the next S
    // before dQ is stored was 3 to 8% slower: docs/lab/attention_backward.md.)
    template <class Queries, class DOut>
    IMBREX_KERNEL static void add_query_block(warpgroup& self, const attention_score_corner& at, const arguments& args,
                                              shared_memory& shared, Queries& q, DOut& d_out, d_k_accumulator& d_k,
                                              d_v_accumulator& d_v, unsigned step) {
        const int first_row = self.index() * warpgroup_keys;
        scores s, d_p;
        operand p, d_s;
        row_of_queries of_queries;
        const auto load_lse2 = [&](auto& to) { load(self, to, shared.lse2[step % Kernel::stages]); };

        auto query = q.wait_converged();
        mma_abt_async(self, s, shared.k.part[0].template subtile<warpgroup_keys, Kernel::head_dim_qk>(first_row),
                      query->part[0], accumulation::replace);
        auto gradient = d_out.wait_converged();
        mma_abt_async(self, d_p, shared.v.part[0].template subtile<warpgroup_keys>(first_row), gradient->part[0],
                      accumulation::replace);

        wait_mma<1>(self, s);
        load_lse2(of_queries);
        probabilities_from(self, s, p, of_queries, at, args.mask, args.score, args.scale);
        wait_mma(self, d_p);
        load(self, of_queries, shared.delta[step % Kernel::stages]);
        d_scores_from(self, d_p, s, p, of_queries, load_lse2, at, args.score, args.scale);
        convert(self, d_s, d_p);

        mma_ab_async(self, d_v, p, gradient->part[0]);
        d_q_accumulator d_q;
        shared.exchange.d_s_full[step % 2].wait_converged(self, step / 2);
        store_d_s(self, shared, d_s, step + 1);
        begin_d_q(self, d_q, shared.exchange.d_s[step % 2], shared.k.part[0]);
        wait_mma<1>(self, d_v);
        gradient.release();
        mma_ab_async(self, d_k, d_s, query->part[0]);
        wait_mma<1>(self, d_q);
        shared.exchange.d_s_full[(step + 1) % 2].arrive(self);  // the new dS is stored, and the old one was read
        if (step > 0) hand_over_d_q(self, d_q, shared, step - 1);
        wait_mma(self, d_k);
        query.release();
    }

    IMBREX_KERNEL static void add_last_d_q(warpgroup& self, shared_memory& shared, unsigned steps) {
        shared.exchange.d_s_full[steps % 2].wait_converged(self, steps / 2);
        d_q_accumulator d_q;
        begin_d_q(self, d_q, shared.exchange.d_s[steps % 2], shared.k.part[0]);
        wait_mma(self, d_q);
        hand_over_d_q(self, d_q, shared, steps - 1);
    }

    // Query block i has dS number i + 1.
    IMBREX_KERNEL static void store_d_s(warpgroup& self, shared_memory& shared, const operand& d_s, unsigned number) {
        store(self, shared.exchange.d_s[number % 2].template subtile<warpgroup_keys>(self.index() * warpgroup_keys),
              d_s);
        fence_async(self);
    }

    // This consumer's part of dQ = dS K.
    IMBREX_KERNEL static void begin_d_q(warpgroup& self, d_q_accumulator& d_q, const d_s_tile& d_s,
                                        const typename Kernel::k_tile& k) {
        if constexpr (Kernel::d_q_by_rows) {
            const int first = self.index() * Kernel::d_q_rows;
            mma_atb_async(self, d_q, d_s.template subtile<block_n, Kernel::d_q_rows>(0, first), k,
                          accumulation::replace);
        } else {
            const int first = self.index() * Kernel::d_q_columns;
            mma_atb_async(self, d_q, d_s, k.template subtile<block_n, Kernel::d_q_columns>(0, first),
                          accumulation::replace);
        }
    }

    // To the warp that adds it to the workspace.
    IMBREX_KERNEL static void hand_over_d_q(warpgroup& self, const d_q_accumulator& d_q, shared_memory& shared,
                                            unsigned step) {
        shared.exchange.d_q_empty[self.index()].wait_converged(self, step - 1);
        store(self, shared.exchange.d_q[self.index()], d_q);
        fence_async(self);
        shared.exchange.d_q_full[self.index()].arrive(self);
    }
};

}  // namespace imbrex
