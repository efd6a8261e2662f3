// Contiguous and paged KV: where the keys of a sequence are and how a K or V tile is loaded. Paged KV follows vLLM: a
// block table lists the pages of each sequence in order; a page has a multiple of 16 rows; the pages of all sequences
// are one tensor [page, kv_head, row in page, head_dim].
//
//     block table   | 5 | 2 | 7 |          key     0 ..           16 ..          32 ..
//                                          page    5              2              7            of 16 rows
//
// A kernel takes attention_seqlens (contiguous) or paged_seqlens (paged) as a template argument. A paged tile is loaded
// in parts of as many rows as divide both the tile and a page. Parts that no query of a work tile sees are neither
// looked up nor loaded: they become zero.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/gather.hpp>

#include <cstdint>

namespace imbrex {

// The page size is a multiple of this.
inline constexpr int page_size_step = 16;

// Queries as in attention_seqlens, varlen or not. seqused_k has the number of keys of each sequence; without it, every
// sequence fills its pages.
struct paged_seqlens : attention_seqlens {
    const int* block_table = nullptr;  // [sequence, max_blocks_per_seq]
    int max_blocks_per_seq = 0;
    int page_size = page_size_step;

    IMBREX_FN attention_extents of(int batch, int head) const {
        return {batch, head, varlen() ? length_at(cu_seqlens_q, batch) : seqlen_q,
                seqused_k == nullptr ? seqlen_k : read_element(seqused_k, batch)};
    }
    IMBREX_FN int first_key(int) const { return 0; }

    struct page_location {
        int page;
        int row;
    };
    // The location of keys that lie in one page. If none of them is visible, the row is page_size (out of bounds).
    IMBREX_FN page_location locate(const attention_work& work, int key, int count) const {
        if (key >= work.keys.end || key + count <= work.keys.first) return {0, page_size};
        const int number = key / page_size;
        return {read_element(block_table, static_cast<std::int64_t>(work.sequence.batch) * max_blocks_per_seq + number),
                key - number * page_size};
    }
};

// A K or V tile of one head, loaded by TMA into a stage of a pipeline, or into a tile in the stage. `fill`: the tile may
// lie behind the last row of the tensor, and becomes zero.
struct contiguous_kv_tile {
    const attention_seqlens& lengths;
    int batch;
    int head;
    int row;

    template <class Tensor, class Slot>
    IMBREX_KERNEL void load(const warp& scope, const Tensor& from, const Slot& slot,
                            source here = source::current()) const {
        load_into(scope, *slot, from, slot, false, here);
    }
    template <class Tile, class Tensor, class Slot>
    IMBREX_KERNEL void load_into(const warp& scope, Tile& to, const Tensor& from, const Slot& slot, bool fill = false,
                                 source here = source::current()) const {
        const auto found = from.at(lengths.member(batch), head, row, 0);
        load_async(scope, to, fill ? found.out_of_bounds_fill() : found, slot, here);
    }
};
template <int Rows>
struct paged_kv_tile {
    hw::lane_values<paged_seqlens::page_location, Rows / page_size_step> locations;  // one per part
    int head;

    template <class Tensor, class Slot>
    IMBREX_KERNEL void load(const warp& scope, const Tensor& from, const Slot& slot,
                            source here = source::current()) const {
        load_into(scope, *slot, from, slot, false, here);
    }
    template <class Tile, class Tensor, class Slot>
    IMBREX_KERNEL void load_into(const warp& scope, Tile& to, const Tensor& from, const Slot& slot, bool = false,
                                 source here = source::current()) const {
        for (int part = 0, row = 0; row < Rows; ++part, row += from.copied_rows) {
            const paged_seqlens::page_location at = warp_broadcast(scope, locations, part, here);
            const auto found = from.at(at.page, head, at.row, 0);
            const bool none = at.row >= from.extents[2];
            load_rows_async(scope, to, row, none ? found.out_of_bounds_fill() : found, slot, here);
        }
    }
};

// The tile that begins at this row; for paged KV the row counts from the sequence's first key. `rows_per_copy` is the
// number of rows that one TMA copy loads.
template <int Rows>
IMBREX_KERNEL contiguous_kv_tile kv_tile(const warp&, const attention_seqlens& lengths, const attention_work& work,
                                         int head, int row, int) {
    return {lengths, work.sequence.batch, head, row};
}
template <int Rows>
IMBREX_KERNEL paged_kv_tile<Rows> kv_tile(const warp& scope, const paged_seqlens& lengths, const attention_work& work,
                                          int head, int row, int rows_per_copy, source here = source::current()) {
    static_assert(Rows % page_size_step == 0, "imbrex: the rows of a paged KV tile must be a multiple of 16");
    return {warp_gather<Rows / page_size_step>(
                scope, [&](int part) { return lengths.locate(work, row + part * rows_per_copy, rows_per_copy); }, here),
            head};
}

// K or V rows of one head for cp.async: from the first key of the sequence to the last visible one. Rows behind it may
// hold anything, even NaN, and 0 * NaN is NaN: they are out of bounds and become zero.
template <class T>
IMBREX_KERNEL global_tile<const T> kv_rows(const attention_view<const T>& view, const attention_seqlens& lengths,
                                           const attention_work& work, int head) {
    const int batch = work.sequence.batch;
    global_tile<const T> found = view.at(lengths.member(batch), head, lengths.first_key(batch), 0);
    found.rows = work.keys.end;
    return found;
}

// The same for paged KV. It converts to a tile that is valid up to the next multiple of 16 rows.
template <class T>
struct paged_kv_rows {
    const attention_view<const T>& view;
    const paged_seqlens& lengths;
    const attention_work& work;
    int head;
    int first = 0;

    IMBREX_KERNEL paged_kv_rows from(int row, int) const { return {view, lengths, work, head, first + row}; }
    IMBREX_KERNEL operator global_tile<const T>() const {
        const paged_seqlens::page_location at = lengths.locate(work, first, page_size_step - first % page_size_step);
        global_tile<const T> found = view.at(at.page, head, at.row, 0);
        if (at.row < lengths.page_size) found.rows = work.keys.end - first;
        return found;
    }
};
template <class T>
IMBREX_KERNEL paged_kv_rows<T> kv_rows(const attention_view<const T>& view, const paged_seqlens& lengths,
                                       const attention_work& work, int head) {
    return {view, lengths, work, head};
}

}  // namespace imbrex
