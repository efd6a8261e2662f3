// Hopper attention forward: a persistent kernel with warp specialization, TMA loads, WGMMA and ping-pong scheduling.
//
//   producer     three warps: one runs the tile scheduler, one loads Q and the K tiles, one loads the V tiles; all run
//                ahead of the consumers as far as their pipelines have free stages
//   consumers    warpgroups of 64 query rows: the WGMMA of the next scores (Q K^T) is issued together with P V of the
//                current tile, and the softmax of the scores overlaps P V
//   ping-pong    a warpgroup order barrier lets one consumer warpgroup at a time issue its WGMMAs, so that the softmax
//                of one overlaps the matrix products of the other
//
//     warpgroup 0    [Q K1][P0 V0]  softmax 1      [Q K2][P1 V1]  softmax 2    ...
//     warpgroup 1       softmax 0   [Q K1][P0 V0]   softmax 1     [Q K2][P1 V1]
//
// Work tiles follow one another without a gap: the first Q K^T of a work tile is issued together with the last P V of
// the one before, whose output is written after that softmax. The probabilities P never leave the registers. Key tiles
// are visited from last to first, since a causal mask cuts the last ones. Key tiles that are hidden from all queries of
// a work tile are not loaded, and only partially masked tiles evaluate the mask.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/consumer.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/producer.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/tuning.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class In, int HeadDimQK, int HeadDimV, class Mask = full_mask, class Score = score_mod::identity,
          attention_shape Shape = attention_shape{}, attention_output_mode Mode = attention_output_mode::normalised,
          class Lengths = attention_seqlens>
struct attention_hopper {
    using element = In;
    using out_element = In;
    using mask_type = Mask;
    using score_type = Score;
    using tuning = attention_tuning<Mask, Score, Shape, Mode, HeadDimV>;
    static constexpr attention_shape shape = Shape;
    static constexpr attention_output_mode output_mode = Mode;
    static constexpr int head_dim_v = HeadDimV;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int consumer_warpgroups = Shape.consumer_warpgroups;
    static constexpr int warpgroup_rows = 64;
    static constexpr int block_m = consumer_warpgroups * warpgroup_rows;
    static constexpr int block_m_step = tuning::block_m_step;
    static constexpr int block_n = Shape.block_n;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr bool can_skip_last_tile = tuning::can_skip_last_tile;
    static constexpr bool can_idle = tuning::can_idle;
    static constexpr int barrier_bytes = 2048;

    using q_tile = shared_tile<In, warpgroup_rows, HeadDimQK>;
    using k_tile = shared_tile<In, block_n, HeadDimQK>;
    using v_tile = shared_tile<In, block_n, HeadDimV>;
    using out_tile = shared_tile<In, warpgroup_rows, HeadDimV>;
    using work_tile = attention_work_tile;

    struct arguments {
        tma_tensor<q_tile, 4> q;
        tma_tensor<k_tile, 4> k;
        tma_tensor<v_tile, 4> v;
        tma_tensor<out_tile, 4> out;
        attention_view<In> out_view;
        attention_aux_outputs outputs;
        Mask mask;
        Score score;
        float scale;
        scale_log2_after_score<Score> scale_log2;
        attention_tile_scheduler scheduler;
        Lengths lengths;  // attention_seqlens, or paged_seqlens
        int q_heads_per_kv_head;
        const float* sinks;  // attention sinks: a logit per head, or null
        int* tile_counter;   // dynamic tile scheduling: a counter that is zero; null for a static schedule
    };
    struct q_tiles {
        q_tile group[consumer_warpgroups];
    };
    // Q is double-buffered if shared memory suffices: the next work tile's Q is loaded during this one.
    static constexpr int q_stages = Shape.stages * (sizeof(k_tile) + sizeof(v_tile)) + 2 * sizeof(q_tiles) +
                                                consumer_warpgroups * sizeof(out_tile) + barrier_bytes <=
                                            shared_memory_limit
                                        ? 2
                                        : 1;
    struct rings {
        pipeline_barriers<q_tiles, q_stages> q;
        pipeline_barriers<k_tile, Shape.stages> k;
        pipeline_barriers<v_tile, Shape.stages> v;
        transaction_barrier landed;
        dynamic_tile_scheduler<4, work_tile, 2> work;
    };
    struct inputs {
        k_tile keys[Shape.stages];
        v_tile values[Shape.stages];
        q_tiles queries[q_stages];
    };
    // O is staged in shared memory of its own and stored by TMA. Without room for that, and in fp32 modes, it is stored
    // from registers.
    static constexpr bool by_tma =
        Mode == attention_output_mode::normalised &&
        sizeof(inputs) + consumer_warpgroups * sizeof(out_tile) + sizeof(rings) <= shared_memory_limit;
    struct no_out {};
    struct with_out {
        out_tile tile[consumer_warpgroups];
    };
    struct shared_memory : inputs {
        std::conditional_t<by_tma, with_out, no_out> out;
        rings ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.q.init(block, shared.queries, 4 * consumer_warpgroups);
        shared.ring.k.init(block, shared.keys, 4 * consumer_warpgroups);
        shared.ring.v.init(block, shared.values, 4 * consumer_warpgroups);
        shared.ring.landed.init(block, 1);
        shared.ring.work.init(block, 4 * consumer_warpgroups + 2);
        fence_barriers(block);
        block.sync();
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.roles(
            single_warps<3, Shape.producer_registers>(
                "producer", [&](warp& self) { attention_producer<attention_hopper>::run(self, block, args, shared); }),
            consumers<consumer_warpgroups, Shape.consumer_registers>(
                [&](warpgroup& self) { attention_consumer<attention_hopper>::run(self, args, shared); }));
    }
};

}  // namespace imbrex
