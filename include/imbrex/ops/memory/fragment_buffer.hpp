// Register tiles to and from fragment buffers (tile/fragment_buffer.hpp) in shared or global memory.
//
//     store(self, shared.partial, sums);                   fence_async(self); and hand over to another warp, which
//     reduce_add_async(self, to_global, shared.partial);   adds it to global memory (ops/memory/bulk.hpp)
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/fragment_buffer.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void store(const Scope& scope, fragment_buffer<T, Rows, Columns>& to,
                         const hw::fragment<T, Rows, Columns, Warps>& from, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::store_fragment(scope, to, from, here);
}

template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void load(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& to,
                        const fragment_buffer<T, Rows, Columns>& from, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::load_fragment(scope, to, from, here);
}

}  // namespace imbrex
