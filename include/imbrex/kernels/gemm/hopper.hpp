// D = epilogue(A B) on Hopper. A producer warp keeps the copy engine busy, two consumer warpgroups keep the tensor cores
// busy, and each block works through tile after tile until none is left:
//
//   producer     A and B of the next steps of K into a ring of stages; blocks of a cluster share B: each loads a part of it
//                and sends it to all
//   consumer     64 rows of the tile each: waits for a stage, asks for its product, and releases the stage before it when
//                that one's product is done, so that the tensor cores always have the next one waiting
//   epilogue     the accumulator a strip of columns at a time: through the epilogue functor, to shared memory, and out by the
//                copy engine, which goes on while the next tile is begun
//
// Tiles are walked in bands of rows (supergroups), so that blocks at work together find their operands in L2.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tensor.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// The shape of the work: what a block makes at a time, in which steps, and how many blocks share B.
struct gemm_shape {
    int columns = 256;
    int depth = 64;
    int stages = 4;
    int cluster = 2;
    int band = 8;
};

// How an operand lies: rows of A (or of B) one after the other, or its transpose.
enum class stored { normal, transposed };

template <class In, class Out, class Epilogue, stored A = stored::normal, stored B = stored::normal,
          gemm_shape Shape = gemm_shape{}>
struct gemm_hopper {
    static constexpr int groups = 2;
    static constexpr int group_rows = 64;
    static constexpr int rows = groups * group_rows;
    static constexpr int columns = Shape.columns;
    static constexpr int depth = Shape.depth;
    static constexpr int cluster = Shape.cluster;
    static constexpr int warps = 4 + 4 * groups;
    static constexpr int strip = 64;  // columns that leave together
    static constexpr int share = columns / cluster;
    static_assert(
        columns % (2 * strip) == 0 && columns <= 256,
        "imbrex: a GEMM tile has 128 or 256 columns: an even number of strips, which leave through two buffers");

    static constexpr bool a_across = A == stored::transposed;
    static constexpr bool b_across = B == stored::transposed;
    using a_tile = std::conditional_t<a_across, shared_tile<In, depth, group_rows>, shared_tile<In, group_rows, depth>>;
    using b_tile = std::conditional_t<b_across, shared_tile<In, columns, depth>, shared_tile<In, depth, columns>>;
    using b_share = std::conditional_t<b_across, shared_tile<In, share, depth>, shared_tile<In, depth, share>>;
    using out_tile = shared_tile<Out, group_rows, strip>;

    struct arguments {
        tensor<a_tile, 2> a;
        tensor<b_share, 2> b;
        tensor<out_tile, 2> out;
        Epilogue epilogue;
        int tile_rows;     // tiles of `rows` rows in the output
        int tile_columns;  // and of `columns` columns
        int steps;         // of K
    };
    struct stage {
        a_tile a[groups];
        b_tile b;
    };
    struct shared_memory {
        pipeline<stage, Shape.stages, cluster> ring;
        out_tile out[groups][2];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4 * groups);
        fence_barriers(block);
        block.cluster_sync();
        block.roles(producer<40>([&](warp& self) { feed(self, block, args, shared); }),
                    consumers<groups, 232>([&](warpgroup& self) { consume(self, block, args, shared); }));
        block.cluster_sync();
    }

  private:
    // The blocks of a cluster take neighbouring rows of tiles, of the same columns, together.
    struct schedule {
        supergroups order;
        int first;
        int step;
        int rank;

        template <class Block>
        IMBREX_KERNEL schedule(const Block& block, const arguments& args)
            : order{(args.tile_rows + cluster - 1) / cluster, args.tile_columns, Shape.band},
              first(block.index().x / cluster),
              step(block.count().x / cluster),
              rank(block.cluster_rank()) {}

        IMBREX_KERNEL tile_place at(int number) const {
            const tile_place together = order.at(number);
            return {together.row * cluster + rank, together.column};
        }
    };

    template <class Block>
    IMBREX_KERNEL static void feed(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        const schedule work(block, args);
        auto filling = shared.ring.producer(self);
        for (int number = work.first; number < work.order.tiles(); number += work.step) {
            const tile_place place = work.at(number);
            // A block beyond the last row has nothing of its own to do, but must load its share of B for the others.
            const int row = place.row < args.tile_rows ? place.row : 0;
            for (int k = 0; k < args.steps; ++k) {
                auto slot = filling.acquire();
                for (int i = 0; i < groups; ++i) {
                    const int group_row = row * groups + i;
                    const auto from = a_across ? args.a.tile(k, group_row) : args.a.tile(group_row, k);
                    load_async(self, slot->a[i], from.may_be_outside(), slot);
                }
                const int part = place.column * cluster + work.rank;
                const auto from = (b_across ? args.b.tile(part, k) : args.b.tile(k, part)).may_be_outside();
                if constexpr (cluster == 1) {
                    load_async(self, slot->b, from, slot);
                } else if constexpr (b_across) {
                    load_multicast(self, slot->b.template part<share, depth>(work.rank * share, 0), from, slot,
                                   (1u << cluster) - 1);
                } else {
                    load_multicast(self, slot->b.template part<depth, share>(0, work.rank * share), from, slot,
                                   (1u << cluster) - 1);
                }
            }
        }
    }

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        constexpr operand a_read = a_across ? operand::across : operand::as_is;
        constexpr operand b_read = b_across ? operand::across : operand::as_is;
        const schedule work(block, args);
        auto full = shared.ring.consumer(self);
        group_tile<float, group_rows, columns> sum;
        for (int number = work.first; number < work.order.tiles(); number += work.step) {
            auto held = full.wait();
            mma_async<a_read, b_read>(self, sum, held->a[self.index()], held->b, accumulation::replace);
            for (int k = 1; k < args.steps; ++k) {
                auto next = full.wait();
                mma_async<a_read, b_read>(self, sum, next->a[self.index()], next->b);
                wait_mma<1>(self);
                held = std::move(next);
            }
            wait_mma(self, sum);
            held.release();
            const tile_place place = work.at(number);
            if (place.row < args.tile_rows) {
                write_strips(self, args, shared, sum, place, std::make_integer_sequence<int, columns / strip>{});
            }
        }
        wait_stores_read(self);
    }

    // The accumulator leaves a strip at a time, through two buffers in turn.
    template <int... Strips>
    IMBREX_KERNEL static void write_strips(warpgroup& self, const arguments& args, shared_memory& shared,
                                           const group_tile<float, group_rows, columns>& sum, tile_place place,
                                           std::integer_sequence<int, Strips...>) {
        (write_strip<Strips>(self, args, shared.out[self.index()][Strips % 2], sum, place), ...);
    }

    template <int Strip>
    IMBREX_KERNEL static void write_strip(warpgroup& self, const arguments& args, out_tile& buffer,
                                          const group_tile<float, group_rows, columns>& sum, tile_place place) {
        const int row = place.row * groups + self.index();
        const int column = place.column * (columns / strip) + Strip;
        auto values = columns_of<Strip * strip, strip>(self, sum);
        args.epilogue(self, values, row * group_rows, column * strip);
        wait_stores_read<1>(self);
        self.sync();
        store(self, buffer, to<Out>(self, values));
        fence_async(self);
        self.sync();
        store_async(self, args.out.tile(row, column).may_be_outside(), buffer);
        commit_stores(self);
    }
};

// Leaves the product as it is.
struct plain_product {
    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope&, Tile&, int, int) const {}
};

}  // namespace imbrex
