// FP8 FlashAttention forward in one call: O = softmax(mask(score_mod(scale * Q K^T))) V with e4m3 Q, K and V, bf16,
// fp16 or e4m3 O, and optionally the base-2 LSE (log-sum-exp) of each row. For Hopper, and for every other GPU from sm_89
// on.
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
// score_mods, empty rows, anything behind the end of a sequence, any strides.
//
// launch() picks the Hopper kernel (attention_fp8/hopper.hpp) or the Ada-class one (cp.async, 8-bit mma.sync;
// attention_fp8/ada.hpp) from the device and the strides (attention_fp8/kernel_kind.hpp). Paged KV, an e4m3 O and
// head_dim 256 need the Hopper kernel. It allocates nothing and never synchronises, so it can be captured in a CUDA
// graph. Invalid arguments throw imbrex::error before launch.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/kernel_targets.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/check_mask.hpp>
#include <imbrex/kernels/attention/extension_points.hpp>
#include <imbrex/kernels/attention/l2_swizzle.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/options.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention_fp8/ada.hpp>
#include <imbrex/kernels/attention_fp8/hopper.hpp>
#include <imbrex/kernels/attention_fp8/kernel_kind.hpp>
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
    kernel_targets targets = kernel_targets::all;
};

inline namespace IMBREX_WORLDS {

// Q, K, V and O as the Hopper kernel takes them, and as the Ada-class kernel does.
template <class Kernel, class Out>
void set_attention_fp8_tensors(typename Kernel::arguments& made, const attention_fp8_problem<Out>& p) {
    if constexpr (Kernel::architecture == gpu_architecture::sm_90a) {
        // A paged tile is loaded in parts of as many rows as divide it and a page.
        const auto rows_per_copy = [&](int rows) { return Kernel::paged ? std::gcd(p.k.rows(), rows) : rows; };
        using k_tile = typename Kernel::k_tile;
        using v_tile = typename Kernel::v_tensor_tile;
        made.q = make_tma_tensor<typename Kernel::q_tile>(for_tma(p.q));
        made.k = make_tma_tensor<k_tile>(for_tma(p.k), tma_use::load, rows_per_copy(k_tile::rows));
        made.v = make_tma_tensor<v_tile>(for_tma(p.v), tma_use::load, rows_per_copy(v_tile::rows));
        made.out = make_tma_tensor<typename Kernel::out_tile>(for_tma(p.out), tma_use::store);
        made.out_view = p.out;
        made.out_descale = p.out_descale;
        made.tile_counter = p.tile_counter;
    } else {
        made.q = p.q;
        made.k = p.k;
        made.v = p.v;
        made.out = p.out;
    }
}

// The arguments of a kernel. `num_sms` is the number of SMs that a static schedule distributes tiles over; 1 if the grid
// has one block per tile.
template <class Kernel, class Out, class Mask, class Score>
typename Kernel::arguments attention_fp8_arguments(const attention_fp8_problem<Out>& p, const Mask& mask,
                                                   const Score& score, int num_sms) {
    using lengths = decltype(Kernel::arguments::lengths);
    constexpr kv_layout layout = std::is_same_v<lengths, paged_seqlens> ? kv_layout::paged : kv_layout::contiguous;
    const auto common = p.without_scales(Kernel::v_layout);
    const int seqlen_k = common.seqlen_k(layout);
    typename Kernel::arguments made{};
    set_attention_fp8_tensors<Kernel>(made, p);
    made.outputs.lse2 = p.lse2;
    made.q_descale = p.q_descale;
    made.k_descale = p.k_descale;
    made.v_descale = p.v_descale;
    made.mask = mask;
    made.score = score;
    made.scale = common.scale_used();
    made.lengths = attention_lengths_of<lengths>(common);
    made.q_heads_per_kv_head = common.heads() / common.kv_heads();
    made.sinks = p.sinks;
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

    static attention_fp8_kernel_kind choice(world where, const problem& p) {
        require_attention_fp8<Scaling>(where, p, Options.v_layout, Options.kv);
        attention_fp8_kernel_kind chosen{};
        for_head_dim(p, [&]<int HeadDim>() { chosen = choice_of<HeadDim>(where, p); });
        return chosen;
    }

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
        for_head_dim(p, [&]<int HeadDim>() {
            if (p.without_scales(Options.v_layout).empty()) return;
            if (choice_of<HeadDim>(where, p) == attention_fp8_kernel_kind::hopper) {
                launch_hopper<HeadDim>(where, p, mask, score, stream);
            } else if constexpr (has_ada(HeadDim)) {
                launch_ada<HeadDim>(where, p, mask, score, stream);
            } else {
                require_a_key(p);
                require(false, "q, k, v, out, world: ", name_of(where), "; ", why_hopper(HeadDim),
                        " needs sm_90a, and pointers and strides that are multiples of 16 bytes");
            }
        });
    }

  private:
    static constexpr bool paged = Options.kv == kv_layout::paged;
    static_assert(!paged || Options.v_layout == fp8_v_layout::row_major,
                  "imbrex: a K-major V cannot be paged: use fp8_v_layout::row_major with kv_layout::paged");
    using lengths = std::conditional_t<paged, paged_seqlens, attention_seqlens>;
    static constexpr attention_register_demand demand = attention_register_demand_of<Mask, Score>();

    // What only the Hopper kernel has.
    static constexpr bool has_ada(int head_dim) { return why_hopper(head_dim) == nullptr; }
    static constexpr const char* why_hopper(int head_dim) {
        return Options.targets != kernel_targets::all ? "kernel_targets::hopper"
               : paged                                ? "kv_layout::paged"
               : std::is_same_v<Out, e4m3>            ? "an e4m3 output"
               : head_dim > 128                       ? "a head_dim above 128"
                                                      : nullptr;
    }

    static constexpr attention_fp8_shape usual_shape(int head_dim) {
        return attention_fp8_shape_for(head_dim, Options.accumulation, demand, Scaling::kv_block);
    }
    template <int HeadDim, attention_fp8_shape Shape = usual_shape(HeadDim)>
    using hopper = attention_fp8_hopper<Out, HeadDim, Mask, Score, Scaling, Options.accumulation, Options.v_layout,
                                        Shape, lengths>;
    template <int HeadDim>
    using ada = attention_fp8_ada<Out, HeadDim, Mask, Score, Scaling, Options.accumulation, Options.v_layout>;

    // Calls call<HeadDim>() for the compiled head_dim that the problem fits.
    template <class Call>
    static void for_head_dim(const problem& p, const Call& call) {
        const auto common = p.without_scales(Options.v_layout);
        const int index = Options.head_dims.index_for({common.head_dim_qk(), common.head_dim_v()});
        require(index < Options.head_dims.count(), "q.extents[3] and the head_dim of v: ", common.head_dim_qk(), ", ",
                common.head_dim_v(), "; the compiled head dims are ", Options.head_dims.text());
        visit_head_dims<Options.head_dims>(index, [&]<attention_head_dims HeadDims>() {
            static_assert(HeadDims.qk == HeadDims.v, "imbrex: attention_fp8 takes one head_dim for Q, K and V");
            call.template operator()<HeadDims.qk>();
        });
    }

    template <int HeadDim>
    static attention_fp8_kernel_kind choice_of(world where, const problem& p) {
        const bool can_copy = tma_can_copy(p.q) && tma_can_copy(p.k) && tma_can_copy(p.v) && tma_can_copy(p.out);
        const bool no_page = paged && p.k.extents[0] == 0;
        const int seqlen_k = no_page ? 0 : p.without_scales(Options.v_layout).seqlen_k(Options.kv);
        return choose_attention_fp8_kernel({can_run<hopper<HeadDim>>(where), can_copy, seqlen_k});
    }

    static void require_a_key(const problem& p) {
        const auto common = p.without_scales(Options.v_layout);
        if constexpr (paged) {
            require(p.k.extents[0] > 0, "k.extents[0]: 0; at least one page is needed");
            require(p.paged_kv.max_blocks_per_seq > 0, "paged_kv.max_blocks_per_seq: 0; at least one page is needed");
        } else {
            require(common.seqlen_k(Options.kv) > 0, "k.extents[2]: 0; at least one key is needed");
        }
    }

    template <int HeadDim>
    static void launch_hopper(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        constexpr attention_fp8_second_shape second =
            attention_fp8_second_shape_for(HeadDim, Options.accumulation, demand, Scaling::kv_block);
        if constexpr (Options.shapes == fp8_shapes::by_length && second.exists()) {
            constexpr attention_fp8_shape other = second.shape;
            if (second.is_for(p.average_keys(Options.v_layout, Options.kv))) {
                return launch_shape<hopper<HeadDim, other>>(where, p, mask, score, stream);
            }
        }
        launch_shape<hopper<HeadDim>>(where, p, mask, score, stream);
    }
    template <class Kernel>
    static void launch_shape(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        const int num_sms = imbrex::num_sms(where);
        const auto arguments = attention_fp8_arguments<Kernel>(p, mask, score, num_sms);
        const int blocks = arguments.scheduler.total(arguments.lengths);
        imbrex::launch<Kernel>(where, {std::min(blocks, num_sms)}, arguments, stream);
    }

    template <int HeadDim>
    static void launch_ada(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = ada<HeadDim>;
        require(can_run<kernel>(where), "world: ", name_of(where),
                "; attention_fp8 needs sm_89 or newer, and code for it in the program");
        const auto arguments = attention_fp8_arguments<kernel>(p, mask, score, 1);
        imbrex::launch<kernel>(where, {arguments.scheduler.total(arguments.lengths)}, arguments, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
