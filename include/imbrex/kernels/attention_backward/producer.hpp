// Producer warps of the Hopper attention backward kernel. Warp 0 loads by TMA: K and V once, then Q with the LSE and dO
// with delta of one query block after the other, as far ahead as the pipelines have free stages. The other warps serve
// one consumer each: they add its part of dQ to the workspace (TMA reduce-add).
#pragma once

#include <imbrex/core/config.hpp>
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
    using workspace = typename Kernel::workspace;
    using row_block = typename Kernel::row_block;
    static constexpr int block_m = Kernel::block_m;
    static constexpr int block_n = Kernel::block_n;

  public:
    IMBREX_KERNEL static void run(warp& self, const attention_key_block& work, const arguments& args,
                                  shared_memory& shared) {
        if (self.index() == 0) {
            load(self, work, args, shared);
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
        const int first_key = args.lengths.first_key(work.sequence.batch) + work.keys.first;
        const int keys = work.sequence.seqlen_k - work.keys.first;
        unsigned cleaned = 0;
        auto q = shared.q.producer(self);
        auto d_out = shared.d_out.producer(self);
        const auto load_q = [&] { load_queries(self, q, args.q, args.from.lse2, blocks, args, shared, cleaned); };
        const auto load_d_out = [&] {
            load_queries(self, d_out, args.d_out, args.from.delta, blocks, args, shared, cleaned);
        };
        load_keys(self, shared.k, args.k.at(member, work.kv_head, first_key, 0), keys, shared.k_full, args, shared,
                  cleaned);
        load_q();
        load_keys(self, shared.v, args.v.at(member, work.kv_head, first_key, 0), keys, shared.v_full, args, shared,
                  cleaned);
        load_d_out();
        for (blocks.advance(); !blocks.done(); blocks.advance()) {
            load_d_out();  // released before Q
            load_q();
        }
    }

    // K or V. Rows behind the end of a sequence may hold anything, even NaN, and 0 * NaN is NaN: they become zero.
    template <class Tile, class From>
    IMBREX_KERNEL static void load_keys(warp& self, Tile& to, const From& from, int exist, transaction_barrier& full,
                                        const arguments& args, shared_memory& shared, unsigned& cleaned) {
        if (!args.lengths.keys_end_early() || exist >= block_n) {
            full.expect(self, Tile::bytes);
            load_async(self, to, from, full);
            return;
        }
        shared.landed.expect(self, Tile::bytes);
        load_async(self, to, from, shared.landed);
        shared.landed.wait_converged(self, cleaned++);
        fill_rows(self, to, exist, element(0.0f));
        fence_async(self);
        full.arrive(self);
    }

    // Q with the LSE or dO with delta, into the next stage of their pipeline. In a varlen batch the rows behind the end
    // belong to the next sequence: they become zero, too.
    template <class Ring, class Tensor, class Blocks>
    IMBREX_KERNEL static void load_queries(warp& self, Ring& ring, const Tensor& tensor, const row_block* rows,
                                           const Blocks& at, const arguments& args, shared_memory& shared,
                                           unsigned& cleaned) {
        const attention_extents& sequence = at.sequence();
        const int member = args.lengths.member(sequence.batch);
        const int row = args.lengths.first_query(sequence.batch) + at.block() * block_m;
        const int exist = sequence.seqlen_q - at.block() * block_m;
        const int index =
            args.from.index(member, sequence.head, workspace::first_block(args.lengths, sequence.batch) + at.block());
        const auto load_into = [&](const auto& slot) {
            load_async(self, slot->tile, tensor.at(member, sequence.head, row, 0), slot);
            load_object_async(self, slot->rows, rows[index], slot);
        };
        if (!args.lengths.varlen() || exist >= block_m) {
            load_into(ring.acquire());
            return;
        }
        auto slot = ring.acquire_for_transform(shared.landed);
        load_into(slot);
        shared.landed.wait_converged(self, cleaned++);
        fill_rows(self, slot->tile, exist, element(0.0f));
        fence_async(self);
        ring.publish(slot);
    }

    // dQ of a consumer: from shared memory to the workspace.
    IMBREX_KERNEL static void add_d_q(warp& self, int group, const attention_key_block& work, const arguments& args,
                                      shared_memory& shared) {
        auto blocks = Kernel::query_blocks(work, args);
        if (blocks.done()) return;
        prefetch_descriptor(self, args.d_q);
        const int member = args.lengths.member(work.sequence.batch);
        const int row_in_block = Kernel::d_q_by_rows ? group * Kernel::d_q_rows : 0;
        const int column = Kernel::d_q_by_rows ? 0 : group * Kernel::d_q_columns;
        unsigned step = 0;
        for (; !blocks.done(); blocks.advance()) {
            const int first = workspace::first_block(args.lengths, work.sequence.batch);
            const int index = args.from.index(member, blocks.sequence().head, first + blocks.block());
            shared.d_q_full[group].wait_converged(self, step++);
            reduce_add_async(self, args.d_q.at(index * block_m + row_in_block, column), shared.d_q[group]);
            commit_stores(self);
            wait_stores_read(self);
            shared.d_q_empty[group].arrive(self);
        }
    }
};

}  // namespace imbrex
