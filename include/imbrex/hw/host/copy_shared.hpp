// Copies of the host world between global and shared memory by the threads of a scope: synchronous, or, as cp.async, in
// groups that complete later. The out-of-bounds part is filled by loads and skipped by stores.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace imbrex::hw {

// How an operation distributes a shared tile over the warps of its scope (see partition_of).
inline constexpr int partitioned_by_fragment = 1;
inline constexpr int partitioned_by_chunks = 2;
inline constexpr int partitioned_by_elements = 3;
inline constexpr int partitioned_by_transposed_fragment = 4;  // column-major: a warp has columns

template <register_layout Layout>
inline constexpr int partition_way_of =
    Layout == register_layout::row_major ? partitioned_by_fragment : partitioned_by_transposed_fragment;

// A shared tile from a rectangle of global memory; out of bounds it becomes `fill`.
template <class Shared, class T>
void copy_rows_in(Shared&& to, const global_tile<const T>& from, T fill) {
    using tile = std::remove_cvref_t<Shared>;
    const int columns = std::clamp(from.columns, 0, tile::columns);
    for (int row = 0; row < tile::rows; ++row) {
        T* target = to.address(row, 0);
        const int exist = row < from.rows ? columns : 0;
        if (exist > 0) std::memcpy(target, from.at(row, 0), static_cast<std::size_t>(exist) * sizeof(T));
        std::fill(target + exist, target + tile::columns, fill);
    }
}
template <class Shared, class T>
void copy_rows_out(const global_tile<T>& to, const Shared& from) {
    const int rows = std::min(Shared::rows, to.rows);
    const int columns = std::min(Shared::columns, to.columns);
    if (columns <= 0) return;
    for (int row = 0; row < rows; ++row) {
        std::memcpy(to.at(row, 0), from.address(row, 0), static_cast<std::size_t>(columns) * sizeof(T));
    }
}

template <class Scope, class Shared, class T>
void copy_in(const Scope& scope, Shared& to, global_tile<const T> from, T fill, source here = source::current()) {
    const context c = enter(scope, "copy to shared memory", here);
    if (!c) return;
    if (c.checked()) touch_ordinary(*c.on, *c.by, to, true, partitioned_by_chunks, "copy to shared memory", here);
    touch_global_tile(c, from, Shared::rows, Shared::columns, global_use::read, partitioned_by_chunks,
                      "copy to shared memory", here);
    copy_rows_in(to, from, fill);
    spend_lanes(c, Shared::rows * Shared::columns, "copy");
}

template <class Scope, class Shared, class T>
void copy_out(const Scope& scope, global_tile<T> to, const Shared& from, source here = source::current()) {
    const context c = enter(scope, "copy from shared memory", here);
    if (!c) return;
    if (c.checked()) touch_ordinary(*c.on, *c.by, from, false, partitioned_by_chunks, "copy from shared memory", here);
    touch_global_tile(c, to, Shared::rows, Shared::columns, global_use::write, partitioned_by_chunks,
                      "copy from shared memory", here);
    copy_rows_out(to, from);
    spend_lanes(c, Shared::rows * Shared::columns, "copy");
}

// An asynchronous copy to a shared tile: it lands by the time its group is waited for. read_from(context, access) makes
// the accesses of global memory; fill(place) copies, later.
template <class Scope, class Shared, class ReadFrom, class Fill>
void copy_in_async_from(const Scope& scope, Shared& to, const ReadFrom& read_from, Fill fill, source here) {
    const context c = enter(scope, "asynchronous copy", here);
    if (!c) return;
    c.on->pause(*c.by);
    group_queue& queue = c.by->copies;
    if (c.checked()) {
        check_inside(*c.on, *c.by, to, "asynchronous copy", here);
        access made{c.by, queue.actor, queue.open_tick(), false, true, -1, 0, "asynchronous copy", here};
        made.partition =
            partition_of(partitioned_by_chunks, to.address(0, 0), Shared::rows, Shared::columns, Scope::warps);
        for_each_run(to, [&](const void* address, int bytes) { touch(*c.on, *c.by, address, bytes, made, true); });
        read_from(c, made);
        ++queue.open;
        queue.last_issue = here;
        for_each_run(to, [](const void* address, int bytes) { std::memset(const_cast<void*>(address), 0xff, bytes); });
    }
    if (c.on->trace.enabled()) {
        double begin = 0;
        const double asked = c.by->time += nominal_rates::issue;
        const double end = c.by->block->tma.serve(asked, Shared::bytes / nominal_rates::copy_bytes, begin);
        queue.done_at = end + nominal_rates::copy_latency;
        c.on->trace.record(c.by->block->number, "copies", "copy", begin, end + nominal_rates::copy_latency);
    }
    // Captures a subtile even of a whole tile: the address is kept, not a reference to the caller's object.
    c.on->ask(&queue, queue.open_tick(),
              [place = to.template subtile<Shared::rows, Shared::columns>(0, 0), fill] { fill(place); });
}

// The same as copy_in, asynchronously.
template <class Scope, class Shared, class T>
void copy_in_async(const Scope& scope, Shared& to, global_tile<const T> from, source here = source::current()) {
    copy_in_async_from(
        scope, to,
        [&](const context& c, const access& made) {
            touch_global(c, from, Shared::rows, Shared::columns, made, global_use::read);
        },
        [from](const auto& place) { copy_rows_in(place, from, T{}); }, here);
}

// The same for whole 16-byte chunks.
template <class Scope, class Shared, class T>
void copy_aligned_async(const Scope& scope, Shared& to, global_tile<const T> from, source here = source::current()) {
    const context c = enter(scope, "asynchronous copy of chunks", here);
    if (c.checked() && !from.is_16_byte_aligned()) {
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     "the rectangle's rows do not begin and end at multiples of 16 bytes",
                     {{c.by->name(), "asynchronous copy of chunks", here.file, here.line}});
    }
    copy_in_async(scope, to, from, here);
}

// A contiguous object.
template <class Scope, class T>
void copy_object_async(const Scope& scope, T& to, const T& from, source here) {
    const char* what = "asynchronous copy of an object";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    group_queue& queue = c.by->copies;
    if (c.checked()) {
        const access made{c.by, queue.actor, queue.open_tick(), false, true, -1, 0, what, here};
        touch(*c.on, *c.by, &to, sizeof(T), made, true);
        touch_global_object(c, &from, sizeof(T), made, global_use::read);
        ++queue.open;
        queue.last_issue = here;
        std::memset(static_cast<void*>(&to), 0xff, sizeof(T));
    }
    if (c.on->trace.enabled()) {
        double begin = 0;
        const double asked = c.by->time += nominal_rates::issue;
        const double end = c.by->block->tma.serve(asked, sizeof(T) / nominal_rates::copy_bytes, begin);
        queue.done_at = end + nominal_rates::copy_latency;
        c.on->trace.record(c.by->block->number, "copies", "copy", begin, end + nominal_rates::copy_latency);
    }
    c.on->ask(&queue, queue.open_tick(), [&to, &from] { std::memcpy(static_cast<void*>(&to), &from, sizeof(T)); });
}

// Commits a group of asynchronous operations; waits until all but the newest Left groups are complete.
inline void commit_group(const context& c, group_queue& queue, synchronisation kind, source here) {
    if (!c.checked()) return;
    c.on->pause(*c.by);
    if (c.on->pass_site(*c.by, kind, here) == mutation_operator::skip) return;
    ++queue.committed;
    if (queue.open > 0) queue.occupied = queue.committed;
    queue.open = 0;
}
// Returns the newest group that it waited for.
inline std::uint32_t wait_group(const context& c, group_queue& queue, synchronisation kind, int left, source here) {
    if (!c) return 0;
    if (c.on->trace.enabled() && left == 0) {
        c.on->trace.record(c.by->block->number, c.by->name(), "wait", c.by->time, queue.done_at);
        c.by->time = std::max(c.by->time, queue.done_at);
    }
    if (!c.checked()) return 0;
    c.on->pause(*c.by);
    const mutation_operator applied = c.on->pass_site(*c.by, kind, here);
    if (applied == mutation_operator::skip) return 0;
    if (applied == mutation_operator::one_group_less) ++left;
    const std::uint32_t done = queue.committed > static_cast<std::uint32_t>(left) ? queue.committed - left : 0;
    c.on->finish(&queue, done);
    queue.waited = std::max(queue.waited, done);
    c.by->knows.seen.raise(queue.actor, queue.waited);
    return done;
}

template <class Scope>
void copy_commit(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "commit of copies", here);
    if (c) commit_group(c, c.by->copies, synchronisation::copy_commit, here);
}
template <int Left, class Scope>
void copy_wait(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "wait for copies", here);
    if (c) wait_group(c, c.by->copies, synchronisation::copy_wait, Left, here);
}

}  // namespace imbrex::hw
