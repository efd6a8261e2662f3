// swap-AB form of one warp's attention to one K/V tile, for 8 or 16 packed GQA rows: the transpose of
// paged_decode/attend.hpp. mma.sync has 16 rows and 8 columns. Keys, and then the columns of V, are its rows, and the
// query rows are its columns. With 4 query rows half of the instruction is padding instead of three quarters:
//
//     S^T   keys x queries        =    K Q^T
//     O^T   columns x queries    +=    V^T P^T          P^T: the registers of S^T, transposed
//
// K and V go to registers as they are stored, and the stage is released before the products, so that the next copies
// are in flight meanwhile. 8-bit elements are upconverted to fp16 in registers. bf16 queries become fp16 as well: each
// row is scaled by a power of two, and its scores are scaled back, so that no bits are lost that a float would keep.
// The interface is that of consumer_interface.hpp.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/paged_decode/attend.hpp>
#include <imbrex/kernels/paged_decode/kv_scaling.hpp>
#include <imbrex/kernels/paged_decode/merge_splits.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/ops/register/column_softmax.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/register_operand.hpp>
#include <imbrex/ops/warp/transpose.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

// Absolute maximum of each row.
template <class In, int Columns>
IMBREX_KERNEL row_values<float, decode_slice_rows, warp> row_abs_max(
    const warp& self, const warp_tile<In, decode_slice_rows, Columns>& tile) {
    row_values<float, decode_slice_rows, warp> result;
    warp_tile<float, decode_slice_rows, Columns> wide = convert_to<float>(self, tile);
    map(self, wide, [](float x) { return hw::max(x, -x); });
    reduce_rows(self, result, wide, functional::maximum{}, 0.0f);
    return result;
}

// Queries in shared memory, permuted as K is and stored 16 columns at a time, with the absolute maximum of each row.
template <class In, int HeadDim, class Cache>
struct swap_ab_queries {
    static constexpr int query_tiles = HeadDim / 16;
    static constexpr bool fitted = !std::is_same_v<In, mma_type_of<Cache>>;  // queries are rescaled to fp16
    struct query_rows {
        const shared_tile<In, decode_slice_rows, HeadDim>& tile;
        row_values<float, decode_slice_rows, warp> abs_max;  // of each row; not read unless `fitted`
    };

    shared_tile<In, decode_slice_rows, HeadDim> tile;
    shared_vector<float, decode_slice_rows> abs_max[fitted ? query_tiles : 1];

    IMBREX_KERNEL void store(const warp& self, const warp_tile<In, decode_slice_rows, 16>& columns16, int, int column) {
        imbrex::store(self, tile.template subtile<decode_slice_rows, 16>(0, column),
                      permute_pairs_for<Cache>(self, columns16));
        if constexpr (fitted) imbrex::store(self, abs_max[column / 16], row_abs_max(self, columns16));
    }
    IMBREX_KERNEL query_rows rows_from(const warp& self, int) const { return {tile, abs_max_of_rows(self)}; }

  private:
    // Over all columns.
    IMBREX_KERNEL row_values<float, decode_slice_rows, warp> abs_max_of_rows(const warp& self) const {
        row_values<float, decode_slice_rows, warp> result;
        fill(self, result, 0.0f);
        if constexpr (fitted) {
            static_for<query_tiles>([&](auto number) {
                row_values<float, decode_slice_rows, warp> more;
                load(self, more, abs_max[number]);
                combine(self, result, more, functional::maximum{});
            });
        }
        return result;
    }
};

template <class In, int HeadDim, int BlockN, class Cache, int Queries>
class decode_attention_swap_ab {
  public:
    static_assert(Queries == 8 || Queries == 16, "imbrex: Queries must be 8 or 16");
    using key_tile = shared_tile<Cache, BlockN, HeadDim>;
    using query_tile = shared_tile<In, decode_slice_rows, HeadDim>;
    using query_rows = typename swap_ab_queries<In, HeadDim, Cache>::query_rows;
    using multiplied = mma_type_of<Cache>;
    using probabilities = warp_tile<multiplied, decode_slice_rows, BlockN>;

    IMBREX_KERNEL decode_attention_swap_ab(const warp& self, const query_rows& queries, float scale)
        : queries_(&queries.tile), softmax_(self, scale) {
        fill(self, acc_o_, 0.0f);
        if constexpr (fitted) {
            fitting_ = queries.abs_max;
            map(self, fitting_, [](float x) { return unit_for(x); });
            units_ = transpose_rows<Queries>(self, fitting_);
            map(self, fitting_, [](float unit) { return one_over(unit); });
        }
        if constexpr (queries_stay) {
            static_for<query_tiles>([&](auto number) { asked_[number] = query_tile_of(self, number); });
        }
    }

    // With up to 8 queries the stage is released as soon as K and V are in registers.
    template <class Held, class Mask, class Score>
    IMBREX_KERNEL void attend(const warp& self, const query_rows&, Held& held, const gqa_rows& own, int first_key,
                              int end_key, const Mask& mask, const Score& score, float scale,
                              const stage_kv_scales<BlockN>& scales) {
        warp_tile<float, BlockN, Queries> s;
        fill(self, s, 0.0f);
        // All columns at once if the stage is released early; otherwise 32 at a time, to save registers.
        constexpr int width = stay ? HeadDim : 32;
        static_for<HeadDim / width>([&](auto tile_idx) {
            register_operand_rows<Cache, BlockN, width> k;
            k.load(self, held->k.template subtile<BlockN, width>(0, tile_idx * width));
            static_for<width / 16>([&](auto number) {
                constexpr int k_tile = tile_idx * (width / 16) + number;
                if constexpr (queries_stay) {
                    mma_abt(self, s, k.part(self, number), asked_[k_tile]);
                } else {
                    mma_abt(self, s, k.part(self, number), query_tile_of(self, k_tile));
                }
            });
        });
        register_operand_columns<Cache, stay ? BlockN : 16, HeadDim> v;
        if constexpr (stay) {
            v.load(self, held->v);
            held.release();
        }
        if constexpr (fitted) combine_with_columns(self, s, units_, functional::multiply{});
        if (scales.given) scale_16_rows(self, s, [&](int number) { return scales.k[number]; });
        apply_score_mod_and_mask_gqa<score_tile_layout::keys_by_queries>(self, s, own, first_key, end_key, mask, score,
                                                                         scale);
        softmax_.exp_and_sum(
            self, s, [&](const auto& factors) { combine_with_columns(self, acc_o_, factors, functional::multiply{}); });
        if (scales.given) {
            if (scales.before != 1.0f) map(self, acc_o_, [&](float x) { return x * scales.before; });
            scale_16_rows(self, s, [&](int number) { return scales.v[number]; });
        }
        const probabilities p = transpose(self, convert_to<multiplied>(self, s));
        static_for<BlockN / 16>([&](auto number) {
            if constexpr (stay) {
                mma_atbt(self, acc_o_, v.part(self, number), columns_of<number * 16, 16>(self, p));
            } else {
                v.load(self, held->v.template subtile<16, HeadDim>(number * 16));
                mma_atbt(self, acc_o_, v.part(self, 0), columns_of<number * 16, 16>(self, p));
            }
        });
    }

    template <int AccTiles, int Width>
    IMBREX_KERNEL void finish(const warp& self, decode_result<AccTiles, Width>& to, float factor) const {
        static_assert(AccTiles * Width == HeadDim, "imbrex: the result must have HeadDim columns");
        const warp_tile<float, decode_slice_rows, HeadDim> all = transpose_unpermuted<Cache>(self, acc_o_);
        static_for<AccTiles>([&](auto tile_idx) {
            to.acc_o[tile_idx] = columns_of<tile_idx * Width, Width>(self, all);
            if constexpr (sizeof(Cache) == 1) map(self, to.acc_o[tile_idx], [&](float x) { return x * factor; });
        });
        to.row_max = transpose(self, softmax_.column_max_log2(self));
        to.row_sum = transpose(self, softmax_.finished_column_sum(self));
    }

  private:
    static constexpr int query_tiles = HeadDim / 16;
    static constexpr bool fitted = swap_ab_queries<In, HeadDim, Cache>::fitted;
    // Kept in registers if they fit: the queries of a split, and K and V of a stage.
    static constexpr bool queries_stay = HeadDim * Queries <= 128 * 8;
    static constexpr bool stay = Queries == 8;

    // The power of two that scales a row's absolute maximum to the top of the fp16 range, with a factor of two to
    // spare.
    IMBREX_KERNEL static float unit_for(float abs_max) {
        const float power = __builtin_bit_cast(float, __builtin_bit_cast(unsigned, abs_max) & 0x7f800000U);
        return hw::min(hw::max(power, 0x1p-100f), 0x1p+127f) * 0x1p-14f;
    }
    static IMBREX_FN float one_over(float power_of_two) {
        return __builtin_bit_cast(float, 0x7f000000U - __builtin_bit_cast(unsigned, power_of_two));
    }
    IMBREX_KERNEL warp_tile<multiplied, decode_slice_rows, 16> query_tile_of(const warp& self, int number) const {
        warp_tile<In, decode_slice_rows, 16> one;
        load_operand<mma_operand::b>(self, one, queries_->template subtile<decode_slice_rows, 16>(0, number * 16));
        if constexpr (fitted) {
            warp_tile<float, decode_slice_rows, 16> wide = convert_to<float>(self, one);
            combine_with_rows(self, wide, fitting_, functional::multiply{});
            return convert_to<multiplied>(self, wide);
        } else {
            return one;
        }
    }

    const query_tile* queries_;
    warp_tile<multiplied, decode_slice_rows, 16> asked_[queries_stay ? query_tiles : 1];
    warp_tile<float, HeadDim, Queries> acc_o_;
    online_column_softmax<Queries> softmax_;
    column_values<float, Queries> units_;                 // scores are multiplied by these
    row_values<float, decode_slice_rows, warp> fitting_;  // queries are multiplied by these
};

}  // namespace imbrex
