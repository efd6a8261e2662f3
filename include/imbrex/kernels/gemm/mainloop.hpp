// How a consumer of the Hopper GEMM sums the products of its stages. Three ways, one of which the kernel takes as a template
// argument and carries among a problem's arguments:
//
//   accumulate_in_place           the tensor cores add every product to the sum themselves. For 16-bit operands that is as
//                                 good as fp32; of a sum of 8-bit ones they keep about 14 bits, and small products are lost
//                                 beside a long one ("fast accumulation")
//   promoted                      a fresh sum for every 128 of k, which ordinary fp32 additions then add to the total: a
//                                 long K loses nothing. The tensor cores meanwhile work on the next one
//   promoted_with_block_scales    the same, each fresh sum first multiplied by scales: A has one for each row, B one for
//                                 each 128 columns, both for each 128 of k
//
// All have one function:
//
//     run<A, B, Parts>(group, full, sum, steps, at, overlapped_work)
//
// It takes `steps` stages, of operands `a[group]` and `b`, off the ring and leaves the sum of their products in `sum`, no mma
// under way and every stage released. `at` is where in D the sum begins. `overlapped_work` is something else to do, in parts:
// `overlapped_work(std::integral_constant<int, I>{})` is called for I = 0, 1, ... Parts - 1 in turn, each once, while mmas are under
// way; the tensor cores have no pause if no part takes longer than two steps of K.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

namespace detail {

template <int Parts, class Act>
IMBREX_KERNEL void each_part(const Act& act) {
    [&]<int... Part>(std::integer_sequence<int, Part...>) {
        (act(std::integral_constant<int, Part>{}), ...);
    }
    (std::make_integer_sequence<int, Parts>{});
}

}  // namespace detail

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
        detail::each_part<Parts>([&](auto part) {
            overlapped_work(part);
            if (k <= steps) go_on();
        });
        while (k <= steps) go_on();
        wait_mma(self, sum);
    }
};

namespace detail {

// The loop of both promoted ways. Two fresh sums take turns: the tensor cores work on one while the other is added.
// `Scales` says how: `add(group, sum, products, k)` for k = 0, 1, ... in turn.
template <operand_transpose A, operand_transpose B, class Sum, class Cursor, class Scales>
class promoting_loop {
    static_assert(Sum::rows * Sum::columns <= 64 * 128,
                  "imbrex: a consumer's promoted sum has at most 64 x 128 elements: it is in registers three times");

  public:
    IMBREX_KERNEL promoting_loop(const warpgroup& self, Cursor& full, Sum& sum, Scales& scales)
        : self_(self), full_(full), sum_(sum), scales_(scales) {}

    // All of `overlapped_work` is done at once, before there is a sum: registers are short afterwards.
    template <int Parts, class OverlappedWork>
    IMBREX_KERNEL void run(int steps, const OverlappedWork& overlapped_work) {
        fresh one(full_), other(full_);
        begin(one);
        if (steps == 1) {
            each_part<Parts>(overlapped_work);
            fill(self_, sum_, 0.0f);
            add<0>(one, 0);
            return;
        }
        begin(other);
        each_part<Parts>(overlapped_work);
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
                      "imbrex: sums are promoted every 128 of k, of which a stage must have just so many");
        now.held = full_.wait();
        mma_async<A, B>(self_, now.products, now.held->a[self_.index()], now.held->b, accumulation::replace);
    }

    // When all mmas but the newest Left are done.
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

// Fresh sums as they are.
struct unscaled {
    template <class Sum>
    IMBREX_KERNEL void add(const warpgroup& self, Sum& sum, const Sum& products, int) const {
        combine(self, sum, products, imbrex::functional::add{});
    }
};

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

struct promoted_with_block_scales {
    gemm_view<const float> a_scales;  // m x k / 128, rounded up, for each product of a batch
    gemm_view<const float> b_scales;  // n / 128 x k / 128, likewise

    template <operand_transpose A, operand_transpose B, int Parts, class Cursor, class Sum, class OverlappedWork>
    IMBREX_KERNEL void run(const warpgroup& self, Cursor& full, Sum& sum, int steps, gemm_coord at,
                           const OverlappedWork& overlapped_work) const {
        static_assert(Sum::columns == 128, "imbrex: a tile with block scales has the columns of one block, 128");
        scales_of<Sum> scales(self, *this, at);
        detail::promoting_loop<A, B, Sum, Cursor, scales_of<Sum>>(self, full, sum, scales)
            .template run<Parts>(steps, overlapped_work);
    }

  private:
    // The scales of eight steps as a register tile, a column for each step, and those of the next eight on their way: what is
    // asked for that early has come when it is needed, wherever it was.
    template <class Sum>
    class scales_of {
      public:
        IMBREX_KERNEL scales_of(const warpgroup& self, const promoted_with_block_scales& from, gemm_coord at)
            : from_(from), at_(at) {
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
            load(self, of_rows_, from_.a_scales.at(at_.batch, at_.row, k));
            const auto block = from_.b_scales.at(at_.batch, at_.column / 128, k);
            load(self, of_block_, block.pointer, block.columns);
        }

        const promoted_with_block_scales& from_;
        gemm_coord at_;
        warpgroup_tile<float, Sum::rows, eight> now_, of_rows_;
        column_values<float, eight> of_block_;
    };
};

}  // namespace imbrex
