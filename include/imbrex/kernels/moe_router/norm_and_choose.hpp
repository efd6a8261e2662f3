// The kernel of moe_norm_router.hpp, a single block:
//
//     each warp    loads the router's row of its first expert, before the previous kernel has ended (PDL)
//                  normalises the row of a token and stores it
//     barrier
//     each warp    multiplies the rows of all tokens by those of every 8th or 16th expert: logits
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

// Rows of up to 512 * Tiles columns.
template <class T, class Scoring, int Tiles>
struct norm_and_choose_kernel {
    static constexpr int most_experts = 256;
    using choice = choose_experts_kernel<float, Scoring, most_experts, row_alignment::unaligned, true>;
    // Long rows need more registers than 16 warps have.
    static constexpr int warps = Tiles > 4 ? 8 : 16;
    static constexpr bool uses_pdl = true;
    static constexpr int tile_columns = 512;

    using arguments = norm_and_choose_arguments<T, Scoring>;
    using shared_memory = typename choice::shared_memory;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](const warp& self) {
            const moe_sizes& sizes = args.routing.sizes;
            row first_weights;
            if (self.index() < sizes.experts) {
                const T* const from = args.router.at(self.index(), 0);
                static_for<Tiles>([&](auto number) { first_weights.of[number] = load_tile<number>(self, args, from); });
            }
            pdl_wait(self);
            pdl_launch_dependents(self);
            for (int token = self.index(); token < sizes.tokens; token += warps) normalise(self, args, token);
            named_barriers<rows_written>::template of<rows_written>().sync(self, warps);
            for (int token = 0; token < sizes.tokens; ++token) {
                const T* const x = args.out.at(token, 0);
                for (int expert = self.index(); expert < sizes.experts; expert += warps) {
                    const T* const weights = args.router.at(expert, 0);
                    const float logit =
                        expert == self.index()
                            ? product(self, args, x, [&](auto number) { return first_weights.of[number]; })
                            : product(self, args, x,
                                      [&](auto number) { return load_tile<number>(self, args, weights); });
                    const float bias = args.bias == nullptr ? 0.0f : read_element(args.bias, expert);
                    put(self, args.logits + token * sizes.experts + expert, logit + bias);
                }
            }
        });
        block.sync();
        const row_accessor<const float> logits{args.logits, args.routing.sizes.experts, 0, 1};
        choice::template choose_all<warps>(block, typename choice::arguments{logits, args.routing, args.scoring},
                                           shared);
    }

  private:
    struct rows_written {};
    using tile = vector_row_tile<T, 1, tile_columns>;
    using sums = vector_row_tile<float, 1, tile_columns>;
    struct row {
        tile of[Tiles];
    };

    template <int Number>
    IMBREX_KERNEL static tile load_tile(const warp& self, const arguments& args, const T* row) {
        constexpr int first = Number * tile_columns;
        tile made;
        load_rows_from<row_alignment::aligned>(
            self, made, [=](int) { return row + first; }, args.columns - first);
        return made;
    }

    // The product of a row in memory and one whose tiles are weights_of(number).
    template <class Weights>
    IMBREX_KERNEL static float product(const warp& self, const arguments& args, const T* x, const Weights& weights_of) {
        sums terms;
        static_for<Tiles>([&](auto number) {
            const tile own = load_tile<number>(self, args, x), weights = weights_of(number);
            if constexpr (number == 0) {
                transform(
                    self, terms, [](float a, float b) { return a * b; }, own, weights);
            } else {
                transform(
                    self, terms, [](float sum, float a, float b) { return hw::fma(a, b, sum); }, terms, own, weights);
            }
        });
        vector_row_values<sums> total;
        fill(self, total, 0.0f);
        fold_rows(self, total, terms, functional::add{});
        finish_rows(self, total, functional::add{});
        return row_value(self, total);
    }

    // Reads the row twice, the second time from a cache.
    IMBREX_KERNEL static void normalise(const warp& self, const arguments& args, int token) {
        const T* const x = args.x.at(token, 0);
        const float squares = product(self, args, x, [&](auto number) { return load_tile<number>(self, args, x); });
        const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(args.columns) + args.epsilon);
        static_for<Tiles>([&](auto number) {
            constexpr int first = number * tile_columns;
            const int left = args.columns - first;
            tile own = load_tile<number>(self, args, x);
            vector_row_column_values<float, tile_columns> weight;
            load<row_alignment::aligned>(self, weight, args.norm_weight + first, left);
            transform(
                self, own, [=](float value, float by) { return value * rstd * by; }, own, weight);
            T* const to = args.out.at(token, first);
            store_rows_to<row_alignment::aligned>(
                self, [=](int) { return to; }, own, left);
        });
    }
};

}  // namespace imbrex
