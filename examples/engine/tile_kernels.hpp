// What multiplies and attends on a GPU: the tensor cores, in bf16. Of a step in which every sequence has one token the attention is a decode,
// otherwise a forward pass over the pages. Heads of other depths than those named, and layers with a window, are attended to by rows.
// (`row_kernels.hpp` is the same for a CPU.)
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/embed.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_normed.hpp>
#include <imbrex/kernels/norm.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/paged_rows.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include "model_config.hpp"
#include "numbers.hpp"
#include "runner.hpp"
#include "stacked_weights.hpp"
#include "tile_matrix.hpp"

namespace imbrex::engine {

// For heads of these depths.
template <int... Depths>
class tile_kernels {
  public:
    using element = bf16;
    using matrix = tile_matrix;
    using table = tile_table;

    // Weights in bf16 have the norm's multiplied in, so that few rows are normed by the product itself; for more rows, the norm's are ones.
    // Quantised ones are kept as they are, beside the norm's.
    struct normed_matrix {
        normed_matrix() = default;
        normed_matrix(stacked_weights from, std::vector<float> norm_weights, const runner_options& options) {
            const bool from_numbers = from.type() != weight_type::q8_0 && from.type() != weight_type::q4_0;
            folded = options.weights == weight_format::bf16 ||
                     (options.weights == weight_format::as_in_file && from_numbers);
            if (folded) from.multiply_columns(std::exchange(norm_weights, std::vector(norm_weights.size(), 1.0f)));
            weights = tile_matrix(from, options);
            norm = {options.where, norm_weights};
        }

        tile_matrix weights;
        numbers<float> norm;
        bool folded = false;
    };

    tile_kernels(const model_config& config, const runner_options& options, void* stream)
        : where_(options.where),
          stream_(stream),
          hidden_(config.hidden),
          epsilon_(static_cast<float>(config.norm_epsilon)),
          x_(where_, std::int64_t{options.most_tokens} * config.hidden) {}

    void look_up(const table& from, const int* ids, const row_view<bf16>& out) {
        embed<bf16>::launch(
            where_, {.table = as_rows(from.values(), from.rows(), from.columns()), .ids = ids, .out = out}, stream_);
    }

    // out = x, normed.
    void normalise(const numbers<float>& weight, const numbers<bf16>& x, int rows, bf16* out) {
        rms_norm<bf16, float>::launch(where_,
                                      {.x = as_rows<const bf16>(x.data(), rows, hidden_),
                                       .weight = weight.data(),
                                       .out = as_rows(out, rows, hidden_),
                                       .epsilon = epsilon_},
                                      stream_);
    }

    template <class Out>
    void multiply(const matrix& with, const bf16* x, int rows, Out* out) {
        with.multiply(where_, x, rows, out, plain_product{}, stream_);
    }

    void multiply_normed(const normed_matrix& with, const numbers<bf16>& x, int rows, bf16* out, const float* bias) {
        norm_and_multiply(with, x, rows, out, biased<float>{{bias, with.weights.rows()}});
    }

    // silu(gate) * up, of a matrix that has the rows of both.
    void multiply_gated(const normed_matrix& with, const numbers<bf16>& x, int rows, bf16* out) {
        norm_and_multiply(with, x, rows, out, gated<silu>{});
    }

    // out += product.
    void multiply_added(const matrix& with, const bf16* x, int rows, numbers<bf16>& out) {
        const std::int64_t columns = with.rows();
        const gemm_view<const bf16> before{out.data(), {1, rows, columns}, {rows * columns, columns}};
        with.multiply(where_, x, rows, out.data(), plus<bf16>{before}, stream_);
    }

    void attend(const attention_problem<bf16>& p, int window) {
        if (window > 0) {
            paged_rows<bf16, window_mask>::launch(where_, p, {window - 1, 0}, {}, stream_);
        } else if (!((p.key_depth() == Depths) || ...)) {
            paged_rows<bf16, causal_mask>::launch(where_, p, {}, {}, stream_);
        } else if (p.queries() == p.packed.count) {
            if (workspace_.bytes() == 0) workspace_ = world_memory(where_, decode::workspace_bytes(where_, p));
            // The kernel before writes the new tokens' keys alone; older ones, lengths and tables were there before the step.
            decode::launch(where_, p, {.workspace = workspace_.at(), .early = true}, {}, {}, stream_);
        } else {
            prefill::launch(where_, p, {}, {}, stream_);
        }
    }

  private:
    template <class Epilogue>
    void norm_and_multiply(const normed_matrix& with, const numbers<bf16>& x, int rows, bf16* out,
                           const Epilogue& epilogue) {
        using product = gemm_normed<bf16, bf16, Epilogue>;
        const tile_matrix& weights = with.weights;
        if (with.folded) {
            const int results = is_gated<Epilogue> ? weights.rows() / 2 : weights.rows();
            const typename product::problem p{rows, results, weights.columns(), {x.data()}, {weights.values()}, {out}};
            if (product::can_take(where_, p)) return product::launch(where_, p, epilogue, {epsilon_}, stream_);
        }
        normalise(with.norm, x, rows, x_.data());
        weights.multiply(where_, x_.data(), rows, out, epilogue, stream_);
    }

    using decode = paged_decode<bf16, causal_mask, plain_score, attention_result::normalised, decode_depths<Depths...>>;
    using prefill = attention_forward<bf16, causal_mask, plain_score, attention_result::normalised,
                                      attention_tiles<Depths...>, attention_keys::in_pages>;

    world where_;
    void* stream_;
    std::int64_t hidden_;
    float epsilon_;
    numbers<bf16> x_;         // rows that are normed
    world_memory workspace_;  // of decodes; it does not depend on how many sequences there are
};

}  // namespace imbrex::engine
