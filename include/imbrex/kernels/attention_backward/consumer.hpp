// Consumer warpgroup of the Hopper attention backward kernel: 64 keys, with dK and dV in registers (hopper.hpp has the
// diagram). All products of scores are transposed: rows are keys, columns are queries.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/epilogue.hpp>
#include <imbrex/kernels/attention_backward/scores.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
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
    static constexpr int warpgroup_keys = Kernel::warpgroup_keys;

    using scores = warpgroup_tile<float, warpgroup_keys, block_m>;
    using operand = warpgroup_tile<element, warpgroup_keys, block_m>;
    using d_q_accumulator = warpgroup_tile<float, Kernel::d_q_rows, Kernel::d_q_columns>;
    using d_k_accumulator = warpgroup_tile<float, warpgroup_keys, Kernel::head_dim_qk>;
    using d_v_accumulator = warpgroup_tile<float, warpgroup_keys, Kernel::head_dim_v>;
    using row_of_queries = column_values<float, block_m>;

    struct d_s_written {};
    using barriers = named_barriers<d_s_written>;

  public:
    IMBREX_KERNEL static void run(warpgroup& self, const attention_key_block& work, const arguments& args,
                                  shared_memory& shared) {
        d_k_accumulator d_k;
        d_v_accumulator d_v;
        fill(self, d_k, 0.0f);
        fill(self, d_v, 0.0f);
        auto q = shared.q.consumer(self);
        auto d_out = shared.d_out.consumer(self);
        unsigned step = 0;
        for (auto blocks = Kernel::query_blocks(work, args); !blocks.done(); blocks.advance()) {
            const attention_score_corner at{blocks.sequence(), work.keys.first + self.index() * warpgroup_keys,
                                            blocks.block() * block_m};
            add_query_block(self, at, args, shared, q, d_out, d_k, d_v, step++);
        }
        map(self, d_k, [&](float x) { return x * args.scale; });
        write(self, work, args, shared, d_k, d_v);
    }

  private:
    // The order of the products: the exponentials of S overlap dP, the store and sync of dS overlap dV, and the store of
    // dQ overlaps dK. (To begin the next S before dQ is stored was 3 to 8% slower: docs/lab/attention_backward.md.)
    template <class Queries, class DOut>
    IMBREX_KERNEL static void add_query_block(warpgroup& self, const attention_score_corner& at, const arguments& args,
                                              shared_memory& shared, Queries& q, DOut& d_out, d_k_accumulator& d_k,
                                              d_v_accumulator& d_v, unsigned step) {
        const int first_row = self.index() * warpgroup_keys;
        scores s, d_p;
        operand p, d_s;
        row_of_queries of_queries;

        if (step == 0) shared.k_full.wait_converged(self, 0);
        auto query = q.wait_converged();
        mma_abt_async(self, s, shared.k.template subtile<warpgroup_keys>(first_row), query->tile,
                      accumulation::replace);
        if (step == 0) shared.v_full.wait_converged(self, 0);
        auto gradient = d_out.wait_converged();
        mma_abt_async(self, d_p, shared.v.template subtile<warpgroup_keys>(first_row), gradient->tile,
                      accumulation::replace);

        wait_mma<1>(self, s);
        load(self, of_queries, query->rows);
        probabilities_from(self, s, p, of_queries, at, args.mask, args.score, args.scale);
        wait_mma(self, d_p);
        load(self, of_queries, gradient->rows);
        combine_with_columns(self, d_p, s, of_queries,
                             [](float d_p, float p, float delta) { return p * (d_p - delta); });
        convert(self, d_s, d_p);

        mma_ab_async(self, d_v, p, gradient->tile);
        auto& exchanged = shared.d_s[step % 2];
        store(self, exchanged.template subtile<warpgroup_keys>(first_row), d_s);
        fence_async(self);
        barriers::template of<d_s_written>().sync(self, Kernel::consumer_warps);
        d_q_accumulator d_q;
        begin_d_q(self, d_q, exchanged, shared.k);
        wait_mma<1>(self, d_v);
        gradient.release();
        mma_ab_async(self, d_k, d_s, query->tile);
        wait_mma<1>(self, d_q);
        hand_over_d_q(self, d_q, shared, step);
        wait_mma(self, d_k);
        query.release();
    }

    // This consumer's part of dQ = dS K.
    IMBREX_KERNEL static void begin_d_q(warpgroup& self, d_q_accumulator& d_q, const typename Kernel::d_s_tile& d_s,
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
        shared.d_q_empty[self.index()].wait_converged(self, step - 1);
        store(self, shared.d_q[self.index()], d_q);
        fence_async(self);
        shared.d_q_full[self.index()].arrive(self);
    }

    // Through the shared memory of K and V, by TMA. A partial tile of a varlen batch is stored from registers: TMA would
    // overwrite the next sequence.
    IMBREX_KERNEL static void write(warpgroup& self, const attention_key_block& work, const arguments& args,
                                    shared_memory& shared, const d_k_accumulator& d_k, const d_v_accumulator& d_v) {
        const int batch = work.sequence.batch, member = args.lengths.member(batch);
        const int first = work.keys.first + self.index() * warpgroup_keys;
        const int row = args.lengths.first_key(batch) + first;
        const bool varlen = args.lengths.varlen();
        const int exist = varlen ? work.sequence.seqlen_k - first : args.d_k_view.rows() - first;
        barriers::template of<d_s_written>().sync(self, Kernel::consumer_warps);  // all are done with K
        if (exist <= 0) return;
        if (varlen && exist < warpgroup_keys) {
            store_rows(self, args.d_k_view.at(member, work.kv_head, row, 0), exist, d_k);
            store_rows(self, args.d_v_view.at(member, work.kv_head, row, 0), exist, d_v);
            return;
        }
        auto k = shared.k.template subtile<warpgroup_keys>(self.index() * warpgroup_keys);
        auto v = shared.v.template subtile<warpgroup_keys>(self.index() * warpgroup_keys);
        store(self, v, convert_to<element>(self, d_v));
        store(self, k, convert_to<element>(self, d_k));
        fence_async(self);
        self.sync();
        store_async(self, args.d_v.at(member, work.kv_head, row, 0), v);
        store_async(self, args.d_k.at(member, work.kv_head, row, 0), k);
        commit_stores(self);
        wait_stores_read(self);
    }

    template <class Accumulator>
    IMBREX_KERNEL static void store_rows(warpgroup& self, global_tile<element> to, int exist, const Accumulator& from) {
        to.rows = exist;
        for_each_16_columns<Accumulator::columns>([&](auto column) {
            store(self, to.from(0, column), convert_to<element>(self, columns_of<column, 16>(self, from)));
        });
    }
};

}  // namespace imbrex
