// O = softmax(mask(score(Q K^T))) V on Hopper, with the logarithm of each row's sum of exponentials.
//
//   producer     three warps: one finds out pieces of work, one loads K, a tile of keys at a time, and each piece's Q, one loads V;
//                all go ahead of the consumers as far as there is room in their rings
//   consumers    64 queries each, in step: the tensor cores get the scores of the next keys together with the values of the
//                last ones, and the softmax of these scores runs while the values are still being added
//   turns        the consumers hand the tensor cores to one another, so that one's softmax hides under the other's products
//
//     group 0    [Q K1][P0 V0]  softmax 1      [Q K2][P1 V1]  softmax 2    ...
//     group 1       softmax 0   [Q K1][P0 V0]   softmax 1     [Q K2][P1 V1]
//
// From one piece of work to the next this goes on without a gap: the first scores of a piece come together with the last
// values of the one before, whose result is written after that softmax. The weights P never leave the registers. Keys are
// walked from the last to the first, since a causal mask cuts the last ones; what a mask hides from all queries of a piece
// is not loaded, and only tiles that it cuts are masked.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/consumer.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/producer.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
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
    using mask_type = Mask;
    using score_type = Score;
    static constexpr attention_shape shape = Shape;
    static constexpr attention_output_mode output_mode = Mode;
    static constexpr int head_dim_v = HeadDimV;
    static constexpr bool needs_hopper = true;
    static constexpr bool uses_pdl = true;
    static constexpr int consumer_warpgroups = Shape.consumer_warpgroups;
    static constexpr int warpgroup_rows = 64;
    static constexpr int block_m = consumer_warpgroups * warpgroup_rows;
    // By so many queries a block may have fewer than others. (With two groups it is not worth the producer's registers.)
    static constexpr int block_m_step = consumer_warpgroups > 2 ? warpgroup_rows : block_m;
    static constexpr int block_n = Shape.block_n;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    // A group by a tile that others see. With two groups there is hardly such a tile, and only simple masks are asked.
    static constexpr bool can_skip_last_tile = consumer_warpgroups > 2 && block_n < block_m&& mask_has_ranges<Mask>() &&
                                               !std::is_same_v<Mask, full_mask>;
    // A group that has no queries in a piece leaves all of its tiles but one to the others. Of two groups one is hardly ever without;
    // and with a mask the loop, in which registers are short, becomes 3% slower by it.
    static constexpr bool can_idle = consumer_warpgroups > 2 && std::is_same_v<Mask, full_mask>;
    static constexpr int room_for_rings = 2048;

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
        const float* sinks;  // a logit for each head that takes up weight, or null
        int* tile_counter;   // zero, from which blocks draw their work; or null, and they take it in turn
    };
    struct q_tiles {
        q_tile group[consumer_warpgroups];
    };
    // The next piece's queries are loaded beside those of this one, if there is room.
    static constexpr int q_stages = Shape.stages * (sizeof(k_tile) + sizeof(v_tile)) + 2 * sizeof(q_tiles) +
                                                consumer_warpgroups * sizeof(out_tile) + room_for_rings <=
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
    // O leaves through memory of its own; if there is no room for it, straight from registers, as results in fp32 do.
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
