// The output accumulator of 8-bit attention. The tensor cores sum 8-bit products with about 14 bits, so a long sum of
// P V in them loses accuracy:
//
//   fp8_accumulation::fast       one accumulator for all key tiles, in the tensor cores
//   fp8_accumulation::promoted   each key tile has an accumulator of its own, which is added to the output in fp32
//                                together with the rescaling of the online softmax: one FFMA per element
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/accumulator_order.hpp>
#include <imbrex/tile/register_tile.hpp>

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

}  // namespace imbrex
