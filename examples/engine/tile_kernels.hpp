// What multiplies and attends on a GPU: the tensor cores, in bf16. Of a step in which every sequence has one token the attention is a decode,
// otherwise a forward pass over the pages. Heads of other depths than those named, and layers with a window, are attended to by rows.
// (`row_kernels.hpp` is the same for a CPU.)
//
// Which kernel is the quickest depends on how many rows there are, and each adds up in its own order. Where the bits of a sequence must not
// depend on what stands beside it (runner_options::invariant), kernels go by what rows are instead:
//
//                   products                                                       attention
//   of prompts        the kernels for many rows; where there are few, with rows        forward pass over the pages
//                     behind them that nobody looks at
//   generated,        the stream of weights, for 8 rows at a time                      decode, cut every 128 keys
//   and logits
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/embed.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_normed.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>
#include <imbrex/kernels/norm.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/paged_rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "model_config.hpp"
#include "numbers.hpp"
#include "runner.hpp"
#include "stacked_weights.hpp"
#include "step.hpp"
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
          invariant_(options.invariant),
          largest_bytes_(std::size_t{2} * config.intermediate * config.hidden * sizeof(bf16)),
          x_(where_, rows_of_room(options) * config.hidden) {}

    // Rows that what is computed needs room for.
    static std::int64_t rows_of_room(const runner_options& options) {
        return options.invariant ? std::max(options.most_tokens, matrix::largest_least_of_many) : options.most_tokens;
    }

    void begin(const step& now) {
        rows_are_ = !invariant_ ? kind::any : now.generated ? kind::generated : kind::of_prompts;
    }

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

    // Logits.
    template <class Out>
    void multiply(const matrix& with, const bf16* x, int rows, Out* out) {
        multiply_parts(with, x, rows, out, invariant_ ? kind::generated : kind::any,
                       [](part_of_rows) { return plain_product{}; });
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
        multiply_parts(with, x, rows, out.data(), rows_are_, [&](part_of_rows part) {
            return plus<bf16>{
                {out.data() + part.first * columns, {1, part.count, columns}, {part.count * columns, columns}}};
        });
    }

    void attend(const attention_problem<bf16>& p, int window) {
        if (window > 0) {
            paged_rows<bf16, window_mask>::launch(where_, p, {window - 1, 0}, {}, stream_);
        } else if (!((p.key_depth() == Depths) || ...)) {
            paged_rows<bf16, causal_mask>::launch(where_, p, {}, {}, stream_);
        } else if (rows_are_ == kind::generated || (rows_are_ == kind::any && p.queries() == p.packed.count)) {
            const int keys_in_a_part = invariant_ ? invariant_part : 0;
            // The kernel before writes the new tokens' keys alone; older ones, lengths and tables were there before the step.
            decode::launch(
                where_, p,
                {.workspace = workspace_for(p, keys_in_a_part), .early = true, .keys_in_a_part = keys_in_a_part}, {},
                {}, stream_);
        } else {
            prefill::launch(where_, p, {}, {}, stream_);
        }
    }

  private:
    // What decides which kernels rows get, if not their number.
    enum class kind { any, of_prompts, generated };
    struct part_of_rows {
        int first, count;
    };
    // Few enough that one sequence alone keeps some multiprocessors busy.
    static constexpr int invariant_part = 128;

    // Calls with each part of so many rows that is multiplied by a launch of its own.
    template <class Call>
    static void for_parts(int rows, int in_part, const Call& call) {
        for (int first = 0; first < rows; first += in_part) call(part_of_rows{first, std::min(in_part, rows - first)});
    }

    // out = epilogue_of(part)(x W^T)
    template <class Out, class EpilogueOf>
    void multiply_parts(const matrix& with, const bf16* x, int rows, Out* out, kind rows_are,
                        const EpilogueOf& epilogue_of) {
        const int computed = rows_are == kind::of_prompts ? std::max(rows, with.least_of_many()) : rows;
        const int in_part = rows_are == kind::generated ? matrix::most_of_few : computed;
        for_parts(computed, in_part, [&](part_of_rows part) {
            const auto epilogue = epilogue_of(part);
            const std::int64_t results =
                is_gated<std::remove_const_t<decltype(epilogue)>> ? with.rows() / 2 : with.rows();
            with.multiply(where_, x + std::int64_t{part.first} * with.columns(), part.count, out + part.first * results,
                          epilogue, stream_, room_for(with, part.count));
        });
    }

    // Where packed weights are widened for the rows of prompts. Then they are rounded, which they are not for few rows: where bits must not
    // depend on the number of rows, there is none.
    gemm_workspace room_for(const matrix& with, int rows) {
        if (invariant_ || !with.is_packed() || rows < matrix::least_widened) return {};
        if (widened_.bytes() == 0) widened_ = world_memory(where_, largest_bytes_);
        return {widened_.at(), widened_.bytes()};
    }

    template <class Epilogue>
    void norm_and_multiply(const normed_matrix& with, const numbers<bf16>& x, int rows, bf16* out,
                           const Epilogue& epilogue) {
        using product = gemm_normed<bf16, bf16, Epilogue>;
        const tile_matrix& weights = with.weights;
        const int in_part = rows_are_ == kind::generated ? matrix::most_of_few : rows;
        if (with.folded && rows_are_ != kind::of_prompts) {
            const int results = is_gated<Epilogue> ? weights.rows() / 2 : weights.rows(), k = weights.columns();
            const auto problem_of = [&](part_of_rows part) {
                return typename product::problem{part.count,
                                                 results,
                                                 k,
                                                 {x.data() + std::int64_t{part.first} * k},
                                                 {weights.values()},
                                                 {out + std::int64_t{part.first} * results}};
            };
            if (product::can_take(where_, problem_of({0, std::min(in_part, rows)}))) {
                return for_parts(rows, in_part, [&](part_of_rows part) {
                    product::launch(where_, problem_of(part), epilogue, {epsilon_}, stream_);
                });
            }
        }
        normalise(with.norm, x, rows, x_.data());
        multiply_parts(weights, x_.data(), rows, out, rows_are_, [&](part_of_rows) { return epilogue; });
    }

    using decode = paged_decode<bf16, causal_mask, plain_score, attention_result::normalised, decode_depths<Depths...>>;
    using prefill = attention_forward<bf16, causal_mask, plain_score, attention_result::normalised,
                                      attention_tiles<Depths...>, attention_keys::in_pages>;

    // Where sequences are cut, it grows with their number and length. What launches were recorded with stays.
    void* workspace_for(const attention_problem<bf16>& p, int keys_in_a_part) {
        if (keys_in_a_part > 0 || workspaces_.empty()) {
            const std::size_t bytes = decode::workspace_bytes(where_, p, 0, keys_in_a_part);
            if (workspaces_.empty() || workspaces_.back().bytes() < bytes) workspaces_.emplace_back(where_, bytes);
        }
        return workspaces_.back().at();
    }

    world where_;
    void* stream_;
    std::int64_t hidden_;
    float epsilon_;
    bool invariant_;
    std::size_t largest_bytes_;             // that a layer's weights of one matrix have as bf16
    kind rows_are_ = kind::any;             // of this step
    numbers<bf16> x_;                       // rows that are normed
    std::vector<world_memory> workspaces_;  // of decodes
    world_memory widened_;                  // weights of a matrix, one after the other
};

}  // namespace imbrex::engine
