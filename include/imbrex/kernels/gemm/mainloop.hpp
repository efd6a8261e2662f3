// The mainloop of a Hopper GEMM consumer: how the products of the pipeline stages are accumulated. The kernel takes one
// of three policies as a template argument and carries its value in the problem:
//
//   accumulate_in_place         wgmma accumulates into one accumulator. As good as fp32 for 16-bit operands. For e4m3
//                               the tensor cores keep about 14 bits of the sum, so a long K loses small products
//                               ("fast accumulation")
//   promoted                    FP8 accumulation promotion: a fresh accumulator per 128 of K, added to the total in
//                               fp32 on the CUDA cores while wgmma works on the next one; the error does not grow
//                               with K
//   promoted_with_block_scales  the same, with each fresh accumulator multiplied by block scales: one per row of A and
//                               one per 128 columns of B, both per 128 of K
//
// The interface of a policy:
//
//     run<A, B, Parts>(self, full, sum, steps, at, overlapped_work)
//
// It consumes `steps` stages with operands `a[warpgroup]` and `b` and leaves the sum of their products in `sum`, with
// no wgmma in flight and every stage released. `at` is the coordinate of the sum in D.
// `overlapped_work(std::integral_constant<int, I>{})` is called once for each I = 0, 1, ... Parts - 1, in order, while
// wgmma is in flight. The tensor cores do not stall if no call takes longer than two K steps.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

struct accumulate_in_place {
    template <operand_transpose A, operand_transpose B, int Parts, class Cursor, class Sum, class OverlappedWork>
    IMBREX_KERNEL void run(const warpgroup& self, Cursor& full, Sum& sum, int steps, gemm_coord,
                           const OverlappedWork& overlapped_work) const {
        auto held = full.wait();
        mma_async<A, B>(self, sum, held->a[self.index()], held->b, accumulation::replace);
        auto next = full.no_stage();
        if (steps > 1) {
            next = full.wait();
            mma_async<A, B>(self, sum, next->a[self.index()], next->b);
        }
        int k = 2;
        const auto go_on = [&] {
            wait_mma<1>(self);
            held = std::move(next);
            if (k < steps) {
                next = full.wait();
                mma_async<A, B>(self, sum, next->a[self.index()], next->b);
            }
            ++k;
        };
        static_for<Parts>([&](auto part) {
            overlapped_work(part);
            if (k <= steps) go_on();
        });
        while (k <= steps) go_on();
        wait_mma(self, sum);
    }
};

namespace detail {

// The loop of both promoted policies, with two alternating fresh accumulators: wgmma fills one while the other is
// added. `Scales::add(self, sum, products, k)` adds the products of step k and is called for k = 0, 1, ... in order.
template <operand_transpose A, operand_transpose B, class Sum, class Cursor, class Scales>
class promoting_loop {
    static_assert(Sum::rows * Sum::columns <= 64 * 128,
                  "imbrex: a promoted accumulator has at most 64 x 128 elements: it is in registers three times");

  public:
    IMBREX_KERNEL promoting_loop(const warpgroup& self, Cursor& full, Sum& sum, Scales& scales)
        : self_(self), full_(full), sum_(sum), scales_(scales) {}

    // All of `overlapped_work` runs before `sum` is live: there are no spare registers afterwards.
    template <int Parts, class OverlappedWork>
    IMBREX_KERNEL void run(int steps, const OverlappedWork& overlapped_work) {
        fresh one(full_), other(full_);
        begin(one);
        if (steps == 1) {
            static_for<Parts>(overlapped_work);
            fill(self_, sum_, 0.0f);
            add<0>(one, 0);
            return;
        }
        begin(other);
        static_for<Parts>(overlapped_work);
        fill(self_, sum_, 0.0f);
        add<1>(one, 0);
        int k = 1;
        for (; k + 2 < steps; k += 2) {
            begin(one);
            add<1>(other, k);
            begin(other);
            add<1>(one, k + 1);
        }
        if (k + 1 < steps) {
            begin(one);
            add<1>(other, k);
            add<0>(one, k + 1);
        } else {
            add<0>(other, k);
        }
    }

  private:
    using held_stage = decltype(std::declval<Cursor&>().no_stage());
    struct fresh {
        held_stage held;
        Sum products;

        IMBREX_KERNEL explicit fresh(Cursor& full) : held(full.no_stage()) {}
    };

    IMBREX_KERNEL void begin(fresh& now) {
        using operand_tile = std::remove_cvref_t<decltype(now.held->b)>;
        static_assert(B == operand_transpose::transposed && operand_tile::columns == 128,
                      "imbrex: promotion happens every 128 of K, so block_k must be 128");
        now.held = full_.wait();
        mma_async<A, B>(self_, now.products, now.held->a[self_.index()], now.held->b, accumulation::replace);
    }

    // Waits until at most `Left` newer wgmma groups are in flight.
    template <int Left>
    IMBREX_KERNEL void add(fresh& done, int k) {
        wait_mma<Left>(self_, done.products);
        done.held.release();
        scales_.add(self_, sum_, done.products, k);
    }

    const warpgroup& self_;
    Cursor& full_;
    Sum& sum_;
    Scales& scales_;
};

// Adds fresh accumulators without scales.
struct unscaled {
    template <class Sum>
    IMBREX_KERNEL void add(const warpgroup& self, Sum& sum, const Sum& products, int) const {
        combine(self, sum, products, imbrex::functional::add{});
    }
};

// The scales of eight K steps as a register tile, one column per step. The next eight are prefetched a whole eight steps
// ahead, which hides the latency of global memory. `From` has b_scales and load_a_scales(self, tile, at, k).
template <class Sum, class From>
class block_scales_of_steps {
  public:
    IMBREX_KERNEL block_scales_of_steps(const warpgroup& self, const From& from, gemm_coord at) : from_(from), at_(at) {
        prefetch_scales(self, 0);
    }

    IMBREX_KERNEL void add(const warpgroup& self, Sum& sum, const Sum& products, int k) {
        if (k % eight == 0) {
            now_ = of_rows_;
            combine_with_columns(self, now_, of_block_, functional::multiply{});
            prefetch_scales(self, k + eight);
        }
        combine_with_rows(self, sum, products, column_of(self, now_, k % eight),
                          [](float total, float product, float scale) { return hw::fma(product, scale, total); });
    }

  private:
    static constexpr int eight = 8;

    IMBREX_KERNEL void prefetch_scales(const warpgroup& self, int k) {
        from_.load_a_scales(self, of_rows_, at_, k);
        const auto block = from_.b_scales.at(at_.batch, at_.column / 128, k);
        load(self, of_block_, block.pointer, block.columns);
    }

    const From& from_;
    gemm_coord at_;
    warpgroup_tile<float, Sum::rows, eight> now_, of_rows_;
    column_values<float, eight> of_block_;
};

template <operand_transpose A, operand_transpose B, int Parts, class Cursor, class Sum, class From,
          class OverlappedWork>
IMBREX_KERNEL void run_with_block_scales(const warpgroup& self, Cursor& full, Sum& sum, int steps, gemm_coord at,
                                         const From& from, const OverlappedWork& overlapped_work) {
    static_assert(Sum::columns == 128, "imbrex: a tile with block scales has the columns of one block, 128");
    using scales_of = block_scales_of_steps<Sum, From>;
    scales_of scales(self, from, at);
    promoting_loop<A, B, Sum, Cursor, scales_of>(self, full, sum, scales).template run<Parts>(steps, overlapped_work);
}

}  // namespace detail

struct promoted {
    template <operand_transpose A, operand_transpose B, int Parts, class Cursor, class Sum, class OverlappedWork>
    IMBREX_KERNEL void run(const warpgroup& self, Cursor& full, Sum& sum, int steps, gemm_coord,
                           const OverlappedWork& overlapped_work) const {
        detail::unscaled scales;
        detail::promoting_loop<A, B, Sum, Cursor, detail::unscaled>(self, full, sum, scales)
            .template run<Parts>(steps, overlapped_work);
    }
};

// e4m3 uses FP8 accumulation promotion by default. Pass accumulate_in_place to keep the tensor cores' own accumulator.
template <class In>
using default_mainloop = std::conditional_t<std::is_same_v<In, e4m3>, promoted, accumulate_in_place>;

struct promoted_with_block_scales {
    gemm_view<const float> a_scales;  // [batches, m, ceil(k / 128)]
    gemm_view<const float> b_scales;  // [batches, ceil(n / 128), ceil(k / 128)]

    template <operand_transpose A, operand_transpose B, int Parts, class Cursor, class Sum, class OverlappedWork>
    IMBREX_KERNEL void run(const warpgroup& self, Cursor& full, Sum& sum, int steps, gemm_coord at,
                           const OverlappedWork& overlapped_work) const {
        detail::run_with_block_scales<A, B, Parts>(self, full, sum, steps, at, *this, overlapped_work);
    }

    template <class Tile>
    IMBREX_KERNEL void load_a_scales(const warpgroup& self, Tile& to, gemm_coord at, int k) const {
        load(self, to, a_scales.at(at.batch, at.row, k));
    }
};

namespace detail {
struct any_cursor {};
struct any_sum {};
struct any_work {};
}  // namespace detail

template <class Mainloop>
concept gemm_mainloop = requires(const Mainloop& loop, const warpgroup& self, detail::any_cursor& full,
                                 detail::any_sum& sum, gemm_coord at, const detail::any_work& overlapped_work) {
    loop.template run<operand_transpose{}, operand_transpose{}, 1>(self, full, sum, 1, at, overlapped_work);
};

}  // namespace imbrex
