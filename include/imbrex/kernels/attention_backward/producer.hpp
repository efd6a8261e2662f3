// Producer warps of the Hopper attention backward kernel. Warp 0 loads by TMA: K and V once, then Q with the LSE and dO
// with delta of one query block after the other, as far ahead as the pipelines have free stages. The other warps serve
// one consumer each: they add its part of dQ to the workspace (bulk reduce-add).
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention_backward/d_q_order.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/bulk.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>

namespace imbrex {

template <class Kernel>
class attention_backward_producer {
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using element = typename Kernel::element;
    using row_block = typename Kernel::row_block;
    static constexpr int block_m = Kernel::block_m;
    static constexpr int block_n = Kernel::block_n;

  public:
    IMBREX_KERNEL static void run(warp& self, const attention_key_block& work, const arguments& args,
                                  shared_memory& shared) {
        if (self.index() == 0) {
            load(self, work, args, shared);
        } else if constexpr (Kernel::send_warps > 0) {
            Kernel::consumer::send(self, work, args, shared);
        } else {
            add_d_q(self, self.index() - 1, work, args, shared);
        }
    }

  private:
    IMBREX_KERNEL static void load(warp& self, const attention_key_block& work, const arguments& args,
                                   shared_memory& shared) {
        auto blocks = Kernel::query_blocks(work, args);
        if (blocks.done()) return;
        prefetch_descriptor(self, args.q);
        prefetch_descriptor(self, args.d_out);
        const int member = args.lengths.member(work.sequence.batch);
        const int first = work.keys.first + work.rank * block_n;
        const int first_key = args.lengths.first_key(work.sequence.batch) + first;
        const int keys = work.sequence.seqlen_k - first;
        unsigned cleaned = 0;
        auto q = shared.q.producer(self, shared.queries);
        auto d_out = shared.d_out.producer(self, shared.gradients);
        unsigned q_step = 0, d_out_step = 0;
        const auto load_q = [&] {
            row_block& lse2 = shared.lse2[q_step++ % Kernel::stages];
            load_queries(self, q, args.q, args.from.lse2, lse2, blocks, work.rank, args, shared, cleaned);
        };
        const auto load_d_out = [&] {
            row_block& delta = shared.delta[d_out_step++ % Kernel::d_out_stages];
            load_queries(self, d_out, args.d_out, args.from.delta, delta, blocks, work.rank, args, shared, cleaned);
        };
        const auto k = [&](int column) { return args.k.at(member, work.kv_head, first_key, column); };
        const auto v = [&](int column) { return args.v.at(member, work.kv_head, first_key, column); };
        load_keys(self, shared.k, k, keys, shared.k_full, args, shared, cleaned);
        load_q();
        load_keys(self, shared.v, v, keys, shared.v_full, args, shared, cleaned);
        load_d_out();
        if constexpr (Kernel::cluster > 1) {
            const int distance = work.rank == 0 ? block_n : -block_n;
            const auto peer_k = [&](int) {
                return args.k.at(member, work.kv_head, first_key + distance, work.rank * Kernel::k_tile::columns);
            };
            load_keys(self, shared.exchange.peer_k, peer_k, keys - distance, shared.exchange.peer_k_full, args, shared,
                      cleaned);
        }
        for (blocks.advance(); !blocks.done(); blocks.advance()) {
            // In the order of release. With fewer stages of dO, Q's next one was released a query block before.
            if constexpr (Kernel::d_out_stages < Kernel::stages) load_q();
            load_d_out();
            if constexpr (Kernel::d_out_stages == Kernel::stages) load_q();
        }
    }

    // All parts of a tile; `from(column)` is the place of a part. A head_dim may have fewer columns than the tile.
    template <class Parts, class From, class Landing>
    IMBREX_KERNEL static void load_parts(warp& self, Parts& to, const From& from, Landing&& landing) {
        for (int i = 0; i < Parts::count; ++i) {
            load_async(self, to.part[i], from(i * to.part[i].columns).out_of_bounds_fill(), landing);
        }
    }
    template <class Parts>
    IMBREX_KERNEL static void clear_rows(warp& self, Parts& to, int first) {
        for (int i = 0; i < Parts::count; ++i) fill_rows(self, to.part[i], first, element(0.0f));
        fence_async(self);
    }

    // K or V. Rows behind the end of a sequence may hold anything, even NaN, and 0 * NaN is NaN: they become zero.
    template <class Tile, class From>
    IMBREX_KERNEL static void load_keys(warp& self, Tile& to, const From& from, int exist, transaction_barrier& full,
                                        const arguments& args, shared_memory& shared, unsigned& cleaned) {
        if (!args.lengths.keys_end_early() || exist >= block_n) {
            full.expect(self, Tile::bytes);
            load_parts(self, to, from, full);
            return;
        }
        shared.landed.expect(self, Tile::bytes);
        load_parts(self, to, from, shared.landed);
        shared.landed.wait_converged(self, cleaned++);
        clear_rows(self, to, exist);
        full.arrive(self);
    }

    // Q with the LSE or dO with delta, into the next stage of their pipeline. In a varlen batch the rows behind the end
    // belong to the next sequence: they become zero, too. The blocks of a cluster load a part of the tile each, for both
    // (TMA multicast); there, the consumers clear these rows.
    template <class Ring, class Tensor, class Blocks>
    IMBREX_KERNEL static void load_queries(warp& self, Ring& ring, const Tensor& tensor, const row_block* rows,
                                           row_block& to_rows, const Blocks& at, int rank, const arguments& args,
                                           shared_memory& shared, unsigned& cleaned) {
        const attention_extents& sequence = at.sequence();
        const int member = args.lengths.member(sequence.batch);
        const int row = args.lengths.first_query(sequence.batch) + at.block() * block_m;
        const int exist = sequence.seqlen_q - at.block() * block_m;
        const int index = Kernel::index_of(at, args);
        const auto from = [&](int column) { return tensor.at(member, sequence.head, row, column); };
        if constexpr (Kernel::cluster > 1) {
            auto slot = ring.acquire();
            auto& part = slot->part[rank];
            load_multicast(self, part, from(rank * part.columns).out_of_bounds_fill(), slot, 3);
            load_object_async(self, to_rows, rows[index], slot);
            return;
        }
        const auto load_into = [&](const auto& slot) {
            load_parts(self, *slot, from, slot);
            load_object_async(self, to_rows, rows[index], slot);
        };
        if (!args.lengths.varlen() || exist >= block_m) {
            load_into(ring.acquire());
            return;
        }
        auto slot = ring.acquire_for_transform(shared.landed);
        load_into(slot);
        shared.landed.wait_converged(self, cleaned++);
        clear_rows(self, *slot, exist);
        ring.publish(slot);
    }

    // dQ of a consumer: from shared memory to the workspace.
    IMBREX_KERNEL static void add_d_q(warp& self, int group, const attention_key_block& work, const arguments& args,
                                      shared_memory& shared) {
        if constexpr (Kernel::consumer::d_q_warps > 0) {
            auto& exchange = shared.exchange;
            unsigned step = 0;
            attention_d_q_turn<Kernel::ordered> turn;
            const int key_block = work.keys.first / block_n;
            for (auto blocks = Kernel::query_blocks(work, args); !blocks.done(); blocks.advance()) {
                const int index = Kernel::index_of(blocks, args);
                if constexpr (Kernel::ordered) {
                    const int previous =
                        previous_key_block<block_m, block_n>(blocks.sequence(), key_block, blocks.block(), args.mask);
                    turn.take(self, args.from.turn(index, group), previous, key_block);
                }
                exchange.d_q_full[group].wait_converged(self, step++);
                reduce_add_async<Kernel::ordered ? summation_order::fixed : summation_order::any>(
                    self, args.from.part_of_d_q(index, group), exchange.d_q[group]);
                commit_stores(self);
                wait_stores_read(self);
                exchange.d_q_empty[group].arrive(self);
            }
            if constexpr (Kernel::ordered) turn.pass(self, key_block);
        }
    }
};

}  // namespace imbrex
