// Vectorised rows on the device: eight neighbours per lane, for coalesced 16-byte accesses.
//
//     columns   0 .. 7   8 .. 15   ...   248 .. 255   256 .. 263                  64 columns: four rows at a step
//     row 0     lane 0   lane 1          lane 31      lane 0, its second chunk    row 0: lanes 0 to 7, row 1: 8 to 15
//
// Matrix instructions need another layout (hw/cuda/fragment.hpp); this one is for elementwise and row-wise operations.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/copy_global.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>

namespace imbrex::hw {

// How rows of `Columns` columns are distributed over lanes.
template <int Columns>
struct vector_row_partition {
    static_assert(Columns % 8 == 0 && (Columns % 256 == 0 || 256 % Columns == 0),
                  "imbrex: vectorised rows have 8, 16, 32, 64, 128 or a multiple of 256 columns");
    static constexpr int lanes = Columns < 256 ? Columns / 8 : 32;          // of a row
    static constexpr int steps = Columns < 256 ? 1 : Columns / 256;         // chunks of a row in one lane
    static constexpr int rows_at_once = Columns < 256 ? 256 / Columns : 1;  // at one step

    IMBREX_KERNEL static int row(int step) { return step / steps * rows_at_once + lane() / lanes; }
    IMBREX_KERNEL static int column(int step) { return (step % steps * lanes + lane() % lanes) * 8; }
};

// Eight neighbours in whole words: separate elements would take a register each.
template <class T>
struct vector8 {
    static constexpr int elements_in_word = 4 / static_cast<int>(sizeof(T));
    static constexpr int words_in_chunk = 8 / elements_in_word;
    static constexpr int bits_of_element = 32 / elements_in_word;

    std::uint32_t words[words_in_chunk];

    // The elements of an even index and the next.
    IMBREX_KERNEL float_pair pair(int item) const {
        if constexpr (elements_in_word == 1) {
            return {__uint_as_float(words[item]), __uint_as_float(words[item + 1])};
        } else if constexpr (elements_in_word == 2) {
            return T::decode_pair(words[item / 2]);
        } else {
            return T::decode_pair(static_cast<std::uint16_t>(words[item / 4] >> (item % 4 * 8)));
        }
    }
    IMBREX_KERNEL void set_pair(int item, float low, float high) {
        if constexpr (elements_in_word == 1) {
            words[item] = __float_as_uint(low), words[item + 1] = __float_as_uint(high);
        } else if constexpr (elements_in_word == 2) {
            words[item / 2] = T::encode_pair(low, high);
        } else {
            const std::uint32_t two = T::encode_pair(low, high);
            words[item / 4] = __byte_perm(words[item / 4], two, item % 4 == 0 ? 0x3254 : 0x5410);
        }
    }

    // Vector accesses of 16 bytes, or of 8 for 8-bit elements.
    IMBREX_KERNEL void load(const T* from) {
        if constexpr (words_in_chunk == 2) {
            const uint2 two = *reinterpret_cast<const uint2*>(from);
            words[0] = two.x, words[1] = two.y;
        } else {
#pragma unroll
            for (int i = 0; i < words_in_chunk; i += 4) {
                const uint4 four = reinterpret_cast<const uint4*>(from)[i / 4];
                words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
            }
        }
    }
    IMBREX_KERNEL void store(T* to) const {
        if constexpr (words_in_chunk == 2) {
            *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
        } else {
#pragma unroll
            for (int i = 0; i < words_in_chunk; i += 4) {
                store_chunk(reinterpret_cast<uint4*>(to) + i / 4, {words[i], words[i + 1], words[i + 2], words[i + 3]});
            }
        }
    }
    // The first `count` elements, one by one. The rest is zero.
    IMBREX_KERNEL void load_some(const T* from, int count) {
        using bits = word<sizeof(T)>;
#pragma unroll
        for (int i = 0; i < words_in_chunk; ++i) {
            words[i] = 0;
#pragma unroll
            for (int j = 0; j < elements_in_word; ++j) {
                const int item = i * elements_in_word + j;
                if (item < count) words[i] |= std::uint32_t{read_as<bits>(from + item)} << (bits_of_element * j);
            }
        }
    }
    IMBREX_KERNEL void store_some(T* to, int count) const {
        using bits = word<sizeof(T)>;
#pragma unroll
        for (int item = 0; item < 8; ++item) {
            const std::uint32_t own = words[item / elements_in_word] >> (bits_of_element * (item % elements_in_word));
            if (item < count) write_as(to + item, static_cast<bits>(own));
        }
    }

    IMBREX_KERNEL void clear() {
#pragma unroll
        for (std::uint32_t& one : words) one = 0;
    }
    // Zero if the pointer is null.
    IMBREX_KERNEL void load_if_given(const T* from) {
        clear();
        if (from != nullptr) load(from);
    }

    // `Whole`: the chunk is entirely in bounds or out of bounds, and aligned to 16 bytes.
    template <bool Whole>
    IMBREX_KERNEL void load_present(const T* row, int column, int columns) {
        if constexpr (Whole) {
            clear();  // a condition, not a null pointer for load_if_given: that takes more registers
            if (row != nullptr && column < columns) load(row + column);
        } else {
            load_some(row + column, row != nullptr ? columns - column : 0);
        }
    }
    template <bool Whole>
    IMBREX_KERNEL void store_present(T* row, int column, int columns) const {
        if constexpr (Whole) {
            if (row != nullptr && column < columns) store(row + column);
        } else {
            store_some(row + column, row != nullptr ? columns - column : 0);
        }
    }
};

template <class T, int Rows, int Columns>
struct vector_row_fragment {
    using element = T;
    using partition = vector_row_partition<Columns>;
    static_assert(Rows % partition::rows_at_once == 0, "imbrex: a vectorised row tile must have chunks for all lanes");
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int steps = Rows / partition::rows_at_once * partition::steps;

    vector8<T> chunks[steps];
};

template <class T, int Rows, int Columns>
struct vector_row_values_fragment {
    T values[Rows / vector_row_partition<Columns>::rows_at_once];
};

template <class T, int Columns>
struct vector_row_column_fragment {
    vector8<T> chunks[vector_row_partition<Columns>::steps];
};

// Two neighbours of a tile, or the values of its vectors for them, at a step of a tile with this partition.
template <class Dealing, class T, int Rows, int Columns>
IMBREX_KERNEL float_pair vector_pair(const vector_row_fragment<T, Rows, Columns>& from, int step, int item) {
    return from.chunks[step].pair(item);
}
template <class Dealing, int Rows, int Columns>
IMBREX_KERNEL float_pair vector_pair(const vector_row_values_fragment<float, Rows, Columns>& from, int step, int) {
    return {from.values[step / Dealing::steps], from.values[step / Dealing::steps]};
}
template <class Dealing, class T, int Columns>
IMBREX_KERNEL float_pair vector_pair(const vector_row_column_fragment<T, Columns>& from, int step, int item) {
    return from.chunks[step % Dealing::steps].pair(item);
}

// Loads each row from row_pointer(row), the first `columns` columns; the rest, and rows with a null pointer, are zero.
template <bool Whole, class Warp, class T, int Rows, int Columns, class RowPointer>
IMBREX_KERNEL void load_vector_rows(const Warp&, vector_row_fragment<T, Rows, Columns>& to, RowPointer&& row_pointer,
                                    int columns, source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
        const T* const row = row_pointer(partition::row(step));
        to.chunks[step].template load_present<Whole>(row, partition::column(step), columns);
    }
}
template <bool Whole, class Warp, class T, int Columns>
IMBREX_KERNEL void load_vector_row_columns(const Warp&, vector_row_column_fragment<T, Columns>& to, const T* from,
                                           int columns, source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < partition::steps; ++step) {
        to.chunks[step].template load_present<Whole>(from, partition::column(step), columns);
    }
}

template <bool Whole, class Warp, class T, int Rows, int Columns, class RowPointer>
IMBREX_KERNEL void store_vector_rows(const Warp&, RowPointer&& row_pointer,
                                     const vector_row_fragment<T, Rows, Columns>& from, int columns, source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
        T* const row = row_pointer(partition::row(step));
        from.chunks[step].template store_present<Whole>(row, partition::column(step), columns);
    }
}

// The same for chunks of eight columns: chunk_pointer(row, first column), null if there is none.
template <class Warp, class T, int Rows, int Columns, class ChunkPointer>
IMBREX_KERNEL void load_vector_chunks(const Warp&, vector_row_fragment<T, Rows, Columns>& to,
                                      ChunkPointer&& chunk_pointer, source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
        to.chunks[step].load_if_given(chunk_pointer(partition::row(step), partition::column(step)));
    }
}
template <class Warp, class T, int Rows, int Columns, class ChunkPointer>
IMBREX_KERNEL void store_vector_chunks(const Warp&, ChunkPointer&& chunk_pointer,
                                       const vector_row_fragment<T, Rows, Columns>& from, source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
        T* const to = chunk_pointer(partition::row(step), partition::column(step));
        if (to != nullptr) from.chunks[step].store(to);
    }
}

template <class T, class F, class... Pairs>
IMBREX_KERNEL void transform_pair(vector8<T>& to, int item, F& f, const Pairs&... pairs) {
    to.set_pair(item, f(pairs.low...), f(pairs.high...));
}

// to = f(each of from), in float, rounded once.
template <class Warp, class F, class T, int Rows, int Columns, class... From>
IMBREX_KERNEL void transform_vector_rows(const Warp&, vector_row_fragment<T, Rows, Columns>& to, F&& f, source,
                                         const From&... from) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            transform_pair(to.chunks[step], item, f, vector_pair<partition>(from, step, item)...);
        }
    }
}
template <class Warp, class F, int Rows, int Columns>
IMBREX_KERNEL void transform_vector_row_values(const Warp&, vector_row_values_fragment<float, Rows, Columns>& values,
                                               F&& f, source) {
#pragma unroll
    for (float& value : values.values) value = f(value);
}
template <class Warp, int Rows, int Columns>
IMBREX_KERNEL void fill_vector_row_values(const Warp&, vector_row_values_fragment<float, Rows, Columns>& values,
                                          float value, source) {
#pragma unroll
    for (float& one : values.values) one = value;
}

template <class Warp, class T, int Columns>
IMBREX_KERNEL void fill_vector_row_columns(const Warp&, vector_row_column_fragment<T, Columns>& values, T value,
                                           source) {
    const float all = convert<float>(value);
#pragma unroll
    for (vector8<T>& chunk : values.chunks) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) chunk.set_pair(item, all, all);
    }
}

// value of a row = f(value, element), over the elements of each lane; then over the lanes of the row.
template <class Warp, class F, class T, int Rows, int Columns>
IMBREX_KERNEL void fold_vector_rows(const Warp&, vector_row_values_fragment<float, Rows, Columns>& into,
                                    const vector_row_fragment<T, Rows, Columns>& from, F&& f, source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
        float& value = into.values[step / partition::steps];
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            const float_pair two = from.chunks[step].pair(item);
            value = f(f(value, two.low), two.high);
        }
    }
}
// The same over the elements in the first `columns` columns, with another value of the row: f(value, element, other).
// `Whole`: a chunk is entirely in bounds or out of bounds.
template <bool Whole, class Warp, class F, class T, int Rows, int Columns>
IMBREX_KERNEL void fold_vector_row_columns(const Warp&, vector_row_values_fragment<float, Rows, Columns>& into,
                                           const vector_row_fragment<T, Rows, Columns>& from, F&& f,
                                           const vector_row_values_fragment<float, Rows, Columns>& others, int columns,
                                           source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
        float& value = into.values[step / partition::steps];
        const float other = others.values[step / partition::steps];
        const int there = columns - partition::column(step);
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            const float_pair two = from.chunks[step].pair(item);
            if (there > (Whole ? 0 : item)) value = f(value, two.low, other);
            if (there > (Whole ? 0 : item + 1)) value = f(value, two.high, other);
        }
    }
}
template <class Warp, class Op, int Rows, int Columns>
IMBREX_KERNEL void combine_vector_row_values(const Warp&, vector_row_values_fragment<float, Rows, Columns>& values,
                                             Op op, source) {
#pragma unroll
    for (float& value : values.values) {
#pragma unroll
        for (int distance = vector_row_partition<Columns>::lanes / 2; distance > 0; distance /= 2) {
            value = op(value, shuffle_xor(value, distance));
        }
    }
}

// The value of the warp's only row, which all lanes hold.
template <class Warp, class T, int Columns>
IMBREX_KERNEL T only_row_value(const Warp&, const vector_row_values_fragment<T, 1, Columns>& values, source) {
    return values.values[0];
}

}  // namespace imbrex::hw
