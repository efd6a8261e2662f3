// Epilogue of the attention kernels: normalisation by the row sum, attention sinks, the LSE, and stores of O from
// registers in the three output modes (normalised, LSE merge, split-KV partial).
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// Output coordinates of a scope's rows. `batch` and `row` are those of the tensors; rows from valid_rows on do not
// exist.
struct attention_output_coord {
    int batch;
    int head;
    int row;
    int valid_rows;
};

// `sinks` are attention sinks: one logit per head that adds to the softmax denominator, or null.
template <class Scope, class Accumulator, class Softmax>
IMBREX_KERNEL void finish_attention(const Scope& scope, Accumulator& out, Softmax& softmax, const float* sinks,
                                    int head, source here = source::current()) {
    if (sinks != nullptr) {
        softmax.finish_with_sink(scope, out, sinks[head] * log2_of_e, here);
    } else {
        softmax.finish(scope, out, here);
    }
}

template <class Scope, class Softmax>
IMBREX_KERNEL void store_lse2(const Scope& scope, const attention_aux_outputs& outputs,
                              const attention_output_coord& at, const Softmax& softmax,
                              source here = source::current()) {
    if (outputs.lse2.pointer == nullptr) return;
    store(scope, outputs.lse2.at(at.batch, at.head, at.row), at.valid_rows, softmax.lse2(scope, here), here);
}

// Sixteen columns at a time limit register pressure. function(integral_constant of the first column).
template <int Columns, class Function>
IMBREX_KERNEL void for_each_16_columns(Function function) {
    [&]<int... Pieces>(std::integer_sequence<int, Pieces...>) {
        (function(std::integral_constant<int, Pieces * 16>{}), ...);
    }
    (std::make_integer_sequence<int, Columns / 16>{});
}

// Sixteen columns of the accumulator. One with only sixteen columns stands for all of them (an output of zeros).
template <int First, class Scope, class Accumulator>
IMBREX_KERNEL auto columns_16_of(const Scope& scope, const Accumulator& out, source here) {
    return imbrex::columns_of < Accumulator::columns == 16 ? 0 : First, 16 > (scope, out, here);
}

// Stores the output from registers: normalised, partial, or LSE-merged into what is there. `out` has `Columns` columns,
// or 16 that are repeated.
template <attention_output_mode Mode, int Columns, class In, class Scope, class Accumulator, class Softmax>
IMBREX_KERNEL void store_output(const Scope& scope, const attention_aux_outputs& outputs,
                                const attention_view<In>& normalised, const attention_output_coord& at,
                                Accumulator& out, Softmax& softmax, const float* sinks,
                                source here = source::current()) {
    if constexpr (Mode == attention_output_mode::normalised) {
        finish_attention(scope, out, softmax, sinks, at.head, here);
        store_lse2(scope, outputs, at, softmax, here);
        global_tile<In> place = normalised.at(at.batch, at.head, at.row, 0);
        place.rows = at.valid_rows;
        for_each_16_columns<Columns>([&](auto first) {
            store(scope, place.from(0, first), convert_to<In>(scope, columns_16_of<first>(scope, out, here), here),
                  here);
        });
        return;
    }
    global_tile<float> place = outputs.o_accum.at(at.batch, at.head, at.row, 0);
    place.rows = at.valid_rows;
    if constexpr (Mode == attention_output_mode::partial) {
        softmax.finish_row_sum(scope, here);
        store(scope, outputs.row_max.at(at.batch, at.head, at.row), at.valid_rows, softmax.row_max_log2(scope, here),
              here);
        store(scope, outputs.row_sum.at(at.batch, at.head, at.row), at.valid_rows, softmax.row_sum(), here);
        for_each_16_columns<Columns>(
            [&](auto first) { store(scope, place.from(0, first), columns_16_of<first>(scope, out, here), here); });
    }
    if constexpr (Mode == attention_output_mode::merged) {
        finish_attention(scope, out, softmax, sinks, at.head, here);
        float* const lse2 = outputs.lse2.at(at.batch, at.head, at.row);
        row_values_of<Accumulator> before;
        load(scope, before, lse2, at.valid_rows, minus_infinity, here);
        const auto both = merge_lse_rows(scope, softmax.lse2(scope, here), before, here);
        combine_with_rows(scope, out, both.first, functional::multiply{}, here);
        for_each_16_columns<Columns>([&](auto first) {
            register_tile<float, Accumulator::rows, 16, Scope> old;
            load(scope, old, place.from(0, first), 0.0f, here);
            // A weight of zero hides uninitialised memory, even NaN.
            combine_with_rows(
                scope, old, both.second, [](float x, float weight) { return weight == 0 ? 0.0f : x * weight; }, here);
            combine(scope, old, columns_16_of<first>(scope, out, here), functional::add{}, here);
            store(scope, place.from(0, first), old, here);
        });
        store(scope, lse2, at.valid_rows, both.lse2, here);
    }
}

// The output of queries that see no key: zeros, with an LSE of -infinity or that of the sink alone. The mode `merged`
// merges it like any other.
template <attention_output_mode Mode, int Columns, class In, class Scope, class Softmax>
IMBREX_KERNEL void store_empty_output(const Scope& scope, const attention_aux_outputs& outputs,
                                      const attention_view<In>& normalised, const attention_output_coord& at,
                                      Softmax nothing, const float* sinks, source here = source::current()) {
    // Rows behind this scope's belong to others.
    const int own = at.valid_rows < Softmax::rows ? at.valid_rows : Softmax::rows;
    const auto fill_values = [&](const attention_row_view& rows, float value) {
        if (rows.pointer == nullptr) return;
        fill(scope, global_tile<float>{rows.at(at.batch, at.head, at.row), own, 1, own}, value, here);
    };
    const auto fill_rows = [&](auto place, auto value) {
        place.rows = own;
        fill(scope, place, value, here);
    };
    if constexpr (Mode == attention_output_mode::merged) {
        register_tile<float, Softmax::rows, 16, Scope> zeros;
        fill(scope, zeros, 0.0f, here);
        store_output<Mode, Columns>(scope, outputs, normalised, at, zeros, nothing, sinks, here);
    } else if constexpr (Mode == attention_output_mode::partial) {
        fill_rows(outputs.o_accum.at(at.batch, at.head, at.row, 0), 0.0f);
        fill_values(outputs.row_max, minus_infinity);
        fill_values(outputs.row_sum, 0.0f);
    } else {
        fill_rows(normalised.at(at.batch, at.head, at.row, 0), In(0.0f));
        fill_values(outputs.lse2, sinks == nullptr ? minus_infinity : sinks[at.head] * log2_of_e);
    }
}

}  // namespace imbrex
