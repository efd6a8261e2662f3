// Weights of a matrix in the memory of a world, in one of the forms that products by rows take (imbrex/core/weight_rows.hpp). What a file has
// of ggml's quantised types is kept exactly. Products with whole numbers round what they multiply with to whole numbers too, as others do
// that are made for CPUs.
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
    // Where whole groups of 32 are asked for and rows are not made of them, the matrix is kept as it is in the file.
    cpu_matrix(const stacked_weights& from, const runner_options& options);

    const any_view& view() const { return view_; }
    std::int64_t rows() const {
        return std::visit([](const auto& view) { return view.rows; }, view_);
    }

  private:
    world_memory values_, scales_;
    any_view view_;
};

// Rows that are looked up: as they are in the file, or as floats if it has them quantised.
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
