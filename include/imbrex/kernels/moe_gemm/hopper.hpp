// Grouped GEMM over experts for Hopper: the persistent kernel of gemm/hopper.hpp with tiles that belong to experts. The
// number of tiles and their experts are read from the routing in device memory, so the host never waits for it, and an
// empty expert costs nothing.
//
//   producers  B by TMA. A by TMA if its rows are sorted. Otherwise four warps gather the rows of the tile's tokens by
//              cp.async, 32 rows each, straight into the stage: no permuted copy exists. A warp publishes a stage when
//              its copies have landed, `ahead` stages later, so that always several are in flight
//   consumer   as in gemm/hopper.hpp: wgmma, and the store of a tile behind the mainloop of the next
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
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <cstdint>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Out, moe_rows Rows, class Epilogue = epilogue::identity,
          gemm_shape Shape = gemm_shape{.cluster = 1}>
struct moe_gemm_hopper {
    static_assert(Shape.cluster == 1, "imbrex: tiles of different experts share no operand: cluster must be 1");
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr int consumer_warpgroups = 2;
    static constexpr int warpgroup_m = 64;
    static constexpr int block_m = consumer_warpgroups * warpgroup_m;
    static constexpr int block_n = Shape.block_n;
    static constexpr int block_k = Shape.block_k;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr bool gathers = Rows == moe_rows::gathered;
    static constexpr int gather_warps = 4, gathered_rows = block_m / gather_warps;
    static constexpr int ahead = Shape.stages - 2;  // a consumer holds up to two stages
    static_assert(!gathers || ahead >= 1, "imbrex: gathered rows need at least three stages");

    using output = gemm_output_tile<Out, Epilogue, warpgroup_m, block_n>;
    static constexpr bool is_glu = output::is_glu;
    static constexpr int out_columns = output::columns;
    using views = moe_gemm_views<In, Out, Rows, is_glu>;
    using a_tile = shared_tile<In, warpgroup_m, block_k>;
    using b_tile = shared_tile<In, block_n, block_k>;
    using b_load_tile = shared_tile<In, out_columns, block_k>;
    using out_tile = typename output::shared;
    using sums = typename output::sums;

    struct arguments {
        gemm_view<const In> a_view;
        tma_tensor<a_tile, 3> a;  // of sorted rows
        tma_tensor<b_load_tile, 3> b;
        tma_tensor<out_tile, 3> out;
        gemm_view<Out> out_view;
        Epilogue epilogue;
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

    static arguments describe(const moe_gemm_problem<In, Out>& p, const Epilogue& epilogue) {
        const views all(p);
        require(p.routing.sizes.tile_rows == block_m, "routing.sizes.tile_rows: ", p.routing.sizes.tile_rows,
                "; this kernel needs tiles of ", block_m, " rows");
        arguments made{};
        made.a_view = all.a;
        if constexpr (!gathers) made.a = make_tma_tensor<a_tile>(all.a);
        made.b = make_tma_tensor<b_load_tile>(all.b);
        made.out_view = all.out;
        made.tma_stores = output::tma_can_store(all.out);
        if (made.tma_stores) made.out = make_tma_tensor<out_tile>(all.out, tma_use::store);
        made.epilogue = epilogue;
        made.routing = p.routing;
        made.tile_columns = ceil_div(p.n, out_columns);
        made.steps = ceil_div(p.k, block_k);
        return made;
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        // A gathered stage is full when each warp has published its rows, and B has landed.
        shared.ring.init(block, 4 * consumer_warpgroups, gathers ? gather_warps + 1 : 1);
        fence_barriers(block);
        block.sync();
        const auto consumer = [&](warpgroup& self) { consume(self, block, args, shared); };
        if constexpr (gathers) {
            block.roles(
                single_warps<gather_warps, 56>("producer", [&](warp& self) { gather(self, block, args, shared); }),
                consumers<consumer_warpgroups, 224>(consumer));
        } else {
            block.roles(producer<24>([&](warp& self) { feed(self, block, args, shared); }),
                        consumers<consumer_warpgroups, 240>(consumer));
        }
    }

  private:
    // The tiles of this block. `row` and `column` count tiles.
    class work_list {
      public:
        template <class Block>
        IMBREX_KERNEL work_list(const Block& block, const arguments& args)
            : experts_(args.routing.expert_of_tile),
              order_{read_element(args.routing.tiles, 0), args.tile_columns, Shape.group_m},
              number_(block.index().x),
              step_(block.count().x) {
            settle();
        }
        IMBREX_KERNEL bool more() const { return number_ < order_.tiles(); }
        IMBREX_KERNEL void advance() {
            number_ += step_;
            settle();
        }

      private:
        IMBREX_KERNEL void settle() {
            if (!more()) return;
            const tile_coord at = order_.at(number_);
            row = at.row, column = at.column;
            expert = read_element(experts_, row);
        }
        const int* experts_;
        rasterisation_groups order_;
        int number_;
        int step_;

      public:
        int row = 0;
        int column = 0;
        int expert = 0;
    };

    template <class Block>
    IMBREX_KERNEL static void feed(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.a);
        prefetch_descriptor(self, args.b);
        auto filling = shared.ring.producer(self);
        for (work_list work(block, args); work.more(); work.advance()) {
            for (int k = 0; k < args.steps; ++k) {
                auto slot = filling.acquire();
                for (int i = 0; i < consumer_warpgroups; ++i) {
                    const auto from = args.a.tile(0, work.row * consumer_warpgroups + i, k);
                    load_async(self, slot->a[i], from.out_of_bounds_fill(), slot);
                }
                load_b(self, args, work, k, slot);
            }
        }
    }

    // With a GLU epilogue the second half of the tile's columns is the up matrix, n rows after the gate.
    template <class Slot>
    IMBREX_KERNEL static void load_b(warp& self, const arguments& args, const work_list& work, int k,
                                     const Slot& slot) {
        for (int first = 0; first < block_n; first += out_columns) {
            const int row = work.column * out_columns + (first == 0 ? 0 : args.out_view.columns());
            load_async(self, slot->b.template subtile<out_columns, block_k>(first, 0),
                       args.b.at(work.expert, row, k * block_k).out_of_bounds_fill(), slot);
        }
    }

    template <class Block>
    IMBREX_KERNEL static void gather(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        if (self.index() == 0) prefetch_descriptor(self, args.b);
        auto filling = shared.ring.producer(self);
        const int own = self.index() * gathered_rows;
        int landing = 0;  // stages that this warp has not published
        for (work_list work(block, args); work.more(); work.advance()) {
            const cp_async_gather_iterator<In, gathered_rows, block_k> rows(
                self, [&](int row) { return token_row(args, work.row * block_m + own + row); }, args.a_view.columns());
            for (int k = 0; k < args.steps; ++k) {
                auto slot = filling.acquire_to_write();
                if (self.index() == 0) {
                    slot.barrier().expect(self, b_tile::bytes);
                    load_b(self, args, work, k, slot);
                }
                a_tile& a = slot->a[own / warpgroup_m];
                copy_async(self, a.template subtile<gathered_rows, block_k>(own % warpgroup_m, 0), rows, k * block_k);
                commit_copies(self);
                if (++landing <= ahead) continue;
                wait_copies<ahead>(self);
                fence_async(self);
                filling.publish_next();
                --landing;
            }
        }
        wait_copies(self);
        fence_async(self);
        for (; landing > 0; --landing) filling.publish_next();
    }

    IMBREX_KERNEL static const In* token_row(const arguments& args, int row) {
        const int token = read_element(args.routing.token_of_row, row);
        return token == moe_routing::no_token ? nullptr : args.a_view.at(0, token, 0).pointer;
    }

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        auto full = shared.ring.consumer(self);
        sums sum;
        output done;
        bool waiting = false;  // a finished tile waits to be stored
        work_list work(block, args);
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
            accumulate_in_place{}
                .template run<operand_transpose::none, operand_transpose::transposed, overlapped_subtiles + 1>(
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
