// Quantises Q, K or V to e4m3 for attention_fp8: writes e4m3 rows and their scales (descale factors: value = scale *
// element, scale = amax / 448). Optionally applies RoPE, and rotates head_dim by random signs and a Hadamard transform
// (incoherent processing), which spreads outliers over the columns of a head and leaves Q K^T unchanged.
//
//     quantise_fp8<bf16>::launch(world::device, {.x = batch_sequence_head(k, batches, rows, kv_heads, 128),
//                                                .out = batch_sequence_head(k8, batches, rows, kv_heads, 128),
//                                                .scales = fp8_scales_per_block(scales, kv_heads, blocks, 128),
//                                                .rope = frequencies.embedding(inv_freq, rope_style::half_split),
//                                                .hadamard_seed = 1}, stream);
//
// Q and K need the same seed; V is not rotated. The order is RoPE, signs, Hadamard transform, all in fp32, then
// element = value * (1 / scale), rounded once to nearest even and saturated at 448. head_dim is a multiple of 16 up to
// 256; quantise_fp8/rotation.hpp describes the rotation of other head dims than powers of two.
//
// Scales per block of 64 or 128 rows are computed in one pass (head_dim above 128: 64). Others, per tensor, per head or
// per larger block, take two launches, which reduce the maxima through a workspace: `workspace_bytes` bytes, zero before
// the first launch with a problem of these extents; each leaves it ready for the next. Concurrent launches need one each. With `scales_given` the
// kernel reads the scales in one pass. The result does not depend on the order of blocks.
//
// NaN becomes NaN and does not count for the scale; infinity counts as the largest float and saturates. A rotation
// spreads both over the row. Scales are at least 2^-60. Varlen (`cu_seqlens`) and padded (`seqused`) batches: blocks
// are counted from the first row of a sequence; rows behind its end are neither read nor written.
//
// A launch allocates nothing and does not synchronise. Invalid arguments throw imbrex::error before launch.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/quantise_fp8/kernel.hpp>
#include <imbrex/kernels/quantise_fp8/problem.hpp>
#include <imbrex/kernels/rope_embedding.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In>
class quantise_fp8 {
  public:
    using problem = quantise_fp8_problem<In>;
    using arguments = quantise_fp8_arguments<In>;
    template <int HalfColumns, int BlockM, bool WithRope, quantise_fp8_pass Pass = quantise_fp8_pass::rounding>
    using kernel = quantise_fp8_kernel<In, HalfColumns, BlockM, WithRope, Pass>;

    // Runs the launches in the checked host world, with these further arguments of `launch`, under many schedules.
    // Returns the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    // 0 if one pass suffices.
    static std::size_t workspace_bytes(const problem& p) { return workspace_of(p).bytes; }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_quantise_fp8(where, p);
        if (p.empty()) return;
        const std::size_t needed = workspace_bytes(p);
        const auto address = reinterpret_cast<std::uintptr_t>(p.workspace);
        require(needed == 0 || (address != 0 && address % alignof(float) == 0), "workspace: ", p.workspace, "; ",
                needed, " bytes at a multiple of ", alignof(float), " are needed (quantise_fp8::workspace_bytes)");
        const bool two_passes = needed > 0;
        if (two_passes) launch_pass<64, quantise_fp8_pass::maxima>(where, p, false, stream);
        if (two_passes || p.scales_given || one_pass_rows(p) == 64) {
            launch_pass<64, quantise_fp8_pass::rounding>(where, p, two_passes || p.scales_given, stream);
        } else {
            launch_pass<128, quantise_fp8_pass::rounding>(where, p, false, stream);
        }
    }

    template <class Kernel>
    static arguments arguments_of(world where, const problem& p, bool reads_scales) {
        const int rows = p.x.rows();
        arguments args{};
        args.x = p.x;
        args.out = p.out;
        args.scales = p.scales;
        args.workspace = workspace_of(p).in(p.workspace);
        args.reads_scales = reads_scales;
        args.lengths.seqlen_q = rows;
        args.lengths.cu_seqlens_q = p.cu_seqlens;
        args.scheduler = {p.batches(), 1, blocks_of(p, Kernel::block_m), 0};
        args.seqused = p.seqused;
        args.heads_per_block = heads_per_block(where, p, args.scheduler.total(args.lengths));
        args.halves = p.halves();
        args.rope = p.rope;
        args.positions = p.positions;
        args.first_position = p.first_position;
        if (p.hadamard_seed) args.rotation = hadamard_rotation::of(*p.hadamard_seed, p.head_dim());
        return args;
    }

  private:
    // The rows of a block that computes its own scales, or 0.
    static int one_pass_rows(const problem& p) {
        const fp8_scales& scales = p.scales;
        const bool own = (p.heads() == 1 || (scales.head_stride > 0 && scales.heads_per_scale == 1)) &&
                         (p.batches() <= 1 || scales.batch_stride > 0);
        const bool fits = scales.block_rows == 64 || (scales.block_rows == 128 && p.head_dim() <= 128);
        return own && fits ? scales.block_rows : 0;
    }

    // Blocks of rows: of each batch entry, or of all varlen sequences.
    static int blocks_of(const problem& p, int block_rows) {
        const int rows = p.x.rows();
        return p.varlen() ? attention_tile_scheduler::varlen_blocks(rows, p.batches(), block_rows)
                          : (rows - 1) / block_rows + 1;
    }

    struct workspace {
        std::int64_t counters = 0;
        std::size_t bytes = 0;

        fp8_maxima in(void* memory) const {
            int* const first = static_cast<int*>(memory);
            return {first, bytes == 0 ? nullptr : reinterpret_cast<float*>(first + counters)};
        }
    };
    static workspace workspace_of(const problem& p) {
        if (p.empty() || p.scales_given || one_pass_rows(p) != 0) return {};
        const fp8_scales& scales = p.scales;
        const std::int64_t members = p.varlen() ? 1 : p.batches();
        const std::int64_t heads = scales.head_stride == 0 ? 1 : p.heads() / scales.heads_per_scale;
        const std::int64_t counters = heads * (scales.batch_stride == 0 ? 1
                                               : scales.block_rows == 0 ? p.batches()
                                                                        : members * blocks_of(p, scales.block_rows));
        const std::int64_t maxima = p.heads() * members * blocks_of(p, 64);
        return {counters, static_cast<std::size_t>(counters + maxima) * sizeof(float)};
    }

    // Heads of a block share RoPE angles, and their loads overlap. Fewer, if the grid would not fill the SMs.
    static int heads_per_block(world where, const problem& p, std::int64_t blocks) {
        int heads = 4;
        while (heads > 1 && (heads > p.heads() || blocks * p.heads() < heads * 4 * std::int64_t{num_sms(where)})) {
            heads /= 2;
        }
        return std::max(heads, (p.heads() - 1) / 65535 + 1);
    }

    template <int BlockM, quantise_fp8_pass Pass>
    static void launch_pass(world where, const problem& p, bool reads_scales, void* stream) {
        if (p.head_dim() <= 64) {
            launch_columns<32, BlockM, Pass>(where, p, reads_scales, stream);
        } else if (p.head_dim() <= 128) {
            launch_columns<64, BlockM, Pass>(where, p, reads_scales, stream);
        } else if constexpr (BlockM == 64) {
            launch_columns<128, BlockM, Pass>(where, p, reads_scales, stream);
        }
    }
    template <int HalfColumns, int BlockM, quantise_fp8_pass Pass>
    static void launch_columns(world where, const problem& p, bool reads_scales, void* stream) {
        if (p.rope.given()) {
            launch_kernel<kernel<HalfColumns, BlockM, true, Pass>>(where, p, reads_scales, stream);
        } else {
            launch_kernel<kernel<HalfColumns, BlockM, false, Pass>>(where, p, reads_scales, stream);
        }
    }
    template <class Kernel>
    static void launch_kernel(world where, const problem& p, bool reads_scales, void* stream) {
        const arguments args = arguments_of<Kernel>(where, p, reads_scales);
        imbrex::launch<Kernel>(where, Kernel::grid_of(args), args, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
