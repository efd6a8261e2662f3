// What a kernel that decodes is made of, what its consumers are told, where they find their queries, and how much they leave for one
// another.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache/scales.hpp>
#include <imbrex/kernels/paged_decode/merge_splits.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

struct decode_shape {
    int warps_m = 1;   // of 16 rows, 1, 2, 4 or 8: warps that share a stage
    int block_n = 32;  // of a stage
    // A multiple of the warps among which they go in turn, so that who waits for a stage has seen all of its rounds.
    int stages = 8;
    int merge_columns = 128;  // for which there is room where warps put their results together
    int warps = 8;
    int min_blocks_per_sm = 1;  // blocks that share the registers of a multiprocessor
    // Threads copy keys and values: behind the last key there are zeros, and results are put together in the stages' memory, which
    // are empty meanwhile. Otherwise TMA does, and they have memory of their own.
    bool uses_cp_async = false;
};

// Keys and values of one head.
template <class Tile>
struct decode_stage {
    Tile k;
    Tile v;
};

// What consumers are told.
template <class In, class Mask, class Score>
struct decode_arguments {
    attention_view<const In> q;
    decode_results<In> results;
    Mask mask;
    Score score;
    float scale;
    paged_seqlens lengths;
    decode_schedule schedule;
    // See workspace_bytes. The counters are zero before the first launch, and after each.
    int* counters;
    decode_workspace_slice* partials;
    // Of a cache of 8-bit elements.
    kv_cache_scales k_scales;
    kv_cache_scales v_scales;
};

// What a grid of so many blocks leaves for one another in global memory: for each of them a counter for each slice, and the slices
// of the two units that it may have parts of, or those of all parts that there can be of units that are cut every so many keys.
// Counters are where they are for every kernel: one may leave its slices where another's counters are not.
template <int Slices>
struct decode_workspace {
    static constexpr int slices = Slices;  // of a unit, at most
    static constexpr std::size_t counters_bytes(int blocks) {
        constexpr int most_slices = 4 * 256 / decode_slice_columns;
        static_assert(slices <= most_slices, "imbrex: a unit has more slices than there are counters for");
        return static_cast<std::size_t>(blocks) * most_slices * sizeof(int);
    }
    static constexpr std::size_t workspace_bytes(int blocks) {
        return workspace_bytes(blocks, std::int64_t{blocks} * 2 * slices);
    }
    static constexpr std::size_t workspace_bytes(int blocks, std::int64_t slices_of_all) {
        return counters_bytes(blocks) + static_cast<std::size_t>(slices_of_all) * sizeof(decode_workspace_slice);
    }
};

// Where the queries of a sequence begin, for whoever brings them: of(rows, column)(row), or null where there are none.
template <class In>
class query_pointers {
  public:
    IMBREX_KERNEL query_pointers(const attention_view<const In>& q, const paged_seqlens& lengths, int batch,
                                 bool exist = true)
        : q_(&q), member_(lengths.member(batch)), first_(exist ? lengths.first_query(batch) : 0) {}

    IMBREX_KERNEL auto of(const gqa_rows& rows, int column) const {
        return [this, rows, column](int row) {
            const In* const begin = q_->at(member_, rows.head(row), first_ + rows.query(row), column).pointer;
            return rows.exists(row) && column < q_->columns() ? begin : nullptr;
        };
    }

  private:
    const attention_view<const In>* q_;
    int member_;
    int first_;
};

}  // namespace imbrex
