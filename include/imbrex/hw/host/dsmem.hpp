// DSMEM stores in the host world: like a bulk copy, they complete later, on a barrier of the destination block.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/bulk.hpp>
#include <imbrex/hw/host/fragment.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace imbrex::hw {

// Stores into the DSMEM buffer at this address in block `cluster_rank`, completing on the barrier at `landing` there.
template <class Scope, class T, int Rows, int Columns, int Warps, class DsmemBuffer>
void dsmem_store(const Scope& scope, DsmemBuffer& to, const fragment<T, Rows, Columns, Warps>& from,
                 barrier_word& landing, int cluster_rank, source here) {
    const char* what = "DSMEM store of a register tile";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    touch_fragment(c, from, use::read, what, here);
    DsmemBuffer sent;
    std::copy(std::begin(from.values), std::end(from.values), sent.values);
    ask_object(
        c, in_cluster(c, to, cluster_rank, what, here), in_cluster(c, landing, cluster_rank, what, here), what, here,
        [sent](DsmemBuffer& there) { there = sent; }, true);
}

// Copies an object to the one at the address of `to` in block `cluster_rank`, completing on the barrier at `landing`
// there. A wait for that barrier also shows that `from` has been read, and this block must not exit before.
template <class Scope, class T>
void copy_to_block(const Scope& scope, T& to, const T& from, barrier_word& landing, int cluster_rank, source here) {
    const char* what = "bulk copy to another block";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    barrier_word& there = in_cluster(c, landing, cluster_rank, what, here);
    if (c.checked()) {
        check_alignment(c, &from, 16, what, here);
        const barrier_state& state = *state_in_use(c, there, what, here);
        const access made{c.by, state.actor, state.generation + 1, true, true, -1, 0, what, here};
        touch(*c.on, *c.by, &from, sizeof(T), made, false);
        keep_until_over(*c.by->block, made);
    }
    ask_object(c, in_cluster(c, to, cluster_rank, what, here), there, what, here,
               [&from](T& there) { std::memcpy(static_cast<void*>(&there), &from, sizeof(T)); });
}

// Reads this block's own buffer after a wait for the barrier.
template <class Scope, class T, int Rows, int Columns, int Warps, class DsmemBuffer>
void read_dsmem_buffer(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, const DsmemBuffer& from,
                       source here) {
    const char* what = "load of a DSMEM buffer";
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_fragment(c, to, use::write, what, here);
    if (c.checked()) {
        const access made{c.by, c.by->actor, ++c.by->tick, false, false, -1, 0, what, here};
        touch(*c.on, *c.by, from.values, sizeof from.values, made, false);
    }
    std::copy(std::begin(from.values), std::end(from.values), to.values);
    spend_lanes(c, Rows * Columns, "load");
}

}  // namespace imbrex::hw
