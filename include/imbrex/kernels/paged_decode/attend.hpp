// What a warp does with some keys and values in shared memory: multiplies its 16 rows of queries with the keys, weighs, and adds the
// weighted values to its sums. No other warp is asked.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

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

template <class In, int Depth, int Keys>
class decode_attention {
  public:
    static constexpr int rows = decode_slice;
    static constexpr int part_width = Depth % 64 == 0 ? 64 : 32;  // columns of a part of the sums
    static constexpr int parts = Depth / part_width;
    using key_tile = shared_tile<In, Keys, Depth>;

    IMBREX_KERNEL decode_attention(const warp& self, float scale) : softmax(self, scale) {
        for (auto& part : sums) fill(self, part, 0.0f);
    }

    // Keys from this one of the sequence on, up to the last that there is. The values behind that are numbers.
    template <int QueryRows, class Mask, class Score>
    IMBREX_KERNEL void attend(const warp& self, const shared_tile<In, QueryRows, Depth>& queries, int first_row,
                              const key_tile& k, const key_tile& v, const decode_rows& own, int first_key, int end_key,
                              const Mask& mask, const Score& score, float scale) {
        warp_tile<float, rows, Keys> s;
        fill(self, s, 0.0f);
        for_each_constant<Depth / rows>([&](auto number) {
            warp_tile<In, rows, rows> q;
            warp_tile<In, Keys, rows> keys;
            load_operand<side::left>(self, q, queries.template part<rows, rows>(first_row, number * rows));
            load_operand<side::right>(self, keys, k.template part<Keys, rows>(0, number * rows));
            mma_abt(self, s, q, keys);
        });
        judge_rows(self, s, own, first_key, end_key, mask, score, scale);
        softmax.weigh(self, s, [&](const auto& factors) {
            for (auto& part : sums) combine_with_rows(self, part, factors, multiply{});
        });
        const warp_tile<In, rows, Keys> p = to<In>(self, s);
        for_each_constant<Keys / rows>([&](auto number) {
            for_each_constant<parts>([&](auto part) {
                warp_tile<In, rows, part_width, order::columns> values;
                load_operand<side::right>(self, values,
                                          v.template part<rows, part_width>(number * rows, part * part_width));
                mma_ab(self, sums[part], columns_of<number * rows, rows>(self, p), values);
            });
        });
    }

    warp_tile<float, rows, part_width> sums[parts];
    online_softmax<rows, warp> softmax;
};

}  // namespace imbrex
