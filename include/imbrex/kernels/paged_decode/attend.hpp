// One warp's attention to one K/V tile in shared memory: S = Q K^T with 16 packed GQA rows, online softmax, O += P V.
// The warp does not synchronise with other warps. The interface is that of consumer_interface.hpp.
//
// 8-bit keys and values are upconverted to 16-bit floats between shared memory and registers, which is exact. Scales
// that are the same for all pages are applied to the result; scales per page are applied to scores and probabilities.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/paged_decode/kv_scaling.hpp>
#include <imbrex/kernels/paged_decode/merge_splits.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/permuted_tile.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// Partial result of a warp: unnormalised O in tiles of some columns, row_max and row_sum.
template <int AccTiles, int Width>
struct decode_result {
    warp_tile<float, decode_slice_rows, Width> acc_o[AccTiles];
    row_values<float, decode_slice_rows, warp> row_max;
    row_values<float, decode_slice_rows, warp> row_sum;
};

// Queries in shared memory in the order that decode_attention reads, stored 16 columns at a time.
template <class In, int Rows, int HeadDim, class Cache>
struct shared_queries {
    // The 16 packed rows of a warp.
    struct query_rows {
        const shared_tile<In, Rows, HeadDim>& tile;
        int first_row = 0;
    };

    shared_tile<In, Rows, HeadDim> tile;

    IMBREX_KERNEL void store(const warp& self, const warp_tile<In, decode_slice_rows, 16>& columns16, int row,
                             int column) {
        imbrex::store(self, tile.template subtile<decode_slice_rows, 16>(row, column),
                      permute_for<Cache>(self, columns16));
    }
    IMBREX_KERNEL query_rows rows_from(const warp&, int first_row) const { return {tile, first_row}; }
};

template <class In, int HeadDim, int BlockN, class Cache = In, int QueryRows = decode_slice_rows>
class decode_attention {
  public:
    static constexpr int block_m = decode_slice_rows;
    // Columns of an accumulator tile: fewer where the accumulators take most of the registers.
    static constexpr int acc_tile_width = HeadDim % 64 == 0 && HeadDim < 256 ? 64 : 32;
    static constexpr int acc_tiles = HeadDim / acc_tile_width;
    using key_tile = shared_tile<Cache, BlockN, HeadDim>;
    using query_rows = typename shared_queries<In, QueryRows, HeadDim, Cache>::query_rows;
    using query_operand = operand_tile_for<In, Cache, block_m, block_m>;  // as queries are permuted in shared memory
    // Type of P, and of V where it is upconverted anyway: fp16 takes the fewest instructions and has more mantissa bits
    // than bf16; P is at most 1.
    using probability = std::conditional_t<sizeof(Cache) == 1, fp16, In>;
    static_assert(upconversion_postscale<Cache, probability> == 1.0f,
                  "imbrex: the upconverted values need a postscale, which is not applied");

    IMBREX_KERNEL decode_attention(const warp& self, const query_rows&, float scale) : softmax_(self, scale) {
        for (auto& acc_tile : acc_o_) fill(self, underlying_tile(acc_tile), 0.0f);
    }

    template <class Held, class Mask, class Score>
    IMBREX_KERNEL void attend(const warp& self, const query_rows& queries, Held& held, const gqa_rows& own,
                              int first_key, int end_key, const Mask& mask, const Score& score, float scale,
                              const stage_kv_scales<BlockN>& scales) {
        const key_tile& k = held->k;
        const key_tile& v = held->v;
        warp_tile<float, block_m, BlockN> s;
        fill(self, s, 0.0f);
        static_for<HeadDim / block_m>([&](auto number) {
            query_operand q;
            operand_tile_for<In, Cache, BlockN, block_m> keys;
            load_operand<mma_operand::a>(
                self, q, queries.tile.template subtile<block_m, block_m>(queries.first_row, number * block_m));
            load_operand<mma_operand::b>(self, keys, k.template subtile<BlockN, block_m>(0, number * block_m));
            mma_abt(self, s, q, keys);
        });
        if (scales.given) scale_16_columns(self, s, [&](int number) { return scales.k[number]; });
        apply_score_mod_and_mask_gqa(self, s, own, first_key, end_key, mask, score, scale);
        softmax_.exp_and_sum(self, s, [&](const auto& factors) {
            for (auto& acc_tile : acc_o_)
                combine_with_rows(self, underlying_tile(acc_tile), factors, functional::multiply{});
        });
        if (scales.given) {
            if (scales.before != 1.0f) rescale(self, scales.before);
            scale_16_columns(self, s, [&](int number) { return scales.v[number]; });
        }
        const warp_tile<probability, block_m, BlockN> p = convert_to<probability>(self, s);
        static_for<BlockN / block_m>([&](auto number) {
            static_for<acc_tiles>([&](auto acc_tile) {
                operand_tile_for<probability, Cache, block_m, acc_tile_width, register_layout::column_major> values;
                load_operand<mma_operand::b>(
                    self, values,
                    v.template subtile<block_m, acc_tile_width>(number * block_m, acc_tile * acc_tile_width));
                mma_ab(self, acc_o_[acc_tile], columns_of<number * block_m, block_m>(self, p), values);
            });
        });
    }

    using result = decode_result<acc_tiles, acc_tile_width>;
    IMBREX_KERNEL void finish(const warp& self, result& to, float factor) {
        softmax_.finish_row_sum(self);
        static_for<acc_tiles>([&](auto acc_tile) {
            to.acc_o[acc_tile] = unpermute(self, acc_o_[acc_tile]);
            if constexpr (sizeof(Cache) == 1) map(self, to.acc_o[acc_tile], [&](float x) { return x * factor; });
        });
        to.row_max = softmax_.row_max_log2(self);
        to.row_sum = softmax_.row_sum();
    }

  private:
    IMBREX_KERNEL void rescale(const warp& self, float factor) {
        for (auto& acc_tile : acc_o_) map(self, underlying_tile(acc_tile), [&](float x) { return x * factor; });
    }

    online_softmax<block_m, warp> softmax_;
    operand_tile_for<float, Cache, block_m, acc_tile_width> acc_o_[acc_tiles];
};

}  // namespace imbrex
