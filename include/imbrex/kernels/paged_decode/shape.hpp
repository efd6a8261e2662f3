// What a kernel that decodes is made of, what its consumers are told, where they find their queries, and how much they leave for one
// another.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_cache/scales.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

struct decode_shape {
    int groups = 1;  // of 16 rows, 1, 2, 4 or 8: warps that share a stage
    int keys = 32;   // of a stage
    // A multiple of the warps among which they go in turn, so that who waits for a stage has seen all of its rounds.
    int stages = 8;
    int combined_columns = 128;  // for which there is room where warps put their results together
    int warps = 8;
    int residents = 1;  // blocks that share the registers of a multiprocessor
    // Threads copy keys and values: behind the last key there are zeros, and results are put together in the stages' memory, which
    // are empty meanwhile. Otherwise the copy engine does, and they have memory of their own.
    bool threads_copy = false;
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
    paged_lengths lengths;
    decode_sizes sizes;
    // See workspace_bytes. The counters are zero before the first launch, and after each.
    int* counters;
    decode_partial* partials;
    // Of a cache of 8-bit elements.
    cache_scales k_scales;
    cache_scales v_scales;
};

// What a grid of so many blocks leaves for one another in global memory: for each of them a counter for each slice, and the slices
// of the two units that it may have parts of, or those of all parts that there can be of units that are cut every so many keys.
// Counters are where they are for every kernel: one may leave its slices where another's counters are not.
template <int Slices>
struct decode_workspace {
    static constexpr int slices = Slices;  // of a unit, at most
    static constexpr std::size_t counters_bytes(int blocks) {
        constexpr int most_slices = 4 * 256 / decode_slice_width;
        static_assert(slices <= most_slices, "imbrex: a unit has more slices than there are counters for");
        return static_cast<std::size_t>(blocks) * most_slices * sizeof(int);
    }
    static constexpr std::size_t workspace_bytes(int blocks) {
        return workspace_bytes(blocks, std::int64_t{blocks} * 2 * slices);
    }
    static constexpr std::size_t workspace_bytes(int blocks, std::int64_t slices_of_all) {
        return counters_bytes(blocks) + static_cast<std::size_t>(slices_of_all) * sizeof(decode_partial);
    }
};

// Where the queries of a sequence begin, for whoever brings them: of(rows, column)(row), or null where there are none.
template <class In>
class query_places {
  public:
    IMBREX_KERNEL query_places(const attention_view<const In>& q, const paged_lengths& lengths, int batch,
                               bool exist = true)
        : q_(&q), member_(lengths.member(batch)), first_(exist ? lengths.first_query(batch) : 0) {}

    IMBREX_KERNEL auto of(const decode_rows& rows, int column) const {
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
