// The formats of the matrices of experts on a GPU. Those of all experts of a layer lie below one another, so that one launch
// multiplies them all:
//
//     gate and up   [experts, 2 (gate, up), rows, columns]        down   [experts, rows, columns]
//
//     cuda_bf16_experts              row-major
//     cuda_packed_experts<Weights>   prepacked; MXFP4 as in the file, int8 and int4 with an fp16 scale per row and 32
//                                    of K, as dense matrices have (cuda_matrix_formats.hpp)
//     cuda_e4m3_experts              prepacked, with a scale per row
//
// The rows of each matrix are padded to 64 with zeros: what is computed for them is not read. Blocks of 64 rows are packed
// on all cores, so that a layer needs little memory of the host. cuda_experts_*.cu instantiate the products of a format
// each (cuda_expert_products.hpp).
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cuda_matrix_formats.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

using expert_glu = epilogue::biased_glu<float, activation::clamped_swiglu>;
using expert_bias = epilogue::bias<float>;

using int4_experts = cuda_grouped_matrix<int4x2>::weights;
// With a larger block_k the GEMV takes two subtiles a step, for which it has too few registers.
using int8_experts = grouped_weights<bf16, std::int8_t, weight_group_size, fp16, packed_columns>;

// Up to this height of its tiles, a routing is multiplied by the GEMV.
inline constexpr int most_gemv_tile_rows = 16;

// What a product of all rows of a routing reads and writes.
struct expert_operands {
    moe_routing routing;
    const bf16* a = nullptr;  // gate and up: a row per token; down: those of the routing
    int a_stride = 0;
    bf16* out = nullptr;  // [rows of the routing, rows()]
};

// The weights of a file for such a stack.
class expert_stack {
  public:
    explicit expert_stack(const stacked_weights& from)
        : from_(from),
          rows_in_file_(from.parts().front()->rows()),
          blocks_of_part_(ceil_div(rows_in_file_, packed_rows)) {
        for (const weight* part : from.parts())
            require(part->rows() == rows_in_file_, part->name, ": ", part->rows(), " rows; other experts have ",
                    rows_in_file_);
    }

    int rows() const { return static_cast<int>(blocks_of_part_) * packed_rows; }  // of one matrix, padded
    int columns() const { return static_cast<int>(from_.columns()); }
    weight_type type() const { return from_.type(); }
    bool has_blocks() const {
        return std::ranges::any_of(from_.parts(), [](const weight* part) { return is_block(part->type); });
    }
    std::int64_t all_rows() const { return static_cast<std::int64_t>(from_.parts().size()) * rows(); }

    // 64 rows of a matrix.
    struct block {
        stacked_weights matrix;
        std::int64_t number;     // of the block, in the matrix
        std::int64_t first_row;  // in the stack
    };

    // An array with `in_block` values for each block: make(block, to) writes them.
    template <class T, class Make>
    world_buffer<T> build(world where, std::int64_t in_block, const Make& make) const {
        return build_in_row_blocks<T>(
            where, all_rows() / packed_rows * in_block, in_block, [&](std::int64_t number, T* to) {
                const weight* const part = from_.parts()[static_cast<std::size_t>(number / blocks_of_part_)];
                make(block{stacked_weights(*part), number % blocks_of_part_, number * packed_rows}, to);
            });
    }
    // The same for prepacked weights.
    template <class Weights, class Make>
    world_buffer<typename Weights::weight_tile> prepack(world where, const Make& make) const {
        const auto tiles = static_cast<std::int64_t>(packed_tile_count<Weights>(packed_rows, columns()));
        return build<typename Weights::weight_tile>(where, tiles, make);
    }

  private:
    const stacked_weights& from_;
    std::int64_t rows_in_file_, blocks_of_part_;
};

class cuda_bf16_experts {
  public:
    cuda_bf16_experts() = default;
    cuda_bf16_experts(const expert_stack& from, world where) : rows_(from.rows()), columns_(padded(from.columns())) {
        values_ = from.build<bf16>(where, std::int64_t{packed_rows} * columns_,
                                   [&](const expert_stack::block& block, bf16* to) {
                                       const row_block own(block.matrix, block.number);
                                       std::fill_n(to, packed_rows * columns_, bf16(0.0f));
                                       const float* value = own.values.data();
                                       for (std::int64_t row = 0; row < own.count; ++row) {
                                           for (int i = 0; i < from.columns(); ++i)
                                               to[row * columns_ + i] = convert<bf16>(*value++);
                                       }
                                   });
    }

    int rows() const { return rows_; }

    void gate_up(world where, const expert_operands& p, const expert_glu& function, void* stream) const;
    void down(world where, const expert_operands& p, const expert_bias& bias, void* stream) const;

  private:
    // Rows begin at multiples of 16 bytes. The columns of h that down has too are zeros.
    static int padded(int columns) { return ceil_div(columns, 8) * 8; }

    int rows_ = 0, columns_ = 0;
    world_buffer<bf16> values_;
};

template <class Weights>
class cuda_packed_experts {
  public:
    using weight_tile = typename Weights::weight_tile;

    // pack(block, to) packs 64 rows.
    template <class Pack>
    cuda_packed_experts(const expert_stack& from, world where, const Pack& pack)
        : rows_(from.rows()), columns_(from.columns()), tiles_(from.prepack<Weights>(where, pack)) {}

    int rows() const { return rows_; }

    void gate_up(world where, const expert_operands& p, const expert_glu& function, void* stream) const;
    void down(world where, const expert_operands& p, const expert_bias& bias, void* stream) const;

  private:
    int rows_, columns_;
    world_buffer<weight_tile> tiles_;
};

class cuda_e4m3_experts {
  public:
    cuda_e4m3_experts(const expert_stack& from, world where) : rows_(from.rows()), columns_(from.columns()) {
        std::vector<float> scales(static_cast<std::size_t>(from.all_rows()));
        tiles_ = from.prepack<weights>(where, [&](const expert_stack::block& block, weights::weight_tile* to) {
            const row_block own(block.matrix, block.number);
            std::vector<e4m3> values(own.values.size());
            quantise_rows(e4m3_rows_output{values.data(), scales.data() + block.first_row}, own.values.data(),
                          own.count, columns_);
            pack_weights<weights>(to, values.data(), nullptr, static_cast<int>(own.count), columns_);
        });
        scales_ = {where, scales};
    }

    int rows() const { return rows_; }

    void gate_up(world where, const expert_operands& p, const expert_glu& function, void* stream) const;
    void down(world where, const expert_operands& p, const expert_bias& bias, void* stream) const;

  private:
    using weights = e4m3_weights<bf16, prepacked_block_k<e4m3>>;

    int rows_, columns_;
    world_buffer<weights::weight_tile> tiles_;
    world_buffer<float> scales_;  // of each row
};

// ggml's blocks of MXFP4, 17 bytes: the scale; elements i and i + 16 share a byte.
struct mxfp4_rows {
    using weights = mxfp4_weights<bf16>;

    static void pack(const expert_stack::block& block, weights::weight_tile* to) {
        constexpr std::size_t bytes = 17, pairs = 16;
        const stacked_weights& from = block.matrix;
        const std::int64_t first = block.number * packed_rows,
                           count = std::min<std::int64_t>(packed_rows, from.rows() - first);
        std::vector<e2m1x2> values;
        std::vector<ue8m0> scales;
        for (const std::span<const std::byte> row : from.rows_in_file(first, count)) {
            for (std::size_t at = 0; at < row.size(); at += bytes) {
                const std::byte* const own = row.data() + at;
                scales.push_back(ue8m0::from_bits(std::to_integer<std::uint8_t>(own[0])));
                for (std::size_t i = 0; i < pairs; ++i) values.push_back(neighbours(own + 1, i));
            }
        }
        pack_weights<weights>(to, values.data(), scales.data(), static_cast<int>(count),
                              static_cast<int>(from.columns()));
    }

  private:
    static e2m1x2 neighbours(const std::byte* nibbles, std::size_t pair) {
        const std::byte* const two = nibbles + pair % 8 * 2;
        const int shift = pair < 8 ? 0 : 4;
        const std::byte low = two[0] >> shift & std::byte{15}, high = two[1] >> shift & std::byte{15};
        return e2m1x2::from_bits(std::to_integer<std::uint8_t>(low | high << 4));
    }
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
