// Weights of a matrix in the memory of a world, as the tensor cores multiply them: in bf16, or in fewer bits that become bf16 on the way.
// (`row_matrix.hpp` is the same for a CPU.)
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "runner.hpp"
#include "stacked_weights.hpp"
#include "tile_matrix_forms.hpp"

namespace imbrex::engine {

// [rows, columns]
class tile_matrix {
  public:
    tile_matrix() = default;
    // Where rows are not made of whole groups of 32, or gate and up not of whole 64 rows each, the matrix is kept as bf16.
    tile_matrix(const stacked_weights& from, const runner_options& options) : form_(load(from, options)) {}

    int rows() const {
        return std::visit([](const auto& form) { return form.rows(); }, form_);
    }
    int columns() const {
        return std::visit([](const auto& form) { return form.columns(); }, form_);
    }

    // With up to so many rows of x, a product is one stream of the weights, in which the sums of a row are made the same way whatever
    // others there are.
    static constexpr int most_of_few = 8;
    // From so many on it takes kernels of which the same is true. Between the two it is up to the number of rows.
    int least_of_many() const {
        return std::visit([](const auto& form) { return form.least_of_many; }, form_);
    }
    // And from so many on packed weights are widened once for all of them, if there is room.
    static constexpr int least_widened = many_quantised_rows;
    static constexpr int largest_least_of_many = std::max(bf16_tiles::least_of_many, least_of_many_packed);

    bool is_packed() const { return !std::holds_alternative<bf16_tiles>(form_); }
    // Of a matrix that is kept as bf16.
    const bf16* values() const { return std::get<bf16_tiles>(form_).values(); }

    // out = epilogue(x W^T), x being [count, columns]. Packed weights are widened into `room` for many rows, if they have room there.
    template <class Out, class Epilogue>
    void multiply(world where, const bf16* x, int count, Out* out, const Epilogue& epilogue, void* stream,
                  const gemm_workspace& room = {}) const {
        const int results = is_gated<Epilogue> ? rows() / 2 : rows();
        const gemm_problem<bf16, Out> p{count, results, columns(), {x}, {}, {out}};
        std::visit([&](const auto& form) { form.multiply(where, p, epilogue, room, stream); }, form_);
    }

  private:
    using any_form = std::variant<bf16_tiles, grouped_tiles<std::int8_t>, grouped_tiles<int4x2>, e4m3_tiles>;

    static any_form load(const stacked_weights& from, const runner_options& options) {
        require(options.weights != weight_format::f32, "weights: f32; on a GPU they are bf16, e4m3, int8 or int4");
        using int8_tiles = grouped_tiles<std::int8_t>;
        using int4_tiles = grouped_tiles<int4x2>;
        const world where = options.where;
        if (can_be_packed(from)) {
            if (options.weights == weight_format::e4m3) return e4m3_tiles(from, where);
            if (options.weights == weight_format::int8) return int8_tiles(from, where, group_source::floats);
            if (options.weights == weight_format::int4) return int4_tiles(from, where, group_source::floats);
            if (options.weights == weight_format::as_in_file) {
                if (from.type() == weight_type::q8_0) return int8_tiles(from, where, group_source::blocks_of_file);
                if (from.type() == weight_type::q4_0) return int4_tiles(from, where, group_source::blocks_of_file);
            }
        }
        return bf16_tiles(from, where);
    }

    // Two weights that are stacked are gate and up.
    static bool can_be_packed(const stacked_weights& from) {
        int parts = 0;
        from.for_each_part([&](std::span<const std::byte>) { ++parts; });
        return from.columns() % weights_in_group == 0 && (parts != 2 || from.rows() % (2 * packed_rows) == 0);
    }

    any_form form_;
};

// Rows that are looked up: as bf16, whatever matrices are kept as.
class tile_table : public bf16_tiles {
  public:
    tile_table() = default;
    tile_table(const stacked_weights& from, const runner_options& options) : bf16_tiles(from, options.where) {}
};

}  // namespace imbrex::engine
