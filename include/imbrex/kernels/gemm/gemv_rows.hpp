// Which rows and columns of D a block of the GEMV (gemv.hpp) computes, and with which weights: `every_row`, for a product
// with a single matrix. The experts of kernels/moe_gemv.hpp have a policy of their own, with the same members.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>

#include <type_traits>

namespace imbrex {

struct gemv_place {
    bool exists;  // whether D has this tile
    int column_tile;
    int weight_tile;  // of the columns, in the weights; of the gate with a GLU
    int first_row;    // of A and D
    int expert;
};

struct every_row {
    static constexpr bool follows_routing = false;  // whether blocks without a place end at once
    static constexpr bool waits_first = false;      // whether the previous kernel writes what `at` reads

    IMBREX_KERNEL gemv_place at(int number, int tiles) const {
        const int tile = number % tiles;
        return {number < tiles, tile, tile, 0, 0};
    }
    template <int Rows, int Columns, bool Holds, class View>
    IMBREX_KERNEL auto rows_of(const warp& self, const View& a, int, int column) const {
        using element = std::remove_const_t<typename View::element>;
        return cp_async_row_iterator<element, Rows, Columns, Holds>(self, a.at(0, 0, column));
    }
    // The rows that the block stores.
    template <int Rows, class T>
    IMBREX_KERNEL static global_tile<T> out_rows(const global_tile<T>& all) {
        return all;
    }
};

}  // namespace imbrex
