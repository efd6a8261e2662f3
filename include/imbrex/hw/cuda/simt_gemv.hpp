// SIMT GEMV on the device, without tensor cores: sums[m][n] += x[m] . W[n] for staged rows x. Lanes read adjacent
// chunks of a weight row, of eight elements, or of a group of 32 if that is 16 bytes or if the dot product is in int8
// (dp4a). Each lane accumulates what it reads; a warp reduction adds the lanes at the end.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

template <int Rows, int Columns>
struct gemv_accumulator_fragment {
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    float values[Rows * Columns];
};

template <class Weights>
struct weight_block {
    const Weights& all;
    int row, column;    // first of the block
    int rows, columns;  // in bounds
};

// A lane's chunk of a weight row: words from memory, decoded four weights at a time.
template <int Words, int Columns>
struct weight_words {
    static constexpr int columns = Columns;
    std::uint32_t words[Words];

    // From an address aligned to 16 bytes, or to 8 if the chunk is smaller.
    IMBREX_KERNEL void load(const void* from) {
        if constexpr (Words == 2) {
            const uint2 two = *static_cast<const uint2*>(from);
            words[0] = two.x, words[1] = two.y;
        } else {
#pragma unroll
            for (int i = 0; i < Words; i += 4) {
                const uint4 four = static_cast<const uint4*>(from)[i / 4];
                words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
            }
        }
    }
    // Element by element, in bounds only.
    template <class T>
    IMBREX_KERNEL void load_some(const T* from, int count) {
        constexpr int in_word = 4 / static_cast<int>(sizeof(T));
#pragma unroll
        for (int i = 0; i < Words; ++i) {
            words[i] = 0;
#pragma unroll
            for (int j = 0; j < in_word; ++j) {
                if (i * in_word + j < count) {
                    words[i] |= std::uint32_t{read_as<word<sizeof(T)>>(from + i * in_word + j)}
                                << (8 * static_cast<int>(sizeof(T)) * j);
                }
            }
        }
    }
};

template <class T>
struct weight_chunk : weight_words<2 * sizeof(T), 8> {
    template <class Weights>
    IMBREX_KERNEL void load_from(const Weights& all, int row, int column, int there, bool in_chunks) {
        if (in_chunks) {
            this->load(all.at(row, column));
        } else {
            this->load_some(all.at(row, column), there);
        }
    }
    IMBREX_KERNEL float_quad four(int number) const {
        if constexpr (sizeof(T) == 4) {
            return {{__uint_as_float(this->words[4 * number]), __uint_as_float(this->words[4 * number + 1]),
                     __uint_as_float(this->words[4 * number + 2]), __uint_as_float(this->words[4 * number + 3])}};
        } else if constexpr (sizeof(T) == 2) {
            const float_pair front = T::decode_pair(this->words[2 * number]);
            const float_pair back = T::decode_pair(this->words[2 * number + 1]);
            return {{front.low, front.high, back.low, back.high}};
        } else {
            return unpack4<T>(this->words[number]);
        }
    }
};

// Grouped weights: one group and its scale.
template <int Columns>
struct int8_weight_chunk : weight_words<Columns / 4, Columns> {
    static constexpr int offset = 0;
    float scale;

    template <class Weights>
    IMBREX_KERNEL void load_from(const Weights& all, int row, int column, int, bool) {
        this->load(all.at(row, column));
        scale = convert<float>(*all.scale_at(row, column));
    }
    IMBREX_KERNEL float_quad four(int number) const {
        float_quad result;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            result.values[i] = scale * static_cast<float>(static_cast<std::int8_t>(this->words[number] >> (8 * i)));
        }
        return result;
    }
    IMBREX_KERNEL std::uint32_t bytes(int number) const {
        return this->words[number];
    }
};

struct int4_weight_chunk : weight_words<4, 32> {
    static constexpr int offset = 8;
    float scale;

    template <class Weights>
    IMBREX_KERNEL void load_from(const Weights& all, int row, int column, int, bool) {
        this->load(all.at(row, column));
        scale = convert<float>(*all.scale_at(row, column));
    }
    // Low bits are the first 16 values, high bits the others.
    IMBREX_KERNEL std::uint32_t bytes(int number) const {
        return (words[number % 4] >> (number < 4 ? 0 : 4)) & 0x0f0f0f0fU;
    }
    IMBREX_KERNEL float_quad four(int number) const {
        const std::uint32_t all = bytes(number);
        float_quad result;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            result.values[i] = scale * static_cast<float>(static_cast<int>((all >> (8 * i)) & 15U) - offset);
        }
        return result;
    }
};

template <class Weights>
struct lane_weights {
    using type = weight_chunk<typename Weights::element>;
};
template <activation_quantisation Activations, class Scale>
struct lane_weights<int8_weight_rows<Activations, Scale>> {
    using type = int8_weight_chunk<(Activations == activation_quantisation::int8 ? 32 : 8)>;
};
template <activation_quantisation Activations, class Scale>
struct lane_weights<int4_weight_rows<Activations, Scale>> {
    using type = int4_weight_chunk;
};

// As floats, with four floats of padding after each group.
template <class Staged>
IMBREX_KERNEL int staged_offset(int row, int column) {
    return row * Staged::row_stride + column + column / weight_group_size * 4;
}

// Quantises one group at a time, one value per lane.
template <class Staged, class Place>
IMBREX_KERNEL void stage_rows(const warp&, Staged& to, Place&& place, int rows, int columns, source) {
    const int there = columns < Staged::block_k ? columns : Staged::block_k;
    for (int row = 0; row < rows; ++row) {
        const auto* const from = place(row);
        for (int first = 0; first < there; first += weight_group_size) {
            const int column = first + lane();
            const float mine = column < there ? convert<float>(from[column]) : 0.0f;
            if constexpr (Staged::weights::activations == activation_quantisation::none) {
                to.values[staged_offset<Staged>(row, column)] = mine;
            } else {
                const std::uint32_t abs_max_bits = __reduce_max_sync(all_lanes, __float_as_uint(mine) & ~float_sign);
                const float scale = __uint_as_float(abs_max_bits) / 127.0f;
                // A group whose scale has no finite inverse becomes zeros.
                const float inverse = scale > 0x1p-120f ? 1.0f / scale : 0.0f;
                const int one = to_int8(mine * inverse);
                const int sum = __reduce_add_sync(all_lanes, one);
                to.values[row * Staged::row_stride + column] = static_cast<std::int8_t>(one);
                if (lane() == 0) {
                    to.scales[row * Staged::initial_stride + first / weight_group_size] = scale;
                    to.initial_sums[row * Staged::initial_stride + first / weight_group_size] = sum;
                }
            }
        }
    }
}

template <class Warp, int Rows, int Columns>
IMBREX_KERNEL void fill_accumulator(const Warp&, gemv_accumulator_fragment<Rows, Columns>& sums, float value, source) {
#pragma unroll
    for (float& one : sums.values) one = value;
}

// A lane's columns from `column` on, in float.
template <int Rows, int Columns, class Staged, class Chunk>
IMBREX_KERNEL void add_chunk(gemv_accumulator_fragment<Rows, Columns>& sums, const Staged& x,
                             const Chunk (&chunks)[Columns], int column) {
#pragma unroll
    for (int part = 0; part < Chunk::columns / 4; ++part) {
        float4 values[Rows];
#pragma unroll
        for (int m = 0; m < Rows; ++m) {
            values[m] = *reinterpret_cast<const float4*>(x.values + staged_offset<Staged>(m, column + 4 * part));
        }
#pragma unroll
        for (int n = 0; n < Columns; ++n) {
            const float_quad own = chunks[n].four(part);
#pragma unroll
            for (int m = 0; m < Rows; ++m) {
                float& sum = sums.values[m * Columns + n];
                sum = fmaf(values[m].x, own.values[0], sum);
                sum = fmaf(values[m].y, own.values[1], sum);
                sum = fmaf(values[m].z, own.values[2], sum);
                sum = fmaf(values[m].w, own.values[3], sum);
            }
        }
    }
}

// A lane's group, in integers.
template <int Rows, int Columns, class Staged, class Chunk>
IMBREX_KERNEL void add_group(gemv_accumulator_fragment<Rows, Columns>& sums, const Staged& x,
                             const Chunk (&chunks)[Columns], int column) {
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
        weight_words<8, 32> values;
        values.load(x.values + m * Staged::row_stride + column);
        const int group = m * Staged::initial_stride + column / weight_group_size;
        const float scale = x.scales[group];
        const int start = -Chunk::offset * x.initial_sums[group];
#pragma unroll
        for (int n = 0; n < Columns; ++n) {
            int sum = start;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sum = __dp4a(static_cast<int>(values.words[i]), static_cast<int>(chunks[n].bytes(i)), sum);
            }
            sums.values[m * Columns + n] =
                fmaf(scale * chunks[n].scale, static_cast<float>(sum), sums.values[m * Columns + n]);
        }
    }
}

// Computes all rows of the tile; sums of out-of-bounds rows are not stored.
template <int Rows, int Columns, class Staged, class Weights>
IMBREX_KERNEL void accumulate_products(const warp&, gemv_accumulator_fragment<Rows, Columns>& sums, const Staged& x,
                                       int, const weight_block<Weights>& weights, bool in_chunks, source) {
    using chunk = typename lane_weights<Weights>::type;
    for (int column = lane() * chunk::columns; column < weights.columns; column += 32 * chunk::columns) {
        chunk chunks[Columns];
#pragma unroll
        for (int n = 0; n < Columns; ++n) {
            const int row = weights.row + (n < weights.rows ? n : weights.rows - 1);
            chunks[n].load_from(weights.all, row, weights.column + column, weights.columns - column, in_chunks);
        }
        if constexpr (Weights::activations == activation_quantisation::int8) {
            add_group(sums, x, chunks, column);
        } else {
            add_chunk(sums, x, chunks, column);
        }
    }
}

template <class Warp, int Rows, int Columns>
IMBREX_KERNEL void reduce_accumulator(const Warp&, gemv_accumulator_fragment<Rows, Columns>& sums, source) {
#pragma unroll
    for (float& one : sums.values) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) one += shuffle_xor(one, distance);
    }
}

// Each sum is stored by a different lane.
template <int Rows, int Columns, class Place, class Function>
IMBREX_KERNEL void store_accumulator(const warp&, Place&& place, const gemv_accumulator_fragment<Rows, Columns>& sums,
                                     int rows, int columns, Function&& function, source) {
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
        auto* const to = place(m);
#pragma unroll
        for (int n = 0; n < Columns; ++n) {
            if (m < rows && n < columns && lane() == (m * Columns + n) % 32) {
                to[n] = convert<std::remove_pointer_t<decltype(place(m))>>(function(n, sums.values[m * Columns + n]));
            }
        }
    }
}

}  // namespace imbrex::hw
