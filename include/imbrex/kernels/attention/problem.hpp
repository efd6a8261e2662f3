// An attention as its user states it: where the matrices lie, which lengths their sequences have, and what is to be left
// behind. All sizes follow from the views; what does not fit together is refused with a sentence.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache/scales.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// Sequences of different lengths one behind the other, in tensors whose batch is 1. Sequence i has the rows from starts[i] up to,
// not including, starts[i + 1]; the arrays are in the memory of the kernel's world.
struct varlen_sequences {
    int count = 0;
    const int* cu_seqlens_q = nullptr;  // count + 1 of them
    const int* cu_seqlens_k = nullptr;

    bool given() const { return count != 0 || cu_seqlens_q != nullptr || cu_seqlens_k != nullptr; }
};

// Where the keys and values of a sequence are: in rows of the tensors, one behind the other; or in pages.
enum class kv_layout { contiguous, paged };

// With keys in pages, the views of K and V are [page, key head, row in page, column], any distances. Key i of member b of the
// batch, or of packed sequence b, is row i % rows of page table[b * max_blocks_per_seq + i / rows]. The table is in the memory of
// the kernel's world; entries behind a sequence's last key are not read.
struct paged_kv {
    const int* block_table = nullptr;
    int max_blocks_per_seq = 0;

    bool given() const { return block_table != nullptr || max_blocks_per_seq != 0; }
};

// O is of the type of the inputs, or in fp32 if it is a part of a result.
template <class In, attention_output_mode Result>
using attention_out = std::conditional_t<Result == attention_output_mode::normalised, In, float>;

// Keys is the type of K and V, where a kernel takes another than that of Q.
template <class In, attention_output_mode Result = attention_output_mode::normalised, class KV = In>
struct attention_problem {
    attention_view<const In> q;                     // [batch, head, query, depth]
    attention_view<const KV> k;                     // [batch, key head, key, depth]
    attention_view<const KV> v;                     // [batch, key head, key, value depth]
    attention_view<attention_out<In, Result>> out;  // [batch, head, query, value depth]
    attention_row_view lse2 = {};                   // normalised: may be left out; merged
    attention_row_view row_max = {};                // partial
    attention_row_view row_sum = {};                // partial
    std::optional<float> scale = {};                // of Q K^T; 1 / sqrt(depth) if left out
    const float* sinks = nullptr;    // a logit for each head that takes up weight, in one of the parts that are merged
    const int* seqused_k = nullptr;  // how many keys each member of a padded batch has, or each sequence with pages
    varlen_sequences varlen = {};
    imbrex::paged_kv paged_kv = {};  // for kv_layout::paged
    // Zero, and zero again after each launch; launches at the same time need one each. Through it multiprocessors that are ready
    // earlier take more of the work, which pays where sequences differ in length. It may be left out.
    int* tile_counter = nullptr;
    // Of keys and values of 8 bits.
    kv_cache_scales k_scales = {};
    kv_cache_scales v_scales = {};

    int heads() const { return static_cast<int>(q.extents[1]); }
    int kv_heads() const { return static_cast<int>(k.extents[1]); }
    int seqlen_q() const { return q.rows(); }
    // In rows as many as these, in pages as many as a sequence has room for.
    int seqlen_k(kv_layout layout) const {
        return layout == kv_layout::contiguous ? k.rows() : paged_kv.max_blocks_per_seq * k.rows();
    }
    int head_dim_qk() const { return q.columns(); }
    int head_dim_v() const { return v.columns(); }
    // Members of the batch: of the tensors', or the packed sequences.
    int batches() const { return varlen.given() ? varlen.count : static_cast<int>(q.extents[0]); }
    bool empty() const { return batches() == 0 || heads() == 0 || seqlen_q() == 0; }
    float scale_used() const { return scale.value_or(1.0f / std::sqrt(static_cast<float>(head_dim_qk()))); }
};

// Of a problem with keys in pages, as kernels have them.
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

// The same extent in two views. `what` says of what.
inline void require_same(std::int64_t found, const char* name, int dimension, std::int64_t wanted, const char* of,
                         const char* what) {
    require(found == wanted, name, ".extents[", dimension, "]: ", found, "; ", of, " has ", wanted, " ", what,
            ", and it must have as many");
}

// What is written must not be written twice.
template <class T>
void require_apart(const attention_view<T>& out) {
    const char* const names[] = {"members of the batch", "heads", "rows"};
    for (int i = 0; i < 3; ++i) {
        require(out.extents[i] <= 1 || out.strides[i] >= out.extents[3], "out.strides[", i, "]: ", out.strides[i], "; ",
                names[i], " of results lie at least the ", out.extents[3], " elements of a row apart");
    }
}

inline void require_rows(const attention_row_view& rows, const char* name, std::int64_t batches, std::int64_t heads,
                         std::int64_t seqlen_q) {
    require(rows.pointer != nullptr, name, ".pointer: null; ", batches, " x ", heads, " x ", seqlen_q,
            " numbers are needed");
    require(heads <= 1 || rows.head_stride >= seqlen_q, name, ".head_stride: ", rows.head_stride, "; heads of ",
            seqlen_q, " queries lie at least that far apart");
    require(batches <= 1 || rows.batch_stride >= seqlen_q, name, ".batch_stride: ", rows.batch_stride,
            "; members of the batch with ", seqlen_q, " queries lie at least that far apart");
}

// Numbers that the host can read, since they are in its world.
inline void require_cu_seqlens(const int* starts, const char* name, int count, std::int64_t rows) {
    require(starts[0] >= 0, name, "[0]: ", starts[0], "; it must not be negative");
    for (int i = 0; i < count; ++i) {
        require(starts[i] <= starts[i + 1], name, "[", i + 1, "]: ", starts[i + 1], "; sequence ", i, " begins at ",
                starts[i], " and cannot end before that");
    }
    require(starts[count] <= rows, name, "[", count, "]: ", starts[count], "; the tensor has ", rows, " rows");
}

template <class In, attention_output_mode Result, class KV>
void require_seqused_k(const attention_problem<In, Result, KV>& p, int most, const char* what) {
    for (int i = 0; p.seqused_k != nullptr && i < p.batches(); ++i) {
        require(p.seqused_k[i] >= 0 && p.seqused_k[i] <= most, "seqused_k[", i, "]: ", p.seqused_k[i], "; ", what, " ",
                most, " keys, and none may be negative");
    }
}

template <class In, attention_output_mode Result, class KV>
void require_lengths(world where, const attention_problem<In, Result, KV>& p, bool paged) {
    if (p.varlen.given()) {
        require(p.varlen.count >= 0, "varlen.count: ", p.varlen.count,
                "; the number of sequences must not be negative");
        require(paged || p.seqused_k == nullptr, "seqused_k: ", p.seqused_k,
                "; packed sequences have their lengths in varlen.cu_seqlens_k, it must be null");
        require(!paged || p.varlen.cu_seqlens_k == nullptr, "varlen.cu_seqlens_k: ", p.varlen.cu_seqlens_k,
                "; keys in pages have their lengths in seqused_k, it must be null");
        require(p.q.extents[0] == 1, "q.extents[0]: ", p.q.extents[0],
                "; packed sequences lie one behind the other in a batch of 1");
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
    const std::int64_t rows = p.k.extents[2], room = p.paged_kv.max_blocks_per_seq;
    require(rows > 0 && rows % page_size_step == 0, "k.extents[2]: ", rows, "; the rows of a page are a multiple of ",
            page_size_step);
    require(room >= 0, "paged_kv.max_blocks_per_seq: ", room, "; it must not be negative");
    require(room * rows <= 2147483647, "paged_kv.max_blocks_per_seq: ", room, "; with pages of ", rows,
            " rows a sequence has room for ", room * rows, " keys, and at most 2147483647 are allowed");
    require(p.paged_kv.block_table != nullptr || room == 0 || p.batches() == 0, "paged_kv.block_table: null; ",
            p.batches(), " x ", room, " numbers are needed");
    if (where == world::device) return;
    require_seqused_k(p, p.seqlen_k(kv_layout::paged), "the pages of a sequence have room for");
    for (int i = 0; i < p.batches(); ++i) {
        const std::int64_t seqlen_k = p.seqused_k == nullptr ? room * rows : p.seqused_k[i];
        for (std::int64_t place = i * room; place < i * room + (seqlen_k + rows - 1) / rows; ++place) {
            require(p.paged_kv.block_table[place] >= 0 && p.paged_kv.block_table[place] < p.k.extents[0],
                    "paged_kv.block_table[", place, "]: ", p.paged_kv.block_table[place], "; there are ",
                    p.k.extents[0], " pages");
        }
    }
}

}  // namespace detail

template <class In, attention_output_mode Result, class KV>
void require_attention(world where, const attention_problem<In, Result, KV>& p,
                       kv_layout layout = kv_layout::contiguous, int head_dim_step = 16) {
    using namespace detail;
    const bool paged = layout == kv_layout::paged;
    if constexpr (sizeof(KV) > 1) {
        const float* const scales = p.k_scales.given() ? p.k_scales.pointer : p.v_scales.pointer;
        require(scales == nullptr, "k_scales, v_scales: ", scales,
                "; keys and values of 8 bits have scales, for others they must be left out");
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
                "; this attention has its keys in rows, and pages are for kv_layout::paged");
        require_same(p.k.extents[0], "k", 0, p.q.extents[0], "q", "members of the batch");
        require_same(p.v.extents[0], "v", 0, p.q.extents[0], "q", "members of the batch");
    }
    require_same(p.out.extents[0], "out", 0, p.q.extents[0], "q", "members of the batch");
    require_same(p.v.extents[1], "v", 1, p.k.extents[1], "k", "heads");
    require_same(p.v.extents[2], "v", 2, p.k.extents[2], "k", "rows");
    require_same(p.out.extents[1], "out", 1, p.q.extents[1], "q", "heads");
    require_same(p.out.extents[2], "out", 2, p.q.extents[2], "q", "rows");
    require(p.q.extents[1] == 0 || (p.k.extents[1] > 0 && p.q.extents[1] % p.k.extents[1] == 0),
            "k.extents[1]: ", p.k.extents[1], " heads of keys; the ", p.q.extents[1], " heads of q must be a multiple");
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
        require(p.sinks == nullptr, "sinks: ", p.sinks,
                "; they belong to a whole result, for a partial one it must be null");
    } else if (Result == attention_output_mode::merged || p.lse2.pointer != nullptr) {
        require_rows(p.lse2, "lse2", batches, p.heads(), p.seqlen_q());
    }
}

}  // namespace imbrex
