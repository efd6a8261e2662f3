// Applies RoPE to register tiles: (x, y) becomes (x cos - y sin, y cos + x sin). The two columns of a pair are at the
// same place in two tiles (half_split), or adjacent in one (interleaved).
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

struct cos_sin {
    float cosine;
    float sine;

    IMBREX_FN void rotate(float& x, float& y) const {
        const float before = x;
        x = x * cosine - y * sine;
        y = y * cosine + before * sine;
    }
};

// Rotates each element of x with that of y, by cos and sin of their column.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void apply_rope_half_split(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& x,
                                         hw::fragment<float, Rows, Columns, Warps>& y,
                                         const column_values<cos_sin, Columns>& by, source here = source::current()) {
    require_scope<Scope, hw::fragment<float, Rows, Columns, Warps>>();
    hw::visit(
        scope, hw::use::update, here,
        [](int, int, float& one, float& other, const cos_sin& r) { r.rotate(one, other); }, x, y, by);
}

// Rotates each element of an even column with its right neighbour, by cos and sin of the even column.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void apply_rope_interleaved(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& tile,
                                          const column_values<cos_sin, Columns>& by, source here = source::current()) {
    require_scope<Scope, hw::fragment<float, Rows, Columns, Warps>>();
    hw::visit_neighbours(
        scope, here, [](float& one, float& next, const cos_sin& r) { r.rotate(one, next); }, tile, by);
}

}  // namespace imbrex
