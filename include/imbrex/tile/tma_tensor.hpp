// A tensor for TMA copies of one shared tile type: the TMA descriptor (CUtensorMap) and the view that it encodes.
// `make_tma_tensor<Tile>(view)` derives box and swizzle from the tile, throws imbrex::error if the hardware cannot copy
// the view, and encodes the descriptor if there is a CUDA driver. The result is a kernel argument, with the same bytes
// in both worlds.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/hw/tensor_map.hpp>
#include <imbrex/hw/tensor_map_parameters.hpp>

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <imbrex/hw/cuda/encode.hpp>
#endif

namespace imbrex {

template <class Tensor>
struct tma_tensor_tile;

template <class Tile, int Rank>
struct tma_tensor {
    static_assert(Rank >= 2 && Rank <= 5, "imbrex: TMA takes tensors of 2 to 5 dimensions");
    using tile_type = Tile;
    using element = typename Tile::element;
    static constexpr int rank = Rank;

    hw::tensor_map map;
    element* pointer;
    std::int64_t extents[Rank];  // outermost first, as in a view
    std::int64_t strides[Rank];
    bool storable;    // checked for stores
    int copied_rows;  // by one copy: the rows of a tile, or fewer

    // The tile at these indices: batches first, then row and column counted in tiles.
    template <class... Indices>
    IMBREX_FN tma_tensor_tile<tma_tensor> tile(Indices... indices) const {
        static_assert(sizeof...(Indices) == Rank,
                      "imbrex: a tensor is addressed by as many indices as it has dimensions");
        const int index[] = {static_cast<int>(indices)...};
        tma_tensor_tile<tma_tensor> one{this, {}};
        for (int i = 0; i < Rank; ++i) one.where.at[Rank - 1 - i] = index[i];
        one.where.at[0] *= Tile::columns;
        one.where.at[1] *= Tile::rows;
        return one;
    }

    // The same with row and column counted in elements.
    template <class... Indices>
    IMBREX_FN tma_tensor_tile<tma_tensor> at(Indices... indices) const {
        static_assert(sizeof...(Indices) == Rank,
                      "imbrex: a tensor is addressed by as many indices as it has dimensions");
        const int index[] = {static_cast<int>(indices)...};
        tma_tensor_tile<tma_tensor> one{this, {}};
        for (int i = 0; i < Rank; ++i) one.where.at[Rank - 1 - i] = index[i];
        return one;
    }

    // The rectangle that the host world copies for a coordinate.
    global_tile<element> rectangle(const hw::tma_coordinate& where) const {
        std::int64_t offset = 0;
        for (int i = 0; i < Rank; ++i) offset += where.at[Rank - 1 - i] * strides[i];
        return {pointer + offset, strides[Rank - 2], static_cast<int>(extents[Rank - 2] - where.at[1]),
                static_cast<int>(extents[Rank - 1] - where.at[0])};
    }
    bool inside(const hw::tma_coordinate& where) const {
        bool within = true;
        for (int i = 0; i < Rank; ++i) {
            within = within && where.at[Rank - 1 - i] >= 0 && where.at[Rank - 1 - i] < extents[i];
        }
        return within;
    }
};

// One tile of a tensor: the argument of a copy.
template <class Tensor>
struct tma_tensor_tile {
    const Tensor* of;
    hw::tma_coordinate where;

    // Allows a tile that is wholly out of bounds: it loads zeros and stores nothing. Without this call the checker
    // reports such a tile, which is more often a mistake than intended.
    IMBREX_FN tma_tensor_tile out_of_bounds_fill() const {
        tma_tensor_tile same = *this;
        same.where.out_of_bounds_fill = true;
        return same;
    }
    // For a tile that is loaded once by one block: L2 evicts it first.
    IMBREX_FN tma_tensor_tile evict_first() const {
        tma_tensor_tile same = *this;
        same.where.evict_first = true;
        return same;
    }
};

namespace detail {

template <class T>
constexpr hw::tensor_map_element kind_of_element() {
    if constexpr (std::is_same_v<T, float>) {
        return hw::tensor_map_element::float32;
    } else if constexpr (std::is_same_v<T, bf16>) {
        return hw::tensor_map_element::bfloat16;
    } else if constexpr (std::is_same_v<T, fp16>) {
        return hw::tensor_map_element::float16;
    } else if constexpr (sizeof(T) == 4) {
        return hw::tensor_map_element::int32;
    } else {
        static_assert(sizeof(T) == 1, "imbrex: TMA has no element of this type");
        return hw::tensor_map_element::uint8;
    }
}

}  // namespace detail

// The use of a tensor. TMA loads any number of columns but stores whole 16-byte chunks: if the rows of a tensor end
// inside a chunk, a store would overwrite what follows them. `load_narrow_l2_promotion` is for loads of rows that are
// far apart: L2 promotion then fetches no more than one copy needs.
enum class tma_use { load, load_narrow_l2_promotion, store };

inline namespace IMBREX_WORLDS {

// With `rows` smaller than the tile's, a copy loads only that many, and load_rows_async assembles a tile from several.
template <class Tile, class View>
tma_tensor<Tile, View::rank> make_tma_tensor(const View& view, tma_use use = tma_use::load, int rows = Tile::rows) {
    constexpr int rank = View::rank;
    using element = typename Tile::element;
    using layout = typename Tile::layout;
    static_assert(std::is_same_v<std::remove_const_t<typename View::element>, element>,
                  "imbrex: a tensor's elements and its tile's must be of one type");
    static_assert(Tile::rows <= 256, "imbrex: TMA takes tiles of at most 256 rows");
    static_assert(layout::panel_columns <= 256, "imbrex: TMA takes panels of at most 256 columns");

    tma_tensor<Tile, rank> made{};
    made.pointer = const_cast<element*>(view.pointer);
    made.storable = use == tma_use::store;
    made.copied_rows = rows;
    require(rows == Tile::rows || (rows > 0 && rows < Tile::rows && rows % 8 == 0), "rows: ", rows,
            "; a part of a tile of ", Tile::rows, " rows has a multiple of 8 of them");
    if (made.storable) {
        const std::int64_t row_bytes = view.extents[rank - 1] * static_cast<std::int64_t>(sizeof(element));
        require(row_bytes % 16 == 0, "view.extents[", rank - 1, "]: ", view.extents[rank - 1], " columns are ",
                row_bytes, " bytes; TMA stores whole chunks of 16 bytes");
    }
    require(view.pointer != nullptr, "view.pointer: null; a tensor needs memory");
    require(reinterpret_cast<std::uintptr_t>(view.pointer) % 16 == 0,
            "view.pointer: ", static_cast<const void*>(view.pointer),
            " is not a multiple of 16 bytes, which TMA needs");
    require(view.strides[rank - 1] == 1, "view.strides[", rank - 1, "]: ", view.strides[rank - 1],
            "; TMA needs columns that lie one element apart (1)");
    [[maybe_unused]] hw::tensor_map_parameters description{};
    description.pointer = made.pointer;
    description.element = detail::kind_of_element<element>();
    description.rank = rank;
    description.swizzle_bytes = layout::swizzle_bytes;
    description.narrow_l2_promotion = use == tma_use::load_narrow_l2_promotion;
    for (int i = 0; i < rank; ++i) {
        made.extents[i] = view.extents[i];
        made.strides[i] = view.strides[i];
        require(made.extents[i] >= 1 && made.extents[i] <= (std::int64_t{1} << 31) - 1, "view.extents[", i,
                "]: ", made.extents[i], "; TMA takes 1 to 2147483647");
        const std::int64_t stride_bytes = made.strides[i] * static_cast<std::int64_t>(sizeof(element));
        if (i < rank - 1) {
            require(stride_bytes >= 0 && stride_bytes % 16 == 0 && stride_bytes < (std::int64_t{1} << 40),
                    "view.strides[", i, "]: ", made.strides[i], " elements are ", stride_bytes,
                    " bytes; TMA needs a multiple of 16 below 2^40");
            description.strides_bytes[rank - 2 - i] = static_cast<std::uint64_t>(stride_bytes);
        }
        description.extents[rank - 1 - i] = static_cast<std::uint64_t>(made.extents[i]);
        description.box[i] = 1;
    }
    description.box[0] = layout::panel_columns;
    description.box[1] = static_cast<std::uint32_t>(rows);
#if defined(__CUDACC__) && !IMBREX_DEVICE_WORLD
    hw::encode(made.map, description);
#endif
    return made;
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
