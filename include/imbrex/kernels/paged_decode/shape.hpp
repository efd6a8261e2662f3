// What the split-KV decode kernels have in common: the tile shape, the arguments of the consumers, the layout of the
// workspace and the addresses of the packed GQA query rows.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/kernels/paged_decode/merge_splits.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

struct decode_shape {
    int warps_m = 1;   // warps that share a stage, 16 query rows each: 1, 2, 4 or 8
    int block_n = 32;  // keys of a stage
    // A multiple of warps_n, so that each stage always goes to the same warps and a waiting warp never misses a phase.
    int stages = 8;
    int merge_columns = 128;  // columns of O that the warps merge in one round, through shared memory
    int warps = 8;
    int min_blocks_per_sm = 1;
    // Keys and values are copied by cp.async: rows past the last key are zero, and the warps merge their results in the
    // memory of the empty stages. Otherwise TMA copies, and the merge has its own buffers.
    bool uses_cp_async = false;
};

// Keys and values of one KV head.
template <class Tile>
struct decode_stage {
    Tile k;
    Tile v;
};

// Arguments of the consumers.
template <class In, class Mask, class Score>
struct decode_arguments {
    attention_view<const In> q;
    decode_results<In> results;
    Mask mask;
    Score score;
    float scale;
    paged_seqlens lengths;
    decode_schedule schedule;
    // In the workspace, see decode_workspace. Counters are zero before the first launch and after each launch.
    int* counters;
    decode_workspace_slice* partials;
    // For 8-bit caches.
    kv_cache_scales k_scales;
    kv_cache_scales v_scales;
};

// Layout of the workspace of a grid: per block one arrival counter per output slice, then the partial results. With
// dynamic splits a block has slots for two work items; with a fixed split size every possible split has its own. All
// kernels have the counters at the same offset, so that no kernel writes partial results over another's counters.
template <int Slices>
struct decode_workspace {
    static constexpr int slices = Slices;  // of a work item, at most
    static constexpr std::size_t counters_bytes(int blocks) {
        constexpr int most_slices = 4 * 256 / decode_slice_columns;
        static_assert(slices <= most_slices, "imbrex: a work item has more slices than counters");
        return static_cast<std::size_t>(blocks) * most_slices * sizeof(int);
    }
    static constexpr std::size_t workspace_bytes(int blocks) {
        return workspace_bytes(blocks, std::int64_t{blocks} * 2 * slices);
    }
    static constexpr std::size_t workspace_bytes(int blocks, std::int64_t slices_of_all) {
        return counters_bytes(blocks) + static_cast<std::size_t>(slices_of_all) * sizeof(decode_workspace_slice);
    }
};

// Addresses of the packed query rows of a sequence: of(rows, column)(row), null for padding.
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
