// attention_problem: the arguments of an attention call, and their checks. Q, K, V and O are strided views [batch,
// head, row, head_dim]; all sizes follow from them. GQA and MQA: the heads of Q are a multiple of those of K and V.
// Optional attention sinks add one logit per head to the softmax denominator. Sequence lengths come from the views,
// from seqused_k (padded batch), from cu_seqlens (varlen) or, for paged KV, from seqused_k with a block table. Outputs
// are O, the LSE (base 2: lse2), or a split-KV partial (row_max, row_sum and an unnormalised O). Arguments that do not
// fit together throw imbrex::error with a message that names the argument, its value and what is allowed.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// Varlen batch: sequences of different lengths concatenated in tensors whose batch size is 1. Sequence i has the rows
// from cu_seqlens[i] up to, not including, cu_seqlens[i + 1]. The arrays are in the memory of the kernel's world.
struct varlen_sequences {
    int count = 0;
    const int* cu_seqlens_q = nullptr;  // count + 1 numbers
    const int* cu_seqlens_k = nullptr;

    bool given() const { return count != 0 || cu_seqlens_q != nullptr || cu_seqlens_k != nullptr; }
};

// How keys and values are stored: as consecutive rows of the tensors, or in pages of a KV cache.
enum class kv_layout { contiguous, paged };

// Paged KV. The views of K and V are [page, kv_head, row in page, head_dim], with any strides. Key i of sequence b is
// row i % page_size of page block_table[b * max_blocks_per_seq + i / page_size]. The block table is in the memory of
// the kernel's world; entries behind a sequence's last key are not read.
struct paged_kv {
    const int* block_table = nullptr;
    int max_blocks_per_seq = 0;

    bool given() const { return block_table != nullptr || max_blocks_per_seq != 0; }
};

// O has the type of the inputs, or fp32 in the modes `merged` and `partial`.
template <class In, attention_output_mode Result>
using attention_out = std::conditional_t<Result == attention_output_mode::normalised, In, float>;

// KV is the element type of K and V where it differs from that of Q (an 8-bit KV cache).
template <class In, attention_output_mode Result = attention_output_mode::normalised, class KV = In>
struct attention_problem {
    attention_view<const In> q;                     // [batch, head, query, head_dim_qk]
    attention_view<const KV> k;                     // [batch, kv_head, key, head_dim_qk]
    attention_view<const KV> v;                     // [batch, kv_head, key, head_dim_v]
    attention_view<attention_out<In, Result>> out;  // [batch, head, query, head_dim_v]
    attention_row_view lse2 = {};                   // base-2 LSE. normalised: optional; merged: required
    attention_row_view row_max = {};                // partial: required
    attention_row_view row_sum = {};                // partial: required
    std::optional<float> scale = {};                // of Q K^T; 1 / sqrt(head_dim_qk) by default
    const float* sinks = nullptr;    // attention sinks: a logit per head, or null; when merging, give them to one part
    const int* seqused_k = nullptr;  // the number of keys of each sequence of a padded batch or paged KV, or null
    varlen_sequences varlen = {};
    imbrex::paged_kv paged_kv = {};  // for kv_layout::paged
    // Optional counter for dynamic tile scheduling: SMs that finish early take more tiles, which pays where sequences
    // differ in length. It must be zero before the first launch and is zero again after each; concurrent launches need
    // one each.
    int* tile_counter = nullptr;
    // For 8-bit keys and values.
    kv_cache_scales k_scales = {};
    kv_cache_scales v_scales = {};

    int heads() const { return static_cast<int>(q.extents[1]); }
    int kv_heads() const { return static_cast<int>(k.extents[1]); }
    int seqlen_q() const { return q.rows(); }
    // Contiguous: the rows of K. Paged: the capacity of a sequence's pages.
    int seqlen_k(kv_layout layout) const {
        return layout == kv_layout::contiguous ? k.rows() : paged_kv.max_blocks_per_seq * k.rows();
    }
    int head_dim_qk() const { return q.columns(); }
    int head_dim_v() const { return v.columns(); }
    // Batch size of the tensors, or the number of varlen sequences.
    int batches() const { return varlen.given() ? varlen.count : static_cast<int>(q.extents[0]); }
    bool empty() const { return batches() == 0 || heads() == 0 || seqlen_q() == 0; }
    float scale_used() const { return scale.value_or(1.0f / std::sqrt(static_cast<float>(head_dim_qk()))); }
};

// The sequence lengths of a paged problem as the kernels take them.
template <class In, attention_output_mode Result, class KV>
paged_seqlens paged_seqlens_of(const attention_problem<In, Result, KV>& p) {
    paged_seqlens made{};
    made.seqlen_q = p.seqlen_q();
    made.seqlen_k = p.seqlen_k(kv_layout::paged);
    made.seqused_k = p.seqused_k;
    made.cu_seqlens_q = p.varlen.cu_seqlens_q;
    made.block_table = p.paged_kv.block_table;
    made.max_blocks_per_seq = p.paged_kv.max_blocks_per_seq;
    made.page_size = p.k.rows();
    return made;
}

// The sequence lengths of a problem as a kernel takes them: attention_seqlens or paged_seqlens.
template <class Lengths, class In, attention_output_mode Result, class KV>
Lengths attention_lengths_of(const attention_problem<In, Result, KV>& p) {
    if constexpr (std::is_same_v<Lengths, paged_seqlens>) {
        return paged_seqlens_of(p);
    } else {
        return {p.seqlen_q(), p.seqlen_k(kv_layout::contiguous), p.seqused_k, p.varlen.cu_seqlens_q,
                p.varlen.cu_seqlens_k};
    }
}

namespace detail {

template <class T>
void require_view(const attention_view<T>& view, const char* name) {
    std::int64_t elements = 1;
    for (int i = 0; i < 4; ++i) {
        require(view.extents[i] >= 0 && view.extents[i] <= 2147483647, name, ".extents[", i, "]: ", view.extents[i],
                "; 0 to 2147483647 is allowed");
        require(view.strides[i] >= 0, name, ".strides[", i, "]: ", view.strides[i], "; it must not be negative");
        elements = view.extents[i] == 0 ? 0 : elements;
    }
    require(elements == 0 || view.pointer != nullptr, name, ".pointer: null; a tensor of ", view.extents[0], " x ",
            view.extents[1], " x ", view.extents[2], " x ", view.extents[3], " is needed");
}

inline void require_head_dim(std::int64_t head_dim, const char* name, int step = 16) {
    require(head_dim >= step && head_dim <= 256 && head_dim % step == 0, name, ".extents[3]: ", head_dim,
            "; head_dim is a multiple of ", step, " from ", step, " to 256");
}

inline void require_same(std::int64_t found, const char* name, int dimension, std::int64_t wanted, const char* of,
                         const char* what) {
    require(found == wanted, name, ".extents[", dimension, "]: ", found, "; ", of, " has ", wanted, " ", what,
            ", and it must have as many");
}

// No two elements of an output may share an address.
template <class T>
void require_apart(const attention_view<T>& view, const char* name = "out") {
    const char* const names[] = {"batch entries", "heads", "rows"};
    if (view.extents[0] == 0 || view.extents[1] == 0 || view.extents[2] == 0) return;
    for (int i = 0; i < 3; ++i) {
        require(view.extents[i] <= 1 || view.strides[i] >= view.extents[3], name, ".strides[", i,
                "]: ", view.strides[i], "; must be at least ", view.extents[3], ": ", names[i], " must not overlap");
    }
}

inline void require_rows(const attention_row_view& rows, const char* name, std::int64_t batches, std::int64_t heads,
                         std::int64_t seqlen_q) {
    require(rows.pointer != nullptr, name, ".pointer: null; ", batches, " x ", heads, " x ", seqlen_q,
            " numbers are needed");
    require(heads <= 1 || rows.head_stride >= seqlen_q, name, ".head_stride: ", rows.head_stride, "; must be at least ",
            seqlen_q, ", the number of queries");
    require(batches <= 1 || rows.batch_stride >= seqlen_q, name, ".batch_stride: ", rows.batch_stride,
            "; must be at least ", seqlen_q, ", the number of queries");
}

// Reads the array: only for arrays in host memory.
inline void require_cu_seqlens(const int* starts, const char* name, int count, std::int64_t rows) {
    require(starts[0] >= 0, name, "[0]: ", starts[0], "; it must not be negative");
    for (int i = 0; i < count; ++i) {
        require(starts[i] <= starts[i + 1], name, "[", i + 1, "]: ", starts[i + 1], "; sequence ", i, " begins at ",
                starts[i], " and cannot end before that");
    }
    require(starts[count] <= rows, name, "[", count, "]: ", starts[count], "; the tensor has ", rows, " rows");
}

template <class In, attention_output_mode Result, class KV>
void require_seqused_k(const attention_problem<In, Result, KV>& p, int max_keys, const char* what) {
    for (int i = 0; p.seqused_k != nullptr && i < p.batches(); ++i) {
        require(p.seqused_k[i] >= 0 && p.seqused_k[i] <= max_keys, "seqused_k[", i, "]: ", p.seqused_k[i], "; ", what,
                " ", max_keys, " keys, and none may be negative");
    }
}

template <class In, attention_output_mode Result, class KV>
void require_lengths(world where, const attention_problem<In, Result, KV>& p, bool paged) {
    if (p.varlen.given()) {
        require(p.varlen.count >= 0, "varlen.count: ", p.varlen.count,
                "; the number of sequences must not be negative");
        require(paged || p.seqused_k == nullptr, "seqused_k: ", p.seqused_k,
                "; must be null for varlen: varlen.cu_seqlens_k has the lengths");
        require(!paged || p.varlen.cu_seqlens_k == nullptr, "varlen.cu_seqlens_k: ", p.varlen.cu_seqlens_k,
                "; must be null for paged KV: seqused_k has the lengths");
        require(p.q.extents[0] == 1, "q.extents[0]: ", p.q.extents[0], "; must be 1 for varlen");
        if (p.varlen.count == 0) return;
        require(p.varlen.cu_seqlens_q != nullptr, "varlen.cu_seqlens_q: null; ", p.varlen.count + 1,
                " numbers are needed");
        require(paged || p.varlen.cu_seqlens_k != nullptr, "varlen.cu_seqlens_k: null; ", p.varlen.count + 1,
                " numbers are needed");
        if (where == world::device) return;
        require_cu_seqlens(p.varlen.cu_seqlens_q, "varlen.cu_seqlens_q", p.varlen.count, p.q.extents[2]);
        if (!paged) require_cu_seqlens(p.varlen.cu_seqlens_k, "varlen.cu_seqlens_k", p.varlen.count, p.k.extents[2]);
    } else if (!paged && where != world::device) {
        require_seqused_k(p, p.k.rows(), "the tensor has");
    }
}

template <class In, attention_output_mode Result, class KV>
void require_paged_kv(world where, const attention_problem<In, Result, KV>& p) {
    const std::int64_t rows = p.k.extents[2], max_blocks = p.paged_kv.max_blocks_per_seq;
    require(rows > 0 && rows % page_size_step == 0, "k.extents[2]: ", rows, "; the rows of a page are a multiple of ",
            page_size_step);
    require(max_blocks >= 0, "paged_kv.max_blocks_per_seq: ", max_blocks, "; it must not be negative");
    require(max_blocks * rows <= 2147483647, "paged_kv.max_blocks_per_seq: ", max_blocks, "; with pages of ", rows,
            " rows a sequence has room for ", max_blocks * rows, " keys, and at most 2147483647 are allowed");
    require(p.paged_kv.block_table != nullptr || max_blocks == 0 || p.batches() == 0, "paged_kv.block_table: null; ",
            p.batches(), " x ", max_blocks, " numbers are needed");
    if (where == world::device) return;
    require_seqused_k(p, p.seqlen_k(kv_layout::paged), "the pages of a sequence have room for");
    for (int i = 0; i < p.batches(); ++i) {
        const std::int64_t seqlen_k = p.seqused_k == nullptr ? max_blocks * rows : p.seqused_k[i];
        for (std::int64_t entry = i * max_blocks; entry < i * max_blocks + (seqlen_k + rows - 1) / rows; ++entry) {
            require(p.paged_kv.block_table[entry] >= 0 && p.paged_kv.block_table[entry] < p.k.extents[0],
                    "paged_kv.block_table[", entry, "]: ", p.paged_kv.block_table[entry], "; there are ",
                    p.k.extents[0], " pages");
        }
    }
}

inline void require_cache_scales(const kv_cache_scales& scales, const char* name) {
    require(scales.page_stride >= 0, name, ".page_stride: ", scales.page_stride, "; it must not be negative");
    require(scales.head_stride >= 0, name, ".head_stride: ", scales.head_stride, "; it must not be negative");
}

}  // namespace detail

template <class In, attention_output_mode Result, class KV>
void require_attention(world where, const attention_problem<In, Result, KV>& p,
                       kv_layout layout = kv_layout::contiguous, int head_dim_step = 16) {
    using namespace detail;
    const bool paged = layout == kv_layout::paged;
    if constexpr (sizeof(KV) > 1) {
        const float* const scales = p.k_scales.given() ? p.k_scales.pointer : p.v_scales.pointer;
        require(scales == nullptr, "k_scales, v_scales: ", scales, "; only 8-bit keys and values have scales");
    } else {
        require_cache_scales(p.k_scales, "k_scales");
        require_cache_scales(p.v_scales, "v_scales");
    }
    require_view(p.q, "q");
    require_view(p.k, "k");
    require_view(p.v, "v");
    require_view(p.out, "out");
    require_head_dim(p.q.extents[3], "q", head_dim_step);
    require_head_dim(p.v.extents[3], "v", head_dim_step);
    require_same(p.k.extents[3], "k", 3, p.q.extents[3], "q", "columns");
    require_same(p.out.extents[3], "out", 3, p.v.extents[3], "v", "columns");
    if (paged) {
        require_same(p.v.extents[0], "v", 0, p.k.extents[0], "k", "pages");
    } else {
        require(!p.paged_kv.given(), "paged_kv.max_blocks_per_seq: ", p.paged_kv.max_blocks_per_seq,
                "; must be 0 unless the layout is kv_layout::paged");
        require_same(p.k.extents[0], "k", 0, p.q.extents[0], "q", "batch entries");
        require_same(p.v.extents[0], "v", 0, p.q.extents[0], "q", "batch entries");
    }
    require_same(p.out.extents[0], "out", 0, p.q.extents[0], "q", "batch entries");
    require_same(p.v.extents[1], "v", 1, p.k.extents[1], "k", "heads");
    require_same(p.v.extents[2], "v", 2, p.k.extents[2], "k", "rows");
    require_same(p.out.extents[1], "out", 1, p.q.extents[1], "q", "heads");
    require_same(p.out.extents[2], "out", 2, p.q.extents[2], "q", "rows");
    require(p.q.extents[1] == 0 || (p.k.extents[1] > 0 && p.q.extents[1] % p.k.extents[1] == 0),
            "k.extents[1]: ", p.k.extents[1], " KV heads; the ", p.q.extents[1],
            " heads of q must be a multiple of that");
    require(!p.scale || (std::isfinite(*p.scale) && *p.scale > 0), "scale: ", p.scale.value_or(0),
            "; a positive number is needed");
    require_lengths(where, p, paged);
    if (paged) require_paged_kv(where, p);
    if (p.empty()) return;
    require_apart(p.out);
    const std::int64_t batches = p.q.extents[0];
    if constexpr (Result == attention_output_mode::partial) {
        require_rows(p.row_max, "row_max", batches, p.heads(), p.seqlen_q());
        require_rows(p.row_sum, "row_sum", batches, p.heads(), p.seqlen_q());
        require(p.sinks == nullptr, "sinks: ", p.sinks, "; must be null for attention_output_mode::partial");
    } else if (Result == attention_output_mode::merged || p.lse2.pointer != nullptr) {
        require_rows(p.lse2, "lse2", batches, p.heads(), p.seqlen_q());
    }
}

}  // namespace imbrex
