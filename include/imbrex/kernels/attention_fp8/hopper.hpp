// Hopper attention forward with e4m3 Q, K and V: the kernel of attention/hopper.hpp, whose main loop, work tiles and
// tile scheduler it shares, with 8-bit products.
//
//   producer     as there, and two warps that transpose V: 8-bit WGMMA reads its B operand only with keys along rows
//   consumers    P becomes e4m3 in the order of the accumulator's registers, without exchanges between threads; V has
//                its keys in the same order. P is scaled by 2^8 to use e4m3's range (softmax.hpp)
//   scales       of Q and K multiply the scores, that of V the output. They come with the stages of Q and K
//   O            is summed in the tensor cores, or promoted to fp32 after each key tile (output_sum.hpp); bf16, fp16, or
//                e4m3 with a scale
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/tuning.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/kernels/attention_fp8/consumer.hpp>
#include <imbrex/kernels/attention_fp8/output_sum.hpp>
#include <imbrex/kernels/attention_fp8/producer.hpp>
#include <imbrex/kernels/attention_fp8/scaling.hpp>
#include <imbrex/kernels/attention_fp8/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/warpgroup/accumulator_order.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <type_traits>

namespace imbrex {

// The choices of the 16-bit kernel (attention/tuning.hpp), except that a thread's rows are processed one after the
// other with a mask, too: parts of P V end in between.
template <class Mask, class Score, attention_fp8_shape Shape, int HeadDim>
struct attention_fp8_tuning
    : attention_tuning<Mask, Score, Shape.common(), attention_output_mode::normalised, HeadDim> {
    using base = attention_tuning<Mask, Score, Shape.common(), attention_output_mode::normalised, HeadDim>;
    static constexpr bool row_by_row = Shape.consumer_warpgroups == 2 && !base::modify_all_tiles;
};

template <class Out, int HeadDim, class Mask = full_mask, class Score = score_mod::identity,
          class Scaling = fp8_scaling::per_tensor, fp8_accumulation Sum = fp8_accumulation::promoted,
          fp8_v_layout VLayout = fp8_v_layout::row_major,
          attention_fp8_shape Shape =
              attention_fp8_shape_for(HeadDim, Sum, attention_register_demand_of<Mask, Score>(), Scaling::kv_block),
          class Lengths = attention_seqlens>
struct attention_fp8_hopper {
    static constexpr bool paged = std::is_same_v<Lengths, paged_seqlens>;
    static_assert(!paged || VLayout == fp8_v_layout::row_major, "imbrex: a K-major V cannot be paged");
    static_assert(paged || !fp8_scales_by_page<Scaling>(), "imbrex: fp8_scaling::per_page needs kv_layout::paged");
    static_assert(Scaling::q_block % 64 == 0 && Scaling::kv_block % Shape.block_n == 0,
                  "imbrex: scales of 8-bit attention are for blocks of a multiple of 64 rows of Q and a multiple of "
                  "block_n keys");
    static_assert(HeadDim <= 128 || Sum == fp8_accumulation::fast || Shape.promotion_interval != 0,
                  "imbrex: with a head_dim above 128 promoted sums are in shared memory (promotion_interval): the "
                  "registers do not hold two accumulators");
    using element = e4m3;
    using out_element = Out;
    using mask_type = Mask;
    using score_type = Score;
    using scaling = Scaling;
    using tuning = attention_fp8_tuning<Mask, Score, Shape, HeadDim>;
    static constexpr attention_output_mode output_mode = attention_output_mode::normalised;
    static constexpr fp8_accumulation accumulation = Sum;
    static constexpr fp8_v_layout v_layout = VLayout;
    static constexpr int head_dim_v = HeadDim;
    static constexpr int product_columns = Shape.product_columns == 0 ? HeadDim : Shape.product_columns;
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
    static constexpr int promotion_interval = Shape.promotion_interval;
    static constexpr bool promotes_in_shared = promotion_interval != 0;
    static_assert(!promotes_in_shared || (Sum == fp8_accumulation::promoted && !can_skip_last_tile && !can_idle),
                  "imbrex: a promotion interval is for fp8_accumulation::promoted with two consumer warpgroups");
    static constexpr bool transposes_v = VLayout == fp8_v_layout::row_major;
    static constexpr int barrier_bytes = 2048;

    using q_tile = shared_tile<e4m3, warpgroup_rows, HeadDim>;
    using k_tile = shared_tile<e4m3, block_n, HeadDim>;
    using v_tile = accumulator_order_shared_tile<e4m3, HeadDim, block_n>;
    using raw_v_tile = shared_tile<e4m3, block_n / 2, HeadDim>;  // of one producer warp
    using out_tile = shared_tile<Out, warpgroup_rows, HeadDim>;
    using output_sums = attention_shared_sums<warpgroup_rows, HeadDim>;
    using v_tensor_tile = std::conditional_t<transposes_v, raw_v_tile, shared_tile<e4m3, HeadDim, block_n>>;

    struct arguments {
        tma_tensor<q_tile, 4> q;
        tma_tensor<k_tile, 4> k;
        tma_tensor<v_tensor_tile, 4> v;
        tma_tensor<out_tile, 4> out;
        attention_view<Out> out_view;
        attention_aux_outputs outputs;
        descale_view q_descale;
        descale_view k_descale;
        descale_view v_descale;
        descale_view out_descale;  // of an e4m3 O
        Mask mask;
        Score score;
        float scale;
        attention_tile_scheduler scheduler;
        Lengths lengths;  // attention_seqlens, or paged_seqlens
        int q_heads_per_kv_head;
        const float* sinks;
        int* tile_counter;
    };
    struct q_stage {
        static constexpr int bytes = consumer_warpgroups * q_tile::bytes;
        q_tile group[consumer_warpgroups];
        shared_vector<float, consumer_warpgroups> descale;
    };
    struct k_stage {
        static constexpr int bytes = k_tile::bytes;
        k_tile tile;
        shared_vector<float, 2> descale;  // of K and of V
    };
    static constexpr int other_bytes =
        Shape.stages * (sizeof(k_stage) + sizeof(v_tile)) + (transposes_v ? 2 * sizeof(raw_v_tile) : 0) +
        (promotes_in_shared ? consumer_warpgroups * sizeof(output_sums) : 0) + barrier_bytes;
    static constexpr int q_stages =
        other_bytes + 2 * sizeof(q_stage) + consumer_warpgroups * sizeof(out_tile) <= shared_memory_limit ? 2 : 1;
    struct rings {
        pipeline_barriers<q_stage, q_stages> q;
        pipeline_barriers<k_stage, Shape.stages> k;
        pipeline_barriers<v_tile, Shape.stages> v;
        pipeline_barriers<raw_v_tile, 1> raw_v[2];
        transaction_barrier landed[2];
        dynamic_tile_scheduler<4, attention_work_tile, 2> work;
    };
    struct no_raw_v {};
    struct with_raw_v {
        raw_v_tile raw_values[2][1];
    };
    struct inputs : std::conditional_t<transposes_v, with_raw_v, no_raw_v> {
        k_stage keys[Shape.stages];
        v_tile values[Shape.stages];
        q_stage queries[q_stages];
    };
    struct no_sums {};
    struct with_sums {
        output_sums sums[consumer_warpgroups];
    };
    struct inputs_and_sums : inputs, std::conditional_t<promotes_in_shared, with_sums, no_sums> {};
    // O is staged in shared memory of its own and stored by TMA; without room for that it is stored from registers.
    static constexpr bool by_tma =
        sizeof(inputs_and_sums) + consumer_warpgroups * sizeof(out_tile) + sizeof(rings) <= shared_memory_limit;
    struct no_out {};
    struct with_out {
        out_tile tile[consumer_warpgroups];
    };
    struct shared_memory : inputs_and_sums {
        std::conditional_t<by_tma, with_out, no_out> out;
        rings ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.q.init(block, shared.queries, 4 * consumer_warpgroups);
        shared.ring.k.init(block, shared.keys, 4 * consumer_warpgroups);
        shared.ring.v.init(block, shared.values, 4 * consumer_warpgroups, transposes_v ? 2 : 1);
        for (int i = 0; i < 2; ++i) {
            if constexpr (transposes_v) {
                shared.ring.raw_v[i].init(block, shared.raw_values[i], 1);
            } else {
                shared.ring.landed[i].init(block, 1);
            }
        }
        shared.ring.work.init(block, 4 * consumer_warpgroups + 3);
        fence_barriers(block);
        block.sync();
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.roles(
            single_warps<4, Shape.producer_registers>(
                "producer",
                [&](warp& self) { attention_fp8_producer<attention_fp8_hopper>::run(self, block, args, shared); }),
            consumers<consumer_warpgroups, Shape.consumer_registers>(
                [&](warpgroup& self) { attention_fp8_consumer<attention_fp8_hopper>::run(self, args, shared); }));
    }
};

}  // namespace imbrex
