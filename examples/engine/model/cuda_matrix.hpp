// A weight matrix on a GPU: bf16, or e4m3, int8, int4 or the blocks of a GGUF file, which the GEMM kernels dequantise to
// bf16 in registers. Where stacked weights have different types, each run of one type is a matrix of its own.
// cpu_matrix.hpp is the CPU counterpart.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cuda_block_matrix.hpp"
#include "engine/model/cuda_matrix_formats.hpp"
#include "engine/model/runner.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// [rows, columns]
class cuda_matrix {
  public:
    cuda_matrix() = default;
    // The matrix is bf16 if the row length is not a multiple of 32, or if gate and up do not have a multiple of 64 rows
    // each.
    cuda_matrix(const stacked_weights& from, const runner_options& options) {
        require(options.weights != weight_format::f32 && options.weights != weight_format::f16,
                "weights: ", name_of(options.weights), "; on a GPU they are bf16, e4m3, int8 or int4");
        if (options.weights == weight_format::as_in_file && keeps_types(from)) {
            for (const stacked_weights& part : from.runs_of_types()) add(load_as_in_file(part, options.where));
        } else {
            add(load(from, options));
        }
    }

    // Whether the matrix has the numbers of the file, in packed blocks, rather than bf16.
    static bool keeps_types(const stacked_weights& from) {
        const std::vector<stacked_weights> runs = from.runs_of_types();
        return !from.has_factors() && (runs.size() == 1 || !is_gate_and_up(from)) && can_be_prepacked(from) &&
               std::ranges::all_of(runs, has_packed_form);
    }

    int rows() const { return rows_; }
    int columns() const {
        return std::visit([](const auto& form) { return form.columns(); }, forms_.front());
    }

    // Up to this many rows of x use GEMV, whose accumulation order does not depend on the number of rows.
    static constexpr int max_gemv_rows = 8;
    // From this many rows on, the large-M kernels are used, for which the same holds. In between, the kernel depends on
    // the number of rows.
    int min_large_m() const {
        return std::visit([](const auto& form) { return form.min_large_m; }, forms_.front());
    }
    // From this many rows on, a workspace makes packed weights faster: they may be rounded, and are dequantised once into
    // it for many rows.
    static constexpr int min_dequantised_m = 128;
    static constexpr int max_min_large_m = std::max(cuda_bf16_matrix::min_large_m, min_large_m_packed);

    bool is_packed() const { return !std::holds_alternative<cuda_bf16_matrix>(forms_.front()); }
    // For bf16 matrices.
    const bf16* values() const { return std::get<cuda_bf16_matrix>(forms_.front()).values(); }

    // out = epilogue(x W^T), x being [count, columns]. With a workspace, packed weights may be rounded, and for
    // many rows they are dequantised into it if they fit.
    template <class Out, class Epilogue>
    void matmul(world where, const bf16* x, int count, Out* out, const Epilogue& epilogue, void* stream,
                const gemm_workspace& workspace = {}) const {
        const auto used = as_matrix_epilogue(epilogue);
        int first = 0;
        for (const any_form& each : forms_) {
            std::visit(
                [&](const auto& form) {
                    const int results = epilogue::is_glu<Epilogue> ? form.rows() / 2 : form.rows();
                    const int stride = epilogue::is_glu<Epilogue> ? results : rows();
                    const gemm_problem<bf16, Out> p{count, results, columns(), {x}, {}, {out + first, stride}};
                    form.matmul(where, p, columns_from(used, first, results), workspace, stream);
                    first += results;
                },
                each);
        }
    }

  private:
    using cuda_int8_matrix = cuda_grouped_matrix<std::int8_t>;
    using cuda_int4_matrix = cuda_grouped_matrix<int4x2>;
    using cuda_iq4_matrix = cuda_grouped_matrix<iq4>;
    using any_form =
        std::variant<cuda_bf16_matrix, cuda_int8_matrix, cuda_int4_matrix, cuda_iq4_matrix, cuda_e4m3_matrix,
                     cuda_q2_k_matrix, cuda_q4_k_matrix, cuda_q5_k_matrix, cuda_q6_k_matrix, cuda_q5_1_matrix>;

    void add(any_form form) {
        rows_ += std::visit([](const auto& one) { return one.rows(); }, form);
        forms_.push_back(std::move(form));
    }

    static any_form load(const stacked_weights& from, const runner_options& options) {
        const world where = options.where;
        if (can_be_prepacked(from)) {
            if (options.weights == weight_format::e4m3) return cuda_e4m3_matrix(from, where);
            if (options.weights == weight_format::int8) return cuda_int8_matrix(from, where, group_source::floats);
            if (options.weights == weight_format::int4) return cuda_int4_matrix(from, where, group_source::floats);
        }
        return cuda_bf16_matrix(from, where);
    }

    static bool has_packed_form(const stacked_weights& from) {
        using enum weight_type;
        const weight_type type = from.type();
        const bool becomes_q5_1 = type == q4_1 || type == q5_0 || type == q5_1;
        return is_block(type) && (!becomes_q5_1 || from.columns() % packed_columns == 0);
    }
    static any_form load_as_in_file(const stacked_weights& from, world where) {
        switch (from.type()) {
            case weight_type::q4_0:
                return cuda_int4_matrix(from, where, group_source::ggml_blocks);
            case weight_type::q4_1:
            case weight_type::q5_0:
            case weight_type::q5_1:
                return cuda_q5_1_matrix(from, where);
            case weight_type::q2_k:
                return cuda_q2_k_matrix(from, where);
            case weight_type::q4_k:
                return cuda_q4_k_matrix(from, where);
            case weight_type::q5_k:
                return cuda_q5_k_matrix(from, where);
            case weight_type::q3_k:
            case weight_type::q6_k:
                return cuda_q6_k_matrix(from, where);
            case weight_type::iq4_nl:
            case weight_type::iq4_xs:
                return cuda_iq4_matrix(from, where, group_source::ggml_blocks);
            default:  // Q8_0; MXFP4, as integers
                return cuda_int8_matrix(from, where, group_source::ggml_blocks);
        }
    }

    static bool is_gate_and_up(const stacked_weights& from) { return from.parts().size() == 2; }
    static bool can_be_prepacked(const stacked_weights& from) {
        return from.columns() % weight_group_size == 0 &&
               (!is_gate_and_up(from) || from.rows() % (2 * packed_rows) == 0);
    }

    // The epilogue of some columns. A GLU always has all.
    static bias_and_residual columns_from(const bias_and_residual& all, int first, int count) {
        bias_and_residual some = all;
        if (all.bias.vector.pointer != nullptr) some.bias.vector = {all.bias.vector.pointer + first, count};
        const auto& other = all.residual_in.other;
        if (other.pointer != nullptr)
            some.residual_in.other = {other.pointer + first, {1, other.rows(), count}, other.strides};
        return some;
    }
    template <class Epilogue>
    static const Epilogue& columns_from(const Epilogue& all, int, int) {
        return all;
    }

    std::vector<any_form> forms_;  // stacked
    int rows_ = 0;
};

// The embedding table: always bf16.
class cuda_embedding_table : public cuda_bf16_matrix {
  public:
    cuda_embedding_table() = default;
    cuda_embedding_table(const stacked_weights& from, const runner_options& options)
        : cuda_bf16_matrix(from, options.where) {}
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
