// TMA in the host world. One warp issues a copy, which runs asynchronously; a wait for its barrier makes it visible.
// Elements outside the tensor read as zero and are never written.
#pragma once

#include <imbrex/hw/host/atomic.hpp>
#include <imbrex/hw/host/barrier.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/tensor_map.hpp>

namespace imbrex::hw {

// The rectangle that a copy of one shared tile accesses. `View` knows its tensor: see tile/tma_tensor.hpp.
template <class View>
auto rectangle(const context& c, const View& view, const tma_coordinate& coordinate, const char* what, source here) {
    auto tile = view.rectangle(coordinate);
    const int step = 16 / static_cast<int>(sizeof(*tile.pointer));
    if (c.checked() && coordinate.at[0] % step != 0) {
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     str_cat("the tile begins at column ", coordinate.at[0], "; TMA needs a multiple of 16 bytes, ",
                             step, " columns"),
                     {{c.by->name(), what, here.file, here.line}});
    }
    if (c.checked() && !coordinate.out_of_bounds_fill && !view.inside(coordinate)) {
        c.on->report(
            hazard_kind::beyond_limits, *c.by->block,
            str_cat("the tile at row ", coordinate.at[1], ", column ", coordinate.at[0], " is wholly out of bounds"),
            {{c.by->name(), what, here.file, here.line}});
    }
    return tile;
}

// A shared tile as the subtile that covers it; a subtile unchanged. Operations in flight keep a copy of a subtile.
template <class Shared>
auto part_of(Shared& shared) {
    if constexpr (requires { shared.tile; }) {
        return shared;
    } else {
        return shared.template subtile<Shared::rows, Shared::columns>(0, 0);
    }
}

inline void check_alignment(const context& c, const void* address, int alignment, const char* what, source here) {
    if (!c.checked() || reinterpret_cast<std::uintptr_t>(address) % alignment == 0) return;
    c.on->report(hazard_kind::beyond_limits, *c.by->block,
                 str_cat("the shared tile is not aligned to ", alignment, " bytes"),
                 {{c.by->name(), what, here.file, here.line}});
}

inline void check_global_alignment(const context& c, const void* address, int alignment, const char* what,
                                   source here) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignment == 0) return;
    c.on->report(hazard_kind::beyond_limits, *c.by->block,
                 str_cat("the global address ", address, " is not aligned to ", alignment, " bytes"),
                 {{c.by->name(), what, here.file, here.line}});
}

// The swizzle uses address bits: a tile must be aligned, and a subtile must begin where the pattern does.
template <class Part>
void check_subtile_alignment(const context& c, const Part& part, const char* what, source here) {
    if (!c.checked()) return;
    check_inside(*c.on, *c.by, part, what, here);
    using layout = typename Part::layout;
    check_alignment(c, part.tile->storage, layout::alignment, what, here);
    if (part.first_row % 8 != 0 || part.first_column % layout::panel_columns != 0) {
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     str_cat("the subtile begins at row ", part.first_row, ", column ", part.first_column,
                             "; TMA needs multiples of 8 and ", layout::panel_columns),
                     {{c.by->name(), what, here.file, here.line}});
    }
}

// A tensor made to copy fewer rows does not fill a whole tile.
template <class View>
void check_rows(const context& c, const View& view, int rows, source here) {
    if constexpr (requires { view.copied_rows; }) {
        if (!c.checked() || view.copied_rows == rows) return;
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     str_cat("the tensor was made to copy ", view.copied_rows, " rows at a time; the tile has ", rows),
                     {{c.by->name(), "TMA load", here.file, here.line}});
    }
}

// Completes a copy: counts its bytes at the barrier it was bound to.
inline void land(machine& m, barrier_word& word, int bytes, std::uint32_t bound_generation, const access& made) {
    barrier_counters counters = barrier_counters::of(word);
    counters.bytes -= bytes;
    const auto report = [&](const char* detail) {
        const barrier_state& state = m.barriers[&word];
        m.report(hazard_kind::wrong_byte_count, *state.block, detail,
                 {m.location_of(made), m.location_of(state.last_arrive)});
    };
    if (m.checked) {
        if (m.barriers[&word].generation != bound_generation) report("the phase was complete before this copy landed");
        if (counters.pending == 0 && counters.bytes < 0) report("more bytes landed than the barrier expects");
    }
    const bool turned = counters.turn();
    counters.put(word);
    if (turned && (m.checked || m.trace.enabled())) complete_phase(m.barriers[&word]);
}

template <class Part, class View>
void ask_load(const context& c, const Part& to, const View& view, const tma_coordinate& coordinate, barrier_word& word,
              source here) {
    const char* what = "TMA load";
    const auto from = rectangle(c, view, coordinate, what, here);
    check_subtile_alignment(c, to, what, here);
    access made{c.by, -1, 0, true, true, -1, 0, what, here};
    std::uint32_t generation = 0;
    if (c.checked()) {
        barrier_state& state = *state_in_use(c, word, what, here);
        generation = state.generation;
        made.actor = state.actor;
        made.tick = generation + 1;
        for_each_run(to, [&](void* address, int bytes) {
            touch(*c.on, *c.by, address, bytes, made, true);
            std::memset(address, 0xff, static_cast<std::size_t>(bytes));
        });
        made.stage = stage_of(*state.block, to.address(0, 0));
        touch_global(c, from, Part::rows, Part::columns, made, global_use::read);
        state.bound = generation + 1;
        state.last_copy = made;
    }
    if (c.on->trace.enabled()) {
        double begin = 0;
        const double end = c.by->block->tma.serve(c.by->time, Part::bytes / nominal_rates::copy_bytes, begin);
        c.on->trace.record(c.by->block->number, "TMA", "TMA load", begin, end);
        double& ready = ready_time(*c.on, word);
        ready = std::max(ready, end + nominal_rates::copy_latency);
    }
    machine& m = *c.on;
    // A wait for this copy also learns the phases that its issuer had waited for: the blocks of a cluster, each loading
    // a share for all (TMA multicast), stay synchronised through this.
    m.ask(nullptr, 0, [&m, to, &word, from, generation, made, phases = c.by->knows.phases] {
        using element = typename Part::element;
        copy_rows_in(to, static_cast<global_tile<const element>>(from), element{});
        if (m.checked) m.barriers[&word].gathering.phases.join(phases);
        land(m, word, Part::bytes, generation, made);
    });
}

template <class Shared, class View>
void tma_load(const warp& scope, Shared&& to, const View& view, const tma_coordinate& coordinate, barrier_word& word,
              source here = source::current()) {
    const context c = enter(scope, "TMA load", here);
    if (!c) return;
    c.on->pause(*c.by);
    if (c.on->trace.enabled()) c.by->time += nominal_rates::issue;
    check_rows(c, view, std::remove_cvref_t<Shared>::rows, here);
    ask_load(c, part_of(to), view, coordinate, word, here);
}

// Rows of the tile from a row on where the swizzle pattern starts: as many as the view copies, eight at a time.
template <class Tile, class View>
void tma_load_rows(const warp& scope, Tile& to, int row, const View& view, tma_coordinate coordinate,
                   barrier_word& word, source here) {
    const context c = enter(scope, "TMA load", here);
    if (!c) return;
    c.on->pause(*c.by);
    if (c.on->trace.enabled()) c.by->time += nominal_rates::issue;
    if (c.checked() && (row < 0 || row + view.copied_rows > Tile::rows)) {
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     str_cat("rows ", row, " to ", row + view.copied_rows - 1, " are not inside a tile of ", Tile::rows,
                             " rows"),
                     {{c.by->name(), "TMA load", here.file, here.line}});
    }
    for (int eight = 0; eight < view.copied_rows; eight += 8) {
        ask_load(c, to.template subtile<8>(row + eight), view, coordinate, word, here);
        coordinate.at[1] += 8;
        coordinate.out_of_bounds_fill = true;  // later rows of a copy that extends past the edge
    }
}

// TMA multicast: the same into every block of the cluster whose bit is set, each at its own tile and barrier.
template <class Shared, class View>
void tma_load_multicast(const warp& scope, Shared&& to, const View& view, const tma_coordinate& coordinate,
                        barrier_word& word, unsigned blocks, source here = source::current()) {
    const char* what = "TMA multicast load";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    if (c.on->trace.enabled()) c.by->time += nominal_rates::issue;
    for (int rank = 0; rank < 16; ++rank) {
        if ((blocks >> rank & 1u) == 0) continue;
        auto part = part_of(to);
        part.tile = &in_cluster(c, *part.tile, rank, what, here);
        ask_load(c, part, view, coordinate, in_cluster(c, word, rank, what, here), here);
    }
}

// A shared tile to the tensor. `combine(target, value)` stores or adds.
template <class Scope, class Part, class View, class Combine>
void ask_store(const Scope& scope, const View& view, const tma_coordinate& coordinate, const Part& from, global_use how,
               const char* what, source here, Combine combine) {
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    const auto to = rectangle(c, view, coordinate, what, here);
    if (c.checked() && !view.storable) {
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     "the tensor was made for loads; make it with make_tma_tensor<Tile>(view, tma_use::store)",
                     {{c.by->name(), what, here.file, here.line}});
    }
    check_subtile_alignment(c, from, what, here);
    group_queue& queue = c.by->stores;
    if (c.checked()) {
        const access made{c.by, queue.actor, queue.open_tick(), true, true, -1, 0, what, here};
        for_each_run(from, [&](const void* address, int bytes) { touch(*c.on, *c.by, address, bytes, made, false); });
        access written = made;
        written.actor = c.by->written.actor;
        if (is_atomic(how)) written.atomic_bytes = sizeof(typename Part::element);
        touch_global(c, to, Part::rows, Part::columns, written, how);
        ++queue.open;
        queue.last_issue = here;
    }
    if (c.on->trace.enabled()) {
        double begin = 0;
        const double asked = c.by->time += nominal_rates::issue;
        queue.done_at = c.by->block->tma.serve(asked, Part::bytes / nominal_rates::copy_bytes, begin);
        c.on->trace.record(c.by->block->number, "TMA", what, begin, queue.done_at);
    }
    c.on->ask(&queue, queue.open_tick(), [to, from, combine] {
        const int rows = std::min(Part::rows, to.rows);
        const int columns = std::min(Part::columns, to.columns);
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < columns; ++column) combine(*to.at(row, column), *from.address(row, column));
        }
    });
}

template <class Scope, class Tile, class View>
void tma_store(const Scope& scope, const View& view, const tma_coordinate& coordinate, const Tile& from,
               source here = source::current()) {
    using element = typename Tile::element;
    ask_store(scope, view, coordinate, part_of(from), global_use::write, "TMA store", here,
              [](element& to, const element& value) { to = value; });
}

// Adds to global memory. Blocks on other threads may add to the same element, as on the device.
template <class Scope, class Tile, class View>
void tma_reduce_add(const Scope& scope, const View& view, const tma_coordinate& coordinate, const Tile& from,
                    source here = source::current()) {
    using element = typename Tile::element;
    ask_store(scope, view, coordinate, part_of(from), global_use::atomic_update, "TMA reduce-add", here,
              [](element& to, const element& value) { detail::atomic_add(&to, value); });
}

template <class Scope>
void bulk_commit(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "commit of stores", here);
    if (c) commit_group(c, c.by->stores, synchronisation::store_commit, here);
}

// Waits until all but the newest Left groups of stores have read their shared tiles.
template <int Left, class Scope>
void bulk_wait_read(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "wait for stores", here);
    if (c) wait_group(c, c.by->stores, synchronisation::store_wait, Left, here);
}

// Waits until they have also written the tensor.
template <int Left, class Scope>
void bulk_wait(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "wait for stores", here);
    if (!c) return;
    const std::uint32_t done = wait_group(c, c.by->stores, synchronisation::store_wait, Left, here);
    if (!c.checked()) return;
    if (c.on->operator_at(*c.by, synchronisation::store_write, here) == mutation_operator::reads_only) return;
    c.by->written.waited = std::max(c.by->written.waited, done);
    if (c.on->options.sites != nullptr) c.by->written_waits.push_back({c.by->written.waited, here});
    c.by->knows.seen.raise(c.by->written.actor, c.by->written.waited);
}

template <class Scope, class View>
void prefetch_map(const Scope&, const View&) {}

}  // namespace imbrex::hw
