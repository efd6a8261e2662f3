// The problems of merge_lse and downconvert_output, their output rows, and the checks before a launch.
//
// Rows are numbered in the usual memory order: the heads of a token, token after token.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class Out>
struct merge_lse_problem {
    static_assert(std::is_same_v<Out, bf16> || std::is_same_v<Out, fp16> || std::is_same_v<Out, float>,
                  "imbrex: a merged result is bf16, fp16 or float");

    attention_aux_outputs first;
    attention_aux_outputs second = {};  // optional
    attention_view<Out> out;
    attention_row_view lse2 = {};     // finished; optional for bf16 and fp16
    attention_row_view row_max = {};  // partial: float only
    attention_row_view row_sum = {};
    const float* sinks = nullptr;  // finished: attention sinks, a logit per head, or null

    bool finished() const { return row_max.pointer == nullptr && row_sum.pointer == nullptr; }
    bool has_second() const { return second.o_accum.pointer != nullptr || second.o_accum.extents[0] != 0; }
};

template <class Out>
struct downconvert_output_problem {
    static_assert(std::is_same_v<Out, bf16> || std::is_same_v<Out, fp16>,
                  "imbrex: results are rounded to bf16 or fp16");

    attention_view<const float> o_accum;
    attention_view<Out> out;
};

struct output_row {
    int batch, head, query;
};

struct output_rows {
    int batches, seqlen_q, heads, columns;

    IMBREX_FN int count() const { return batches * seqlen_q * heads; }
    IMBREX_FN output_row at(int number) const {
        const int token = number / heads, batch = token / seqlen_q;
        return {batch, number - token * heads, token - batch * seqlen_q};
    }
};

namespace detail {

template <class T>
void require_output_rows(const attention_view<T>& view, const char* name) {
    require_view(view, name);
    // Bounds the products below.
    const std::int64_t tokens = view.extents[0] * view.extents[2];
    require(tokens <= max_rows && tokens * view.extents[1] <= max_rows, name, ".extents: ", view.extents[0], " x ",
            view.extents[1], " x ", view.extents[2], "; at most ", max_rows, " rows are allowed");
}

template <class T, class U>
void require_same_extents(const attention_view<T>& view, const char* name, const attention_view<U>& other,
                          const char* of) {
    const char* const names[] = {"batch entries", "heads", "rows", "columns"};
    for (int i = 0; i < 4; ++i) require_same(view.extents[i], name, i, other.extents[i], of, names[i]);
}

inline bool no_rows(const output_rows& all) {
    return all.batches == 0 || all.seqlen_q == 0 || all.heads == 0;
}
template <class T>
output_rows output_rows_of(const attention_view<T>& view) {
    return {static_cast<int>(view.extents[0]), view.rows(), static_cast<int>(view.extents[1]), view.columns()};
}

// Checks lse2, or row_max and row_sum.
inline void require_row_values(const attention_aux_outputs& result, const char* name, const output_rows& all) {
    const auto numbers = [&](const attention_row_view& rows, const char* which) {
        require_rows(rows, str_cat(name, which).c_str(), all.batches, all.heads, all.seqlen_q);
    };
    if (result.lse2.pointer != nullptr) {
        require(result.row_max.pointer == nullptr && result.row_sum.pointer == nullptr, name,
                "lse2: given together with row_max or row_sum; a result is either normalised (lse2) or partial");
        numbers(result.lse2, "lse2");
    } else {
        require(result.row_max.pointer != nullptr || result.row_sum.pointer != nullptr, name,
                "lse2: null; either lse2 or row_max and row_sum are needed");
        numbers(result.row_max, "row_max");
        numbers(result.row_sum, "row_sum");
    }
}

template <class T>
bool output_in_chunks(const attention_view<T>& view) {
    return tma_can_copy(view) && view.extents[3] % 8 == 0;
}

}  // namespace detail

template <class Out>
void require_merge_lse(const merge_lse_problem<Out>& p) {
    using namespace detail;
    require_output_rows(p.first.o_accum, "first.o_accum");
    require_output_rows(p.out, "out");
    require_same_extents(p.out, "out", p.first.o_accum, "first.o_accum");
    const output_rows all = output_rows_of(p.out);
    if (p.has_second()) {
        require_output_rows(p.second.o_accum, "second.o_accum");
        require_same_extents(p.second.o_accum, "second.o_accum", p.first.o_accum, "first.o_accum");
    }
    if (no_rows(all)) return;
    require_row_values(p.first, "first.", all);
    if (p.has_second()) require_row_values(p.second, "second.", all);
    require_apart(p.out);
    const auto numbers = [&](const attention_row_view& rows, const char* name) {
        require_rows(rows, name, all.batches, all.heads, all.seqlen_q);
    };
    if (p.finished()) {
        if (std::is_same_v<Out, float> || p.lse2.pointer != nullptr) numbers(p.lse2, "lse2");
        return;
    }
    require((std::is_same_v<Out, float>), "row_max, row_sum: given; a partial result must be fp32");
    require(p.lse2.pointer == nullptr,
            "lse2: given together with row_max or row_sum; the merged result is either normalised or partial");
    require(p.sinks == nullptr, "sinks: ", p.sinks, "; must be null for a partial result");
    numbers(p.row_max, "row_max");
    numbers(p.row_sum, "row_sum");
}

}  // namespace imbrex
