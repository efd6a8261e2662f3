// Hopper attention forward over a paged KV cache of e4m3 or int8, with bf16 or fp16 Q: the kernel of hopper.hpp, whose
// consumers, work tiles and tile scheduler it shares, with another producer.
//
//   producer     one warp runs the tile scheduler and loads Q and, into rings of their own, cache tiles: 32 keys of K or V
//                in the type of the cache; two warps upconvert K into the stages that the consumers read, one V
//   consumers    as in hopper.hpp; P and V are fp16 whatever the type of Q
//   scales       cache_scaling.hpp
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/kernels/attention/cache_scaling.hpp>
#include <imbrex/kernels/attention/consumer.hpp>
#include <imbrex/kernels/attention/heuristics.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/producer_8bit_cache.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/tuning.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <type_traits>

namespace imbrex {

// Cache tiles are rows of K or V in the type of the cache.
inline constexpr int cache_tile_rows = 32;
inline constexpr int cache_barrier_bytes = 2048;  // barriers, work tiles and the scales of pages

constexpr bool cache_tiles_fit(attention_head_dims head_dims, const attention_shape& shape, int cache_stages) {
    const int queries = 64 * shape.consumer_warpgroups * head_dims.qk;
    const int columns = head_dims.qk + head_dims.v;
    return 2 * (shape.stages * shape.block_n * columns + queries) + cache_stages * cache_tile_rows * columns +
               cache_barrier_bytes <=
           shared_memory_limit;
}

// The shape of the 16-bit kernel, with key tiles of whole cache tiles, narrower where shared memory requires it, and with
// more registers for the producer.
constexpr attention_shape attention_8bit_cache_shape_for(attention_head_dims head_dims,
                                                         attention_register_demand demand,
                                                         attention_rescaling rescaling = attention_rescaling::exact) {
    attention_shape shape = attention_shape_for(head_dims, demand, rescaling);
    shape.block_n = shape.block_n / cache_tile_rows * cache_tile_rows;
    while (shape.block_n > cache_tile_rows && !cache_tiles_fit(head_dims, shape, 2)) shape.block_n -= cache_tile_rows;
    // Upconversion takes more registers than loads, and the scale of a head one of a consumer's.
    shape.producer_registers = 56;
    if (shape.consumer_warpgroups == 3) {
        shape.consumer_registers = 152;
        if (shape.block_n > 96) shape.block_n = 96;
    } else if (shape.consumer_warpgroups == 2) {
        shape.consumer_registers = 224;
    }
    return shape;
}

template <class In, class Cache, int HeadDimQK, int HeadDimV, class Mask = full_mask, class Score = score_mod::identity,
          attention_shape Shape = attention_shape{}, attention_output_mode Mode = attention_output_mode::normalised>
struct attention_hopper_8bit_cache {
    static_assert(upconverts_to<Cache, In>, "imbrex: an 8-bit KV cache is e4m3 or int8, and Q is bf16 or fp16");
    static_assert(Shape.block_n % cache_tile_rows == 0, "imbrex: block_n must be a multiple of 32 keys");
    using element = In;
    using value_element = attention_value<In, Cache>;
    using out_element = In;
    using mask_type = Mask;
    using score_type = Score;
    using tuning = attention_tuning<Mask, Score, Shape, Mode, HeadDimV>;
    static constexpr attention_output_mode output_mode = Mode;
    static constexpr int head_dim_v = HeadDimV;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int consumer_warpgroups = Shape.consumer_warpgroups;
    static constexpr int warpgroup_rows = 64;
    static constexpr int block_m = consumer_warpgroups * warpgroup_rows;
    static constexpr int block_m_step = tuning::block_m_step;
    static constexpr int block_n = Shape.block_n;
    static constexpr int cache_stages = cache_tiles_fit({HeadDimQK, HeadDimV}, Shape, 4) ? 4 : 2;
    static constexpr int key_warps = 2;  // that upconvert K
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr bool can_skip_last_tile = tuning::can_skip_last_tile;
    static constexpr bool can_idle = tuning::can_idle;

    using q_tile = shared_tile<In, warpgroup_rows, HeadDimQK>;
    using k_tile = shared_tile<In, block_n, HeadDimQK>;
    using v_tile = shared_tile<value_element, block_n, HeadDimV>;
    using k_cache_tile = shared_tile<Cache, cache_tile_rows, HeadDimQK>;
    using v_cache_tile = shared_tile<Cache, cache_tile_rows, HeadDimV>;
    using out_tile = shared_tile<In, warpgroup_rows, HeadDimV>;
    using work_tile = attention_work_tile;

    struct arguments : cache_scale_arguments {
        tma_tensor<q_tile, 4> q;
        tma_tensor<k_cache_tile, 4> k;
        tma_tensor<v_cache_tile, 4> v;
        tma_tensor<out_tile, 4> out;
        attention_view<In> out_view;
        attention_aux_outputs outputs;
        Mask mask;
        Score score;
        float scale;
        scale_log2_after_score<Score> scale_log2;  // without the scale of K
        attention_tile_scheduler scheduler;
        paged_seqlens lengths;
        int q_heads_per_kv_head;
        const float* sinks;
        int* tile_counter;
    };
    struct q_tiles {
        q_tile group[consumer_warpgroups];
    };
    static constexpr int other_bytes = Shape.stages * (sizeof(k_tile) + sizeof(v_tile)) +
                                       cache_stages * (sizeof(k_cache_tile) + sizeof(v_cache_tile)) +
                                       cache_barrier_bytes;
    static constexpr int q_stages =
        other_bytes + 2 * sizeof(q_tiles) + consumer_warpgroups * sizeof(out_tile) <= shared_memory_limit ? 2 : 1;
    // Scales per page, one for each 16 keys of a cache tile.
    using page_scales = shared_vector<float, cache_tile_rows / page_size_step>;
    struct rings {
        pipeline_barriers<q_tiles, q_stages> q;
        pipeline_barriers<k_tile, Shape.stages> k;
        pipeline_barriers<v_tile, Shape.stages> v;
        pipeline_barriers<k_cache_tile, cache_stages> cache_k;
        pipeline_barriers<v_cache_tile, cache_stages> cache_v;
        page_scales k_scales[cache_stages];
        page_scales v_scales[cache_stages];
        dynamic_tile_scheduler<4, work_tile, 2> work;
    };
    static_assert(sizeof(rings) <= cache_barrier_bytes);
    struct inputs {
        k_tile keys[Shape.stages];
        v_tile values[Shape.stages];
        q_tiles queries[q_stages];
        k_cache_tile cache_keys[cache_stages];
        v_cache_tile cache_values[cache_stages];
    };
    // O is staged in shared memory of its own and stored by TMA; without room for that it is stored from registers.
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
        shared.ring.k.init(block, shared.keys, 4 * consumer_warpgroups, key_warps);
        shared.ring.v.init(block, shared.values, 4 * consumer_warpgroups);
        shared.ring.cache_k.init(block, shared.cache_keys, 1);
        shared.ring.cache_v.init(block, shared.cache_values, 1);
        shared.ring.work.init(block, 4 * consumer_warpgroups + 3);
        fence_barriers(block);
        block.sync();
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.roles(single_warps<4, Shape.producer_registers>(
                        "producer",
                        [&](warp& self) {
                            attention_8bit_cache_producer<attention_hopper_8bit_cache>::run(self, block, args, shared);
                        }),
                    consumers<consumer_warpgroups, Shape.consumer_registers>([&](warpgroup& self) {
                        attention_consumer<attention_hopper_8bit_cache>::run(self, args, shared);
                    }));
    }
};

}  // namespace imbrex
