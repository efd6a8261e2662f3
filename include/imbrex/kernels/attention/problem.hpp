// An attention as its user states it: where the matrices lie, which lengths their sequences have, and what is to be left
// behind. All sizes follow from the views; what does not fit together is refused with a sentence.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_cache/scales.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// Sequences of different lengths one behind the other, in tensors whose batch is 1. Sequence i has the rows from starts[i] up to,
// not including, starts[i + 1]; the arrays are in the memory of the kernel's world.
struct packed_sequences {
    int count = 0;
    const int* query_starts = nullptr;  // count + 1 of them
    const int* key_starts = nullptr;

    bool given() const { return count != 0 || query_starts != nullptr || key_starts != nullptr; }
};

// Where the keys and values of a sequence are: in rows of the tensors, one behind the other; or in pages.
enum class attention_keys { in_rows, in_pages };

// With keys in pages, the views of K and V are [page, key head, row in page, column], any distances. Key i of member b of the
// batch, or of packed sequence b, is row i % rows of page table[b * pages_per_sequence + i / rows]. The table is in the memory of
// the kernel's world; entries behind a sequence's last key are not read.
struct key_pages {
    const int* table = nullptr;
    int pages_per_sequence = 0;

    bool given() const { return table != nullptr || pages_per_sequence != 0; }
};

// O is of the type of the inputs, or in fp32 if it is a part of a result.
template <class In, attention_result Result>
using attention_out = std::conditional_t<Result == attention_result::normalised, In, float>;

// Keys is the type of K and V, where a kernel takes another than that of Q.
template <class In, attention_result Result = attention_result::normalised, class Keys = In>
struct attention_problem {
    attention_view<const In> q;                     // [batch, head, query, depth]
    attention_view<const Keys> k;                   // [batch, key head, key, depth]
    attention_view<const Keys> v;                   // [batch, key head, key, value depth]
    attention_view<attention_out<In, Result>> out;  // [batch, head, query, value depth]
    attention_rows log2_sums = {};                  // normalised: may be left out; merged
    attention_rows largest = {};                    // partial
    attention_rows sums = {};                       // partial
    std::optional<float> scale = {};                // of Q K^T; 1 / sqrt(depth) if left out
    const float* sinks = nullptr;  // a logit for each head that takes up weight, in one of the parts that are merged
    const int* key_lengths = nullptr;  // how many keys each member of a padded batch has, or each sequence with pages
    packed_sequences packed = {};
    key_pages pages = {};  // for attention_keys::in_pages
    // Zero, and zero again after each launch; launches at the same time need one each. Through it multiprocessors that are ready
    // earlier take more of the work, which pays where sequences differ in length. It may be left out.
    int* work_counter = nullptr;
    // Of keys and values of 8 bits.
    cache_scales k_scales = {};
    cache_scales v_scales = {};

    int heads() const { return static_cast<int>(q.extents[1]); }
    int key_heads() const { return static_cast<int>(k.extents[1]); }
    int queries() const { return q.rows(); }
    // In rows as many as these, in pages as many as a sequence has room for.
    int keys(attention_keys lie) const {
        return lie == attention_keys::in_rows ? k.rows() : pages.pages_per_sequence * k.rows();
    }
    int key_depth() const { return q.columns(); }
    int value_depth() const { return v.columns(); }
    // Members of the batch: of the tensors', or the packed sequences.
    int batches() const { return packed.given() ? packed.count : static_cast<int>(q.extents[0]); }
    bool empty() const { return batches() == 0 || heads() == 0 || queries() == 0; }
    float scale_used() const { return scale.value_or(1.0f / std::sqrt(static_cast<float>(key_depth()))); }
};

// Of a problem with keys in pages, as kernels have them.
template <class In, attention_result Result, class Keys>
paged_lengths paged_lengths_of(const attention_problem<In, Result, Keys>& p) {
    paged_lengths made{};
    made.queries = p.queries();
    made.keys = p.keys(attention_keys::in_pages);
    made.key_lengths = p.key_lengths;
    made.query_starts = p.packed.query_starts;
    made.table = p.pages.table;
    made.pages_per_sequence = p.pages.pages_per_sequence;
    made.page_rows = p.k.rows();
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

inline void require_depth(std::int64_t depth, const char* name, int step = 16) {
    require(depth >= step && depth <= 256 && depth % step == 0, name, ".extents[3]: ", depth,
            "; a depth is a multiple of ", step, " from ", step, " to 256");
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

inline void require_rows(const attention_rows& rows, const char* name, std::int64_t batches, std::int64_t heads,
                         std::int64_t queries) {
    require(rows.pointer != nullptr, name, ".pointer: null; ", batches, " x ", heads, " x ", queries,
            " numbers are needed");
    require(heads <= 1 || rows.head_stride >= queries, name, ".head_stride: ", rows.head_stride, "; heads of ", queries,
            " queries lie at least that far apart");
    require(batches <= 1 || rows.batch_stride >= queries, name, ".batch_stride: ", rows.batch_stride,
            "; members of the batch with ", queries, " queries lie at least that far apart");
}

// Numbers that the host can read, since they are in its world.
inline void require_starts(const int* starts, const char* name, int count, std::int64_t rows) {
    require(starts[0] >= 0, name, "[0]: ", starts[0], "; it must not be negative");
    for (int i = 0; i < count; ++i) {
        require(starts[i] <= starts[i + 1], name, "[", i + 1, "]: ", starts[i + 1], "; sequence ", i, " begins at ",
                starts[i], " and cannot end before that");
    }
    require(starts[count] <= rows, name, "[", count, "]: ", starts[count], "; the tensor has ", rows, " rows");
}

template <class In, attention_result Result, class Keys>
void require_key_lengths(const attention_problem<In, Result, Keys>& p, int most, const char* what) {
    for (int i = 0; p.key_lengths != nullptr && i < p.batches(); ++i) {
        require(p.key_lengths[i] >= 0 && p.key_lengths[i] <= most, "key_lengths[", i, "]: ", p.key_lengths[i], "; ",
                what, " ", most, " keys, and none may be negative");
    }
}

template <class In, attention_result Result, class Keys>
void require_lengths(world where, const attention_problem<In, Result, Keys>& p, bool paged) {
    if (p.packed.given()) {
        require(p.packed.count >= 0, "packed.count: ", p.packed.count,
                "; the number of sequences must not be negative");
        require(paged || p.key_lengths == nullptr, "key_lengths: ", p.key_lengths,
                "; packed sequences have their lengths in packed.key_starts, it must be null");
        require(!paged || p.packed.key_starts == nullptr, "packed.key_starts: ", p.packed.key_starts,
                "; keys in pages have their lengths in key_lengths, it must be null");
        require(p.q.extents[0] == 1, "q.extents[0]: ", p.q.extents[0],
                "; packed sequences lie one behind the other in a batch of 1");
        if (p.packed.count == 0) return;
        require(p.packed.query_starts != nullptr, "packed.query_starts: null; ", p.packed.count + 1,
                " numbers are needed");
        require(paged || p.packed.key_starts != nullptr, "packed.key_starts: null; ", p.packed.count + 1,
                " numbers are needed");
        if (where == world::device) return;
        require_starts(p.packed.query_starts, "packed.query_starts", p.packed.count, p.q.extents[2]);
        if (!paged) require_starts(p.packed.key_starts, "packed.key_starts", p.packed.count, p.k.extents[2]);
    } else if (!paged && where != world::device) {
        require_key_lengths(p, p.k.rows(), "the tensor has");
    }
}

template <class In, attention_result Result, class Keys>
void require_pages(world where, const attention_problem<In, Result, Keys>& p) {
    const std::int64_t rows = p.k.extents[2], room = p.pages.pages_per_sequence;
    require(rows > 0 && rows % page_step == 0, "k.extents[2]: ", rows, "; the rows of a page are a multiple of ",
            page_step);
    require(room >= 0, "pages.pages_per_sequence: ", room, "; it must not be negative");
    require(room * rows <= 2147483647, "pages.pages_per_sequence: ", room, "; with pages of ", rows,
            " rows a sequence has room for ", room * rows, " keys, and at most 2147483647 are allowed");
    require(p.pages.table != nullptr || room == 0 || p.batches() == 0, "pages.table: null; ", p.batches(), " x ", room,
            " numbers are needed");
    if (where == world::device) return;
    require_key_lengths(p, p.keys(attention_keys::in_pages), "the pages of a sequence have room for");
    for (int i = 0; i < p.batches(); ++i) {
        const std::int64_t keys = p.key_lengths == nullptr ? room * rows : p.key_lengths[i];
        for (std::int64_t place = i * room; place < i * room + (keys + rows - 1) / rows; ++place) {
            require(p.pages.table[place] >= 0 && p.pages.table[place] < p.k.extents[0], "pages.table[", place,
                    "]: ", p.pages.table[place], "; there are ", p.k.extents[0], " pages");
        }
    }
}

}  // namespace detail

template <class In, attention_result Result, class Keys>
void require_attention(world where, const attention_problem<In, Result, Keys>& p,
                       attention_keys keys = attention_keys::in_rows, int depth_step = 16) {
    using namespace detail;
    const bool paged = keys == attention_keys::in_pages;
    if constexpr (sizeof(Keys) > 1) {
        const float* const scales = p.k_scales.given() ? p.k_scales.pointer : p.v_scales.pointer;
        require(scales == nullptr, "k_scales, v_scales: ", scales,
                "; keys and values of 8 bits have scales, for others they must be left out");
    }
    require_view(p.q, "q");
    require_view(p.k, "k");
    require_view(p.v, "v");
    require_view(p.out, "out");
    require_depth(p.q.extents[3], "q", depth_step);
    require_depth(p.v.extents[3], "v", depth_step);
    require_same(p.k.extents[3], "k", 3, p.q.extents[3], "q", "columns");
    require_same(p.out.extents[3], "out", 3, p.v.extents[3], "v", "columns");
    if (paged) {
        require_same(p.v.extents[0], "v", 0, p.k.extents[0], "k", "pages");
    } else {
        require(!p.pages.given(), "pages.pages_per_sequence: ", p.pages.pages_per_sequence,
                "; this attention has its keys in rows, and pages are for attention_keys::in_pages");
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
    if (paged) require_pages(where, p);
    if (p.empty()) return;
    require_apart(p.out);
    const std::int64_t batches = p.q.extents[0];
    if constexpr (Result == attention_result::partial) {
        require_rows(p.largest, "largest", batches, p.heads(), p.queries());
        require_rows(p.sums, "sums", batches, p.heads(), p.queries());
        require(p.sinks == nullptr, "sinks: ", p.sinks,
                "; they belong to a whole result, for a partial one it must be null");
    } else if (Result == attention_result::merged || p.log2_sums.pointer != nullptr) {
        require_rows(p.log2_sums, "log2_sums", batches, p.heads(), p.queries());
    }
}

}  // namespace imbrex
