// What a warp does with some keys and values in shared memory: multiplies its 16 rows of queries with the keys, weighs, and adds the
// weighted values to its sums. No other warp is asked.
//
// Keys and values of 8 bits become 16-bit floats between shared memory and registers, where their values are exact. What they are to be
// multiplied with is kept out of it as long as it is the same for all of them; scales that differ from page to page go to
// scores and weights.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/kernels/paged_decode/scaling.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/widened.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// function(constant) for 0 up to Count.
template <int Count, class Function>
IMBREX_KERNEL void for_each_constant(const Function& function) {
    [&]<int... Numbers>(std::integer_sequence<int, Numbers...>) {
        (function(std::integral_constant<int, Numbers>{}), ...);
    }
    (std::make_integer_sequence<int, Count>{});
}

// What a warp has found out of its rows: sums, some columns at a time, with each row's largest score and the sum of its weights.
template <int Parts, int Width>
struct decode_result {
    warp_tile<float, decode_slice, Width> sums[Parts];
    row_values<float, decode_slice, warp> largest;
    row_values<float, decode_slice, warp> total;
};

// Queries in shared memory, as decode_attention takes them, sixteen columns at a time by whoever brings them.
template <class In, int Rows, int Depth, class Cache>
struct plain_queries {
    shared_tile<In, Rows, Depth> tile;

    IMBREX_KERNEL void store(const warp& self, const warp_tile<In, decode_slice, 16>& part, int row, int column) {
        imbrex::store(self, tile.template part<decode_slice, 16>(row, column), in_order_for<Cache>(self, part));
    }
};

template <class In, int Depth, int Keys, class Cache = In>
class decode_attention {
  public:
    static constexpr int rows = decode_slice;
    // Columns of a part of the sums: few where these take up most of the registers.
    static constexpr int part_width = Depth % 64 == 0 && Depth < 256 ? 64 : 32;
    static constexpr int parts = Depth / part_width;
    using key_tile = shared_tile<Cache, Keys, Depth>;
    using query_tile_part = tile_for<In, Cache, rows, rows>;  // as queries lie in shared memory
    // Of weights, which are at most 1, and of the values that they are multiplied with, where these have to be converted anyway:
    // that takes the fewest instructions, and has more digits than bf16.
    using weight = std::conditional_t<sizeof(Cache) == 1, fp16, In>;
    static_assert(widening_unit<Cache, weight> == 1.0f, "imbrex: nobody takes up a unit of the values");

    IMBREX_KERNEL decode_attention(const warp& self, float scale) : softmax_(self, scale) {
        for (auto& part : collected_) fill(self, any_order(part), 0.0f);
    }

    // Keys from this one of the sequence on, up to the last that there is. The values behind that are numbers.
    template <int QueryRows, class Mask, class Score>
    IMBREX_KERNEL void attend(const warp& self, const shared_tile<In, QueryRows, Depth>& queries, int first_row,
                              const key_tile& k, const key_tile& v, const decode_rows& own, int first_key, int end_key,
                              const Mask& mask, const Score& score, float scale,
                              const decode_scales<Keys>& scales = {}) {
        warp_tile<float, rows, Keys> s;
        fill(self, s, 0.0f);
        for_each_constant<Depth / rows>([&](auto number) {
            query_tile_part q;
            tile_for<In, Cache, Keys, rows> keys;
            load_operand<side::left>(self, q, queries.template part<rows, rows>(first_row, number * rows));
            load_operand<side::right>(self, keys, k.template part<Keys, rows>(0, number * rows));
            mma_abt(self, s, q, keys);
        });
        if (scales.given) scale_sixteens(self, s, [&](int number) { return scales.k[number]; });
        judge_rows(self, s, own, first_key, end_key, mask, score, scale);
        softmax_.weigh(self, s, [&](const auto& factors) {
            for (auto& part : collected_) combine_with_rows(self, any_order(part), factors, multiply{});
        });
        if (scales.given) {
            if (scales.before != 1.0f) rescale(self, scales.before);
            scale_sixteens(self, s, [&](int number) { return scales.v[number]; });
        }
        const warp_tile<weight, rows, Keys> p = to<weight>(self, s);
        for_each_constant<Keys / rows>([&](auto number) {
            for_each_constant<parts>([&](auto part) {
                tile_for<weight, Cache, rows, part_width, order::columns> values;
                load_operand<side::right>(self, values,
                                          v.template part<rows, part_width>(number * rows, part * part_width));
                mma_ab(self, collected_[part], columns_of<number * rows, rows>(self, p), values);
            });
        });
    }

    // When all keys have been seen: the sums, times what all values are to be multiplied with.
    using result = decode_result<parts, part_width>;
    IMBREX_KERNEL void finish(const warp& self, result& to, float factor = 1.0f) {
        softmax_.finish_sums(self);
        for_each_constant<parts>([&](auto part) {
            to.sums[part] = in_order(self, collected_[part]);
            if constexpr (sizeof(Cache) == 1) map(self, to.sums[part], [&](float x) { return x * factor; });
        });
        to.largest = softmax_.largest_log2(self);
        to.total = softmax_.sums();
    }

  private:
    IMBREX_KERNEL void rescale(const warp& self, float factor) {
        for (auto& part : collected_) map(self, any_order(part), [&](float x) { return x * factor; });
    }

    online_softmax<rows, warp> softmax_;
    tile_for<float, Cache, rows, part_width> collected_[parts];
};

}  // namespace imbrex
