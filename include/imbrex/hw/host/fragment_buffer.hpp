// Copies between register tiles and fragment buffers (tile/fragment_buffer.hpp) in the host world, where the order of
// the registers is that of the tile's values.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/atomic.hpp>
#include <imbrex/hw/host/copy_shared.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/global_memory.hpp>

#include <algorithm>
#include <iterator>

namespace imbrex::hw {

template <class Scope, class T, int Rows, int Columns, int Warps, class Buffer>
void store_fragment(const Scope& scope, Buffer& to, const fragment<T, Rows, Columns, Warps>& from, source here) {
    const char* what = "store to a fragment buffer";
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_fragment(c, from, use::read, what, here);
    touch_global_values(c, to.values, Rows * Columns, global_use::write, partitioned_by_fragment, what, here);
    std::copy(std::begin(from.values), std::end(from.values), to.values);
    spend_lanes(c, Rows * Columns, "store");
}

template <class Scope, class T, int Rows, int Columns, int Warps, class Buffer>
void load_fragment(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, const Buffer& from, source here) {
    const char* what = "load of a fragment buffer";
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_fragment(c, to, use::write, what, here);
    touch_global_values(c, from.values, Rows * Columns, global_use::read, partitioned_by_fragment, what, here);
    std::copy(from.values, from.values + Rows * Columns, to.values);
    spend_lanes(c, Rows * Columns, "load");
}

template <class Scope, int Rows, int Columns, int Warps, class Buffer>
void add_fragment(const Scope& scope, Buffer& to, const fragment<float, Rows, Columns, Warps>& from, source here) {
    const char* what = "atomic add to a fragment buffer";
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_fragment(c, from, use::read, what, here);
    touch_global_values(c, to.values, Rows * Columns, global_use::atomic_update, partitioned_by_fragment, what, here);
    for (int i = 0; i < Rows * Columns; ++i) detail::atomic_add(to.values + i, from.values[i]);
    spend_lanes(c, Rows * Columns, "store");
}

}  // namespace imbrex::hw
