// Host model of hw/cuda/thread_rows.hpp: rows in the order in which the device's lanes visit them. A simulated warp
// holds the whole row.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>

namespace imbrex::hw {

inline constexpr int rows_per_thread = 2;

template <class Tile>
class thread_row {
  public:
    static constexpr int columns = Tile::columns;

    thread_row(Tile& tile, int row) : tile_(tile), row_(row) {}

    template <int First, int Count, class F>
    void for_each_pair(F&& f) const {
        static_assert(First % 8 == 0 && Count % 8 == 0 && First + Count <= Tile::columns,
                      "imbrex: columns are taken from a register tile in whole strips");
        for (int column = First; column < First + Count; column += 2) {
            f(tile_.at(row_, column), tile_.at(row_, column + 1));
        }
    }
    template <class T, class Op>
    T quad_allreduce(T value, Op) const {
        return value;
    }

  private:
    Tile& tile_;
    int row_;
};

template <int Half, class Scope, class F, class Tile, class... Vectors>
void visit_thread_rows(const Scope& scope, source here, F&& f, Tile& tile, Vectors&... vectors) {
    static_assert(Half >= 0 && Half < rows_per_thread, "imbrex: a lane holds two rows of each block");
    const context c = enter_registers(scope, "row-by-row operation", here);
    if (!c) return;
    (touch_fragment(c, vectors, use_of<Vectors>, "row-by-row operation", here), ...);
    touch_fragment(c, tile, use_of<Tile>, "row-by-row operation", here);
    for (int row = 0; row < Tile::rows; ++row) {
        if (row / 8 % rows_per_thread == Half) f(thread_row<Tile>(tile, row), vectors.values[row]...);
    }
    spend_lanes(c, Tile::rows * Tile::columns / rows_per_thread, "elementwise");
}

}  // namespace imbrex::hw
