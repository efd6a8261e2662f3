// Converts a register tile to another element type: rounds to nearest even and saturates as the hardware does.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

template <class Scope, class To, class From, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL void convert(const Scope& scope, hw::fragment<To, Rows, Columns, Warps, Layout>& to,
                           const hw::fragment<From, Rows, Columns, Warps, Layout>& from,
                           source here = source::current()) {
    require_scope<Scope, hw::fragment<To, Rows, Columns, Warps, Layout>>();
    hw::convert_fragment(scope, to, from, here);
}

// The same as a return value: convert_to<bf16>(group, scores).
template <class To, class Scope, class From, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL hw::fragment<To, Rows, Columns, Warps, Layout> convert_to(
    const Scope& scope, const hw::fragment<From, Rows, Columns, Warps, Layout>& from, source here = source::current()) {
    hw::fragment<To, Rows, Columns, Warps, Layout> result;
    convert(scope, result, from, here);
    return result;
}

}  // namespace imbrex
