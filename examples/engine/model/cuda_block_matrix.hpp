// A matrix in ggml's blocks on a GPU: the integers, scales and minimums of the file, packed for the tensor cores
// (kernels/gemm/block_weights.hpp). Nothing is rounded.
//
//     cuda_q2_k_matrix    Q2_K
//     cuda_q4_k_matrix    Q4_K
//     cuda_q5_k_matrix    Q5_K
//     cuda_q6_k_matrix    Q6_K; Q3_K, whose 3-bit integers become 6-bit ones
//     cuda_q5_1_matrix    Q5_1; Q5_0 and Q4_1, in the form of Q5_1
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/kernels/gemm/block_weights.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/loading/ggml_blocks.hpp"
#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cuda_matrix_formats.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// Columns of a row, as many as a super-block of block_weights has, in its form.
template <class Weights>
struct unpacked_super_block {
    static constexpr int columns = Weights::super_block, parts = columns / packed_columns;
    std::array<typename Weights::format, columns> values;
    std::array<typename Weights::scale, parts> scales;
    typename Weights::super_scale super;

    unpacked_super_block(weight_type type, const std::byte* from) {
        std::array<std::uint8_t, columns> integers{};
        std::array<float, columns / unpacked_group> factors{}, offsets{};
        with_ggml_block(type, [&]<class Block>(Block) {
            const std::byte* block = from;
            for (int first = 0; first + Block::elements <= columns; first += Block::elements, block += Block::bytes) {
                const int group = first / unpacked_group;
                unpack_block<Block>(block, &integers[first], &factors[group], &offsets[group]);
            }
        });
        const place_in_block at = place_of(type);
        for (int i = 0; i < columns; ++i) values[i] = {static_cast<std::uint8_t>(integers[i] + at.added_to_values)};
        if constexpr (std::is_same_v<typename Weights::scales, half_scales_with_minimums>) {
            scales[0] = {{finite_half(factors[0]), finite_half(factors[2])}};
            super = {{finite_half(-offsets[0]), finite_half(-offsets[2])}};
        } else {
            super.scale = half_at(from + at.scale);
            if constexpr (Weights::scales::has_minimum) super.minimum = half_at(from + at.minimum);
            for (int part = 0; part < parts; ++part) scales[part] = row_of(&factors[4 * part], &offsets[4 * part]);
        }
    }

  private:
    // Where a block of 256 has its fp16 numbers, and what makes its integers those of the format.
    struct place_in_block {
        int scale, minimum;
        int added_to_values;
    };
    static place_in_block place_of(weight_type type) {
        switch (type) {
            case weight_type::q2_k:
                return {80, 82, 0};
            case weight_type::q3_k:
                return {108, 0, 28};
            case weight_type::q6_k:
                return {208, 0, 0};
            default:  // Q4_K, Q5_K
                return {0, 2, 0};
        }
    }

    // Scales of groups are integers times the scale of the block, exact in float: the quotient is the integer.
    typename Weights::scale row_of(const float* factors, const float* offsets) const {
        using kind = typename Weights::scales;
        const auto scale = [&](int group) { return quotient(factors[group], super.scale); };
        if constexpr (std::is_same_v<kind, k_scales>) {
            return kind::row_of(scale(0), scale(1), scale(2), scale(3));
        } else {
            const auto minimum = [&](int group) { return quotient(-offsets[group], super.minimum); };
            if constexpr (std::is_same_v<kind, k_scales_with_minimums>) {
                return kind::row_of(scale(0), scale(2), minimum(0), minimum(2));
            } else {
                std::uint32_t bits = 0;
                for (int group = 0; group < 4; ++group)
                    bits |= static_cast<std::uint32_t>(scale(group) | minimum(group) << 4) << (8 * group);
                return {bits};
            }
        }
    }
    static int quotient(float product, fp16 factor) {
        const float divisor = convert<float>(factor);
        return divisor == 0 ? 0 : static_cast<int>(std::lround(product / divisor));
    }
    static fp16 finite_half(float value) {
        const fp16 half = convert<fp16>(value);
        require(std::isfinite(convert<float>(half)), "scale of a block: ", value, "; weights are finite");
        return half;
    }
    static fp16 half_at(const std::byte* from) {
        return finite_half(convert<float>(fp16::from_bits(ggml::read<std::uint16_t>(from))));
    }
};

template <class Weights>
class cuda_block_matrix {
  public:
    static constexpr int min_large_m = min_large_m_packed;

    cuda_block_matrix(const stacked_weights& from, world where)
        : rows_(static_cast<int>(from.rows())), columns_(static_cast<int>(from.columns())) {
        tiles_ = prepack_in_row_blocks<Weights>(where, rows_, columns_, [&](std::int64_t block, weight_tile* to) {
            const std::int64_t first = block * packed_rows, count = std::min<std::int64_t>(packed_rows, rows_ - first);
            pack(to, from.type(), from.rows_in_file(first, count));
        });
    }

    int rows() const { return rows_; }
    int columns() const { return columns_; }

    template <class Out, class Epilogue>
    void matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                const gemm_workspace& workspace, void* stream) const;

  private:
    using weight_tile = typename Weights::weight_tile;
    using super_block = unpacked_super_block<Weights>;

    void pack(weight_tile* to, weight_type type, std::span<const std::span<const std::byte>> rows) const {
        std::vector<typename Weights::format> values;
        std::vector<typename Weights::scale> scales;
        std::vector<typename Weights::super_scale> supers;
        const block_format format = format_of(type);
        const auto bytes = static_cast<std::size_t>(super_block::columns / format.elements * format.bytes);
        for (const std::span<const std::byte> row : rows) {
            for (std::size_t at = 0; at < row.size(); at += bytes) {
                const super_block one(type, row.data() + at);
                values.insert(values.end(), one.values.begin(), one.values.end());
                scales.insert(scales.end(), one.scales.begin(), one.scales.end());
                supers.push_back(one.super);
            }
        }
        pack_weights<Weights>(to, values.data(), scales.data(), supers.data(), static_cast<int>(rows.size()), columns_);
    }

    int rows_, columns_;
    world_buffer<weight_tile> tiles_;
};

using cuda_q2_k_matrix = cuda_block_matrix<q2_k_weights<bf16>>;
using cuda_q4_k_matrix = cuda_block_matrix<q4_k_weights<bf16>>;
using cuda_q5_k_matrix = cuda_block_matrix<q5_k_weights<bf16>>;
using cuda_q6_k_matrix = cuda_block_matrix<q6_k_weights<bf16>>;
using cuda_q5_1_matrix = cuda_block_matrix<q5_1_weights<bf16>>;

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
