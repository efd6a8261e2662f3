// D = epilogue(A B) on Hopper. A producer warp keeps the copy engine busy, two consumer warpgroups keep the tensor cores
// busy, and each block works through tile after tile until none is left:
//
//   producer     A and B of the next steps of K into a ring of stages; blocks of a cluster share B: each loads a part of it
//                and sends it to all
//   consumer     64 rows of the tile each: waits for a stage, asks for its product, and releases the stage before it when
//                that one's product is done, so that the tensor cores always have the next one waiting (mainloop.hpp)
//   epilogue     the sums through the epilogue functor and into the type of D; they leave while the products of the next tile
//                are under way, a strip of columns at a time through shared memory and the copy engine. Where D lies so that
//                the engine cannot store it, they leave straight from registers, and at once
//
// Tiles are walked in bands of rows (supergroups), so that blocks at work together find their operands in L2. One launch can
// do a list of problems of any sizes, and of each a batch.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>
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

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue = plain_product, stored A = stored::normal, stored B = stored::normal,
          gemm_shape Shape = gemm_shape{}, class Mainloop = accumulate_in_place, int Problems = 1>
struct gemm_hopper {
    static constexpr bool needs_hopper = true;
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
        Mainloop mainloop;
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
    static problem describe(const gemm_problem<In, Out>& p, const Epilogue& epilogue, const Mainloop& mainloop = {}) {
        const gemm_views<In, Out, A, B, gated> views(p);
        problem made{};
        made.a = tensor_of<a_tile>(views.a);
        made.b = tensor_of<b_piece>(views.b);
        made.out_view = views.out;
        made.engine_stores = engine_can_store(views.out);
        if (made.engine_stores) made.out = tensor_of<out_tile>(views.out, tensor_use::store);
        made.epilogue = epilogue;
        made.mainloop = mainloop;
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
        block.roles(producer<24>([&](warp& self) { feed(self, block, args, shared); }),
                    consumers<groups, 240>([&](warpgroup& self) { consume(self, block, args, shared); }));
        if constexpr (cluster > 1) block.cluster_sync();
    }

  private:
    static bool engine_can_store(const gemm_view<Out>& out) {
        const auto whole_chunks = [](std::int64_t elements) {
            return elements * static_cast<std::int64_t>(sizeof(Out)) % 16 == 0;
        };
        return whole_chunks(out.extents[2]) && whole_chunks(out.strides[1]) && whole_chunks(out.strides[0]) &&
               reinterpret_cast<std::uintptr_t>(out.pointer) % 16 == 0;
    }

    // Where there is one problem alone its place is a constant, which saves registers.
    IMBREX_KERNEL static const problem& problem_of(const arguments& args, int which) {
        return args.problems[Problems == 1 ? 0 : which];
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
        IMBREX_KERNEL int which() const { return which_; }
        IMBREX_KERNEL const problem& now() const { return problem_of(*args_, which_); }

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
        prefetch_descriptor(self, args.problems[0].a);
        prefetch_descriptor(self, args.problems[0].b);
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

    // A tile whose sums are done, in the type of D, until it has left. Where the registers suffice it leaves while the products
    // of the next one are under way.
    static constexpr int strips = out_columns / strip;
    static constexpr bool leaves_late = sizeof(Out) <= 2;
    struct finished_tile {
        group_tile<Out, group_rows, strip> parts[strips];
        int of = none;  // the problem's number
        gemm_place at{};
        static constexpr int none = -1;
    };

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        constexpr operand a_read = a_across ? operand::across : operand::as_is;
        constexpr operand b_read = b_across ? operand::across : operand::as_is;
        auto full = shared.ring.consumer(self);
        sums sum;
        finished_tile done;
        work_list work(block, args);
        const auto leave = [&](auto which) {
            if (done.of != finished_tile::none) write_strip<which>(self, args, shared.out[self.index()], done);
        };
        // What there is to do while products are under way: when the last tile has left, which place this one is for, and, a
        // matter of divisions, where the next one is.
        constexpr int leaving = leaves_late ? strips : 0;
        const auto meanwhile = [&](auto part) {
            if constexpr (part < leaving) {
                leave(part);
            } else {
                done.of = work.which();
                done.at = {work.batch, work.row * rows + self.index() * group_rows, work.column * out_columns};
                work.advance();
            }
        };
        while (work.more()) {
            const problem& one = work.now();
            const gemm_place at{work.batch, work.row * rows + self.index() * group_rows, work.column * out_columns};
            one.mainloop.template run<a_read, b_read, leaving + 1>(self, full, sum, one.steps, at, meanwhile);
            finish(self, args, sum, done);
            if constexpr (!leaves_late) detail::each_part<strips>(leave);
        }
        if constexpr (leaves_late) detail::each_part<strips>(leave);
        wait_stores_read(self);
    }

    // The sums through the epilogue, and, where the engine cannot store D, to it.
    IMBREX_KERNEL static void finish(warpgroup& self, const arguments& args, const sums& sum, finished_tile& done) {
        const problem& one = problem_of(args, done.of);
        detail::each_part<strips>([&](auto which) {
            auto values = columns_of<which * strip, strip>(self, sum);
            const gemm_place at{done.at.batch, done.at.row, done.at.column + which * strip};
            if constexpr (gated) {
                one.epilogue(self, values, columns_of<out_columns + which * strip, strip>(self, sum), at);
            } else {
                one.epilogue(self, values, at);
            }
            convert(self, done.parts[which], values);
        });
        if (one.engine_stores) return;
        detail::each_part<strips>([&](auto which) {
            store(self, one.out_view.at(done.at.batch, done.at.row, done.at.column + which * strip), done.parts[which]);
        });
        done.of = finished_tile::none;
    }

    // A strip to D by the engine; they go through two buffers in turn. Some groups' rows are all beyond the last.
    template <int Strip>
    IMBREX_KERNEL static void write_strip(warpgroup& self, const arguments& args, out_tile (&buffers)[2],
                                          const finished_tile& done) {
        const problem& one = problem_of(args, done.of);
        const int column = done.at.column + Strip * strip;
        if (done.at.row >= one.out_view.rows()) return;
        wait_stores_read<1>(self);
        self.sync();
        store(self, buffers[Strip % 2], done.parts[Strip]);
        fence_async(self);
        self.sync();
        store_async(self, one.out.at(done.at.batch, done.at.row, column).may_be_outside(), buffers[Strip % 2]);
        commit_stores(self);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
