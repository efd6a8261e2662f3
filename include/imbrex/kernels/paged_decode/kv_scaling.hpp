// Scales of an 8-bit KV cache as the consumers apply them. Scales that are the same for all pages become one factor of
// the scores and one of O per split. Scales per page become factors of each 16 keys of a stage, which are always in one
// page.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>
#include <imbrex/ops/warp/gather.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// Per-page scales of one stage. Scales of V are relative to a power of two, so that p * scale is in the range of 16-bit
// floats. If that power changes, the accumulators must be multiplied by `before` first.
template <int BlockN>
struct stage_kv_scales {
    bool given = false;
    float before = 1.0f;
    float k[BlockN / page_size_step] = {};
    float v[BlockN / page_size_step] = {};
};

// Scales of a split, whose stages go round robin to WarpsN warps.
template <class Multiplied, class Cache, int BlockN, int WarpsN>
class decode_kv_scaling {
  public:
    template <class Arguments>
    IMBREX_KERNEL decode_kv_scaling(const Arguments& args, const decode_split& of) : scores_(args.scale) {
        if constexpr (scaled) {
            // The scale of an all-zero head may be 0; 0 * infinity would be NaN.
            scores_ *= hw::max(args.k_scales.of_head(of.kv_head), 1e-30f) * upconversion_postscale<Cache, Multiplied>;
            sums_ = args.v_scales.of_head(of.kv_head);
            if (args.v_scales.vary_by_page()) unit_of_values_ = least_unit;
        }
    }

    IMBREX_KERNEL float qk_scale() const { return scores_; }
    IMBREX_KERNEL float pv_scale() const { return sums_ * unit_of_values_; }

    // Call once per stage of this warp, in order. The lanes read the scales of several stages at once.
    template <class Arguments>
    IMBREX_KERNEL stage_kv_scales<BlockN> of_pages(const warp& self, const Arguments& args, const decode_split& of,
                                                   int first_key, source here = source::current()) {
        stage_kv_scales<BlockN> result;
        if constexpr (scaled) {
            if (!args.k_scales.vary_by_page() && !args.v_scales.vary_by_page()) return result;
            if (used_ == stages_per_gather) {
                found_ = warp_gather<warp::threads>(
                    self,
                    [&](int number) {
                        const int stage = number / parts * WarpsN, part = number % parts;
                        const auto at =
                            args.lengths.locate(of, first_key + stage * BlockN + part * page_size_step, page_size_step);
                        if (at.row >= args.lengths.page_size) return both{1.0f, 0.0f};  // masked
                        return both{args.k_scales.of_page(at.page, of.kv_head),
                                    args.v_scales.of_page(at.page, of.kv_head)};
                    },
                    here);
                used_ = 0;
                const float most = warp_max(
                    self, found_, [](const both& one) { return one.v; }, here);
                if (most >= 2.0f * unit_of_values_) {
                    const float now = hw::max(power_of_two_below(most), least_unit);
                    result.before = unit_of_values_ / now;
                    unit_of_values_ = now;
                }
            }
            const float relative = 1.0f / unit_of_values_;
            result.given = true;
            [&]<int... Parts>(std::integer_sequence<int, Parts...>) {
                ((result.k[Parts] = warp_broadcast(self, found_, used_ * parts + Parts, here).k,
                  result.v[Parts] = warp_broadcast(self, found_, used_ * parts + Parts, here).v * relative),
                 ...);
            }
            (std::make_integer_sequence<int, parts>{});
            ++used_;
        }
        return result;
    }

  private:
    static constexpr bool scaled = sizeof(Cache) == 1;
    static constexpr int parts = BlockN / page_size_step;  // of 16 keys, in a stage
    static constexpr int stages_per_gather = warp::threads / parts;
    static constexpr float least_unit = 0x1p-100f;
    struct both {
        float k, v;
    };

    static IMBREX_FN float power_of_two_below(float value) {
        return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, value) & 0x7f800000U);
    }

    float scores_;
    float sums_ = 1.0f;
    float unit_of_values_ = 1.0f;
    hw::lane_values<both, warp::threads> found_ = {};
    int used_ = stages_per_gather;
};

}  // namespace imbrex
