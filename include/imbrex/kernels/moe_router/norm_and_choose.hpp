// The kernel of moe_norm_router.hpp, a single block:
//
//     each warp    loads the router's row of its first expert, before the previous kernel has ended (PDL)
//                  normalises the row of a token and stores it
//     barrier
//     each warp    multiplies the rows of all tokens by those of every 16th expert: logits
//     block        chooses and sorts, as the router does (choose_experts.hpp)
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/moe_router/choose_experts.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cmath>

namespace imbrex {

template <class T, class Scoring>
struct norm_and_choose_arguments {
    row_accessor<const T> x;
    row_accessor<T> out;
    const float* norm_weight;
    row_accessor<const T> router;
    const float* bias;
    float* logits;
    int columns;
    float epsilon;
    moe_routing routing;
    Scoring scoring;
};

// Rows of up to 512 * Tiles columns; at most Experts experts.
template <class T, class Scoring, int Tiles, int Experts>
struct norm_and_choose_kernel {
    using choice = choose_experts_kernel<float, Scoring, Experts, row_alignment::unaligned, true>;
    static constexpr int warps = choice::warps;
    static constexpr bool uses_pdl = true;
    static constexpr int tile_columns = 512;

    using arguments = norm_and_choose_arguments<T, Scoring>;
    using shared_memory = typename choice::shared_memory;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](const warp& self) {
            const moe_sizes& sizes = args.routing.sizes;
            row weights;
            if (self.index() < sizes.experts) load_row(self, weights, args.router.at(self.index(), 0), args.columns);
            pdl_wait(self);
            pdl_launch_dependents(self);
            if (self.index() < sizes.tokens) normalise(self, args, self.index());
            named_barriers<rows_written>::template of<rows_written>().sync(self, warps);
            for (int token = 0; token < sizes.tokens; ++token) {
                row x;
                load_row(self, x, args.out.at(token, 0), args.columns);
                for (int expert = self.index(); expert < sizes.experts; expert += warps) {
                    if (token > 0 || expert > self.index())
                        load_row(self, weights, args.router.at(expert, 0), args.columns);
                    const float bias = args.bias == nullptr ? 0.0f : read_element(args.bias, expert);
                    put(self, args.logits + token * sizes.experts + expert, product(self, x, weights) + bias);
                }
            }
        });
        block.sync();
        const row_accessor<const float> logits{args.logits, args.routing.sizes.experts, 0, 1};
        choice::choose_all(block, typename choice::arguments{logits, args.routing, args.scoring}, shared);
    }

  private:
    struct rows_written {};
    using tile = vector_row_tile<T, 1, tile_columns>;
    using sums = vector_row_tile<float, 1, tile_columns>;
    struct row {
        tile of[Tiles];
    };

    IMBREX_KERNEL static void load_row(const warp& self, row& to, const T* from, int columns) {
        static_for<Tiles>([&](auto number) {
            constexpr int first = number * tile_columns;
            load_rows_from<row_alignment::aligned>(
                self, to.of[number], [=](int) { return from + first; }, columns - first);
        });
    }

    IMBREX_KERNEL static float total_of(const warp& self, const sums& terms) {
        vector_row_values<sums> total;
        fill(self, total, 0.0f);
        fold_rows(self, total, terms, functional::add{});
        finish_rows(self, total, functional::add{});
        return row_value(self, total);
    }

    IMBREX_KERNEL static float product(const warp& self, const row& x, const row& weights) {
        sums terms;
        transform(
            self, terms, [](float a, float b) { return a * b; }, x.of[0], weights.of[0]);
        static_for<Tiles - 1>([&](auto number) {
            transform(
                self, terms, [](float sum, float a, float b) { return hw::fma(a, b, sum); }, terms, x.of[number + 1],
                weights.of[number + 1]);
        });
        return total_of(self, terms);
    }

    IMBREX_KERNEL static void normalise(const warp& self, const arguments& args, int token) {
        row x;
        load_row(self, x, args.x.at(token, 0), args.columns);
        const float mean = product(self, x, x) / static_cast<float>(args.columns);
        const float rstd = 1.0f / std::sqrt(mean + args.epsilon);
        static_for<Tiles>([&](auto number) {
            constexpr int first = number * tile_columns;
            const int left = args.columns - first;
            vector_row_column_values<float, tile_columns> weight;
            load<row_alignment::aligned>(self, weight, args.norm_weight + first, left);
            transform(
                self, x.of[number], [=](float value, float by) { return value * rstd * by; }, x.of[number], weight);
            T* const to = args.out.at(token, first);
            store_rows_to<row_alignment::aligned>(
                self, [=](int) { return to; }, x.of[number], left);
        });
    }
};

}  // namespace imbrex
