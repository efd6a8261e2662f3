// Consumer warpgroup of the Hopper attention backward kernel for head dims beyond 128: two warpgroups share 64 keys.
// Each computes the transposed scores of its half of the queries, and its half of the columns of dK and dV. P^T and dS^T
// are exchanged through shared memory, and a warp of the producer's warpgroup copies dS^T to the other block of the
// cluster. The two blocks compute half of the columns of dQ each, over the keys of both:
//
//     block 0        dQ[:, left]  = dS K[:, left]  (own keys) + dS K[:, left]  (keys of block 1)
//     block 1        dQ[:, right] = dS K[:, right] (own keys) + dS K[:, right] (keys of block 0)
//
// dQ is that of the query block before, so the copy of dS has time:
//
//     tensor cores   S^T   dP^T   dQ         dV   dK
//     registers            exp2   dS   sync       dQ to memory
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/attention_backward/epilogue.hpp>
#include <imbrex/kernels/attention_backward/scores.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class Kernel>
class attention_backward_wide_consumer {
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using element = typename Kernel::element;
    static constexpr int block_m = Kernel::block_m;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int parts = Kernel::column_parts;
    static constexpr int warpgroup_queries = block_m / parts;
    static constexpr bool p_with_d_s = score_keeps_products<decltype(arguments::score)>();

    using scores = warpgroup_tile<float, block_n, warpgroup_queries>;
    using operand = warpgroup_tile<element, block_n, warpgroup_queries>;
    using d_q_tile = warpgroup_tile<float, Kernel::d_q_rows, Kernel::d_q_columns>;
    using d_k_accumulator = warpgroup_tile<float, block_n, Kernel::head_dim_qk / parts>;
    using d_v_accumulator = warpgroup_tile<float, block_n, Kernel::head_dim_v / parts>;
    using row_of_queries = column_values<float, warpgroup_queries>;
    using exchanged_tile = shared_tile<element, block_n, block_m>;  // transposed

    struct p_and_d_s_stored {};
    struct rows_cleared {};
    using barriers = named_barriers<p_and_d_s_stored, rows_cleared>;
    static constexpr int stored_warps = Kernel::consumer_warps + Kernel::send_warps;

    // The warpgroups share this block's columns of dQ tile by tile. If their number is odd, the last tile is computed
    // twice and added once.
    static constexpr int d_q_tiles = Kernel::k_tile::columns / Kernel::d_q_columns;
    static constexpr int own_d_q_tiles = (d_q_tiles + 1) / 2;
    struct d_q_accumulator {
        d_q_tile tile[own_d_q_tiles];
    };

    // A warpgroup may write P of the next query block while the other one still multiplies. dQ needs dS for longer: its
    // product is complete when a warpgroup releases dO. No warpgroup has more than d_out_stages further tiles of dO
    // before all of both blocks have released this one, so these buffers need no barriers of their own.
    static constexpr int d_s_buffers = Kernel::d_out_stages + 1;

  public:
    static constexpr int d_q_warps = 0;

    struct shared_tiles {
        exchanged_tile p[2];
        exchanged_tile d_s[d_s_buffers];
        // Of the other block: its dS, and the columns of its K that belong to this block's dQ.
        exchanged_tile peer_d_s[d_s_buffers];
        typename Kernel::template parts_of<typename Kernel::k_tile, 1> peer_k;
        transaction_barrier peer_d_s_landed[d_s_buffers];
        transaction_barrier peer_k_full;

        template <class Block>
        IMBREX_KERNEL void init(Block& block) {
            for (auto& landed : peer_d_s_landed) landed.init(block, 1);
            peer_k_full.init(block, 1);
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
        const int first_key = work.rank * block_n;
        unsigned step = 0;
        int before = -1;  // index of the query block before
        for (auto blocks = Kernel::query_blocks(work, args); !blocks.done(); blocks.advance(), ++step) {
            if (step == 0) begin(self, shared);
            const attention_score_corner at{blocks.sequence(), work.keys.first + first_key,
                                            blocks.block() * block_m + self.index() * warpgroup_queries};
            add_query_block(self, at, work.rank, before, args, shared, q, d_out, d_k, d_v, step);
            before = Kernel::index_of(blocks, args);
        }
        if (step > 0) add_last_d_q(self, work.rank, before, args, shared, step);
        map(self, d_k, [&](float x) { return x * args.scale; });
        attention_backward_epilogue<Kernel>::write(self, work, args, {first_key, self.index()},
                                                   shared.k.part[self.index()], shared.v.part[self.index()], d_k, d_v);
    }

    // A warp sends dS to the other block, whose dS lands here.
    IMBREX_KERNEL static void send(warp& self, const attention_key_block& work, const arguments& args,
                                   shared_memory& shared) {
        auto& exchange = shared.exchange;
        auto blocks = Kernel::query_blocks(work, args);
        if (blocks.done()) return;
        const auto stored = barriers::template of<p_and_d_s_stored>();
        stored.sync(self, stored_warps);  // dS = 0 stays here
        for (unsigned number = 1; !blocks.done(); blocks.advance(), ++number) {
            stored.sync(self, stored_warps);
            const unsigned buffer = number % d_s_buffers;
            transaction_barrier& landed = exchange.peer_d_s_landed[buffer];
            landed.expect(self, exchanged_tile::bytes);
            copy_to_block_async(self, exchange.peer_d_s[buffer], exchange.d_s[buffer], landed, 1 - work.rank);
        }
    }

  private:
    // Before the first query block: dS = 0 stands for that of the block before.
    IMBREX_KERNEL static void begin(warpgroup& self, shared_memory& shared) {
        const int first = self.index() * warpgroup_queries;
        operand zeros;
        fill(self, zeros, element(0.0f));
        store(self, shared.exchange.d_s[0].template subtile<block_n, warpgroup_queries>(0, first), zeros);
        store(self, shared.exchange.peer_d_s[0].template subtile<block_n, warpgroup_queries>(0, first), zeros);
        fence_async(self);
        barriers::template of<p_and_d_s_stored>().sync(self, stored_warps);
        shared.k_full.wait_converged(self, 0);
        shared.v_full.wait_converged(self, 0);
        shared.exchange.peer_k_full.wait_converged(self, 0);
    }

    // Query block i has dS number i + 1. The exponentials overlap dP, and the computation of dS overlaps dQ, which
    // therefore is that of the block before.
    template <class Queries, class DOut>
    IMBREX_KERNEL static void add_query_block(warpgroup& self, const attention_score_corner& at, int rank, int before,
                                              const arguments& args, shared_memory& shared, Queries& q, DOut& d_out,
                                              d_k_accumulator& d_k, d_v_accumulator& d_v, unsigned step) {
        const int first = self.index() * warpgroup_queries;
        const unsigned number = step + 1;
        auto& p_tile = shared.exchange.p[number % 2];
        auto& d_s_tile = shared.exchange.d_s[number % d_s_buffers];
        scores s, d_p;
        operand rounded;
        row_of_queries of_queries;
        d_q_accumulator d_q;
        const auto load_lse2 = [&](auto& to) {
            load(self, to, shared.lse2[step % Kernel::stages].template subtile<warpgroup_queries>(first));
        };
        const auto store_p = [&] {
            store(self, p_tile.template subtile<block_n, warpgroup_queries>(0, first), rounded);
        };

        auto query = q.wait_converged();
        clear_rows(self, *query, at, args);
        begin_scores(self, s, shared.k, *query, first);
        auto gradient = d_out.wait_converged();
        clear_rows(self, *gradient, at, args);
        begin_scores(self, d_p, shared.v, *gradient, first);
        begin_d_q(self, d_q, rank, shared, step);

        wait_mma<parts + 2 * own_d_q_tiles>(self, s);
        load_lse2(of_queries);
        probabilities_from(self, s, rounded, of_queries, at, args.mask, args.score, args.scale);
        if constexpr (!p_with_d_s) store_p();
        wait_mma<2 * own_d_q_tiles>(self, d_p);
        load(self, of_queries, shared.delta[step % Kernel::d_out_stages].template subtile<warpgroup_queries>(first));
        d_scores_from(self, d_p, s, rounded, of_queries, load_lse2, at, args.score, args.scale);
        if constexpr (p_with_d_s) store_p();
        convert(self, rounded, d_p);
        store(self, d_s_tile.template subtile<block_n, warpgroup_queries>(0, first), rounded);
        fence_async(self);
        barriers::template of<p_and_d_s_stored>().sync(self, stored_warps);

        mma_ab_async(self, d_v, p_tile, gradient->part[self.index()]);
        mma_ab_async(self, d_k, d_s_tile, query->part[self.index()]);
        static_for<own_d_q_tiles>([&](auto i) { wait_mma<1>(self, d_v, d_q.tile[i]); });
        gradient.release();
        if (step > 0) add_d_q(self, d_q, rank, before, args);
        wait_mma(self, d_k);
        query.release();
    }

    IMBREX_KERNEL static void add_last_d_q(warpgroup& self, int rank, int before, const arguments& args,
                                           shared_memory& shared, unsigned number) {
        d_q_accumulator d_q;
        begin_d_q(self, d_q, rank, shared, number);
        static_for<own_d_q_tiles>([&](auto i) { wait_mma(self, d_q.tile[i]); });
        add_d_q(self, d_q, rank, before, args);
    }

    // In a varlen batch the rows behind the end belong to the next sequence: they become zero.
    template <class Parts>
    IMBREX_KERNEL static void clear_rows(warpgroup& self, Parts& tile, const attention_score_corner& at,
                                         const arguments& args) {
        const int exist = at.sequence.seqlen_q - (at.first_query - self.index() * warpgroup_queries);
        if (!args.lengths.varlen() || exist >= block_m) return;
        fill_rows(self, tile.part[self.index()], exist, element(0.0f));
        fence_async(self);
        barriers::template of<rows_cleared>().sync(self, Kernel::consumer_warps);
    }

    IMBREX_KERNEL static void begin_d_q(warpgroup& self, d_q_accumulator& d_q, int rank, shared_memory& shared,
                                        unsigned number) {
        const unsigned buffer = number % d_s_buffers;
        auto& exchange = shared.exchange;
        const auto columns_of_tile = [&](const typename Kernel::k_tile& k, int i) {
            const int tile = self.index() * own_d_q_tiles + i;
            const int existing = d_q_tiles == 2 * own_d_q_tiles || tile < d_q_tiles ? tile : d_q_tiles - 1;
            return k.template subtile<block_n, Kernel::d_q_columns>(0, existing * Kernel::d_q_columns);
        };
        static_for<own_d_q_tiles>([&](auto i) {
            mma_atb_async(self, d_q.tile[i], exchange.d_s[buffer], columns_of_tile(shared.k.part[rank], i),
                          accumulation::replace);
        });
        exchange.peer_d_s_landed[buffer].wait_converged(self, (number + d_s_buffers - 1) / d_s_buffers - 1);
        static_for<own_d_q_tiles>([&](auto i) {
            mma_atb_async(self, d_q.tile[i], exchange.peer_d_s[buffer], columns_of_tile(exchange.peer_k.part[0], i));
        });
    }
    IMBREX_KERNEL static void add_d_q(warpgroup& self, const d_q_accumulator& d_q, int rank, int index,
                                      const arguments& args) {
        static_for<own_d_q_tiles>([&](auto i) {
            const int tile = self.index() * own_d_q_tiles + i;
            if (d_q_tiles < 2 * own_d_q_tiles && tile >= d_q_tiles) return;
            atomic_add(self, args.from.part_of_d_q(index, rank * d_q_tiles + tile), d_q.tile[i]);
        });
    }

    // K Q^T or V dO^T of this warpgroup's queries, over all parts of the columns.
    template <class Keys, class Queries>
    IMBREX_KERNEL static void begin_scores(warpgroup& self, scores& s, const Keys& keys, const Queries& queries,
                                           int first) {
        for (int i = 0; i < parts; ++i) {
            mma_abt_async(self, s, keys.part[i], queries.part[i].template subtile<warpgroup_queries>(first),
                          i == 0 ? accumulation::replace : accumulation::add);
        }
    }
};

}  // namespace imbrex
