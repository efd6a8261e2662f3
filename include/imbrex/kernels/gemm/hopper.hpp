// D = epilogue(A B) on Hopper. A producer warp keeps the copy engine busy, two consumer warpgroups keep the tensor cores
// busy, and each block works through tile after tile until none is left:
//
//   producer     A and B of the next steps of K into a ring of stages; blocks of a cluster share B: each loads a part of it
//                and sends it to all
//   consumer     64 rows of the tile each: waits for a stage, asks for its product, and releases the stage before it when
//                that one's product is done, so that the tensor cores always have the next one waiting
//   epilogue     the accumulator a strip of columns at a time: through the epilogue functor, to shared memory, and out by the
//                copy engine, which goes on while the next tile is begun; straight from registers where D lies so that the
//                engine cannot store it
//
// Tiles are walked in bands of rows (supergroups), so that blocks at work together find their operands in L2. One launch can
// do a list of problems of any sizes, and of each a batch.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
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

#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

template <class In, class Out, class Epilogue = plain_product, stored A = stored::normal, stored B = stored::normal,
          gemm_shape Shape = gemm_shape{}, int Problems = 1>
struct gemm_hopper {
    static constexpr int groups = 2;
    static constexpr int group_rows = 64;
    static constexpr int rows = groups * group_rows;
    static constexpr int columns = Shape.columns;
    static constexpr int depth = Shape.depth;
    static constexpr int cluster = Shape.cluster;
    static constexpr int warps = 4 + 4 * groups;
    static constexpr int strip = sizeof(Out) == 4 ? 32 : 64;  // columns that leave together
    static constexpr bool gated = is_gated<Epilogue>;
    static constexpr int out_columns = gated ? columns / 2 : columns;  // of D, in a tile
    static constexpr int share = columns / cluster;
    // B comes in pieces: with a gate, the tile's columns are of two places.
    static constexpr int piece = share < out_columns ? share : out_columns;
    static_assert(
        out_columns % (2 * strip) == 0 && columns <= 256,
        "imbrex: a GEMM tile has 128 or 256 columns, 256 if gated: an even number of strips, which leave through "
        "two buffers");

    static constexpr bool a_across = A == stored::transposed;
    static constexpr bool b_across = B == stored::transposed;
    using a_tile = std::conditional_t<a_across, shared_tile<In, depth, group_rows>, shared_tile<In, group_rows, depth>>;
    using b_tile = std::conditional_t<b_across, shared_tile<In, columns, depth>, shared_tile<In, depth, columns>>;
    using b_piece = std::conditional_t<b_across, shared_tile<In, piece, depth>, shared_tile<In, depth, piece>>;
    using out_tile = shared_tile<Out, group_rows, strip>;
    using sums = group_tile<float, group_rows, columns>;

    struct problem {
        tensor<a_tile, 3> a;
        tensor<b_piece, 3> b;
        tensor<out_tile, 3> out;
        gemm_view<Out> out_view;
        Epilogue epilogue;
        int tile_rows;     // tiles of `rows` rows in D
        int tile_columns;  // and of `out_columns` columns
        int steps;         // of K
        int batches;
        bool engine_stores;

        // The blocks of a cluster take neighbouring rows of tiles, of the same columns, together.
        IMBREX_FN supergroups order() const { return {(tile_rows + cluster - 1) / cluster, tile_columns, Shape.band}; }
        IMBREX_FN int cluster_tiles() const { return order().tiles() * batches; }
    };
    struct arguments {
        problem problems[Problems];
        int count;
    };
    struct stage {
        a_tile a[groups];
        b_tile b;
    };
    struct shared_memory {
        pipeline<stage, Shape.stages, cluster> ring;
        out_tile out[groups][2];
    };

    // The copy engine's view of a problem. It throws where the engine cannot read A or B.
    static problem describe(const gemm_problem<In, Out>& p, const Epilogue& epilogue) {
        const gemm_views<In, Out, A, B, gated> views(p);
        problem made{};
        made.a = tensor_of<a_tile>(views.a);
        made.b = tensor_of<b_piece>(views.b);
        made.out_view = views.out;
        made.engine_stores = engine_can_store(views.out);
        if (made.engine_stores) made.out = tensor_of<out_tile>(views.out, tensor_use::store);
        made.epilogue = epilogue;
        made.tile_rows = (p.m + rows - 1) / rows;
        made.tile_columns = (p.n + out_columns - 1) / out_columns;
        made.steps = (p.k + depth - 1) / depth;
        made.batches = p.batches;
        return made;
    }

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
    static bool engine_can_store(const gemm_view<Out>& out) {
        const auto whole_chunks = [](std::int64_t elements) {
            return elements * static_cast<std::int64_t>(sizeof(Out)) % 16 == 0;
        };
        return whole_chunks(out.extents[2]) && whole_chunks(out.strides[1]) && whole_chunks(out.strides[0]) &&
               reinterpret_cast<std::uintptr_t>(out.pointer) % 16 == 0;
    }

    // The tiles that this block's cluster works on, one after the other, through all problems and batches.
    class work_list {
      public:
        template <class Block>
        IMBREX_KERNEL work_list(const Block& block, const arguments& args)
            : args_(&args),
              number_(block.index().x / cluster),
              step_(block.count().x / cluster),
              rank(block.cluster_rank()) {
            settle();
        }
        IMBREX_KERNEL bool more() const { return which_ < args_->count; }
        IMBREX_KERNEL void advance() {
            number_ += step_;
            settle();
        }
        IMBREX_KERNEL const problem& now() const { return args_->problems[which_]; }

      private:
        // Moves on to the problem that the number falls into.
        IMBREX_KERNEL void settle() {
            while (which_ < args_->count && number_ >= now().cluster_tiles()) {
                number_ -= now().cluster_tiles();
                ++which_;
            }
            if (which_ == args_->count) return;
            const supergroups order = now().order();
            batch = number_ / order.tiles();
            const tile_place together = order.at(number_ % order.tiles());
            row = together.row * cluster + rank;
            column = together.column;
        }

        const arguments* args_;
        int which_ = 0;
        int number_;
        int step_;

      public:
        int rank;
        int batch = 0;
        int row = 0;  // in tiles
        int column = 0;
    };

    template <class Block>
    IMBREX_KERNEL static void feed(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto filling = shared.ring.producer(self);
        for (work_list work(block, args); work.more(); work.advance()) {
            const problem& one = work.now();
            // A block beyond the last row has nothing of its own to do, but must load its share of B for the others.
            const int row = work.row < one.tile_rows ? work.row : 0;
            const int a_batch = one.a.extents[0] > 1 ? work.batch : 0;
            const int b_batch = one.b.extents[0] > 1 ? work.batch : 0;
            for (int k = 0; k < one.steps; ++k) {
                auto slot = filling.acquire();
                for (int i = 0; i < groups; ++i) {
                    const int group_row = row * groups + i;
                    const auto from = a_across ? one.a.tile(a_batch, k, group_row) : one.a.tile(a_batch, group_row, k);
                    load_async(self, slot->a[i], from.may_be_outside(), slot);
                }
                for (int first = work.rank * share; first < (work.rank + 1) * share; first += piece) {
                    const int column = column_in_b(one, work.column, first);
                    const auto from =
                        b_across ? one.b.at(b_batch, column, k * depth) : one.b.at(b_batch, k * depth, column);
                    load_piece(self, slot->b, first, from.may_be_outside(), slot);
                }
            }
        }
    }

    // Where column `first` of a tile is found in B. The second half of a gated tile is as far behind the gate as D is wide.
    IMBREX_KERNEL static int column_in_b(const problem& one, int tile_column, int first) {
        const int up = gated && first >= out_columns ? one.out_view.columns() - out_columns : 0;
        return tile_column * out_columns + first + up;
    }

    template <class From, class Slot>
    IMBREX_KERNEL static void load_piece(warp& self, b_tile& b, int first, const From& from, const Slot& slot) {
        const auto to = [&] {
            if constexpr (b_across) {
                return b.template part<piece, depth>(first, 0);
            } else {
                return b.template part<depth, piece>(0, first);
            }
        }();
        if constexpr (cluster == 1) {
            load_async(self, to, from, slot);
        } else {
            load_multicast(self, to, from, slot, (1u << cluster) - 1);
        }
    }

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        auto full = shared.ring.consumer(self);
        sums sum;
        for (work_list work(block, args); work.more(); work.advance()) {
            multiply(self, full, sum, work.now().steps);
            if (work.row < work.now().tile_rows) {
                write_strips(self, work, shared, sum, std::make_integer_sequence<int, out_columns / strip>{});
            }
        }
        wait_stores_read(self);
    }

    template <class Stages>
    IMBREX_KERNEL static void multiply(warpgroup& self, Stages& full, sums& sum, int steps) {
        constexpr operand a_read = a_across ? operand::across : operand::as_is;
        constexpr operand b_read = b_across ? operand::across : operand::as_is;
        auto held = full.wait();
        mma_async<a_read, b_read>(self, sum, held->a[self.index()], held->b, accumulation::replace);
        for (int k = 1; k < steps; ++k) {
            auto next = full.wait();
            mma_async<a_read, b_read>(self, sum, next->a[self.index()], next->b);
            wait_mma<1>(self);
            held = std::move(next);
        }
        wait_mma(self, sum);
    }

    // The accumulator leaves a strip at a time, through two buffers in turn.
    template <int... Strips>
    IMBREX_KERNEL static void write_strips(warpgroup& self, const work_list& work, shared_memory& shared,
                                           const sums& sum, std::integer_sequence<int, Strips...>) {
        (write_strip<Strips>(self, work, shared.out[self.index()][Strips % 2], sum), ...);
    }

    template <int Strip>
    IMBREX_KERNEL static void write_strip(warpgroup& self, const work_list& work, out_tile& buffer, const sums& sum) {
        const problem& one = work.now();
        const int row = work.row * rows + self.index() * group_rows;
        const int column = work.column * out_columns + Strip * strip;
        auto values = columns_of<Strip * strip, strip>(self, sum);
        if constexpr (gated) {
            const auto up = columns_of<out_columns + Strip * strip, strip>(self, sum);
            one.epilogue(self, values, up, gemm_place{work.batch, row, column});
        } else {
            one.epilogue(self, values, gemm_place{work.batch, row, column});
        }
        if (!one.engine_stores) {
            store(self, one.out_view.at(work.batch, row, column), to<Out>(self, values));
            return;
        }
        wait_stores_read<1>(self);
        self.sync();
        store(self, buffer, to<Out>(self, values));
        fence_async(self);
        self.sync();
        store_async(self, one.out.at(work.batch, row, column).may_be_outside(), buffer);
        commit_stores(self);
    }
};

}  // namespace imbrex
