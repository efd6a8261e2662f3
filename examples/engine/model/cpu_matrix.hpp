// A weight matrix on a CPU. Without conversion it is read where it lies, in the mapped file: numbers and ggml's blocks.
// Otherwise it is converted on load to a format of imbrex/core/weight_rows.hpp. GEMMs with blocks, int8 and int4
// quantise the activations to int8, as llama.cpp does.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/world_memory.hpp>

#include <cstdint>
#include <variant>
#include <vector>

#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cpu_block_gemm.hpp"
#include "engine/model/runner.hpp"

namespace imbrex::engine {

class cpu_matrix {
  public:
    using int8_view = int8_weight_rows<activation_quantisation::int8>;
    using int4_view = int4_weight_rows<activation_quantisation::int8>;
    using any_view =
        std::variant<unquantised_weight_rows<float>, unquantised_weight_rows<bf16>, unquantised_weight_rows<fp16>,
                     e4m3_weight_rows, int8_view, int4_view, block_weight_rows>;

    cpu_matrix() = default;
    // If the format has groups of 32 and the row length is not a multiple of 32, the matrix keeps the format of the
    // file. The file must stay mapped.
    cpu_matrix(const stacked_weights& from, const runner_options& options);

    std::int64_t rows() const { return rows_; }
    // The blocks of the file, if the whole matrix consists of them; for grouped GEMM.
    const block_weight_rows* blocks() const;
    // out = x W^T + bias, x being [count, columns] and out [count, rows].
    void matmul(world where, const float* x, int count, float* out, const float* bias, void* stream) const;

  private:
    // Consecutive rows in one format. Stacked weights of a file are parts, since they lie in different places.
    struct part {
        any_view view;
        world_memory values, scales;
    };

    static part as_in_file(const weight& from, world where);
    static part converted(const stacked_weights& from, const runner_options& options);

    std::vector<part> parts_;
    std::int64_t rows_ = 0;
};

// The embedding table, read where it lies in the file.
class cpu_embedding_table {
  public:
    cpu_embedding_table() = default;
    cpu_embedding_table(const stacked_weights& from, const runner_options&) : table_(*from.parts().front()) {}

    // Row ids[i] of the table, times the factor, becomes row i of `out`.
    void gather(const int* ids, std::int64_t count, float factor, float* out) const;

  private:
    weight table_;
};

}  // namespace imbrex::engine
