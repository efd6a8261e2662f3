// Results of attention over some of the keys, put together when the attention is over:
//
//     clear_results::launch(world::device, result, stream);                                                 nothing seen yet
//     merge_results<bf16>::launch(world::device, {.first = before, .second = after, .out = out}, stream);   two of them as one
//     round_results<bf16>::launch(world::device, {.wide = wide, .out = out}, stream);                       O of fp32 as bf16 or fp16
//
// A result is O in fp32, with either the base-2 logarithm of each row's sum (`wide`, `log2_sums`: O is divided by the sums) or each
// row's largest score and sum (`wide`, `largest`, `sums`: it is not), as attention leaves it (attention/result.hpp). Two results of
// different keys become one, which is written
//
//     not finished    O of fp32, largest, sums               to be merged with others
//     finished        O of fp32, log2_sums                   divided by the sums; a sink for each head may be added to them
//                     O of bf16 or fp16, log2_sums if wanted
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

#include <imbrex/core/error.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/elementwise/rows.hpp>
#include <imbrex/kernels/partial_results/kernel.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class Out>
struct merge_results_problem {
    static_assert(std::is_same_v<Out, bf16> || std::is_same_v<Out, fp16> || std::is_same_v<Out, float>,
                  "imbrex: a merged result is bf16, fp16 or float");

    attention_outputs first;
    attention_outputs second = {};  // none if it is left out
    attention_view<Out> out;
    attention_rows log2_sums = {};  // finished; with bf16 and fp16 they may be left out
    attention_rows largest = {};    // not finished: float alone
    attention_rows sums = {};
    const float* sinks = nullptr;  // finished: a logit for each head that takes up weight

    bool finished() const { return largest.pointer == nullptr && sums.pointer == nullptr; }
    bool has_second() const { return second.wide.pointer != nullptr || second.wide.extents[0] != 0; }
};

template <class Out>
struct round_results_problem {
    static_assert(std::is_same_v<Out, bf16> || std::is_same_v<Out, fp16>,
                  "imbrex: results are rounded to bf16 or fp16");

    attention_view<const float> wide;
    attention_view<Out> out;
};

namespace detail {

template <class T>
void require_result_rows(const attention_view<T>& view, const char* name) {
    require_view(view, name);
    // So that none of the products below can be too large.
    const std::int64_t tokens = view.extents[0] * view.extents[2];
    require(tokens <= most_rows && tokens * view.extents[1] <= most_rows, name, ".extents: ", view.extents[0], " x ",
            view.extents[1], " x ", view.extents[2], "; at most ", most_rows, " rows are allowed");
}

template <class T, class U>
void require_same_result(const attention_view<T>& view, const char* name, const attention_view<U>& other,
                         const char* of) {
    const char* const names[] = {"members of the batch", "heads", "rows", "columns"};
    for (int i = 0; i < 4; ++i) require_same(view.extents[i], name, i, other.extents[i], of, names[i]);
}

inline bool no_rows(const result_rows& all) {
    return all.batches == 0 || all.queries == 0 || all.heads == 0;
}
template <class T>
result_rows result_rows_of(const attention_view<T>& view) {
    return {static_cast<int>(view.extents[0]), view.rows(), static_cast<int>(view.extents[1]), view.columns()};
}

// Logarithms, or largest scores and sums.
inline void require_numbers(const attention_outputs& result, const char* name, const result_rows& all) {
    const auto numbers = [&](const attention_rows& rows, const char* which) {
        require_rows(rows, sentence(name, which).c_str(), all.batches, all.heads, all.queries);
    };
    if (result.log2_sums.pointer != nullptr) {
        require(result.largest.pointer == nullptr && result.sums.pointer == nullptr, name,
                "log2_sums: given, and largest or sums too; a result is divided by its sums or it is not");
        numbers(result.log2_sums, "log2_sums");
    } else {
        require(result.largest.pointer != nullptr || result.sums.pointer != nullptr, name,
                "log2_sums: null; it is needed, or largest and sums are");
        numbers(result.largest, "largest");
        numbers(result.sums, "sums");
    }
}

inline namespace IMBREX_WORLDS {

// The kernel for rows of so many columns. `whole`: all of them can be moved 16 bytes at a time.
template <class Step>
void launch_on_results(world where, const Step& step, const result_rows& all, bool whole, void* stream) {
    const auto launch_kernel = [&]<int Rows, int Columns, row_chunks Known>() {
        using kernel = results_kernel<Step, Rows, Columns, Known>;
        const typename kernel::arguments args{step, all};
        imbrex::launch<kernel>(where, kernel::grid_of(args), args, stream);
    };
    if (!whole) {
        launch_kernel.template operator()<1, 256, row_chunks::ragged>();
    } else if (all.columns <= 64) {
        launch_kernel.template operator()<4, 64, row_chunks::whole>();
    } else if (all.columns <= 128) {
        launch_kernel.template operator()<2, 128, row_chunks::whole>();
    } else {
        launch_kernel.template operator()<1, 256, row_chunks::whole>();
    }
}

}  // namespace IMBREX_WORLDS

template <class T>
bool result_in_chunks(const attention_view<T>& view) {
    return engine_can_copy(view) && view.extents[3] % 8 == 0;
}

}  // namespace detail

inline namespace IMBREX_WORLDS {

class clear_results {
  public:
    static void launch(world where, const attention_outputs& result, void* stream = nullptr) {
        using namespace detail;
        require_result_rows(result.wide, "wide");
        const result_rows all = result_rows_of(result.wide);
        if (no_rows(all)) return;
        require_numbers(result, "", all);
        require_apart(result.wide);
        launch_on_results(where, step_of(result), all, result_in_chunks(result.wide), stream);
    }

    static clear_step step_of(const attention_outputs& result) {
        const bool divided = result.log2_sums.pointer != nullptr;
        return {result.wide, divided ? result.log2_sums : result.largest, result.sums};
    }
};

template <class Out>
class round_results {
  public:
    using problem = round_results_problem<Out>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        using namespace detail;
        require_result_rows(p.wide, "wide");
        require_result_rows(p.out, "out");
        require_same_result(p.out, "out", p.wide, "wide");
        const result_rows all = result_rows_of(p.out);
        if (no_rows(all)) return;
        require_apart(p.out);
        launch_on_results(where, step_of(p), all, result_in_chunks(p.wide) && result_in_chunks(p.out), stream);
    }

    static round_step<Out> step_of(const problem& p) { return {p.wide, p.out}; }
};

template <class Out = float>
class merge_results {
  public:
    using problem = merge_results_problem<Out>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        using namespace detail;
        require_merge(p);
        const result_rows all = result_rows_of(p.out);
        if (no_rows(all)) return;
        const bool whole = result_in_chunks(p.first.wide) && result_in_chunks(p.out) &&
                           (!p.has_second() || result_in_chunks(p.second.wide));
        launch_on_results(where, step_of(p), all, whole, stream);
    }

    static merge_step<Out> step_of(const problem& p) {
        const auto operand = [](const attention_outputs& one) {
            const bool divided = one.log2_sums.pointer != nullptr;
            return merge_operand{one.wide, divided ? one.log2_sums : one.largest, one.sums};
        };
        return {operand(p.first), operand(p.second), p.out,       p.finished() ? p.log2_sums : p.largest,
                p.sums,           p.sinks,           p.finished()};
    }

  private:
    static void require_merge(const problem& p) {
        using namespace detail;
        require_result_rows(p.first.wide, "first.wide");
        require_result_rows(p.out, "out");
        require_same_result(p.out, "out", p.first.wide, "first.wide");
        const result_rows all = result_rows_of(p.out);
        if (p.has_second()) {
            require_result_rows(p.second.wide, "second.wide");
            require_same_result(p.second.wide, "second.wide", p.first.wide, "first.wide");
        }
        if (no_rows(all)) return;
        require_numbers(p.first, "first.", all);
        if (p.has_second()) require_numbers(p.second, "second.", all);
        require_apart(p.out);
        const auto numbers = [&](const attention_rows& rows, const char* name) {
            require_rows(rows, name, all.batches, all.heads, all.queries);
        };
        if (p.finished()) {
            if (std::is_same_v<Out, float> || p.log2_sums.pointer != nullptr) numbers(p.log2_sums, "log2_sums");
            return;
        }
        require((std::is_same_v<Out, float>), "largest, sums: given; a result that is not finished is fp32");
        require(p.log2_sums.pointer == nullptr,
                "log2_sums: given, and largest or sums too; the merged result is divided by its sums or it is not");
        require(p.sinks == nullptr, "sinks: ", p.sinks, "; they are added when a result is finished");
        numbers(p.largest, "largest");
        numbers(p.sums, "sums");
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
