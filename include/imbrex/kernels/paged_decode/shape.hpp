// What a kernel that decodes is made of, and what its consumers (paged_decode/consumers.hpp) are told.
#pragma once

#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_cache/scales.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>

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

}  // namespace imbrex
