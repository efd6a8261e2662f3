// Results of attention over some of the keys, put together when the attention is over:
//
//     clear_attention_outputs::launch(world::device, result, stream);                                                 nothing seen yet
//     merge_lse<bf16>::launch(world::device, {.first = before, .second = after, .out = out}, stream);   two of them as one
//     downconvert_output<bf16>::launch(world::device, {.o_accum = o_accum, .out = out}, stream);                       O of fp32 as bf16 or fp16
//
// A result is O in fp32, with either the base-2 logarithm of each row's sum (`o_accum`, `lse2`: O is divided by the sums) or each
// row's largest score and sum (`o_accum`, `row_max`, `row_sum`: it is not), as attention leaves it (attention/output.hpp). Two results of
// different keys become one, which is written
//
//     not finished    O of fp32, largest, sums               to be merged with others
//     finished        O of fp32, lse2                   divided by the sums; a sink for each head may be added to them
//                     O of bf16 or fp16, lse2 if wanted
//
// Of a result without columns only the numbers of its rows are cleared. Without a second one the first is finished as it is. Rows
// that saw no key have logarithms or largest scores of -infinity, as all are after clearing: they have no weight, and their O may
// be anything. Where both are such, O is 0.
//
// The same two operands in the same order give the same bits, whoever merges them, and whether the result is finished at once or
// afterwards. In the other order the last bits may differ.
//
// Columns of a multiple of 8 in rows that begin at multiples of 16 bytes are quick; any other distances and sizes are taken too. What is
// written may be one of the operands, with all its distances; otherwise it must have nothing in common with them. Nothing is allocated and
// nothing waited for. What is refused is refused before anything is launched.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/elementwise/row_view.hpp>
#include <imbrex/kernels/merge_lse/kernel.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class Out>
struct merge_lse_problem {
    static_assert(std::is_same_v<Out, bf16> || std::is_same_v<Out, fp16> || std::is_same_v<Out, float>,
                  "imbrex: a merged result is bf16, fp16 or float");

    attention_aux_outputs first;
    attention_aux_outputs second = {};  // none if it is left out
    attention_view<Out> out;
    attention_row_view lse2 = {};     // finished; with bf16 and fp16 they may be left out
    attention_row_view row_max = {};  // not finished: float alone
    attention_row_view row_sum = {};
    const float* sinks = nullptr;  // finished: a logit for each head that takes up weight

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

namespace detail {

template <class T>
void require_output_rows(const attention_view<T>& view, const char* name) {
    require_view(view, name);
    // So that none of the products below can be too large.
    const std::int64_t tokens = view.extents[0] * view.extents[2];
    require(tokens <= max_rows && tokens * view.extents[1] <= max_rows, name, ".extents: ", view.extents[0], " x ",
            view.extents[1], " x ", view.extents[2], "; at most ", max_rows, " rows are allowed");
}

template <class T, class U>
void require_same_extents(const attention_view<T>& view, const char* name, const attention_view<U>& other,
                          const char* of) {
    const char* const names[] = {"members of the batch", "heads", "rows", "columns"};
    for (int i = 0; i < 4; ++i) require_same(view.extents[i], name, i, other.extents[i], of, names[i]);
}

inline bool no_rows(const output_rows& all) {
    return all.batches == 0 || all.seqlen_q == 0 || all.heads == 0;
}
template <class T>
output_rows output_rows_of(const attention_view<T>& view) {
    return {static_cast<int>(view.extents[0]), view.rows(), static_cast<int>(view.extents[1]), view.columns()};
}

// Logarithms, or largest scores and sums.
inline void require_row_values(const attention_aux_outputs& result, const char* name, const output_rows& all) {
    const auto numbers = [&](const attention_row_view& rows, const char* which) {
        require_rows(rows, str_cat(name, which).c_str(), all.batches, all.heads, all.seqlen_q);
    };
    if (result.lse2.pointer != nullptr) {
        require(result.row_max.pointer == nullptr && result.row_sum.pointer == nullptr, name,
                "lse2: given, and row_max or row_sum too; a result is divided by its sums or it is not");
        numbers(result.lse2, "lse2");
    } else {
        require(result.row_max.pointer != nullptr || result.row_sum.pointer != nullptr, name,
                "lse2: null; it is needed, or row_max and row_sum are");
        numbers(result.row_max, "row_max");
        numbers(result.row_sum, "row_sum");
    }
}

inline namespace IMBREX_WORLDS {

// The kernel for rows of so many columns. `whole`: all of them can be moved 16 bytes at a time.
template <class Step>
void launch_on_output_rows(world where, const Step& step, const output_rows& all, bool whole, void* stream) {
    const auto launch_kernel = [&]<int Rows, int Columns, row_alignment Known>() {
        using kernel = output_rows_kernel<Step, Rows, Columns, Known>;
        const typename kernel::arguments args{step, all};
        imbrex::launch<kernel>(where, kernel::grid_of(args), args, stream);
    };
    if (!whole) {
        launch_kernel.template operator()<1, 256, row_alignment::unaligned>();
    } else if (all.columns <= 64) {
        launch_kernel.template operator()<4, 64, row_alignment::aligned>();
    } else if (all.columns <= 128) {
        launch_kernel.template operator()<2, 128, row_alignment::aligned>();
    } else {
        launch_kernel.template operator()<1, 256, row_alignment::aligned>();
    }
}

}  // namespace IMBREX_WORLDS

template <class T>
bool output_in_chunks(const attention_view<T>& view) {
    return tma_can_copy(view) && view.extents[3] % 8 == 0;
}

}  // namespace detail

inline namespace IMBREX_WORLDS {

class clear_attention_outputs {
  public:
    static void launch(world where, const attention_aux_outputs& result, void* stream = nullptr) {
        using namespace detail;
        require_output_rows(result.o_accum, "o_accum");
        const output_rows all = output_rows_of(result.o_accum);
        if (no_rows(all)) return;
        require_row_values(result, "", all);
        require_apart(result.o_accum);
        launch_on_output_rows(where, step_of(result), all, output_in_chunks(result.o_accum), stream);
    }

    static clear_outputs_step step_of(const attention_aux_outputs& result) {
        const bool divided = result.lse2.pointer != nullptr;
        return {result.o_accum, divided ? result.lse2 : result.row_max, result.row_sum};
    }
};

template <class Out>
class downconvert_output {
  public:
    using problem = downconvert_output_problem<Out>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        using namespace detail;
        require_output_rows(p.o_accum, "o_accum");
        require_output_rows(p.out, "out");
        require_same_extents(p.out, "out", p.o_accum, "o_accum");
        const output_rows all = output_rows_of(p.out);
        if (no_rows(all)) return;
        require_apart(p.out);
        launch_on_output_rows(where, step_of(p), all, output_in_chunks(p.o_accum) && output_in_chunks(p.out), stream);
    }

    static downconvert_step<Out> step_of(const problem& p) { return {p.o_accum, p.out}; }
};

template <class Out = float>
class merge_lse {
  public:
    using problem = merge_lse_problem<Out>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        using namespace detail;
        require_merge(p);
        const output_rows all = output_rows_of(p.out);
        if (no_rows(all)) return;
        const bool whole = output_in_chunks(p.first.o_accum) && output_in_chunks(p.out) &&
                           (!p.has_second() || output_in_chunks(p.second.o_accum));
        launch_on_output_rows(where, step_of(p), all, whole, stream);
    }

    static merge_lse_step<Out> step_of(const problem& p) {
        const auto operand = [](const attention_aux_outputs& one) {
            const bool divided = one.lse2.pointer != nullptr;
            return merge_lse_operand{one.o_accum, divided ? one.lse2 : one.row_max, one.row_sum};
        };
        return {operand(p.first), operand(p.second), p.out,       p.finished() ? p.lse2 : p.row_max,
                p.row_sum,        p.sinks,           p.finished()};
    }

  private:
    static void require_merge(const problem& p) {
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
        require((std::is_same_v<Out, float>), "row_max, row_sum: given; a result that is not finished is fp32");
        require(p.lse2.pointer == nullptr,
                "lse2: given, and row_max or row_sum too; the merged result is divided by its sums or it is not");
        require(p.sinks == nullptr, "sinks: ", p.sinks, "; they are added when a result is finished");
        numbers(p.row_max, "row_max");
        numbers(p.row_sum, "row_sum");
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
