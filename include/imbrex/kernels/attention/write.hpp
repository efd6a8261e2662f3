// The last steps of an attention, whatever made its sums: the division, with a sink if there is one, and results that leave
// straight from registers.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// Where a scope's rows go: which member of the tensors' batch, which head, from which row on, and how many of them exist.
struct attention_place {
    int batch;
    int head;
    int row;
    int exist;
};

// `sinks`: a logit for each head that takes up weight, or null.
template <class Scope, class Sums, class Softmax>
IMBREX_KERNEL void finish_attention(const Scope& scope, Sums& out, Softmax& softmax, const float* sinks, int head,
                                    source here = source::current()) {
    if (sinks != nullptr) {
        softmax.finish_with_sink(scope, out, sinks[head] * log2_of_e, here);
    } else {
        softmax.finish(scope, out, here);
    }
}

template <class Scope, class Softmax>
IMBREX_KERNEL void write_log2_sums(const Scope& scope, const attention_outputs& outputs, const attention_place& at,
                                   const Softmax& softmax, source here = source::current()) {
    if (outputs.log2_sums.pointer == nullptr) return;
    store(scope, outputs.log2_sums.at(at.batch, at.head, at.row), at.exist, softmax.log2_sum(scope, here), here);
}

// Sixteen columns of a result at a time, so that registers are left. `piece(n)` gives the n-th sixteen.
template <int Columns, class Function>
IMBREX_KERNEL void in_pieces(Function function) {
    [&]<int... Pieces>(std::integer_sequence<int, Pieces...>) {
        (function(std::integral_constant<int, Pieces * 16>{}), ...);
    }
    (std::make_integer_sequence<int, Columns / 16>{});
}

// Columns of a result; of one that has only sixteen, which stand for all the others, always these.
template <int First, class Scope, class Sums>
IMBREX_KERNEL auto piece_of(const Scope& scope, const Sums& out, source here) {
    return imbrex::columns_of < Sums::columns == 16 ? 0 : First, 16 > (scope, out, here);
}

// The result straight from registers: divided by its sums, partial, or merged into what other keys have given before. It has
// as many columns as are asked for, or sixteen that are all alike.
template <attention_result Result, int Columns, class In, class Scope, class Sums, class Softmax>
IMBREX_KERNEL void write_rows(const Scope& scope, const attention_outputs& outputs,
                              const attention_view<In>& normalised, const attention_place& at, Sums& out,
                              Softmax& softmax, const float* sinks, source here = source::current()) {
    if constexpr (Result == attention_result::normalised) {
        finish_attention(scope, out, softmax, sinks, at.head, here);
        write_log2_sums(scope, outputs, at, softmax, here);
        global_tile<In> place = normalised.at(at.batch, at.head, at.row, 0);
        place.rows = at.exist;
        in_pieces<Columns>([&](auto first) {
            store(scope, place.from(0, first), to<In>(scope, piece_of<first>(scope, out, here), here), here);
        });
        return;
    }
    global_tile<float> place = outputs.wide.at(at.batch, at.head, at.row, 0);
    place.rows = at.exist;
    if constexpr (Result == attention_result::partial) {
        softmax.finish_sums(scope, here);
        store(scope, outputs.largest.at(at.batch, at.head, at.row), at.exist, softmax.largest_log2(scope, here), here);
        store(scope, outputs.sums.at(at.batch, at.head, at.row), at.exist, softmax.sums(), here);
        in_pieces<Columns>(
            [&](auto first) { store(scope, place.from(0, first), piece_of<first>(scope, out, here), here); });
    }
    if constexpr (Result == attention_result::merged) {
        finish_attention(scope, out, softmax, sinks, at.head, here);
        float* const log2_sums = outputs.log2_sums.at(at.batch, at.head, at.row);
        row_values_of<Sums> before;
        load(scope, before, log2_sums, at.exist, minus_infinity, here);
        const auto both = merge_rows(scope, softmax.log2_sum(scope, here), before, here);
        combine_with_rows(scope, out, both.first, multiply{}, here);
        in_pieces<Columns>([&](auto first) {
            register_tile<float, Sums::rows, 16, Scope> old;
            load(scope, old, place.from(0, first), 0.0f, here);
            // What has no weight may be anything.
            combine_with_rows(
                scope, old, both.second, [](float x, float weight) { return weight == 0 ? 0.0f : x * weight; }, here);
            combine(scope, old, piece_of<first>(scope, out, here), add{}, here);
            store(scope, place.from(0, first), old, here);
        });
        store(scope, log2_sums, at.exist, both.log2_sum, here);
    }
}

// What queries get that see no key: zeros, and no sum or the sink's alone. Only where something is there already it is merged as
// any other result.
template <attention_result Result, int Columns, class In, class Scope, class Softmax>
IMBREX_KERNEL void write_nothing(const Scope& scope, const attention_outputs& outputs,
                                 const attention_view<In>& normalised, const attention_place& at, Softmax nothing,
                                 const float* sinks, source here = source::current()) {
    // Those behind the scope's own are others'.
    const int own = at.exist < Softmax::rows ? at.exist : Softmax::rows;
    const auto fill_values = [&](const attention_rows& rows, float value) {
        if (rows.pointer == nullptr) return;
        fill(scope, global_tile<float>{rows.at(at.batch, at.head, at.row), own, 1, own}, value, here);
    };
    const auto fill_rows = [&](auto place, auto value) {
        place.rows = own;
        fill(scope, place, value, here);
    };
    if constexpr (Result == attention_result::merged) {
        register_tile<float, Softmax::rows, 16, Scope> zeros;
        fill(scope, zeros, 0.0f, here);
        write_rows<Result, Columns>(scope, outputs, normalised, at, zeros, nothing, sinks, here);
    } else if constexpr (Result == attention_result::partial) {
        fill_rows(outputs.wide.at(at.batch, at.head, at.row, 0), 0.0f);
        fill_values(outputs.largest, minus_infinity);
        fill_values(outputs.sums, 0.0f);
    } else {
        fill_rows(normalised.at(at.batch, at.head, at.row, 0), In(0.0f));
        fill_values(outputs.log2_sums, sinks == nullptr ? minus_infinity : sinks[at.head] * log2_of_e);
    }
}

}  // namespace imbrex
