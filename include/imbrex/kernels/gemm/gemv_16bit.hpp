// GEMV (skinny GEMM) with 1 to 8 rows and unquantised 16-bit weights: picks the gemv.hpp shape for a matrix.
//
//   weights                                    block_n, warps, blocks per SM
//   24 MB or more                              32, 4, 2 (GLU: 64, 2, 2)
//   less, GLU                                  32, 4, 2
//   less                                       16, 8, 2    triggers dependents (PDL) at once
//   less, at most one block per SM, and K      16, 8, 1    more K in flight per block
//   exceeds the rings of one block
//
// RMSNorm is fused for small weights only. With large weights a separate norm kernel is faster: weights are prefetched
// meanwhile, and the loads of the GEMV do not stall. (Measured in decode of Llama-3.1-8B and Qwen2.5-0.5B,
// docs/results/engine.md.)
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/gemv.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/unquantised_weights.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue, class Input = unnormalised_input>
class gemv_16bit {
  public:
    using problem = gemm_problem<In, Out>;
    static constexpr int max_m = 8;
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    static constexpr bool fuses_rms_norm = std::is_same_v<Input, rms_norm_input>;

    // B is stored as [n, k].
    static bool can_implement(const problem& p) {
        const auto in_chunks = [&](const gemm_operand<const In>& one) {
            return detail::view_of(one, 1, p.k, 1).at(0, 0, 0).is_16_byte_aligned();
        };
        const bool quick = !fuses_rms_norm || !has_large_weights(p);
        return quick && p.m <= max_m && p.batches == 1 && p.k > 0 && in_chunks(p.a) && in_chunks(p.b) &&
               (!is_glu || p.n % 64 == 0);
    }
    static bool can_run(world where) { return imbrex::can_run<small_weights>(where); }

    static void launch(world where, const problem& p, const Epilogue& epilogue, const Input& input, void* stream) {
        if constexpr (!fuses_rms_norm) {
            if (has_large_weights(p)) return launch_kernel<large_weights>(where, p, epilogue, input, stream);
        }
        if constexpr (!is_glu) {
            const bool fits = small_weights::steps_of(p.k) <= small_weights::warps * small_weights::stages;
            if (!fits && small_weights::tiles_of(p.n) <= imbrex::num_sms(where)) {
                return launch_kernel<small_weights_deep_k>(where, p, epilogue, input, stream);
            }
        }
        launch_kernel<small_weights>(where, p, epilogue, input, stream);
    }

  private:
    static bool has_large_weights(const problem& p) {
        return std::int64_t{p.n} * p.k * (is_glu ? 2 : 1) * static_cast<int>(sizeof(In)) >= 24000000;
    }

    template <int Columns, int Warps, int MinBlocksPerSm = 2, bool PdlLaunchAtOnce = false>
    using kernel = gemv_kernel<
        unquantised_weights<In, Columns>, Out, Epilogue, max_m,
        gemv_shape{.warps = Warps, .min_blocks_per_sm = MinBlocksPerSm, .pdl_launch_at_once = PdlLaunchAtOnce}, Input>;
    using large_weights = kernel<is_glu ? 64 : 32, is_glu ? 2 : 4>;
    using small_weights = kernel<is_glu ? 32 : 16, is_glu ? 4 : 8, 2, !is_glu>;
    using small_weights_deep_k = kernel<16, 8, 1>;

    template <class Kernel>
    static void launch_kernel(world where, const problem& p, const Epilogue& epilogue, const Input& input,
                              void* stream) {
        using weights = unquantised_weights<In, Kernel::block_n>;
        // Extra blocks that fill the idle SMs pay off only with large weights that use more than half of the SMs.
        const int sms = imbrex::num_sms(where), needed = Kernel::tiles_of(p.n);
        const bool fills = std::is_same_v<Kernel, large_weights> && 2 * needed > sms;
        const int blocks = fills ? Kernel::blocks_of(p.n, sms) : needed;
        const auto all = weights::describe(p.b, p.n * (is_glu ? 2 : 1), p.k);
        imbrex::launch<Kernel>(where, {blocks}, Kernel::describe(p, all, epilogue, input), stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
