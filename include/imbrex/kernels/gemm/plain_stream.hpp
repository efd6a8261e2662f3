// Products of 1 to 8 rows with 16-bit weights as a stream (weight_stream.hpp): which shape of it a matrix gets.
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
#include <imbrex/kernels/gemm/plain_weights.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/weight_stream.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue, class Input = plain_rows>
class plain_stream {
  public:
    using problem = gemm_problem<In, Out>;
    static constexpr int most_rows = 8;
    static constexpr bool gated = is_gated<Epilogue>;
    static constexpr bool norms = std::is_same_v<Input, normed_rows>;

    // Weights B as [n, k].
    static bool can_take(const problem& p) {
        const auto in_chunks = [&](const gemm_operand<const In>& one) {
            return detail::view_of(one, 1, p.k, 1).at(0, 0, 0).in_chunks();
        };
        const bool quick = !norms || !are_many(p);
        return quick && p.m <= most_rows && p.batches == 1 && p.k > 0 && in_chunks(p.a) && in_chunks(p.b) &&
               (!gated || p.n % 64 == 0);
    }
    static bool can_run(world where) { return imbrex::can_run<few>(where); }

    static void launch(world where, const problem& p, const Epilogue& epilogue, const Input& input, void* stream) {
        if constexpr (!norms) {
            if (are_many(p)) return launch_kernel<many>(where, p, epilogue, input, stream);
        }
        if constexpr (!gated) {
            const bool fits = few::steps_of(p.k) <= few::warps * few::ahead;
            if (!fits && few::tiles_of(p.n) <= processors_of(where)) {
                return launch_kernel<few_and_deep>(where, p, epilogue, input, stream);
            }
        }
        launch_kernel<few>(where, p, epilogue, input, stream);
    }

  private:
    static bool are_many(const problem& p) {
        return std::int64_t{p.n} * p.k * (gated ? 2 : 1) * static_cast<int>(sizeof(In)) >= 24000000;
    }

    template <int Columns, int Warps, int Residents = 2, bool AllowsAtOnce = false>
    using kernel =
        gemm_weight_stream<plain_weights<In, Columns>, Out, Epilogue, most_rows,
                           weight_stream_shape{.warps = Warps, .residents = Residents, .allows_at_once = AllowsAtOnce},
                           Input>;
    using many = kernel<gated ? 64 : 32, gated ? 2 : 4>;
    using few = kernel<gated ? 32 : 16, gated ? 4 : 8, 2, !gated>;
    using few_and_deep = kernel<16, 8, 1>;

    template <class Kernel>
    static void launch_kernel(world where, const problem& p, const Epilogue& epilogue, const Input& input,
                              void* stream) {
        using weights = plain_weights<In, Kernel::columns>;
        // Blocks that only fill the device up are worth their while where weights are many and most of it works.
        const int processors = processors_of(where), needed = Kernel::tiles_of(p.n);
        const bool fills = std::is_same_v<Kernel, many> && 2 * needed > processors;
        const int blocks = fills ? Kernel::blocks_of(p.n, processors) : needed;
        const auto all = weights::describe(p.b, p.n * (gated ? 2 : 1), p.k);
        imbrex::launch<Kernel>(where, {blocks}, Kernel::describe(p, all, epilogue, input), stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
