// Weights of a matrix in the memory of a world, as the tensor cores multiply them: in bf16, or in fewer bits that become bf16 on the way.
// (`cpu_matrix.hpp` is the same for a CPU.)
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

// [rows, columns]
class cuda_matrix {
  public:
    cuda_matrix() = default;
    // Where rows are not made of whole groups of 32, or gate and up not of whole 64 rows each, the matrix is kept as bf16.
    cuda_matrix(const stacked_weights& from, const runner_options& options) : form_(load(from, options)) {}

    int rows() const {
        return std::visit([](const auto& form) { return form.rows(); }, form_);
    }
    int columns() const {
        return std::visit([](const auto& form) { return form.columns(); }, form_);
    }

    // With up to so many rows of x, a product is one stream of the weights, in which the sums of a row are made the same way whatever
    // others there are.
    static constexpr int max_gemv_rows = 8;
    // From so many on it takes kernels of which the same is true. Between the two it is up to the number of rows.
    int min_large_m() const {
        return std::visit([](const auto& form) { return form.min_large_m; }, form_);
    }
    // And from so many on packed weights are widened once for all of them, if there is room.
    static constexpr int min_dequantised_m = dequantise_first_min_m;
    static constexpr int max_min_large_m = std::max(cuda_bf16_matrix::min_large_m, min_large_m_packed);

    bool is_packed() const { return !std::holds_alternative<cuda_bf16_matrix>(form_); }
    // Of a matrix that is kept as bf16.
    const bf16* values() const { return std::get<cuda_bf16_matrix>(form_).values(); }

    // out = epilogue(x W^T), x being [count, columns]. Packed weights are widened into `workspace` for many rows, if they have room there.
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
        require(options.weights != weight_format::f32, "weights: f32; on a GPU they are bf16, e4m3, int8 or int4");
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

    // Two weights that are stacked are gate and up.
    static bool can_be_prepacked(const stacked_weights& from) {
        int parts = 0;
        from.for_each_part([&](std::span<const std::byte>) { ++parts; });
        return from.columns() % weight_group_size == 0 && (parts != 2 || from.rows() % (2 * packed_rows) == 0);
    }

    any_form form_;
};

// Rows that are looked up: as bf16, whatever matrices are kept as.
class cuda_embedding_table : public cuda_bf16_matrix {
  public:
    cuda_embedding_table() = default;
    cuda_embedding_table(const stacked_weights& from, const runner_options& options)
        : cuda_bf16_matrix(from, options.where) {}
};

}  // namespace imbrex::engine
