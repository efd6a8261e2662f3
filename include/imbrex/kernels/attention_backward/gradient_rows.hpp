// Rows of a gradient from registers to global memory, with any strides: rounded to the type of the inputs, or added to
// fp32 rows. Only one scope may write a row in a launch.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/epilogue.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

template <class T, class Scope, class Tile>
IMBREX_KERNEL void write_gradient_rows(const Scope& scope, const global_tile<T>& to, const Tile& from,
                                       source here = source::current()) {
    for_each_16_columns<Tile::columns>([&](auto column) {
        const auto part = imbrex::columns_of<column, 16>(scope, from, here);
        if constexpr (std::is_same_v<T, float>) {
            register_tile<float, Tile::rows, 16, Scope> sum;
            load(scope, sum, to.from(0, column), 0.0f, here);
            combine(scope, sum, part, functional::add{}, here);
            store(scope, to.from(0, column), sum, here);
        } else {
            store(scope, to.from(0, column), convert_to<T>(scope, part, here), here);
        }
    });
}

}  // namespace imbrex
