// Hopper attention backward: warp specialization, TMA and WGMMA. A block owns a block of keys: K and V stay in shared
// memory, dK and dV in registers, while the blocks of queries that see these keys pass by.
//
//   producer     one warp loads K and V, then Q, dO, the LSE and delta of one query block after the other
//   consumers    warpgroups of 64 keys, in transposed products: S^T = K Q^T and dP^T = V dO^T, so that P^T and dS^T are
//                register operands of dV += P^T dO and dK += dS^T Q. dS^T also goes to shared memory, from where all
//                consumers share dQ = dS K
//   dQ warps     one for each consumer: adds its part of dQ to the workspace in fp32 (TMA reduce-add)
//
//     tensor cores   S^T   dP^T        dV         dQ   dK           of one warpgroup; the other one fills the gaps
//     registers            exp2   dS   store dS        store dQ
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
#include <imbrex/kernels/attention_backward/producer.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/kernels/attention_backward/workspace.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

namespace imbrex {

struct attention_backward_shape {
    int block_m = 64;             // queries of a block
    int consumer_warpgroups = 2;  // of 64 keys each
    int stages = 2;               // of Q and of dO
    int producer_registers = 24;
    int consumer_registers = 240;
};

// A score_mod with a derivative needs registers of its own.
constexpr attention_backward_shape attention_backward_shape_for(int head_dim_qk, int head_dim_v, bool derivative) {
    if (head_dim_qk <= 64 && head_dim_v <= 64 && !derivative) return {.block_m = 128};
    return {};
}

template <class In, int HeadDimQK, int HeadDimV, class Mask = full_mask, class Score = score_mod::identity,
          attention_backward_shape Shape =
              attention_backward_shape_for(HeadDimQK, HeadDimV, score_has_derivative<Score>())>
struct attention_backward_hopper {
    using element = In;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int head_dim_qk = HeadDimQK;
    static constexpr int head_dim_v = HeadDimV;
    static constexpr int consumer_warpgroups = Shape.consumer_warpgroups;
    static constexpr int consumer_warps = 4 * consumer_warpgroups;
    static constexpr int warps = 4 + consumer_warps;
    static constexpr int warpgroup_keys = 64;
    static constexpr int block_m = Shape.block_m;
    static constexpr int block_n = consumer_warpgroups * warpgroup_keys;

    // Each consumer computes some rows of dQ, or some columns if the block has too few rows.
    static constexpr bool d_q_by_rows = block_m % (64 * consumer_warpgroups) == 0;
    static constexpr int d_q_rows = d_q_by_rows ? block_m / consumer_warpgroups : block_m;
    static constexpr int d_q_columns = d_q_by_rows ? HeadDimQK : HeadDimQK / consumer_warpgroups;

    using q_tile = shared_tile<In, block_m, HeadDimQK>;
    using d_out_tile = shared_tile<In, block_m, HeadDimV>;
    using k_tile = shared_tile<In, block_n, HeadDimQK>;
    using v_tile = shared_tile<In, block_n, HeadDimV>;
    using d_k_tile = shared_tile<In, warpgroup_keys, HeadDimQK>;  // of one consumer
    using d_v_tile = shared_tile<In, warpgroup_keys, HeadDimV>;
    using d_s_tile = shared_tile<In, block_n, block_m>;  // transposed
    using d_q_tile = shared_tile<float, d_q_rows, d_q_columns>;
    using workspace = attention_backward_workspace<block_m, HeadDimQK>;
    using row_block = typename workspace::row_block;

    struct arguments {
        tma_tensor<q_tile, 4> q;
        tma_tensor<k_tile, 4> k;
        tma_tensor<v_tile, 4> v;
        tma_tensor<d_out_tile, 4> d_out;
        tma_tensor<d_q_tile, 2> d_q;  // in the workspace: all its rows
        tma_tensor<d_k_tile, 4> d_k;
        tma_tensor<d_v_tile, 4> d_v;
        attention_view<In> d_k_view;
        attention_view<In> d_v_view;
        workspace from;
        Mask mask;
        Score score;
        float scale;
        attention_tile_scheduler scheduler;  // of blocks of keys
        attention_seqlens lengths;
        int q_heads_per_kv_head;
    };

    // A tile of Q or dO, and the LSE or delta of its rows.
    template <class Tile>
    struct query_stage {
        static constexpr int bytes = Tile::bytes + row_block::bytes;
        Tile tile;
        row_block rows;
    };
    struct shared_memory {
        k_tile k;
        v_tile v;
        d_s_tile d_s[2];
        d_q_tile d_q[consumer_warpgroups];
        pipeline<query_stage<q_tile>, Shape.stages> q;
        pipeline<query_stage<d_out_tile>, Shape.stages> d_out;
        transaction_barrier k_full, v_full;
        transaction_barrier landed;
        transaction_barrier d_q_full[consumer_warpgroups], d_q_empty[consumer_warpgroups];
    };

    IMBREX_KERNEL static auto query_blocks(const attention_key_block& work, const arguments& args) {
        return query_block_cursor<block_m, Mask>(work, args.q_heads_per_kv_head, args.mask);
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.q.init(block, consumer_warps);
        shared.d_out.init(block, consumer_warps);
        shared.k_full.init(block, 1);
        shared.v_full.init(block, 1);
        shared.landed.init(block, 1);
        for (int i = 0; i < consumer_warpgroups; ++i) {
            shared.d_q_full[i].init(block, 4);
            shared.d_q_empty[i].init(block, 1);
        }
        fence_barriers(block);
        block.sync();
        pdl_wait(block);
        pdl_launch_dependents(block);
        const attention_key_block work =
            attention_key_block_at(block.index().x, block_n, args.q_heads_per_kv_head, args.scheduler, args.lengths);
        block.roles(single_warps<1 + consumer_warpgroups, Shape.producer_registers>(
                        "producer",
                        [&](warp& self) {
                            attention_backward_producer<attention_backward_hopper>::run(self, work, args, shared);
                        }),
                    consumers<consumer_warpgroups, Shape.consumer_registers>([&](warpgroup& self) {
                        attention_backward_consumer<attention_backward_hopper>::run(self, work, args, shared);
                    }));
    }
};

}  // namespace imbrex
