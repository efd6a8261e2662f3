// Grouped GEMM over experts for Hopper: the persistent kernel of gemm/hopper.hpp with tiles that belong to experts. The
// number of tiles and their experts are read from the routing in device memory, so the host never waits for it, and an
// empty expert costs nothing.
//
//   producer   one warp that loads A and B by TMA, or, for gathered rows, four warps: each copies 32 rows of the tile's
//              tokens by cp.async, straight into the stage, so no permuted copy exists. A warp publishes a stage when its
//              copies have landed, `ahead` stages later, so copies stay in flight
//   consumer   as in gemm/hopper.hpp: wgmma, and the store of a tile behind the mainloop of the next
//
// Quantised weights have a kernel of their own, dequantising.hpp.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>
#include <imbrex/kernels/gemm/output_tile.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/kernels/moe_gemm/problem.hpp>
#include <imbrex/kernels/moe_gemm/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

// BlockM: the rows of a tile, 128, or 64 for experts with few rows.
template <class In, class Out, moe_rows Rows, class Epilogue = epilogue::identity, int BlockM = 128,
          gemm_shape Shape = gemm_shape{.cluster = 1}, class Mainloop = accumulate_in_place>
struct moe_gemm_hopper {
    using element = In;
    static_assert(Shape.cluster == 1, "imbrex: tiles of different experts share no operand: cluster must be 1");
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static_assert(BlockM == 64 || BlockM == 128, "imbrex: a tile of the grouped GEMM has 64 or 128 rows");
    static constexpr int block_m = BlockM;
    static constexpr int warpgroup_m = 64;
    static constexpr int consumer_warpgroups = block_m / warpgroup_m;
    static constexpr int block_n = Shape.block_n;
    static constexpr int block_k = Shape.block_k;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr bool gathers = Rows == moe_rows::gathered;
    static constexpr int producer_warps = gathers ? 4 : 1;
    static constexpr int gathered_rows = block_m / producer_warps;
    // Stages that land behind the one being acquired. A consumer holds up to two.
    static constexpr int ahead = Shape.stages - 2;
    static_assert(!gathers || ahead >= 1, "imbrex: copies in flight need at least three stages");

    using output = gemm_output_tile<Out, Epilogue, warpgroup_m, block_n>;
    static constexpr bool is_glu = output::is_glu;
    static constexpr int out_columns = output::columns;
    using views = moe_gemm_views<element, Out, Rows, is_glu>;
    using problem = moe_gemm_problem<element, Out>;
    using a_tile = shared_tile<element, warpgroup_m, block_k>;
    using b_tile = shared_tile<element, block_n, block_k>;
    using b_load_tile = shared_tile<element, out_columns, block_k>;
    using out_tile = typename output::shared;
    using sums = typename output::sums;

    struct arguments {
        gemm_view<const element> a_view;
        tma_tensor<a_tile, 3> a;  // of sorted rows
        tma_tensor<b_load_tile, 3> b;
        tma_tensor<out_tile, 3> out;
        gemm_view<Out> out_view;
        Epilogue epilogue;
        Mainloop mainloop;
        moe_routing routing;
        int tile_columns;
        int steps;
        bool tma_stores;
    };
    struct stage {
        a_tile a[consumer_warpgroups];
        b_tile b;
    };
    struct shared_memory {
        pipeline<stage, Shape.stages> ring;
        out_tile out[consumer_warpgroups][2];
    };

    static arguments describe(const problem& p, const Epilogue& epilogue, const Mainloop& mainloop = {}) {
        const views all(p);
        require(p.routing.sizes.tile_rows == block_m, "routing.sizes.tile_rows: ", p.routing.sizes.tile_rows,
                "; must be 64 or 128, the rows of a tile");
        arguments made{};
        made.a_view = all.a;
        if constexpr (!gathers) made.a = make_tma_tensor<a_tile>(all.a);
        made.b = make_tma_tensor<b_load_tile>(all.b);
        made.out_view = all.out;
        made.tma_stores = output::tma_can_store(all.out);
        if (made.tma_stores) made.out = make_tma_tensor<out_tile>(all.out, tma_use::store);
        made.epilogue = epilogue;
        made.mainloop = mainloop;
        made.routing = p.routing;
        made.tile_columns = ceil_div(p.n, out_columns);
        made.steps = ceil_div(p.k, block_k);
        return made;
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        // With four producer warps a stage is full when each has published its part, and what TMA loads has landed.
        constexpr int arrivals = gathers ? producer_warps + 1 : 1;
        // One consumer warpgroup has registers in plenty.
        constexpr bool many = consumer_warpgroups > 1;
        constexpr int producer_registers = !many ? 0 : gathers ? 56 : 24;
        constexpr int consumer_registers = !many ? 0 : gathers ? 224 : 240;
        shared.ring.init(block, 4 * consumer_warpgroups, arrivals);
        fence_barriers(block);
        block.sync();
        const auto consumer = [&](warpgroup& self) { consume(self, block, args, shared); };
        const auto producer = [&](warp& self) {
            if constexpr (gathers) {
                gather(self, block, args, shared);
            } else {
                feed(self, block, args, shared);
            }
        };
        block.roles(single_warps<producer_warps, producer_registers>("producer", producer),
                    consumers<consumer_warpgroups, consumer_registers>(consumer));
    }

  private:
    using work_list = moe_tile_scheduler;
    template <class Block>
    IMBREX_KERNEL static work_list tiles_of(const Block& block, const arguments& args) {
        return {block, args.routing, args.tile_columns, Shape.group_m};
    }

    // What a warp loads by TMA for a stage.
    static constexpr int tma_bytes = (gathers ? 0 : consumer_warpgroups * a_tile::bytes) + b_tile::bytes;
    template <class Slot>
    IMBREX_KERNEL static void load_by_tma(warp& self, const arguments& args, const work_list& work, int k,
                                          const Slot& slot) {
        for (int i = 0; !gathers && i < consumer_warpgroups; ++i) {
            const auto from = args.a.tile(0, work.row * consumer_warpgroups + i, k);
            load_async(self, slot->a[i], from.out_of_bounds_fill(), slot);
        }
        for (int first = 0; first < block_n; first += out_columns) {
            load_async(self, slot->b.template subtile<out_columns, block_k>(first, 0),
                       args.b.at(work.expert, row_of_b(args, work, first), k * block_k).out_of_bounds_fill(), slot);
        }
    }
    // The row of an expert's matrix for column `first` of a tile. With a GLU epilogue the second half of the columns is
    // the up matrix, n rows after the gate.
    IMBREX_KERNEL static int row_of_b(const arguments& args, const work_list& work, int first) {
        const int up = is_glu && first >= out_columns ? args.out_view.columns() - out_columns : 0;
        return work.column * out_columns + first + up;
    }

    template <class Block>
    IMBREX_KERNEL static void feed(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.a);
        prefetch_descriptor(self, args.b);
        auto filling = shared.ring.producer(self);
        for (work_list work = tiles_of(block, args); work.more(); work.advance()) {
            for (int k = 0; k < args.steps; ++k) load_by_tma(self, args, work, k, filling.acquire());
        }
    }

    template <class Block>
    IMBREX_KERNEL static void gather(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto filling = shared.ring.producer(self);
        int landing = 0;  // stages that this warp has not published
        const auto publish = [&] {
            fence_async(self);
            filling.publish_next();
            --landing;
        };
        for (work_list work = tiles_of(block, args); work.more(); work.advance()) {
            const auto rows = token_rows(self, args, work);
            for (int k = 0; k < args.steps; ++k) {
                auto slot = filling.acquire_to_write();
                if (self.index() == 0) {
                    slot.barrier().expect(self, tma_bytes);
                    load_by_tma(self, args, work, k, slot);
                }
                const int own = self.index() * gathered_rows;
                copy_async(self,
                           slot->a[own / warpgroup_m].template subtile<gathered_rows, block_k>(own % warpgroup_m, 0),
                           rows, k * block_k);
                commit_copies(self);
                if (++landing <= ahead) continue;
                wait_copies<ahead>(self);
                publish();
            }
        }
        wait_copies(self);
        while (landing > 0) publish();
    }

    // The rows of A that this warp gathers for a tile.
    using gathered = cp_async_gather_iterator<element, gathered_rows, block_k>;
    IMBREX_KERNEL static gathered token_rows(warp& self, const arguments& args, const work_list& work) {
        const int first = work.row * block_m + self.index() * gathered_rows;
        const auto row_pointer = [&](int row) {
            const int token = read_element(args.routing.token_of_row, first + row);
            return token == moe_routing::no_token ? nullptr : args.a_view.at(0, token, 0).pointer;
        };
        return gathered(self, row_pointer, args.a_view.columns());
    }

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        auto full = shared.ring.consumer(self);
        sums sum;
        output done;
        bool waiting = false;  // a finished tile waits to be stored
        work_list work = tiles_of(block, args);
        const auto store_subtile = [&](auto which) {
            if (!waiting) return;
            done.template store_subtile<which>(self, args.out, args.out_view.rows(), shared.out[self.index()]);
        };
        const auto coordinate = [&] {
            return gemm_coord{work.expert, work.row * block_m + self.index() * warpgroup_m, work.column * out_columns};
        };
        // Overlapped with the wgmma in flight, as in gemm/hopper.hpp.
        constexpr int overlapped_subtiles = output::overlaps_store ? output::subtile_count : 0;
        const auto overlapped_work = [&](auto part) {
            if constexpr (part < overlapped_subtiles) {
                store_subtile(part);
            } else {
                done.at = coordinate();
                work.advance();
            }
        };
        while (work.more()) {
            args.mainloop.template run<operand_transpose::none, operand_transpose::transposed, overlapped_subtiles + 1>(
                self, full, sum, args.steps, coordinate(), overlapped_work);
            waiting = finish(self, args, sum, done);
            if constexpr (!output::overlaps_store) static_for<output::subtile_count>(store_subtile);
        }
        if constexpr (output::overlaps_store) static_for<output::subtile_count>(store_subtile);
        wait_stores_read(self);
    }

    // Whether the tile is left to be stored by TMA. To the epilogue the batch is the expert; D has one.
    IMBREX_KERNEL static bool finish(warpgroup& self, const arguments& args, const sums& sum, output& done) {
        done.finish(self, args.epilogue, sum);
        done.at.batch = 0;
        if (!args.tma_stores) done.store_rows(self, args.out_view);
        return args.tma_stores;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
