// Hopper attention backward: warp specialization, TMA and WGMMA. A block owns a block of keys: K and V stay in shared
// memory, dK and dV in registers, while the blocks of queries that see these keys pass by.
//
//   producer     one warp loads K and V, then Q, dO, the LSE and delta of one query block after the other
//   consumers    warpgroups with transposed products: S^T = K Q^T, dP^T = V dO^T, dV += P^T dO, dK += dS^T Q. They share
//                dQ = dS K
//   dQ warps     one for each consumer: adds its part of dQ to the workspace in fp32 (bulk reduce-add)
//
// There are two kinds of consumers. Up to head_dim 128 each has 64 keys (consumer.hpp). Beyond, dK and dV of 64 keys need
// the registers of two, which split the columns (wide_consumer.hpp); shared memory has no room to stage dQ, so there are
// no dQ warps, and consumers add dQ from registers. With 64 keys per block, the additions to dQ in L2 would be the limit.
// So two blocks with neighbouring keys form a thread block cluster. They walk the same query blocks and exchange dS through
// DSMEM; each computes half of the columns of dQ over the keys of both, which halves the additions.
//
// GQA: the query heads of a KV head pass by one after the other, and dK and dV collect them all.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_backward/consumer.hpp>
#include <imbrex/kernels/attention_backward/d_q_order.hpp>
#include <imbrex/kernels/attention_backward/options.hpp>
#include <imbrex/kernels/attention_backward/producer.hpp>
#include <imbrex/kernels/attention_backward/wide_consumer.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/kernels/attention_backward/workspace.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <type_traits>

namespace imbrex {

struct attention_backward_shape {
    int block_m = 64;  // queries of a block
    int consumer_warpgroups = 2;
    int column_parts = 1;  // 1: each consumer has 64 keys; 2: two consumers share 64 keys and split the columns
    int stages = 2;        // of Q
    int d_out_stages = 2;  // of dO
    int producer_registers = 24;
    int consumer_registers = 240;
};

// A score_mod with a derivative or with gradients of its parameters needs registers of its own.
constexpr attention_backward_shape attention_backward_shape_for(int head_dim_qk, int head_dim_v, bool differentiated) {
    if (head_dim_qk <= 64 && head_dim_v <= 64 && !differentiated) return {.block_m = 128};
    if (head_dim_qk <= 128 && head_dim_v <= 128) return {};
    return {.column_parts = 2,
            .d_out_stages = head_dim_qk + head_dim_v > 384 ? 1 : 2,  // as many as shared memory has room for
            .producer_registers = 40,
            .consumer_registers = 232};
}

template <class In, int HeadDimQK, int HeadDimV, class Mask = full_mask, class Score = score_mod::identity,
          attention_gradients Gradients = attention_gradients::rounded,
          attention_d_q_order Order = attention_d_q_order::any,
          attention_backward_shape Shape =
              attention_backward_shape_for(HeadDimQK, HeadDimV, score_is_differentiated<Score>())>
struct attention_backward_hopper {
    using element = In;
    using gradient = attention_gradient<In, Gradients>;
    static constexpr bool accumulates = Gradients == attention_gradients::accumulated;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr bool ordered = Order == attention_d_q_order::ordered;
    static constexpr int head_dim_qk = HeadDimQK;
    static constexpr int head_dim_v = HeadDimV;
    static constexpr int consumer_warpgroups = Shape.consumer_warpgroups;
    static constexpr int consumer_warps = 4 * consumer_warpgroups;
    static constexpr int warps = 4 + consumer_warps;
    static constexpr int column_parts = Shape.column_parts;
    static constexpr int cluster = column_parts;  // each block has a part of the columns of dQ
    static constexpr int stages = Shape.stages;
    static constexpr int d_out_stages = Shape.d_out_stages;
    static constexpr int block_m = Shape.block_m;
    static constexpr int block_n = 64 * consumer_warpgroups / column_parts;
    static_assert(!ordered || column_parts == 1, "imbrex: an ordered dQ needs head dims up to 128");
    static constexpr int cluster_n = block_n * cluster;     // keys of a cluster
    static constexpr int send_warps = cluster > 1 ? 1 : 0;  // send dS to the other block
    static_assert(column_parts == 1 || column_parts == consumer_warpgroups,
                  "imbrex: each consumer warpgroup has all columns, or one part of them");
    static_assert(column_parts <= 2, "imbrex: a cluster has at most two blocks");

    // K has columns of zeros if the swizzle could not be divided between two consumers otherwise (head_dim 96).
    static constexpr int k_columns = column_parts == 1 && HeadDimQK % 64 != 0 ? 128 : HeadDimQK;

    // Each consumer computes some rows of dQ, or some columns if the block has too few rows. The consumers of a cluster share
    // panels of the swizzle, because an operand must begin with one; if these are many narrow ones (head_dim 160), both
    // compute all columns of their block.
    static constexpr bool d_q_by_rows = block_m % (64 * consumer_warpgroups) == 0;
    static constexpr int d_q_rows = d_q_by_rows ? block_m / consumer_warpgroups : block_m;
    static constexpr int part_columns = k_columns / column_parts;
    static constexpr int k_panel = shared_tile<In, block_n, part_columns>::layout::panel_columns;
    static constexpr int d_q_columns = d_q_by_rows    ? k_columns
                                       : cluster == 1 ? k_columns / consumer_warpgroups
                                       : part_columns / k_panel <= 2 * consumer_warpgroups ? k_panel
                                                                                           : part_columns;

    // Tiles of Q, K, V and dO are stored in parts of columns, each of which is one TMA copy.
    template <class Tile, int Count = column_parts>
    struct parts_of {
        static constexpr int count = Count;
        static constexpr int bytes = Count * Tile::bytes;
        Tile part[Count];
    };
    using q_tile = shared_tile<In, block_m, HeadDimQK / column_parts>;
    using d_out_tile = shared_tile<In, block_m, HeadDimV / column_parts>;
    using k_tile = shared_tile<In, block_n, k_columns / column_parts>;
    using v_tile = shared_tile<In, block_n, HeadDimV / column_parts>;
    using d_k_tile = shared_tile<In, 64, k_columns / column_parts>;  // of one consumer
    using d_v_tile = shared_tile<In, 64, HeadDimV / column_parts>;
    using workspace = attention_backward_workspace<block_m, k_columns, d_q_rows, d_q_columns, ordered>;
    using d_q_part = typename workspace::d_q_part;
    using row_block = typename workspace::row_block;
    using consumer = std::conditional_t<column_parts == 1, attention_backward_consumer<attention_backward_hopper>,
                                        attention_backward_wide_consumer<attention_backward_hopper>>;

    struct arguments {
        tma_tensor<q_tile, 4> q;
        tma_tensor<k_tile, 4> k;
        tma_tensor<v_tile, 4> v;
        tma_tensor<d_out_tile, 4> d_out;
        tma_tensor<d_k_tile, 4> d_k;  // not used if the kernel accumulates
        tma_tensor<d_v_tile, 4> d_v;
        attention_view<gradient> d_k_view;
        attention_view<gradient> d_v_view;
        workspace from;
        Mask mask;
        Score score;
        float scale;
        attention_key_block_scheduler scheduler;
        attention_seqlens lengths;
        int q_heads_per_kv_head;
    };

    // A tile of Q or dO. Its stage also receives the LSE or delta of its rows, which are stored elsewhere.
    template <class Tile>
    struct query_stage : parts_of<Tile> {
        static constexpr int bytes = parts_of<Tile>::bytes + row_block::bytes;
    };
    struct shared_memory {
        parts_of<k_tile> k;
        parts_of<v_tile> v;
        query_stage<q_tile> queries[stages];
        query_stage<d_out_tile> gradients[d_out_stages];
        typename consumer::shared_tiles exchange;
        row_block lse2[stages];
        row_block delta[d_out_stages];
        pipeline_barriers<query_stage<q_tile>, stages, cluster> q;
        pipeline_barriers<query_stage<d_out_tile>, d_out_stages, cluster> d_out;
        transaction_barrier k_full, v_full;
        transaction_barrier landed;
        shared_vector<int, 1> ticket;  // of an ordered dQ
    };

    IMBREX_KERNEL static auto query_blocks(const attention_key_block& work, const arguments& args) {
        return query_block_cursor<block_m, Mask, ordered>(work, args.q_heads_per_kv_head, args.mask);
    }

    // The index of the current query block in the workspace.
    template <class Blocks>
    IMBREX_KERNEL static int index_of(const Blocks& at, const arguments& args) {
        const attention_extents& sequence = at.sequence();
        return args.from.index(args.lengths.member(sequence.batch), sequence.head,
                               workspace::first_block(args.lengths, sequence.batch) + at.block());
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.q.init(block, shared.queries, consumer_warps);
        shared.d_out.init(block, shared.gradients, consumer_warps);
        shared.k_full.init(block, 1);
        shared.v_full.init(block, 1);
        shared.landed.init(block, 1);
        shared.exchange.init(block);
        fence_barriers(block);
        if constexpr (cluster > 1) {
            block.cluster_sync();
        } else if constexpr (!ordered) {
            block.sync();  // otherwise with the ticket
        }
        pdl_wait(block);
        pdl_launch_dependents(block);
        int number = block.index().x / cluster;
        if constexpr (ordered) number = take_ticket(block, args.from.turns, shared.ticket);
        attention_key_block work = args.scheduler.at(number, cluster_n, args.q_heads_per_kv_head, args.lengths);
        work.rank = block.cluster_rank();
        block.roles(single_warps<1 + consumer::d_q_warps + send_warps, Shape.producer_registers>(
                        "producer",
                        [&](warp& self) {
                            attention_backward_producer<attention_backward_hopper>::run(self, work, args, shared);
                        }),
                    consumers<consumer_warpgroups, Shape.consumer_registers>(
                        [&](warpgroup& self) { consumer::run(self, work, args, shared); }));
        if constexpr (cluster > 1) block.cluster_sync();  // no block exits while the other one uses its shared memory
    }
};

}  // namespace imbrex
