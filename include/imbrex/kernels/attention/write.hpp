// The last steps of an attention, whatever made its sums: the division, with a sink if there is one, and results in fp32, which
// leave straight from registers.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/ops/memory/load_store.hpp>
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

// Columns of what is there already, times a weight for each row, added to the same columns of a result and stored. In pieces, so
// that registers are left.
template <int Columns, int... Pieces, class Scope, class Sums, class Weights>
IMBREX_KERNEL void add_to_wide(const Scope& scope, const global_tile<float>& there, const Sums& out,
                               const Weights& weights, std::integer_sequence<int, Pieces...>, source here) {
    const auto add_piece = [&](auto piece) {
        register_tile<float, Sums::rows, Columns, Scope> old;
        const global_tile<float> place = there.from(0, decltype(piece)::value * Columns);
        load(scope, old, place, 0.0f, here);
        // What has no weight may be anything.
        combine_with_rows(
            scope, old, weights, [](float x, float weight) { return weight > 0 ? x * weight : 0; }, here);
        combine(scope, old, imbrex::columns_of<decltype(piece)::value * Columns, Columns>(scope, out, here), add{},
                here);
        store(scope, place, old, here);
    };
    (add_piece(std::integral_constant<int, Pieces>{}), ...);
}

// A partial result, or one merged into what other keys have given before.
template <attention_result Result, class Scope, class Sums, class Softmax>
IMBREX_KERNEL void write_wide(const Scope& scope, const attention_outputs& outputs, const attention_place& at,
                              Sums& out, Softmax& softmax, const float* sinks, source here = source::current()) {
    global_tile<float> rows_here = outputs.wide.at(at.batch, at.head, at.row, 0);
    rows_here.rows = at.exist;
    if constexpr (Result == attention_result::partial) {
        softmax.finish_sums(scope, here);
        store(scope, outputs.largest.at(at.batch, at.head, at.row), at.exist, softmax.largest_log2(scope, here), here);
        store(scope, outputs.sums.at(at.batch, at.head, at.row), at.exist, softmax.sums(), here);
        store(scope, rows_here, out, here);
    } else {
        finish_attention(scope, out, softmax, sinks, at.head, here);
        float* const log2_sums = outputs.log2_sums.at(at.batch, at.head, at.row);
        row_values_of<Sums> before;
        load(scope, before, log2_sums, at.exist, minus_infinity, here);
        const auto both = merge_rows(scope, softmax.log2_sum(scope, here), before, here);
        combine_with_rows(scope, out, both.first, multiply{}, here);
        add_to_wide<16>(scope, rows_here, out, both.second, std::make_integer_sequence<int, Sums::columns / 16>{},
                        here);
        store(scope, log2_sums, at.exist, both.log2_sum, here);
    }
}

}  // namespace imbrex
