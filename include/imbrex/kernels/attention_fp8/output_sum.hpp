// The output accumulator of 8-bit attention. The tensor cores sum 8-bit products with about 14 bits, so a long sum of
// P V in them loses accuracy:
//
//   fp8_accumulation::fast       one accumulator for all key tiles, in the tensor cores
//   fp8_accumulation::promoted   each key tile has an accumulator of its own, which is added to the output in fp32
//                                together with the rescaling of the online softmax: one FFMA per element. Or one
//                                accumulator for a few key tiles, which is then added to sums in shared memory
//                                (attention_shared_output_sum): its registers suffice for wider key tiles
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/accumulator_order.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

enum class fp8_accumulation { promoted, fast };

// P V is issued by `begin` and ends with the last of `parts` calls of advance<0>, advance<1>, ...: a promoted product
// may be computed by columns, one part after the other in the same registers. `rescale` gets the factors of the rows
// that P V of the next key tile needs.
template <fp8_accumulation How, int Rows, int Columns, int ProductColumns, bool RescaleWithoutVote>
class attention_output_sum;

template <int Rows, int Columns, int ProductColumns, bool RescaleWithoutVote>
class attention_output_sum<fp8_accumulation::fast, Rows, Columns, ProductColumns, RescaleWithoutVote> {
  public:
    using row_factors = row_values<float, Rows, warpgroup>;
    static constexpr int parts = 1;

    IMBREX_KERNEL void clear(const warpgroup& self) { fill(self, out, 0.0f); }
    template <class P, class V>
    IMBREX_KERNEL void begin(const warpgroup& self, const P& p, const V& v) {
        mma_abt_async(self, out, p, v);
    }
    template <int Part, class P, class V>
    IMBREX_KERNEL void advance(const warpgroup& self, const P&, const V&) {
        wait_mma(self, out);
    }
    IMBREX_KERNEL void rescale(const warpgroup& self, const row_factors& factors) {
        if constexpr (RescaleWithoutVote) {
            combine_with_rows(self, out, factors, functional::multiply{});
        } else {
            rescale_rows(self, out, factors);
        }
    }

    warpgroup_tile<float, Rows, Columns> out;
};

template <int Rows, int Columns, int ProductColumns, bool RescaleWithoutVote>
class attention_output_sum<fp8_accumulation::promoted, Rows, Columns, ProductColumns, RescaleWithoutVote> {
  public:
    using row_factors = row_values<float, Rows, warpgroup>;
    static_assert(Columns % ProductColumns == 0, "imbrex: the parts of a promoted product must have equal columns");
    static constexpr int parts = Columns / ProductColumns;

    IMBREX_KERNEL void clear(const warpgroup& self) {
        fill(self, out, 0.0f);
        fill(self, pending_, 1.0f);
    }
    template <class P, class V>
    IMBREX_KERNEL void begin(const warpgroup& self, const P& p, const V& v) {
        mma_abt_columns_async<0>(self, product_, p, v, accumulation::replace);
    }
    template <int Part, class P, class V>
    IMBREX_KERNEL void advance(const warpgroup& self, const P& p, const V& v) {
        wait_mma(self, product_);
        combine_columns_with_rows<Part * ProductColumns>(
            self, out, product_, pending_,
            [](float sum, float product, float factor) { return hw::fma(sum, factor, product); });
        if constexpr (Part + 1 < parts) {
            mma_abt_columns_async<(Part + 1) * ProductColumns>(self, product_, p, v, accumulation::replace);
        }
    }
    IMBREX_KERNEL void rescale(const warpgroup&, const row_factors& factors) { pending_ = factors; }

    warpgroup_tile<float, Rows, Columns> out;

  private:
    warpgroup_tile<float, Rows, ProductColumns> product_;
    row_factors pending_;  // of `out`, for the sum with the next product
};

// fp32 sums of a consumer warpgroup in shared memory, and the references (softmax.hpp) and scales of V of their rows.
template <int Rows, int Columns>
struct attention_shared_sums {
    shared_tile<float, Rows, Columns> out;
    shared_vector<float, Rows> references;
    shared_vector<float, Rows> v_scales;
};

// Promoted in shared memory: `promote` adds `out` to the sums, `finish` the sums to `out`. What would take registers in
// the main loop is in shared memory or derived from the number of key tiles.
template <int Rows, int Columns, bool RescaleWithoutVote, bool ScalesByBlock>
class attention_shared_output_sum
    : public attention_output_sum<fp8_accumulation::fast, Rows, Columns, Columns, RescaleWithoutVote> {
    using base = attention_output_sum<fp8_accumulation::fast, Rows, Columns, Columns, RescaleWithoutVote>;

  public:
    using typename base::row_factors;
    using sums_type = attention_shared_sums<Rows, Columns>;

    // `first`: there are no sums yet.
    template <class Softmax>
    IMBREX_KERNEL void promote(const warpgroup& self, sums_type& sums, const Softmax& softmax, bool first) {
        if (!first) finish(self, sums, softmax);
        for_each_part([&](auto column) {
            store(self, sums.out.template subtile<Rows, part_columns>(0, column),
                  imbrex::columns_of<column, part_columns>(self, base::out));
        });
        self.sync();
        store(self, sums.references, softmax.references());
        if constexpr (ScalesByBlock) store(self, sums.v_scales, v_scales_of(self, softmax));
        base::clear(self);
    }
    template <class Softmax>
    IMBREX_KERNEL void finish(const warpgroup& self, const sums_type& sums, const Softmax& softmax) {
        self.sync();
        row_factors factors;
        load(self, factors, sums.references);
        combine(self, factors, softmax.references(), [](float then, float now) { return hw::exp2(then - now); });
        if constexpr (ScalesByBlock) {
            row_factors v_scales;
            load(self, v_scales, sums.v_scales);
            combine(self, v_scales, v_scales_of(self, softmax),
                    [](float then, float now) { return then * hw::reciprocal(now); });
            combine(self, factors, v_scales, functional::multiply{});
        }
        for_each_part([&](auto column) {
            warpgroup_tile<float, Rows, part_columns> before;
            load(self, before, sums.out.template subtile<Rows, part_columns>(0, column));
            combine_columns_with_rows<column>(
                self, base::out, before, factors,
                [](float sum, float earlier, float factor) { return hw::fma(earlier, factor, sum); });
        });
    }

  private:
    static constexpr int part_columns = 16;

    template <class Softmax>
    IMBREX_KERNEL static row_factors v_scales_of(const warpgroup& self, const Softmax& softmax) {
        row_factors scales;
        fill(self, scales, softmax.v_scale);
        return scales;
    }
    template <class Function>
    IMBREX_KERNEL static void for_each_part(Function function) {
        [&]<int... Parts>(std::integer_sequence<int, Parts...>) {
            (function(std::integral_constant<int, Parts * part_columns>{}), ...);
        }
        (std::make_integer_sequence<int, Columns / part_columns>{});
    }
};

}  // namespace imbrex
