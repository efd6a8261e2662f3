// What multiplies and attends on a GPU: the tensor cores, in bf16. Of a step in which every sequence has one token the attention is a decode,
// otherwise a forward pass over the pages. (`row_kernels.hpp` is the same for a CPU.)
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/embed.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/paged_decode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "numbers.hpp"
#include "runner.hpp"
#include "stacked_weights.hpp"

namespace imbrex::engine {

// For heads of these depths.
template <int... Depths>
class tile_kernels {
  public:
    using element = bf16;

    // [rows, columns]
    class matrix {
      public:
        matrix() = default;
        matrix(const stacked_weights& from, const runner_options& options)
            : rows_(static_cast<int>(from.rows())),
              columns_(static_cast<int>(from.columns())),
              values_(options.where, from.rows() * from.columns()) {
            require(options.weights == weight_format::as_in_file || options.weights == weight_format::bf16,
                    "weights: ", name_of(options.weights), "; on a GPU they are kept as bf16");
            constexpr std::int64_t at_once = 1024;
            std::vector<float> floats(static_cast<std::size_t>(std::min(at_once, from.rows()) * from.columns()));
            std::vector<bf16> rounded(floats.size());
            for (std::int64_t first = 0; first < from.rows(); first += at_once) {
                const std::int64_t count = std::min(at_once, from.rows() - first);
                from.read(first, count, floats);
                std::ranges::transform(floats, rounded.begin(), [](float value) { return convert<bf16>(value); });
                values_.write(first * from.columns(),
                              std::span(rounded).first(static_cast<std::size_t>(count * from.columns())));
            }
        }

        int rows() const { return rows_; }
        int columns() const { return columns_; }
        const bf16* values() const { return values_.data(); }

      private:
        int rows_ = 0, columns_ = 0;
        numbers<bf16> values_;
    };
    using table = matrix;

    explicit tile_kernels(const runner_options& options) : where_(options.where) {}

    void look_up(const table& from, const int* ids, const row_view<bf16>& out) {
        embed<bf16>::launch(where_,
                            {.table = as_rows(from.values(), from.rows(), from.columns()), .ids = ids, .out = out});
    }

    template <class Out>
    void multiply(const matrix& with, const bf16* x, int rows, Out* out, const float* bias = nullptr) {
        const gemm_problem<bf16, Out> p{rows, with.rows(), with.columns(), {x}, {with.values()}, {out}};
        if (bias == nullptr) {
            product<Out, plain_product>::launch(where_, p);
        } else {
            product<Out, biased<float>>::launch(where_, p, {{bias, with.rows()}});
        }
    }

    void attend(const attention_problem<bf16>& p, int window) {
        require(window == 0, "window: ", window, "; on a GPU this engine has no layers with a window");
        if (p.queries() == p.packed.count) {
            if (workspace_.bytes() == 0) workspace_ = world_memory(where_, decode::workspace_bytes(where_, p));
            decode::launch(where_, p, {.workspace = workspace_.at()});
        } else {
            prefill::launch(where_, p);
        }
    }

  private:
    template <class Out, class Epilogue>
    using product = gemm<bf16, Out, Epilogue, stored::normal, stored::transposed, right_operand::constant_weights>;
    using decode = paged_decode<bf16, causal_mask, plain_score, attention_result::normalised, decode_depths<Depths...>>;
    using prefill = attention_forward<bf16, causal_mask, plain_score, attention_result::normalised, all_attention_tiles,
                                      attention_keys::in_pages>;

    world where_;
    world_memory workspace_;
};

}  // namespace imbrex::engine
