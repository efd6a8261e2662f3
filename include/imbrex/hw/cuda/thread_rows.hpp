// Per-thread rows of a register fragment, one after the other: a lane holds parts of two rows of each block of 16 (the
// mma accumulator layout). Visiting one row completely before the next gives the compiler that order, instead of
// interleaving both, and allows other instructions in between.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>

#include <type_traits>

namespace imbrex::hw {

// Half 0 holds rows 0 to 7 of each block of 16, half 1 rows 8 to 15.
inline constexpr int rows_per_thread = 2;

// A lane's part of one row.
template <class Tile>
class thread_row {
  public:
    static constexpr int columns = Tile::columns;

    IMBREX_KERNEL thread_row(Tile& tile, int block, int half) : tile_(tile), block_(block), half_(half) {}

    // Calls f(element, next element) for each pair of neighbours in columns First to First + Count - 1.
    template <int First, int Count, class F>
    IMBREX_KERNEL void for_each_pair(F&& f) const {
        static_assert(Tile::run == 2, "imbrex: 8-bit register tiles have no pairs; convert them first");
        static_assert(First % Tile::strip_columns == 0 && Count % Tile::strip_columns == 0,
                      "imbrex: columns are taken from a register tile in whole strips");
#pragma unroll
        for (int strip = First / 8; strip < (First + Count) / 8; ++strip) {
            auto* const two = &tile_.values[block_][strip][2 * half_];
            f(two[0], two[1]);
        }
    }
    // All-reduce over the four lanes that hold the row.
    template <class T, class Op>
    IMBREX_KERNEL T quad_allreduce(T value, Op op) const {
        value = op(value, shuffle_xor(value, 1));
        return op(value, shuffle_xor(value, 2));
    }

  private:
    Tile& tile_;
    int block_;
    int half_;
};

// Calls f(row, value of each vector) for the rows of one half.
template <int Half, class Scope, class F, class Tile, class... Vectors>
IMBREX_KERNEL void visit_thread_rows(const Scope& scope, source, F&& f, Tile& tile, Vectors&... vectors) {
    using tile_type = std::remove_const_t<Tile>;
    static_assert(Half >= 0 && Half < rows_per_thread, "imbrex: a lane holds two rows of each block");
    check_scope<tile_type>(scope);
#pragma unroll
    for (int block = 0; block < tile_type::blocks; ++block) {
        f(thread_row<Tile>(tile, block, Half), vectors.values[block][Half]...);
    }
}

}  // namespace imbrex::hw
