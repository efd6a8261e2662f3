// The formats of weight matrices for the tensor cores, and the GEMM of each:
//
//     cuda_bf16_matrix              row-major, bf16
//     cuda_grouped_matrix<Format>   int8, int4 or iq4, an fp16 scale per row and 32 of K; prepacked, dequantised in
//                                   registers
//     cuda_e4m3_matrix              e4m3 with a scale per row; prepacked
//
// Quantization rounds as cpu_matrix.hpp does, so that a model has the same weights on GPU and CPU. Matrices are built
// in blocks of 64 rows, the unit of prepacked weights, on all cores, and uploaded many blocks at a time.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/loading/ggml_blocks.hpp"
#include "engine/loading/stacked_weights.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// Optional bias and residual, tested inside the kernel: one instantiation serves all combinations, which saves compile
// time.
struct bias_and_residual {
    epilogue::bias<float> bias = {};
    epilogue::residual<bf16> residual_in = {};

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        if (bias.vector.pointer != nullptr) bias(self, values, at);
        if (residual_in.other.pointer != nullptr) residual_in(self, values, at);
    }
};

// Maps an epilogue to the one that matrices are compiled for.
inline const bias_and_residual& as_matrix_epilogue(const bias_and_residual& both) {
    return both;
}
inline bias_and_residual as_matrix_epilogue(epilogue::identity) {
    return {};
}
inline bias_and_residual as_matrix_epilogue(const epilogue::bias<float>& bias) {
    return {.bias = bias};
}
inline bias_and_residual as_matrix_epilogue(const epilogue::residual<bf16>& residual_in) {
    return {.residual_in = residual_in};
}
template <class Activation>
epilogue::glu<Activation> as_matrix_epilogue(const epilogue::glu<Activation>& gate) {
    return gate;
}

// An array with `in_block` values per block of 64 rows (the last block may have fewer): make(block, to) writes one
// block.
template <class T, class Make>
world_buffer<T> build_in_row_blocks(world where, std::int64_t all, std::int64_t in_block, const Make& make) {
    constexpr std::int64_t at_once = 256;
    const std::int64_t blocks = (all + in_block - 1) / in_block;
    world_buffer<T> result(where, all);
    std::vector<T> some(static_cast<std::size_t>(std::min(blocks, at_once) * in_block));
    for (std::int64_t first = 0; first < blocks; first += at_once) {
        const std::int64_t count = std::min(at_once, blocks - first);
        hw::thread_pool::shared().for_each(static_cast<int>(count), 0,
                                           [&](int i) { make(first + i, some.data() + i * in_block); });
        const std::int64_t made = std::min(count * in_block, all - first * in_block);
        result.write(first * in_block, std::span<const T>(some).first(static_cast<std::size_t>(made)));
    }
    return result;
}

// The same for prepacked weights.
template <class Weights, class Make>
world_buffer<typename Weights::weight_tile> prepack_in_row_blocks(world where, int rows, int columns,
                                                                  const Make& make) {
    const auto parts_of = [&](int count) {
        return static_cast<std::int64_t>(packed_tile_count<Weights>(count, columns));
    };
    return build_in_row_blocks<typename Weights::weight_tile>(where, parts_of(rows), parts_of(1), make);
}

// Up to 64 rows of the weights as floats.
struct row_block {
    std::int64_t first, count;
    std::vector<float> values;

    row_block(const stacked_weights& from, std::int64_t block)
        : first(block * packed_rows),
          count(std::min<std::int64_t>(packed_rows, from.rows() - first)),
          values(static_cast<std::size_t>(count * from.columns())) {
        from.read(first, count, values);
    }
};

class cuda_bf16_matrix {
  public:
    static constexpr int min_large_m = 129;  // more rows than the small-M kernels take (gemm/heuristics.hpp)

    cuda_bf16_matrix() = default;
    cuda_bf16_matrix(const stacked_weights& from, world where)
        : rows_(static_cast<int>(from.rows())), columns_(static_cast<int>(from.columns())) {
        if (from.type() == weight_type::bf16) {
            copy(from, where);
        } else {
            const std::int64_t all = from.rows() * from.columns(), in_block = packed_rows * from.columns();
            values_ = build_in_row_blocks<bf16>(where, all, in_block, [&](std::int64_t block, bf16* to) {
                const row_block own(from, block);
                std::ranges::transform(own.values, to, [](float value) { return convert<bf16>(value); });
            });
        }
    }

    int rows() const { return rows_; }
    int columns() const { return columns_; }
    const bf16* values() const { return values_.data(); }

    template <class Out, class Epilogue>
    void matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue, const gemm_workspace&,
                void* stream) const;

  private:
    void copy(const stacked_weights& from, world where) {
        values_ = {where, from.rows() * from.columns()};
        std::int64_t at = 0;
        from.for_each_part([&](std::span<const std::byte> bytes) {
            const std::span values(reinterpret_cast<const bf16*>(bytes.data()), bytes.size() / sizeof(bf16));
            values_.write(at, values);
            at += static_cast<std::int64_t>(values.size());
        });
    }

    int rows_ = 0, columns_ = 0;
    world_buffer<bf16> values_;
};

// D = epilogue(A B^T) with weights that the previous kernel in the stream writes.
template <class Out, class Epilogue>
void matmul_dequantised(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue, void* stream);

// block_k of prepacked weights. A larger one leaves too few pipeline stages for more than 16 rows, and makes the int4
// GEMV exceed its registers.
template <class Format>
inline constexpr int prepacked_block_k = bits_of<Format> == 4 ? 128 : 256;

enum class group_source { floats, ggml_blocks };

// Rows of x from which prepacked weights use the large-M kernels (gemm_quantised.hpp).
inline constexpr int min_large_m_packed = 17;

template <class Format>
class cuda_grouped_matrix {
  public:
    static constexpr int min_large_m = min_large_m_packed;

    // The scales are those of ggml's blocks. Those of quantised floats are bf16 numbers, as on a CPU; fp16 holds them
    // exactly from 2^-17 on, and below that to 2^-25.
    cuda_grouped_matrix(const stacked_weights& from, world where, group_source source)
        : rows_(static_cast<int>(from.rows())), columns_(static_cast<int>(from.columns())) {
        tiles_ = prepack_in_row_blocks<weights>(where, rows_, columns_, [&](std::int64_t block, weight_tile* to) {
            pack_block<weights>(from, source, block, to);
        });
    }

    using weights = grouped_weights<bf16, Format, weight_group_size, fp16, prepacked_block_k<Format>>;
    using weight_tile = typename weights::weight_tile;

    // Packs block number `block` of 64 rows. Packed may have another block_k.
    template <class Packed>
    static void pack_block(const stacked_weights& from, group_source source, std::int64_t block,
                           typename Packed::weight_tile* to) {
        const std::int64_t first = block * packed_rows,
                           count = std::min<std::int64_t>(packed_rows, from.rows() - first);
        std::vector<stored> values(static_cast<std::size_t>(count * from.columns() / values_in<Format>));
        std::vector<fp16> scales(group_scale_count(count, from.columns()));
        if (source == group_source::floats) {
            quantise(row_block(from, block).values, count, from.columns(), values, scales);
        } else {
            const auto rows = from.rows_in_file(first, count);
            const bool is_own_block = from.type() == (is_int4 ? weight_type::q4_0 : weight_type::q8_0);
            is_own_block ? take(rows, values, scales) : take_levels(from.type(), rows, values, scales);
        }
        pack<Packed>(to, values, scales, static_cast<int>(count), static_cast<int>(from.columns()));
    }

    int rows() const { return rows_; }
    int columns() const { return columns_; }

    template <class Out, class Epilogue>
    void matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                const gemm_workspace& workspace, void* stream) const;

  private:
    static constexpr bool is_int4 = std::is_same_v<Format, int4x2>;
    static constexpr bool is_iq4 = std::is_same_v<Format, iq4>;
    // As in weight_rows.hpp; of iq4, the number of a level.
    using stored = std::conditional_t<is_int4 || is_iq4, std::uint8_t, std::int8_t>;

    static void quantise(const std::vector<float>& from, std::int64_t count, std::int64_t columns,
                         std::vector<stored>& values, std::vector<fp16>& scales) {
        std::vector<bf16> rounded(scales.size());
        if constexpr (is_iq4) {
            require(false, "weights: iq4; they come from a file");
        } else if constexpr (is_int4) {
            quantise_rows(int4_rows_output{values.data(), rounded.data()}, from.data(), count, columns);
        } else {
            quantise_rows(int8_rows_output{values.data(), rounded.data()}, from.data(), count, columns);
        }
        std::ranges::transform(rounded, scales.begin(),
                               [](bf16 scale) { return convert<fp16>(convert<float>(scale)); });
    }

    // Blocks whose 4 bits select a level, as the number of the level or as the level, an integer of 8 bits. Scales of
    // IQ4_XS are products and rounded to fp16.
    static void take_levels(weight_type type, std::span<const std::span<const std::byte>> rows,
                            std::vector<stored>& values, std::vector<fp16>& scales) {
        stored* value = values.data();
        fp16* scale = scales.data();
        with_ggml_block(type, [&]<class Block>(Block) {
            constexpr std::size_t groups = Block::elements / unpacked_group;
            for (const std::span<const std::byte> row : rows) {
                for (std::size_t at = 0; at < row.size(); at += Block::bytes) {
                    std::uint8_t levels[Block::elements];
                    float factors[groups], offsets[groups];
                    unpack_block<Block>(row.data() + at, levels, factors, offsets);
                    for (int i = 0; i < Block::elements; ++i) {
                        const float factor = factors[i / unpacked_group], offset = offsets[i / unpacked_group];
                        if constexpr (is_iq4) {
                            *value++ = static_cast<stored>(std::ranges::find(ggml::nonlinear_levels, levels[i]) -
                                                           std::begin(ggml::nonlinear_levels));
                        } else {
                            const long zero = factor == 0 ? 0 : std::lround(offset / factor);
                            *value++ = static_cast<stored>(levels[i] + zero);
                        }
                        if (i % weight_group_size == 0) *scale++ = convert<fp16>(factor);
                    }
                }
            }
        });
    }

    // A ggml block is a 2-byte scale followed by the bytes of a group in the layout used here.
    static void take(std::span<const std::span<const std::byte>> rows, std::vector<stored>& values,
                     std::vector<fp16>& scales) {
        constexpr std::size_t group_bytes = weight_group_size / values_in<Format>, scale_bytes = sizeof(fp16);
        stored* value = values.data();
        fp16* scale = scales.data();
        for (const std::span<const std::byte> row : rows) {
            for (std::size_t at = 0; at < row.size(); at += scale_bytes + group_bytes, value += group_bytes) {
                std::memcpy(scale++, row.data() + at, scale_bytes);
                std::memcpy(value, row.data() + at + scale_bytes, group_bytes);
            }
        }
    }

    template <class Packed>
    static void pack(typename Packed::weight_tile* to, const std::vector<stored>& values,
                     const std::vector<fp16>& scales, int count, int columns) {
        if constexpr (is_int4) {
            std::vector<int4x2> pairs(values.size());
            constexpr std::size_t half = weight_group_size / 2;
            for (std::size_t i = 0; i < pairs.size(); ++i)
                pairs[i] = neighbours(values.data() + i / half * half, i % half);
            pack_weights<Packed>(to, pairs.data(), scales.data(), count, columns);
        } else if constexpr (is_iq4) {
            std::vector<iq4> levels(values.size());
            std::ranges::transform(values, levels.begin(), iq4::from_bits);
            pack_weights<Packed>(to, levels.data(), scales.data(), count, columns);
        } else {
            pack_weights<Packed>(to, values.data(), scales.data(), count, columns);
        }
    }

    // Two adjacent values of a group. The low nibbles of its 16 bytes hold the first half, with an offset of 8.
    static int4x2 neighbours(const std::uint8_t* group, std::size_t pair) {
        constexpr std::size_t pairs_of_half = weight_group_size / 4;
        const std::uint8_t* bytes = group + pair % pairs_of_half * 2;
        const int shift = pair < pairs_of_half ? 0 : 4;
        return int4x2::from_values((bytes[0] >> shift & 15) - 8, (bytes[1] >> shift & 15) - 8);
    }

    int rows_, columns_;
    world_buffer<weight_tile> tiles_;
};

class cuda_e4m3_matrix {
  public:
    static constexpr int min_large_m = min_large_m_packed;

    cuda_e4m3_matrix(const stacked_weights& from, world where)
        : rows_(static_cast<int>(from.rows())), columns_(static_cast<int>(from.columns())) {
        std::vector<float> scales(static_cast<std::size_t>(rows_));
        tiles_ = prepack_in_row_blocks<weights>(where, rows_, columns_, [&](std::int64_t block, weight_tile* to) {
            const row_block own(from, block);
            std::vector<e4m3> values(own.values.size());
            quantise_rows(e4m3_rows_output{values.data(), scales.data() + own.first}, own.values.data(), own.count,
                          columns_);
            pack_weights<weights>(to, values.data(), nullptr, static_cast<int>(own.count), columns_);
        });
        scales_ = {where, scales};
    }

    int rows() const { return rows_; }
    int columns() const { return columns_; }

    template <class Out, class Epilogue>
    void matmul(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue,
                const gemm_workspace& workspace, void* stream) const;

  private:
    using weights = e4m3_weights<bf16, prepacked_block_k<e4m3>>;
    using weight_tile = typename weights::weight_tile;

    auto after_scaling(const bias_and_residual& added, int n) const {
        return epilogue::compose(factors_from(0, n), added);
    }
    template <class Activation>
    epilogue::scaled_glu<Activation> after_scaling(const epilogue::glu<Activation>& gate, int n) const {
        return {factors_from(0, n), factors_from(n, n), gate};
    }
    epilogue::scale_columns factors_from(int first, int count) const { return {{scales_.data() + first, count}}; }

    int rows_, columns_;
    world_buffer<weight_tile> tiles_;
    world_buffer<float> scales_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
