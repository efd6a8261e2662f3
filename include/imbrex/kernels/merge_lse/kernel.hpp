// The row-wise kernel behind merge_lse, clear_attention_outputs and downconvert_output, and its steps. A warp owns
// whole rows, columns and row values, and reads each element before it writes it: the output may be an input.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/vector_rows.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/merge_lse/problem.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_values.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

namespace imbrex {

// The rows of a warp, loaded and stored in vectors of `Columns` columns.
template <int Rows, int Columns, row_alignment Known>
struct output_rows_of_warp {
    template <class T>
    using tile = vector_row_tile<T, Rows, Columns>;
    using values = hw::vector_row_values_fragment<float, Rows, Columns>;

    const warp& self;
    const output_rows all;  // a copy, so that the compiler reuses what it computes from it
    const int first;

    IMBREX_KERNEL int head(int row) const { return all.at(first + row).head; }

    template <class T>
    IMBREX_KERNEL void load(tile<T>& to, const attention_view<const T>& from, int column,
                            source here = source::current()) const {
        load_rows_from<Known>(self, to, place_in(from, column), all.columns - column, here);
    }
    template <class T>
    IMBREX_KERNEL void store(const attention_view<T>& to, const tile<T>& from, int column,
                             source here = source::current()) const {
        store_rows_to<Known>(self, place_in(to, column), from, all.columns - column, here);
    }

    // Absent row values read as `otherwise`.
    IMBREX_KERNEL void load(values& to, const attention_row_view& from, float otherwise,
                            source here = source::current()) const {
        load_values_from(self, to, place_in(from), otherwise, here);
    }
    // Absent row values are not stored.
    IMBREX_KERNEL void store(const attention_row_view& to, const values& from, source here = source::current()) const {
        if (to.pointer != nullptr) store_values_to(self, place_in(to), from, here);
    }

  private:
    // A row that does not exist uses the address computation of the last row, and a null pointer: only the pointer
    // depends on the check.
    template <class T>
    IMBREX_KERNEL auto place_in(const attention_view<T>& view, int column) const {
        return [&all = all, &view, first = first, column](int row) -> T* {
            const int number = first + row, last = all.count() - 1;
            const output_row at = all.at(number < last ? number : last);
            T* const begin = view.at(at.batch, at.head, at.query, column).pointer;
            return number <= last ? begin : nullptr;
        };
    }
    IMBREX_KERNEL auto place_in(const attention_row_view& rows) const {
        return [&all = all, &rows, first = first](int row) -> float* {
            const int number = first + row, last = all.count() - 1;
            const output_row at = all.at(number < last ? number : last);
            float* const begin = rows.at(at.batch, at.head, at.query);
            return rows.pointer != nullptr && number <= last ? begin : nullptr;
        };
    }
};

// A step defines what it keeps of a column vector (`pieces`) and of the rows (`numbers`):
//
//     load(rows, held, column)             loads a column vector
//     begin(rows, numbers)                 loads the row values, in flight together with the first column vector
//     store(rows, numbers, held, column)   stores the result of a column vector
//     end(rows, numbers)                   stores the row values
template <class Step, int Rows, int Columns, row_alignment Known>
struct output_rows_kernel {
    static constexpr int warps = 4;
    static constexpr bool uses_pdl = true;

    struct arguments {
        Step step;
        output_rows all;
    };

    static grid_dim grid_of(const arguments& args) { return {(args.all.count() - 1) / (Rows * warps) + 1}; }

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.each_warp([&](const warp& self) {
            using rows_of_warp = output_rows_of_warp<Rows, Columns, Known>;
            const rows_of_warp rows{self, args.all, (block.index().x * warps + self.index()) * Rows};
            typename Step::template pieces<rows_of_warp> held;
            typename Step::template numbers<rows_of_warp> numbers;
            args.step.load(rows, held, 0);
            args.step.begin(rows, numbers);
            for (int column = 0;;) {
                args.step.store(rows, numbers, held, column);
                column += Columns;
                if (column >= args.all.columns) break;
                args.step.load(rows, held, column);
            }
            args.step.end(rows, numbers);
        });
    }
};

// Writes an empty result.
struct clear_outputs_step {
    attention_view<float> o_accum;
    attention_row_view tops;  // LSE or row maximum
    attention_row_view row_sum;

    template <class Rows>
    struct pieces {};
    template <class Rows>
    struct numbers {
        typename Rows::values tops, row_sum;
    };
    template <class Rows>
    IMBREX_KERNEL void load(const Rows&, pieces<Rows>&, int) const {}
    template <class Rows>
    IMBREX_KERNEL void begin(const Rows& rows, numbers<Rows>& all) const {
        fill(rows.self, all.tops, minus_infinity);
        fill(rows.self, all.row_sum, 0.0f);
    }
    template <class Rows>
    IMBREX_KERNEL void store(const Rows& rows, const numbers<Rows>& all, const pieces<Rows>&, int column) const {
        typename Rows::template tile<float> zeros;
        transform(
            rows.self, zeros, [](float zero) { return zero; }, all.row_sum);
        rows.store(o_accum, zeros, column);
    }
    template <class Rows>
    IMBREX_KERNEL void end(const Rows& rows, const numbers<Rows>& all) const {
        rows.store(tops, all.tops);
        rows.store(row_sum, all.row_sum);
    }
};

template <class Out>
struct downconvert_step {
    attention_view<const float> o_accum;
    attention_view<Out> out;

    template <class Rows>
    struct pieces {
        typename Rows::template tile<float> exact;
    };
    template <class Rows>
    struct numbers {};
    template <class Rows>
    IMBREX_KERNEL void load(const Rows& rows, pieces<Rows>& held, int column) const {
        rows.load(held.exact, o_accum, column);
    }
    template <class Rows>
    IMBREX_KERNEL void begin(const Rows&, numbers<Rows>&) const {}
    template <class Rows>
    IMBREX_KERNEL void store(const Rows& rows, const numbers<Rows>&, const pieces<Rows>& held, int column) const {
        typename Rows::template tile<Out> rounded;
        transform(
            rows.self, rounded, [](float x) { return x; }, held.exact);
        rows.store(out, rounded, column);
    }
    template <class Rows>
    IMBREX_KERNEL void end(const Rows&, const numbers<Rows>&) const {}
};

// An operand. A normalised one counts as a partial whose row maximum is its LSE and whose row sum is 1.
struct merge_lse_operand {
    attention_view<const float> o_accum;  // null: absent
    attention_row_view tops;              // row maximum or LSE
    attention_row_view row_sum;           // null: 1
};

// Each rounding is one explicit operation: the same operands give the same bits in every kernel, and whether the result
// is finished while merging or later.
template <class Out>
struct merge_lse_step {
    merge_lse_operand first, second;
    attention_view<Out> out;
    attention_row_view tops;  // row maximum, or LSE of a finished result
    attention_row_view row_sum;
    const float* sinks;  // finished: attention sinks, a logit per head, or null
    bool finished;

    template <class Rows>
    struct pieces {
        typename Rows::template tile<float> first, second;
    };
    template <class Rows>
    struct numbers {
        typename Rows::values first, second;  // weights
        typename Rows::values top, total, factor;
    };
    template <class Rows>
    IMBREX_KERNEL void load(const Rows& rows, pieces<Rows>& held, int column) const {
        rows.load(held.first, first.o_accum, column);
        if (second.o_accum.pointer != nullptr) rows.load(held.second, second.o_accum, column);
    }
    template <class Rows>
    IMBREX_KERNEL void begin(const Rows& rows, numbers<Rows>& all) const {
        rows.load(all.first, first.tops, minus_infinity);
        rows.load(all.second, second.tops, minus_infinity);
        rows.load(all.total, first.row_sum, 1.0f);
        rows.load(all.top, second.row_sum, 1.0f);
        // From the tops and sums of both operands: their weights, the total sum and the larger top.
        hw::visit_vector_row_values(
            rows.self, hw::use::update, source::current(),
            [](int, float& a, float& b, float& sum, float& other) {
                const float top = hw::max(a, b), base = top == minus_infinity ? 0.0f : top;
                a = hw::exp2(a - base);
                b = hw::exp2(b - base);
                sum = hw::fma(b, other, a * sum);
                other = top;
            },
            all.first, all.second, all.total, all.top);
        fill(rows.self, all.factor, 1.0f);
        if (finished) finish(rows, all);
    }
    template <class Rows>
    IMBREX_KERNEL void store(const Rows& rows, const numbers<Rows>& all, const pieces<Rows>& held, int column) const {
        typename Rows::template tile<float> both;
        typename Rows::template tile<Out> merged;
        // A weight of zero hides uninitialised memory, even NaN.
        const auto scale = [](float x, float weight) { return (weight == 0 ? 0.0f : x) * weight; };
        const auto scale_and_add = [](float sum, float x, float weight) {
            return hw::fma(weight == 0 ? 0.0f : x, weight, sum);
        };
        transform(rows.self, both, scale, held.first, all.first);
        if (second.o_accum.pointer != nullptr) {
            transform(rows.self, both, scale_and_add, both, held.second, all.second);
        }
        transform(
            rows.self, merged, [](float sum, float factor) { return sum * factor; }, both, all.factor);
        rows.store(out, merged, column);
    }
    template <class Rows>
    IMBREX_KERNEL void end(const Rows& rows, const numbers<Rows>& all) const {
        rows.store(tops, all.top);
        rows.store(row_sum, all.total);
    }

  private:
    // The top becomes the LSE, including the sink.
    template <class Rows>
    IMBREX_KERNEL void finish(const Rows& rows, numbers<Rows>& all) const {
        hw::visit_vector_row_values(
            rows.self, hw::use::update, source::current(),
            [&](int row, float& top, float& total, float& factor) {
                const float sink = sinks == nullptr ? minus_infinity : sinks[rows.head(row)] * log2_of_e;
                const float row_max = hw::max(top, sink), base = row_max == minus_infinity ? 0.0f : row_max;
                const float share = hw::exp2(top - base);
                const float sum = hw::fma(total, share, hw::exp2(sink - base));
                factor = sum == 0 ? 0.0f : share * hw::reciprocal(sum);
                top = sum == 0 ? minus_infinity : base + hw::log2(sum);
            },
            all.top, all.total, all.factor);
    }
};

}  // namespace imbrex
