// FP8 FlashAttention forward in one call: O = softmax(mask(score_mod(scale * Q K^T))) V with e4m3 Q, K and V, bf16,
// fp16 or e4m3 O, and optionally the base-2 LSE (log-sum-exp) of each row. Hopper only.
//
//     using attention = attention_fp8<bf16, attention_fp8_options{.head_dims = {128}}, causal_mask>;
//     attention_fp8_problem<bf16> p{.q = batch_sequence_head(q, batches, seqlen_q, heads, head_dim),
//                                   .k = batch_sequence_head(k, batches, seqlen_k, kv_heads, head_dim),
//                                   .v = batch_sequence_head(v, batches, seqlen_k, kv_heads, head_dim),
//                                   .out = batch_sequence_head(out, batches, seqlen_q, heads, head_dim),
//                                   .q_descale = {q_scale}, .k_descale = {k_scale}, .v_descale = {v_scale}};
//     attention::launch(world::device, p, {}, {}, stream);
//
// Scales (descale factors) are per tensor, per head or per block of rows: attention_fp8/scaling.hpp. V is row-major or
// K-major (fp8_v_layout). P V is summed in fp32 after one or a few key tiles, or wholly in the tensor cores
// (fp8_accumulation): faster, and less accurate the more keys there are.
//
// Supported as in attention_forward: MHA, GQA and MQA, varlen and padded batches, paged KV, attention sinks, masks,
// score_mods, empty rows, anything behind the end of a sequence. All pointers and strides are multiples of 16 bytes. A launch
// allocates nothing and never synchronises, so it can be captured in a CUDA graph. Invalid arguments throw
// imbrex::error before launch.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/check_mask.hpp>
#include <imbrex/kernels/attention/extension_points.hpp>
#include <imbrex/kernels/attention/l2_swizzle.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/options.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention_fp8/hopper.hpp>
#include <imbrex/kernels/attention_fp8/problem.hpp>
#include <imbrex/kernels/attention_fp8/scaling.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <type_traits>

namespace imbrex {

struct attention_fp8_options {
    attention_head_dim_set head_dims = {64, 128};  // of Q, K and V: the same
    fp8_accumulation accumulation = fp8_accumulation::promoted;
    fp8_v_layout v_layout = fp8_v_layout::row_major;
    kv_layout kv = kv_layout::contiguous;       // paged: V is row-major
    fp8_shapes shapes = fp8_shapes::by_length;  // one: only the kernel for many keys
};

inline namespace IMBREX_WORLDS {

// The arguments of a kernel for `num_sms` blocks.
template <class Kernel, class Out, class Mask, class Score>
typename Kernel::arguments attention_fp8_arguments(const attention_fp8_problem<Out>& p, const Mask& mask,
                                                   const Score& score, int num_sms) {
    const auto common = p.without_scales(Kernel::v_layout);
    const int seqlen_k = common.seqlen_k(Kernel::paged ? kv_layout::paged : kv_layout::contiguous);
    // A paged tile is loaded in parts of as many rows as divide it and a page.
    const auto rows_per_copy = [&](int rows) { return Kernel::paged ? std::gcd(p.k.rows(), rows) : rows; };
    typename Kernel::arguments made{};
    made.q = make_tma_tensor<typename Kernel::q_tile>(for_tma(p.q));
    made.k = make_tma_tensor<typename Kernel::k_tile>(for_tma(p.k), tma_use::load, rows_per_copy(Kernel::k_tile::rows));
    made.v = make_tma_tensor<typename Kernel::v_tensor_tile>(for_tma(p.v), tma_use::load,
                                                             rows_per_copy(Kernel::v_tensor_tile::rows));
    made.out = make_tma_tensor<typename Kernel::out_tile>(for_tma(p.out), tma_use::store);
    made.out_view = p.out;
    made.outputs.lse2 = p.lse2;
    made.q_descale = p.q_descale;
    made.k_descale = p.k_descale;
    made.v_descale = p.v_descale;
    made.out_descale = p.out_descale;
    made.mask = mask;
    made.score = score;
    made.scale = common.scale_used();
    made.lengths = attention_lengths_of<decltype(made.lengths)>(common);
    made.q_heads_per_kv_head = common.heads() / common.kv_heads();
    made.sinks = p.sinks;
    made.tile_counter = p.tile_counter;
    const double kv_bytes =
        1.0 * common.batches() * common.kv_heads() * seqlen_k * (common.head_dim_qk() + common.head_dim_v());
    made.scheduler = attention_scheduler_of<Kernel>(common, seqlen_k, kv_bytes, mask, num_sms);
    return made;
}

template <class Out, attention_fp8_options Options = attention_fp8_options{}, class Mask = full_mask,
          class Scaling = fp8_scaling::per_tensor, class Score = score_mod::identity>
class attention_fp8 {
    static_assert(detail::check_attention_extensions<Mask, Score>());
    static_assert(attention_fp8_scaling<Scaling>,
                  "imbrex: Scaling must have int q_block and kv_block (rows that share a scale, or 0) and "
                  "IMBREX_FN float operator()(const descale_view&, int batch, int head, int block) const");
    static_assert(std::is_same_v<Out, bf16> || std::is_same_v<Out, fp16> || std::is_same_v<Out, e4m3>,
                  "imbrex: the output of attention_fp8 is bf16, fp16 or e4m3");

  public:
    using problem = attention_fp8_problem<Out>;

    // Runs the launch in the checked host world under many schedules, after a comparison of the mask's claims with its
    // `keep`. Returns the first hazard, or none.
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const Mask& mask = {},
                                       const Score& score = {}) {
        require_attention_fp8<Scaling>(world::host_checked, p, Options.v_layout, Options.kv);
        const auto common = p.without_scales(Options.v_layout);
        if (auto found = check_mask(common, mask, Options.kv, "attention_fp8")) return found;
        return host::check_launches([&] { launch(world::host_checked, p, mask, score); }, options);
    }

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention_fp8<Scaling>(where, p, Options.v_layout, Options.kv);
        const auto common = p.without_scales(Options.v_layout);
        const int index = Options.head_dims.index_for({common.head_dim_qk(), common.head_dim_v()});
        require(index < Options.head_dims.count(), "q.extents[3] and the head_dim of v: ", common.head_dim_qk(), ", ",
                common.head_dim_v(), "; the compiled head dims are ", Options.head_dims.text());
        if (common.empty()) return;
        require_a_key(common);
        require(tma_can_copy(p.q) && tma_can_copy(p.k) && tma_can_copy(p.v) && tma_can_copy(p.out),
                "q, k, v, out: all pointers and strides must be multiples of 16 bytes");
        visit_head_dims<Options.head_dims>(index, [&]<attention_head_dims HeadDims>() {
            static_assert(HeadDims.qk == HeadDims.v, "imbrex: attention_fp8 takes one head_dim for Q, K and V");
            launch_kernel<HeadDims.qk>(where, p, mask, score, stream);
        });
    }

  private:
    static constexpr bool paged = Options.kv == kv_layout::paged;
    static_assert(!paged || Options.v_layout == fp8_v_layout::row_major,
                  "imbrex: a K-major V cannot be paged: use fp8_v_layout::row_major with kv_layout::paged");
    using lengths = std::conditional_t<paged, paged_seqlens, attention_seqlens>;
    static constexpr attention_register_demand demand = attention_register_demand_of<Mask, Score>();

    template <class Common>
    static void require_a_key(const Common& p) {
        if constexpr (paged) {
            require(p.k.extents[0] > 0, "k.extents[0]: 0; at least one page is needed");
            require(p.paged_kv.max_blocks_per_seq > 0, "paged_kv.max_blocks_per_seq: 0; at least one page is needed");
        } else {
            require(p.seqlen_k(Options.kv) > 0, "k.extents[2]: 0; at least one key is needed");
        }
    }

    template <int HeadDim>
    static void launch_kernel(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        constexpr attention_fp8_shape usual =
            attention_fp8_shape_for(HeadDim, Options.accumulation, demand, Scaling::kv_block);
        constexpr attention_fp8_second_shape second =
            attention_fp8_second_shape_for(HeadDim, Options.accumulation, demand, Scaling::kv_block);
        if constexpr (Options.shapes == fp8_shapes::by_length && second.exists()) {
            constexpr attention_fp8_shape other = second.shape;
            if (second.is_for(p.average_keys(Options.v_layout, Options.kv))) {
                return launch_shape<HeadDim, other>(where, p, mask, score, stream);
            }
        }
        launch_shape<HeadDim, usual>(where, p, mask, score, stream);
    }

    template <int HeadDim, attention_fp8_shape Shape>
    static void launch_shape(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = attention_fp8_hopper<Out, HeadDim, Mask, Score, Scaling, Options.accumulation, Options.v_layout,
                                            Shape, lengths>;
        require(can_run<kernel>(where), "world: ", name_of(where), "; attention_fp8 needs sm_90a");
        const int num_sms = imbrex::num_sms(where);
        const auto arguments = attention_fp8_arguments<kernel>(p, mask, score, num_sms);
        const int blocks = arguments.scheduler.total(arguments.lengths);
        imbrex::launch<kernel>(where, {std::min(blocks, num_sms)}, arguments, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
