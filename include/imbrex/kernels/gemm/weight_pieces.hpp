// What packed weights are divided into on their way to the tensor cores: parts, as they lie in global memory; pieces, as a warp
// brings them to shared memory (weight_stream.hpp), and what it holds of one in registers; and where a warp's pieces come from.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/ops/memory/repeated_copy.hpp>
#include <imbrex/tile/packed_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex {

// Packed weights in global memory: parts of 64 rows and a step of K, the steps of 64 rows one after the other.
template <class Part>
struct packed_parts {
    const Part* parts = nullptr;
    int blocks = 0;  // of 64 rows
    int steps = 0;

    // Beyond the last block there is none; the last stands in for it, with products that nobody stores.
    IMBREX_FN const Part& at(int block, int step) const {
        const int existing = block < blocks ? block : blocks - 1;
        return parts[static_cast<std::int64_t>(existing) * steps + step];
    }
};

namespace detail {

template <class Part>
packed_parts<Part> describe_parts(const Part* parts, int rows, int k, int depth) {
    require(rows >= 1, "rows: ", rows, "; there must be a row of weights");
    require(k >= 1, "k: ", k, "; the depth must be positive");
    require(parts != nullptr, "parts: null; packed weights of ", rows, " x ", k, " are needed");
    require(reinterpret_cast<std::uintptr_t>(parts) % 16 == 0, "parts: ", static_cast<const void*>(parts),
            " is not a multiple of 16 bytes, which the copy engine needs");
    return {parts, (rows + packed_rows - 1) / packed_rows, (k + depth - 1) / depth};
}

// Which of the pieces of a step one is, and so whether a group of so many columns may begin or must end with it.
template <int Number, int Count>
struct piece_number {
    static constexpr int columns = Number * packed_columns;  // from the first piece's
    static constexpr bool begins(int group) { return group <= packed_columns || Number == 0; }
    static constexpr bool ends(int group) { return group <= packed_columns || Number == Count - 1; }
};

// A piece of weights, 64 rows and 64 of K, and what a warp holds of it in registers.
template <class Format, class Scales>
struct scaled_piece {
    packed_tile<Format, packed_rows, packed_columns> values;
    Scales scales;
};
template <class Format>
struct bare_piece {
    packed_tile<Format, packed_rows, packed_columns> values;
};
template <class Format, class Scales>
struct held_piece {
    packed_values<Format, packed_columns> values;
    Scales scales;
};
template <class Format>
struct held_bare_piece {
    packed_values<Format, packed_columns> values;
};

// Where a warp's pieces come from: those of its first step, and the others so many parts later.
template <class Part, class Piece>
struct bare_source {
    repeated_object<decltype(Piece::values)> values;

    IMBREX_KERNEL bare_source(const warp& self, const Part& first, int column)
        : values(self, first.values.template columns_from<packed_columns>(column)) {}

    IMBREX_KERNEL void copy_values(const warp& self, Piece& to, int parts, int columns) const {
        using unit = typename decltype(Piece::values)::unit;
        constexpr int bytes_of_unit = unit::words * 4;
        copy_async(self, to.values, values, std::int64_t{parts} * static_cast<int>(sizeof(Part)),
                   columns / unit::columns * bytes_of_unit);
    }
};
template <class Part, class Piece>
struct scaled_source : bare_source<Part, Piece> {
    using scales_type = decltype(Piece::scales);
    repeated_object<scales_type> scales;

    IMBREX_KERNEL scaled_source(const warp& self, const Part& first, int column, const scales_type& first_scales)
        : bare_source<Part, Piece>(self, first, column),
          scales(this->values, behind(first.values.template columns_from<packed_columns>(column), first_scales)) {}

    IMBREX_KERNEL void copy_scales(const warp& self, Piece& to, int parts, int number) const {
        copy_async(self, to.scales, scales, std::int64_t{parts} * static_cast<int>(sizeof(Part)),
                   number * static_cast<int>(sizeof(scales_type)));
    }

  private:
    template <class Values>
    IMBREX_KERNEL static int behind(const Values& values, const scales_type& scales) {
        return static_cast<int>(reinterpret_cast<const unsigned char*>(&scales) -
                                reinterpret_cast<const unsigned char*>(&values));
    }
};

template <class Format, int Depth>
struct bare_part {
    packed_tile<Format, packed_rows, Depth> values;
};
template <int Depth>
struct mxfp4_part {
    packed_tile<e2m1x2, packed_rows, Depth> values;
    packed_scales<packed_rows, Depth> scales;
};
template <class Format, int Group, class Scale, int Depth>
struct grouped_part {
    packed_tile<Format, packed_rows, Depth> values;
    packed_row_scales<Scale> scales[Depth / Group];
};

}  // namespace detail

}  // namespace imbrex
