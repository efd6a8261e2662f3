// Single values in the host world: one element of a shared vector, one global value, counters, and reductions.
#pragma once

#include <imbrex/hw/host/atomic.hpp>
#include <imbrex/hw/host/copy.hpp>

namespace imbrex::hw {

inline void touch_value(const context& c, const void* address, int bytes, bool writes, const char* what, source here) {
    if (!c.checked()) return;
    const access made{c.by, c.by->actor, ++c.by->tick, false, false, -1, 0, what, here};
    touch(*c.on, *c.by, address, bytes, made, writes);
}

// Reports an index beyond a shared vector.
template <class Vector>
void check_index(const context& c, const Vector&, int index, const char* what, source here) {
    if (!c.checked() || (index >= 0 && index < Vector::length)) return;
    c.on->report(hazard_kind::outside_tile, *c.by->block,
                 str_cat("element ", index, " of a vector of ", Vector::length),
                 {{c.by->name(), what, here.file, here.line}});
}

// One thread of the scope writes one element.
template <class Scope, class Vector, class T>
void put(const Scope& scope, Vector& vector, int index, T value, source here) {
    const context c = enter(scope, "store of one value", here);
    if (!c) return;
    check_index(c, vector, index, "store of one value", here);
    touch_value(c, vector.address(index), sizeof(T), true, "store of one value", here);
    *vector.address(index) = value;
}

// Every thread of the scope reads it.
template <class Scope, class Vector>
typename Vector::element get(const Scope& scope, const Vector& vector, int index, source here) {
    const context c = enter(scope, "load of one value", here);
    if (!c) return {};
    check_index(c, vector, index, "load of one value", here);
    touch_value(c, vector.address(index), sizeof(typename Vector::element), false, "load of one value", here);
    return *vector.address(index);
}

// Or one member of it.
template <class Scope, class Vector, class Of, class Member>
Member get(const Scope& scope, const Vector& vector, int index, Member Of::*member, source here) {
    const context c = enter(scope, "load of one value", here);
    if (!c) return {};
    check_index(c, vector, index, "load of one value", here);
    touch_value(c, &(vector.address(index)->*member), sizeof(Member), false, "load of one value", here);
    return vector.address(index)->*member;
}

// One thread writes one value of global memory.
template <class Scope, class T>
void put_global(const Scope& scope, T* to, T value, source here) {
    const context c = enter(scope, "store of one global value", here);
    if (!c) return;
    touch_global_values(c, to, 1, global_use::write, 0, "store of one global value", here);
    *to = value;
}

// One thread increments a counter in global memory; all threads of the warp get the old value.
inline int fetch_increment(const warp& scope, int* counter, source here, memory_order order = memory_order::relaxed) {
    const context c = enter(scope, "counter increment", here);
    if (!c) return 0;
    c.on->pause(*c.by);
    touch_atomic(c, counter, sizeof(int), {order, memory_scope::device, true, true}, "counter increment", here);
    return detail::atomic_add(counter, 1);
}

// The same with acquire-release order: a warp that gets a later value sees all that this warp wrote before.
inline int fetch_increment_acq_rel(const warp& scope, int* counter, source here) {
    return fetch_increment(scope, counter, here, memory_order::acq_rel);
}

// Reduces all elements of a shared tile to one value that every thread of the block gets.
template <class Block, class Tile, class Vector, class Op>
typename Tile::element reduce_shared(const Block& block, const Tile& tile, Op op, typename Tile::element identity,
                                     Vector& scratch, source here) {
    const context c = enter(block, "block reduction", here);
    if (!c) return identity;
    if (c.checked()) {
        touch_ordinary(*c.on, *c.by, tile, false, partitioned_by_elements, "block reduction", here);
        touch_ordinary(*c.on, *c.by, scratch, true, 0, "block reduction", here);
        meet(*c.by);
        touch_ordinary(*c.on, *c.by, scratch, false, 0, "block reduction", here);
        meet(*c.by);
    }
    typename Tile::element result = identity;
    for (int row = 0; row < Tile::rows; ++row) {
        for (int column = 0; column < Tile::columns; ++column) result = op(result, *tile.address(row, column));
    }
    spend_lanes(c, Tile::rows * Tile::columns, "block reduction");
    return result;
}

// True in the last block of the grid to arrive, which then sees what the others wrote to global memory before. The
// counter must be zero at first and is zero again afterwards.
template <class Block, class Flag>
bool is_last_block(const Block& block, int* counter, Flag& flag, source here) {
    const context c = enter(block, "arrival of a block", here);
    if (!c) return false;
    if (c.checked()) {
        touch_ordinary(*c.on, *c.by, flag, true, 0, "arrival of a block", here);
        meet(*c.by);
        touch_ordinary(*c.on, *c.by, flag, false, 0, "arrival of a block", here);
        meet(*c.by);
    }
    // The block syncs before and after; one thread fences and increments.
    touch_atomic(c, counter, sizeof(int), {memory_order::acq_rel, memory_scope::device, true, true},
                 "arrival of a block", here);
    if (c.checked()) meet(*c.by);
    const grid_dim grid = block.count();
    const bool last = detail::atomic_add(counter, 1) == grid.x * grid.y * grid.z - 1;
    if (last) *counter = 0;
    return last;
}

}  // namespace imbrex::hw
