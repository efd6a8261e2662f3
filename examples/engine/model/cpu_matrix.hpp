// A weight matrix on a CPU, in one of the formats of imbrex/core/weight_rows.hpp. ggml's q8_0 and q4_0 are kept
// exactly. GEMMs with int8 and int4 weights quantise the activations to int8, as llama.cpp does.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/world_memory.hpp>

#include <cstdint>
#include <variant>

#include "engine/loading/stacked_weights.hpp"
#include "engine/model/runner.hpp"

namespace imbrex::engine {

class cpu_matrix {
  public:
    template <class Scale>
    using int8_view = int8_weight_rows<activation_quantisation::int8, Scale>;
    template <class Scale>
    using int4_view = int4_weight_rows<activation_quantisation::int8, Scale>;
    using any_view =
        std::variant<unquantised_weight_rows<float>, unquantised_weight_rows<bf16>, unquantised_weight_rows<fp16>,
                     e4m3_weight_rows, int8_view<bf16>, int4_view<bf16>, int8_view<fp16>, int4_view<fp16>>;

    cpu_matrix() = default;
    // If the format has groups of 32 and the row length is not a multiple of 32, the matrix keeps the format of the
    // file.
    cpu_matrix(const stacked_weights& from, const runner_options& options);

    const any_view& view() const { return view_; }
    std::int64_t rows() const {
        return std::visit([](const auto& view) { return view.rows; }, view_);
    }

  private:
    world_memory values_, scales_;
    any_view view_;
};

// The embedding table, in the element type of the file; quantised types as floats.
class cpu_embedding_table {
  public:
    using any_view =
        std::variant<unquantised_weight_rows<float>, unquantised_weight_rows<bf16>, unquantised_weight_rows<fp16>>;

    cpu_embedding_table() = default;
    cpu_embedding_table(const stacked_weights& from, const runner_options& options);

    const any_view& view() const { return view_; }

  private:
    world_memory values_;
    any_view view_;
};

}  // namespace imbrex::engine
