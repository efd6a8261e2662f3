// Grouped GEMM over experts with packed weights for Hopper: the mainloop of gemm/dequantising_tile.hpp, in which consumers
// dequantise weights as the register operand of wgmma, in a persistent kernel whose tiles belong to experts.
//
//   producer    one warp that loads packed weights and sorted rows of A by TMA; or four warps, each of which copies a
//               quarter of the gathered rows by cp.async straight into the stage, and publishes a stage `ahead` stages
//               later, so that copies stay in flight
//   consumers   two warpgroups, 128 rows of weights each
//   finish      transposes the accumulators through shared memory, 64 rows at a time, applies the epilogue and stores.
//               Meanwhile the producer loads the next tile
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/dequantising_tile.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/kernels/moe_gemm/problem.hpp>
#include <imbrex/kernels/moe_gemm/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

namespace imbrex {

inline namespace IMBREX_WORLDS {

// BlockM: the rows of a tile, 128, or 64 for experts with few rows. Stages: 0: as many as fit.
template <dequantises_blocks Weights, class Out, moe_rows Rows, class Epilogue, int BlockM, int Stages = 0>
struct moe_gemm_dequantising {
    using element = typename Weights::element;
    static_assert(BlockM == 64 || BlockM == 128, "imbrex: a tile of the grouped GEMM has 64 or 128 rows");
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr int block_m = BlockM;
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    using mainloop = dequantising_tile<Weights, is_glu, BlockM, 2>;
    using stage = typename mainloop::stage;
    using sums = typename mainloop::sums;
    using activations = typename mainloop::activations;
    static constexpr int consumer_warpgroups = mainloop::consumer_warpgroups;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr int block_n = mainloop::block_n;
    static constexpr bool gathers = Rows == moe_rows::gathered;
    static constexpr int producer_warps = gathers ? 4 : 1;
    static constexpr int gathered_rows = block_m / producer_warps;
    static constexpr int group_m = gemm_shape{}.group_m;

    static constexpr int epilogue_m = 64;
    static constexpr int epilogue_n = 32;
    using transposed_tile = shared_tile<float, epilogue_m, packed_rows>;  // its rows are rows of D
    // 64 x 64 elements of D as the epilogue takes them.
    struct results {
        warpgroup_tile<float, epilogue_m, epilogue_n> of[packed_rows / epilogue_n];
    };

    using views = moe_gemm_views<element, Out, Rows, is_glu, true>;
    using problem = moe_gemm_problem<element, Out>;

    struct arguments {
        gemm_view<const element> a_view;
        tma_tensor<activations, 2> a;  // of sorted rows
        typename Weights::argument weights;
        gemm_view<Out> out_view;
        Epilogue epilogue;
        moe_routing routing;
        int tile_columns;
        int steps;
    };
    static constexpr int beside_stages = consumer_warpgroups * static_cast<int>(sizeof(transposed_tile)) + 2048;
    static constexpr int stages_that_fit = (shared_memory_limit - beside_stages) / static_cast<int>(sizeof(stage));
    static constexpr int stages = Stages > 0 ? Stages : stages_that_fit < 8 ? stages_that_fit : 8;
    // Stages that land behind the one being acquired. A consumer holds up to two.
    static constexpr int ahead = stages - 2;
    static_assert(ahead >= 1, "imbrex: copies in flight need at least three stages");
    struct shared_memory {
        pipeline<stage, stages> ring;
        transposed_tile transposed_sums[consumer_warpgroups];
    };

    static arguments describe(const problem& p, const Epilogue& epilogue,
                              const typename Weights::weight_tile* weights) {
        const views all(p);
        require(p.routing.sizes.tile_rows == block_m, "routing.sizes.tile_rows: ", p.routing.sizes.tile_rows,
                "; must be 64 or 128, the rows of a tile");
        require(p.n % packed_rows == 0, "n: ", p.n, "; with quantised weights it must be a multiple of ", packed_rows);
        arguments made{};
        made.a_view = all.a;
        if constexpr (!gathers) {
            made.a = make_tma_tensor<activations>(matrix(p.a.pointer, all.a.rows(), p.k, p.a.stride));
        }
        made.weights = Weights::describe(weights, p.routing.sizes.experts * p.n * (is_glu ? 2 : 1), p.k);
        made.out_view = all.out;
        made.epilogue = epilogue;
        made.routing = p.routing;
        made.tile_columns = mainloop::columns_of_n(p.n);
        made.steps = mainloop::steps_of(p.k);
        return made;
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        // With four producer warps a stage is full when each has published its part, and what TMA loads has landed.
        shared.ring.init(block, 4 * consumer_warpgroups, gathers ? producer_warps + 1 : 1);
        fence_barriers(block);
        block.sync();
        const auto producer = [&](warp& self) {
            if constexpr (gathers) {
                gather(self, block, args, shared);
            } else {
                feed(self, block, args, shared);
            }
        };
        const auto consumer = [&](warpgroup& self) { consume(self, block, args, shared); };
        constexpr int producer_registers = gathers ? 56 : 40, consumer_registers = gathers ? 224 : 232;
        block.roles(single_warps<producer_warps, producer_registers>("producer", producer),
                    consumers<consumer_warpgroups, consumer_registers>(consumer));
    }

  private:
    template <class Block>
    IMBREX_KERNEL static moe_tile_scheduler tiles_of(const Block& block, const arguments& args) {
        return {block, args.routing, args.tile_columns, group_m};
    }
    template <class Slot>
    IMBREX_KERNEL static void load_weights(const warp& self, const Slot& slot, const arguments& args,
                                           const moe_tile_scheduler& work, int step) {
        const int n = args.out_view.columns();
        const int row = work.expert * n * (is_glu ? 2 : 1) + work.column * block_n;
        mainloop::load_weights(self, slot, args.weights, row, row + n, step);
    }

    template <class Block>
    IMBREX_KERNEL static void feed(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.a);
        auto filling = shared.ring.producer(self);
        for (auto work = tiles_of(block, args); work.more(); work.advance()) {
            for (int step = 0; step < args.steps; ++step) {
                auto slot = filling.acquire();
                load_weights(self, slot, args, work, step);
                load_async(self, slot->a, args.a.tile(work.row, step).out_of_bounds_fill(), slot);
            }
        }
    }

    template <class Block>
    IMBREX_KERNEL static void gather(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto filling = shared.ring.producer(self);
        unsigned acquired = 0, published = 0;
        const auto publish = [&] {
            fence_async(self);
            filling.publish_next();
            ++published;
        };
        for (auto work = tiles_of(block, args); work.more(); work.advance()) {
            const int own = self.index() * gathered_rows, first = work.row * block_m + own;
            const auto row_pointer = [&](int row) {
                const int token = read_element(args.routing.token_of_row, first + row);
                return token == moe_routing::no_token ? nullptr : args.a_view.at(0, token, 0).pointer;
            };
            const cp_async_gather_iterator<element, gathered_rows, mainloop::step_k> rows(self, row_pointer,
                                                                                          args.a_view.columns());
            for (int step = 0; step < args.steps; ++step) {
                auto slot = filling.acquire_to_write();
                if (self.index() == 0) {
                    slot.barrier().expect(self, mainloop::weight_bytes);
                    load_weights(self, slot, args, work, step);
                }
                copy_async(self, slot->a.template subtile<gathered_rows, mainloop::step_k>(own, 0), rows,
                           step * mainloop::step_k);
                commit_copies(self);
                if (++acquired - published > ahead) {
                    wait_copies<ahead>(self);
                    publish();
                }
            }
        }
        wait_copies(self);
        while (published < acquired) publish();
    }

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        auto full = shared.ring.consumer(self);
        sums sum;
        for (auto work = tiles_of(block, args); work.more(); work.advance()) {
            mainloop::multiply(self, full, sum, args.steps);
            static_for<block_m / epilogue_m>([&](auto which) {
                constexpr int row = which * epilogue_m;
                finish<row>(self, args, sum, {work.expert, work.row * block_m + row, first_column(self, work)},
                            shared.transposed_sums[self.index()]);
            });
        }
    }

    // The first column of D of this warpgroup.
    IMBREX_KERNEL static int first_column(const warpgroup& self, const moe_tile_scheduler& work) {
        return work.column * block_n + self.index() * (block_n / consumer_warpgroups);
    }

    // 64 rows of D: 64 columns with a GLU, 128 without.
    template <int Row>
    IMBREX_KERNEL static void finish(const warpgroup& self, const arguments& args, const sums& sum, gemm_coord at,
                                     transposed_tile& through) {
        results values[2];
        static_for<2>([&](auto which) {
            self.sync();  // the sums before have been read
            store(self, through, transpose_of(columns_of<Row, epilogue_m>(self, sum.of[which])));
            self.sync();
            static_for<packed_rows / epilogue_n>([&](auto part) {
                load(self, values[which].of[part],
                     through.template subtile<epilogue_m, epilogue_n>(0, part * epilogue_n));
            });
            if constexpr (!is_glu) {
                write(self, args, values[which], values[which], {at.batch, at.row, at.column + which * packed_rows});
            }
        });
        if constexpr (is_glu) write(self, args, values[0], values[1], at);
    }

    // To the epilogue the batch is the expert; D has one.
    IMBREX_KERNEL static void write(const warpgroup& self, const arguments& args, results& values,
                                    [[maybe_unused]] const results& up, gemm_coord first) {
        static_for<packed_rows / epilogue_n>([&](auto part) {
            const gemm_coord at{first.batch, first.row, first.column + part * epilogue_n};
            if constexpr (is_glu) {
                args.epilogue(self, values.of[part], up.of[part], at);
            } else {
                args.epilogue(self, values.of[part], at);
            }
            store(self, args.out_view.at(0, at.row, at.column), convert_to<Out>(self, values.of[part]));
        });
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
