// A weight matrix on a GPU: bf16, or e4m3, int8 or int4 that the GEMM kernels dequantise to bf16 in registers.
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
#include <variant>

#include "engine/loading/stacked_weights.hpp"
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
    cuda_matrix(const stacked_weights& from, const runner_options& options) : form_(load(from, options)) {}

    int rows() const {
        return std::visit([](const auto& form) { return form.rows(); }, form_);
    }
    int columns() const {
        return std::visit([](const auto& form) { return form.columns(); }, form_);
    }

    // Up to this many rows of x use GEMV, whose accumulation order does not depend on the number of rows.
    static constexpr int max_gemv_rows = 8;
    // From this many rows on, the large-M kernels are used, for which the same holds. In between, the kernel depends on
    // the number of rows.
    int min_large_m() const {
        return std::visit([](const auto& form) { return form.min_large_m; }, form_);
    }
    // From this many rows on, packed weights are dequantised once into a workspace, if there is one.
    static constexpr int min_dequantised_m = dequantise_first_min_m;
    static constexpr int max_min_large_m = std::max(cuda_bf16_matrix::min_large_m, min_large_m_packed);

    bool is_packed() const { return !std::holds_alternative<cuda_bf16_matrix>(form_); }
    // For bf16 matrices.
    const bf16* values() const { return std::get<cuda_bf16_matrix>(form_).values(); }

    // out = epilogue(x W^T), x being [count, columns]. For many rows, packed weights are dequantised into `workspace`
    // if they fit.
    template <class Out, class Epilogue>
    void matmul(world where, const bf16* x, int count, Out* out, const Epilogue& epilogue, void* stream,
                const gemm_workspace& workspace = {}) const {
        const int results = epilogue::is_glu<Epilogue> ? rows() / 2 : rows();
        const gemm_problem<bf16, Out> p{count, results, columns(), {x}, {}, {out}};
        std::visit([&](const auto& form) { form.matmul(where, p, epilogue, workspace, stream); }, form_);
    }

  private:
    using any_form =
        std::variant<cuda_bf16_matrix, cuda_grouped_matrix<std::int8_t>, cuda_grouped_matrix<int4x2>, cuda_e4m3_matrix>;

    static any_form load(const stacked_weights& from, const runner_options& options) {
        require(options.weights != weight_format::f32 && options.weights != weight_format::f16,
                "weights: ", name_of(options.weights), "; on a GPU they are bf16, e4m3, int8 or int4");
        using cuda_int8_matrix = cuda_grouped_matrix<std::int8_t>;
        using cuda_int4_matrix = cuda_grouped_matrix<int4x2>;
        const world where = options.where;
        if (can_be_prepacked(from)) {
            if (options.weights == weight_format::e4m3) return cuda_e4m3_matrix(from, where);
            if (options.weights == weight_format::int8) return cuda_int8_matrix(from, where, group_source::floats);
            if (options.weights == weight_format::int4) return cuda_int4_matrix(from, where, group_source::floats);
            if (options.weights == weight_format::as_in_file) {
                if (from.type() == weight_type::q8_0) return cuda_int8_matrix(from, where, group_source::ggml_blocks);
                if (from.type() == weight_type::q4_0) return cuda_int4_matrix(from, where, group_source::ggml_blocks);
            }
        }
        return cuda_bf16_matrix(from, where);
    }

    // Two stacked weights are gate and up.
    static bool can_be_prepacked(const stacked_weights& from) {
        int parts = 0;
        from.for_each_part([&](std::span<const std::byte>) { ++parts; });
        return from.columns() % weight_group_size == 0 && (parts != 2 || from.rows() % (2 * packed_rows) == 0);
    }

    any_form form_;
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
