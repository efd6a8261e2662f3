// What a warp does with some keys and values in shared memory, where few rows of queries share them: what paged_decode/attend.hpp
// does, with the products turned round. A matrix instruction has sixteen rows and eight columns; keys and then the columns of
// values are its rows here, and the rows of queries, of which there are often four or eight, its columns, so that half of it is not
// empty:
//
//     scores    keys x queries     =    K Q^T
//     sums      columns x queries  +=   V^T P^T          P^T is the scores' registers, turned round
//
// Keys and values go to registers as they are stored, and their place in shared memory is given back before they are multiplied
// with: copies of the next ones are on their way meanwhile. Those of 8 bits become fp16 there. Queries that are bf16 become so too,
// by a power of two for each row which its scores are multiplied with again: nothing is lost by that that a float would keep.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/paged_decode/attend.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/kernels/paged_decode/scaling.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/register/softmax_down.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/narrow.hpp>
#include <imbrex/ops/warp/turn.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

// The largest magnitude of each row.
template <class In, int Columns>
IMBREX_KERNEL row_values<float, decode_slice, warp> largest_magnitudes(
    const warp& self, const warp_tile<In, decode_slice, Columns>& tile) {
    row_values<float, decode_slice, warp> result;
    warp_tile<float, decode_slice, Columns> wide = to<float>(self, tile);
    map(self, wide, [](float x) { return hw::max(x, -x); });
    reduce_rows(self, result, wide, maximum{}, 0.0f);
    return result;
}

// Queries in shared memory, sixteen columns at a time by whoever brings them: in the order of the keys that they are multiplied
// with, and with each row's largest magnitude there.
template <class In, int Depth, class Cache>
struct turned_queries {
    static constexpr int parts = Depth / 16;
    static constexpr bool fitted = !std::is_same_v<In, multiplied_as<Cache>>;  // to what they are multiplied as
    shared_tile<In, decode_slice, Depth> tile;
    shared_vector<float, decode_slice> largest[fitted ? parts : 1];

    IMBREX_KERNEL void store(const warp& self, const warp_tile<In, decode_slice, 16>& part, int, int column) {
        imbrex::store(self, tile.template part<decode_slice, 16>(0, column), in_order_beside<Cache>(self, part));
        if constexpr (fitted) imbrex::store(self, largest[column / 16], largest_magnitudes(self, part));
    }
    // Of all columns.
    IMBREX_KERNEL row_values<float, decode_slice, warp> largest_of_all(const warp& self) const {
        row_values<float, decode_slice, warp> result;
        fill(self, result, 0.0f);
        if constexpr (fitted) {
            for_each_constant<parts>([&](auto number) {
                row_values<float, decode_slice, warp> more;
                load(self, more, largest[number]);
                combine(self, result, more, maximum{});
            });
        }
        return result;
    }
};

template <class In, int Depth, int Keys, class Cache, int Queries>
class decode_attention_turned {
  public:
    static_assert(Queries == 8 || Queries == 16, "imbrex: eight or sixteen rows of queries are attended to");
    using key_tile = shared_tile<Cache, Keys, Depth>;
    using query_tile = shared_tile<In, decode_slice, Depth>;
    using multiplied = multiplied_as<Cache>;
    using weights = warp_tile<multiplied, decode_slice, Keys>;

    // Queries as turned_queries has them, and each row's largest magnitude.
    IMBREX_KERNEL decode_attention_turned(const warp& self, const query_tile& queries,
                                          const row_values<float, decode_slice, warp>& largest, float scale)
        : queries_(&queries), softmax_(self, scale) {
        fill(self, sums_, 0.0f);
        if constexpr (fitted) {
            fitting_ = largest;
            map(self, fitting_, [](float x) { return unit_for(x); });
            units_ = turned_rows<Queries>(self, fitting_);
            map(self, fitting_, [](float unit) { return one_over(unit); });
        }
        if constexpr (queries_stay) {
            for_each_constant<parts>([&](auto number) { asked_[number] = query_part(self, number); });
        }
    }

    // Keys from this one of the sequence on, up to the last that there is. The values behind that are numbers. `held` is what keys and
    // values are in, and is given back.
    template <class Held, class Mask, class Score>
    IMBREX_KERNEL void attend(const warp& self, Held& held, const decode_rows& own, int first_key, int end_key,
                              const Mask& mask, const Score& score, float scale, const decode_scales<Keys>& scales) {
        warp_tile<float, Keys, Queries> s;
        fill(self, s, 0.0f);
        // All at once, if they are given back, or some columns at a time, for which there are registers.
        constexpr int width = stay ? Depth : 32;
        for_each_constant<Depth / width>([&](auto part) {
            stored_rows<Cache, Keys, width> k;
            k.load(self, held->k.template part<Keys, width>(0, part * width));
            for_each_constant<width / 16>([&](auto number) {
                constexpr int of_depth = part * (width / 16) + number;
                if constexpr (queries_stay) {
                    mma_abt(self, s, k.part(self, number), asked_[of_depth]);
                } else {
                    mma_abt(self, s, k.part(self, number), query_part(self, of_depth));
                }
            });
        });
        stored_across<Cache, stay ? Keys : 16, Depth> v;
        if constexpr (stay) {
            v.load(self, held->v);
            held.release();
        }
        if constexpr (fitted) combine_with_columns(self, s, units_, multiply{});
        if (scales.given) scale_sixteen_rows(self, s, [&](int number) { return scales.k[number]; });
        judge_rows<rows_lie::across>(self, s, own, first_key, end_key, mask, score, scale);
        softmax_.weigh(self, s, [&](const auto& factors) { combine_with_columns(self, sums_, factors, multiply{}); });
        if (scales.given) {
            if (scales.before != 1.0f) map(self, sums_, [&](float x) { return x * scales.before; });
            scale_sixteen_rows(self, s, [&](int number) { return scales.v[number]; });
        }
        const weights p = turned(self, to<multiplied>(self, s));
        for_each_constant<Keys / 16>([&](auto number) {
            if constexpr (stay) {
                mma_atbt(self, sums_, v.part(self, number), columns_of<number * 16, 16>(self, p));
            } else {
                v.load(self, held->v.template part<16, Depth>(number * 16));
                mma_atbt(self, sums_, v.part(self, 0), columns_of<number * 16, 16>(self, p));
            }
        });
    }

    // When all keys have been seen: the sums by rows, times what all values are to be multiplied with; some columns of them, and what
    // they are relative to.
    template <int Parts, int Width>
    IMBREX_KERNEL void finish(const warp& self, decode_result<Parts, Width>& to, float factor) const {
        static_assert(Parts * Width == Depth, "imbrex: a result has as many columns as values have");
        const warp_tile<float, decode_slice, Depth> all = turned_in_order<Cache>(self, sums_);
        for_each_constant<Parts>([&](auto part) {
            to.sums[part] = columns_of<part * Width, Width>(self, all);
            if constexpr (sizeof(Cache) == 1) map(self, to.sums[part], [&](float x) { return x * factor; });
        });
        to.largest = turned(self, softmax_.largest_log2(self));
        to.total = turned(self, softmax_.finished_sums(self));
    }

  private:
    static constexpr int parts = Depth / 16;
    static constexpr bool fitted = turned_queries<In, Depth, Cache>::fitted;
    // In registers, if there are enough of them: the queries of a piece, and the keys and values of a stage.
    static constexpr bool queries_stay = Depth * Queries <= 128 * 8;
    static constexpr bool stay = Queries == 8;

    // A power of two with which the largest of fp16's numbers, but for a factor of two, becomes a row's largest.
    IMBREX_KERNEL static float unit_for(float largest) {
        const float power = __builtin_bit_cast(float, __builtin_bit_cast(unsigned, largest) & 0x7f800000U);
        return hw::min(hw::max(power, 0x1p-100f), 0x1p+127f) * 0x1p-14f;
    }
    static IMBREX_FN float one_over(float power_of_two) {
        return __builtin_bit_cast(float, 0x7f000000U - __builtin_bit_cast(unsigned, power_of_two));
    }
    IMBREX_KERNEL warp_tile<multiplied, decode_slice, 16> query_part(const warp& self, int number) const {
        warp_tile<In, decode_slice, 16> one;
        load_operand<side::right>(self, one, queries_->template part<decode_slice, 16>(0, number * 16));
        if constexpr (fitted) {
            warp_tile<float, decode_slice, 16> wide = to<float>(self, one);
            combine_with_rows(self, wide, fitting_, multiply{});
            return to<multiplied>(self, wide);
        } else {
            return one;
        }
    }

    const query_tile* queries_;
    warp_tile<multiplied, decode_slice, 16> asked_[queries_stay ? parts : 1];
    warp_tile<float, Depth, Queries> sums_;
    online_softmax_down<Queries> softmax_;
    column_values<float, Queries> units_;            // of what scores are in
    row_values<float, decode_slice, warp> fitting_;  // what queries are multiplied with
};

}  // namespace imbrex
