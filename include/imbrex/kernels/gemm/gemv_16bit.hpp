// Products of 1 to 8 rows with 16-bit weights as a stream (gemv.hpp): which shape of it a matrix gets.
//
//   weights                                        columns of D in a block, warps, blocks on a multiprocessor
//   24 MB or more                                  32, 4, 2 (gated: 64, 2, 2)
//   less, gated                                    32, 4, 2
//   less                                           16, 8, 2      the next kernel is allowed at once
//   less, all multiprocessors have one block at    16, 8, 1      there is room for more of K on its way
//   most, and its weights do not fit half of one
//
// Rows are normed on their way where weights are few. Otherwise a kernel of its own for the norm is quicker: weights are read
// meanwhile, and the stream of them is not held up. (Measured in decodes of Llama-3.1-8B and Qwen2.5-0.5B, docs/results/engine.md.)
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

    // Weights B as [n, k].
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
        // Blocks that only fill the device up are worth their while where weights are many and most of it works.
        const int sms = imbrex::num_sms(where), needed = Kernel::tiles_of(p.n);
        const bool fills = std::is_same_v<Kernel, large_weights> && 2 * needed > sms;
        const int blocks = fills ? Kernel::blocks_of(p.n, sms) : needed;
        const auto all = weights::describe(p.b, p.n * (is_glu ? 2 : 1), p.k);
        imbrex::launch<Kernel>(where, {blocks}, Kernel::describe(p, all, epilogue, input), stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
