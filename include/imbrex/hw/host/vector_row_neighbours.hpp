// Operations on neighbours of vectorised rows, in the host world: pairs of columns, Walsh-Hadamard transforms of runs of
// columns, and reductions of whole tiles.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/scope.hpp>
#include <imbrex/hw/host/vector_row.hpp>

#include <tuple>
#include <type_traits>

namespace imbrex::hw {

template <class Tile>
float_pair pair_at(const Tile& tile, int item) {
    return {convert<float>(tile.values[item]), convert<float>(tile.values[item + 1])};
}
template <class Tile>
void write_pair(Tile& tile, int item, const float_pair& two) {
    if constexpr (!std::is_const_v<Tile>) {
        tile.values[item] = convert<typename Tile::element>(two.low);
        tile.values[item + 1] = convert<typename Tile::element>(two.high);
    }
}

// f(row, column, two neighbours of each tile), the first in an even column. Tiles that are not const are written;
// `how` they are used.
template <class F, class... Tiles>
void visit_vector_row_tiles(const warp& scope, use how, source here, F&& f, Tiles&... tiles) {
    using first = std::tuple_element_t<0, std::tuple<Tiles...>>;
    const context c = enter_registers(scope, "operation on neighbours", here);
    if (!c) return;
    (touch_fragment(c, tiles, std::is_const_v<Tiles> ? use::read : how, "operation on neighbours", here), ...);
    for (int item = 0; item < first::rows * first::columns; item += 2) {
        [&](auto... pairs) {
            f(item / first::columns, item % first::columns, pairs...);
            (write_pair(tiles, item, pairs), ...);
        }(pair_at(tiles, item)...);
    }
    spend_lanes(c, first::rows * first::columns, "elementwise");
}

// In the order of additions of the device.
template <int Rows, int Columns>
void hadamard_vector_rows(const warp& scope, vector_row_fragment<float, Rows, Columns>& tile, int run, source here) {
    const context c = enter(scope, "Hadamard transform", here);
    if (!c) return;
    touch_fragment(c, tile, use::update, "Hadamard transform", here);
    for (int distance = 1; distance < run; distance *= 2) {
        for (int i = 0; i < Rows * Columns; ++i) {
            if ((i & distance) != 0) continue;
            const float x = tile.values[i], y = tile.values[i + distance];
            tile.values[i] = x + y;
            tile.values[i + distance] = x - y;
        }
    }
    spend_lanes(c, Rows * Columns, "elementwise");
}

template <class F, class Op, class... Tiles>
float reduce_vector_rows(const warp& scope, float value, F f, Op, source here, const Tiles&... tiles) {
    const context c = enter(scope, "reduction", here);
    if (!c) return value;
    (touch_fragment(c, tiles, use::read, "reduction", here), ...);
    const auto fold = [&](const auto& tile) {
        for (const auto& element : tile.values) value = f(value, convert<float>(element));
        spend_lanes(c, tile.rows * tile.columns, "elementwise");
    };
    (fold(tiles), ...);
    return value;
}

}  // namespace imbrex::hw
