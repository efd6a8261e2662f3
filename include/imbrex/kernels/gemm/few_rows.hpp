// D = epilogue(A B) for few rows: A has 1 to 64 of them, so that the time goes into reading B once. Made for Hopper.
// (With more rows: shared_depth.hpp.)
//
// The product is computed the other way round, D^T = B^T A^T: columns of B (the rows of a weight matrix as it is stored) are
// the 64 rows that wgmma wants on the left, the rows of A its columns, `Rows` of them. So the tensor cores waste nothing and
// every byte of B is read by one block.
//
//   producer     the weights and the activations (A) of the next steps of K into a deep ring of stages
//   consumers    two warpgroups, 64 columns of D each
//   finish       the sums are turned through shared memory into rows of D, go through the epilogue, and are stored
//
// Where there are too few tiles of columns to keep all multiprocessors busy, the blocks of a cluster share a tile: each takes
// a part of K, and reads the others' sums out of their shared memory for the columns that it finishes. They are added in the
// order of K: the result has the same bits every time, and the launch needs no memory of its own.
//
// With a gated epilogue the first group has columns of the gate and the second the same columns of up.
//
// What lies in a stage and how it is multiplied is said by `Weights`:
//
//   using element = ...;                         what the tensor cores multiply; the type of the activations
//   static constexpr int depth = ...;            of a step of K
//   static constexpr bool overlaps = ...;        whether `multiply` returns while its products are under way, so that they go
//                                                on while the next ones are begun
//   struct argument;                             kernel argument: a tensor, or a pointer and sizes
//   struct part;                                 64 columns of B and `depth` of K, in a stage; of `bytes` bytes, or its size
//   static void load(const warp&, part& to, const argument& from, int first_column, int step, const Slot& slot);
//   static void multiply(const warpgroup&, Sum&, const part&, const Activations&, accumulation);    starts the product
//
// `load` may be asked for columns beyond the end, and must bring all of a part's bytes then too.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/kernels/gemm/shared_work.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tensor.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

inline namespace IMBREX_WORLDS {

// Weights in the type that is multiplied, as B is stored. Steps of 256 bytes of K are read from memory a little faster than smaller
// ones.
template <class In, stored B, int Depth = 128>
struct weights_as_stored {
    using element = In;
    static constexpr int depth = Depth;
    static constexpr bool overlaps = true;
    static constexpr bool by_columns = B == stored::transposed;
    using part = std::conditional_t<by_columns, shared_tile<In, 64, depth>, shared_tile<In, depth, 64>>;
    using argument = tensor<part, 2>;

    // `columns` of B: twice those of D, if gated.
    static argument describe(const gemm_operand<const In>& b, int columns, int k) {
        return tensor_of<part>(
            by_columns ? matrix(b.pointer, columns, k, b.stride) : matrix(b.pointer, k, columns, b.stride),
            tensor_use::load_in_steps);
    }

    template <class Slot>
    IMBREX_KERNEL static void load(const warp& self, part& to, const argument& from, int first_column, int step,
                                   const Slot& slot) {
        const auto tile = by_columns ? from.at(first_column, step * depth) : from.at(step * depth, first_column);
        load_async(self, to, tile.may_be_outside().once(), slot);
    }
    template <class Sum, class Activations>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Sum& sum, const part& weights,
                                       const Activations& activations, accumulation how) {
        mma_async<by_columns ? operand::as_is : operand::across, operand::across>(self, sum, weights, activations, how);
    }
};

}  // namespace IMBREX_WORLDS

struct few_rows_shape {
    int sharers = 1;  // blocks that share a tile: 1, 2, 4 or 8
    int stages = 0;   // 0: as many as fit
    // The weights are read while the kernel before in the stream still runs: it must not be what writes them. Without it, only what
    // reads nothing is done before that one's end.
    bool early = false;
};

// How many blocks had best share each of so many tiles of so many steps of K, 1, 2 or 4: as few as keep memory busy, and, with
// more rows, the tensor cores; and no more than have room. (Clusters of four leave some multiprocessors of a device idle.)
constexpr IMBREX_FN int few_rows_sharers(int rows, int tiles, int steps, int multiprocessors) {
    const int enough = rows <= 16 ? multiprocessors * 9 / 20 : multiprocessors * 3 / 4;
    int sharers = 1;
    for (const int room : {multiprocessors, multiprocessors * 4 / 5}) {
        if (tiles * sharers >= enough || tiles * sharers * 2 > room || steps < sharers * 2) break;
        sharers *= 2;
    }
    return sharers;
}

// How many blocks are worth launching for so many tiles on so many multiprocessors: as many as have the same number of tiles. Two
// thirds of a device read its memory as fast as all of it.
constexpr IMBREX_FN int few_rows_blocks(int tiles, int sharers, int multiprocessors) {
    const int most = multiprocessors / sharers, rounds = (tiles + most - 1) / most;
    return (tiles + rounds - 1) / rounds * sharers;
}

inline namespace IMBREX_WORLDS {

template <class Weights, class Out, class Epilogue, int Rows, few_rows_shape Shape = few_rows_shape{}>
struct gemm_few_rows {
    using element = typename Weights::element;
    static constexpr bool needs_hopper = true;
    static constexpr int groups = 2;
    static constexpr int warps = 4 + 4 * groups;
    static constexpr int sharers = Shape.sharers;
    static constexpr int cluster = sharers;
    static constexpr bool begins_early = true;
    static constexpr bool reads_early = Shape.early;
    static constexpr int group_columns = 64;
    static constexpr int depth = Weights::depth;
    static constexpr bool gated = is_gated<Epilogue>;
    static constexpr int columns = gated ? group_columns : groups * group_columns;  // of D, in a tile
    // Who finishes the 64 columns that a group's sums are of, and how many at a time.
    static constexpr int finishers = sharers * (gated ? groups : 1);
    static constexpr int finished_columns = group_columns / finishers;
    static constexpr int at_once = finished_columns < 32 ? finished_columns : 32;
    static_assert(Rows % 8 == 0 && Rows <= 64, "imbrex: the GEMM for few rows has a multiple of 8 rows up to 64");
    static_assert(finished_columns % 8 == 0, "imbrex: at most 8 blocks share a tile, 4 of a gated GEMM");

    // A is loaded some rows at a time. Rows that it lacks are slow to load, and what takes their place is of no consequence: so
    // the last of its rows are loaded again instead.
    static constexpr int load_rows = Rows < 64 ? 8 : 16;
    using activations = shared_tile<element, Rows, depth>;
    using activations_rows = shared_tile<element, load_rows, depth>;
    using part = typename Weights::part;
    using sums = group_tile<float, group_columns, Rows>;
    using turned_tile = shared_tile<float, 64, group_columns>;  // its rows are D's
    using result = group_tile<float, 64, at_once>;

    struct arguments {
        typename Weights::argument weights;
        tensor<activations_rows, 2> a;
        gemm_view<Out> out;
        Epilogue epilogue;
        int tiles;
        int steps;  // of K
    };
    struct stage {
        static constexpr int bytes = groups * bytes_of_item<part>() + activations::bytes;
        part weights[groups];
        activations a;
    };
    static constexpr int beside_stages = groups * static_cast<int>(sizeof(turned_tile)) + 2048;
    static constexpr int stages_that_fit = (shared_memory_limit - beside_stages) / static_cast<int>(sizeof(stage));
    static constexpr int stages = Shape.stages > 0 ? Shape.stages : stages_that_fit < 16 ? stages_that_fit : 16;
    struct shared_memory {
        pipeline<stage, stages> ring;
        turned_tile turned[groups];
        transaction_barrier turned_full[groups];
        transaction_barrier turned_empty[groups];
    };

    static constexpr IMBREX_FN int tiles_of(int n) { return (n + columns - 1) / columns; }
    static constexpr IMBREX_FN int steps_of(int k) { return (k + depth - 1) / depth; }

    static constexpr IMBREX_FN int blocks_of(int n, int multiprocessors) {
        return few_rows_blocks(tiles_of(n), sharers, multiprocessors);
    }

    static arguments describe(const gemm_problem<element, Out>& p, const typename Weights::argument& weights,
                              const Epilogue& epilogue) {
        detail::require_few_rows(p, Rows);
        require(steps_of(p.k) >= sharers, "k: ", p.k, "; each of ", sharers, " blocks needs a step of ", depth);
        return {weights,
                tensor_of<activations_rows>(matrix(p.a.pointer, p.m, p.k, p.a.stride), tensor_use::load_in_steps),
                detail::view_of(p.out, p.m, p.n, 1),
                epilogue,
                tiles_of(p.n),
                steps_of(p.k)};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.a);
        if constexpr (requires { args.weights.map; }) prefetch_descriptor(block, args.weights);
        shared.ring.init(block, 4 * groups);
        for (int group = 0; group < groups && finishers > 1; ++group) {
            shared.turned_full[group].init(block, 4 * sharers);
            shared.turned_empty[group].init(block, 4 * finishers);
        }
        fence_barriers(block);
        block.cluster_sync();
        if constexpr (!reads_early) wait_for_kernel_before(block);
        allow_next_kernel(block);
        const work_list work(block, args.steps);
        block.roles(producer<40>([&](warp& self) { feed(self, work, args, shared); }),
                    consumers<groups, 232>([&](warpgroup& self) { consume(self, work, args, shared); }));
        if constexpr (sharers > 1) block.cluster_sync();
    }

  private:
    using work_list = gemm_shared_work<sharers>;

    IMBREX_KERNEL static void feed(const warp& self, const work_list& work, const arguments& args,
                                   shared_memory& shared) {
        auto filling = shared.ring.producer(self);
        // Weights that come before the activations may be asked for.
        int ahead = !reads_early ? 0 : stages < work.count ? stages : work.count;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            for (int i = 0; i < work.count; ++i) {
                auto slot = filling.acquire();
                const int step = work.first + i;
                for (int group = 0; group < groups; ++group) {
                    const int apart = gated ? args.out.columns() : group_columns;
                    Weights::load(self, slot->weights[group], args.weights, tile * columns + group * apart, step, slot);
                }
                if (i >= ahead) {
                    load_activations(self, slot->a, args, step, slot.barrier());
                } else if (i == ahead - 1) {
                    wait_for_kernel_before(self);
                    for (int j = 0; j < ahead; ++j) {
                        load_activations(self, shared.ring.items[j].a, args, work.first + j, shared.ring.full[j]);
                    }
                    ahead = 0;
                }
            }
        }
    }

    IMBREX_KERNEL static void load_activations(const warp& self, activations& to, const arguments& args, int step,
                                               transaction_barrier& landing) {
        const int last = (args.out.rows() - 1) / load_rows;
        for (int i = 0; i < Rows / load_rows; ++i) {
            load_async(self, to.template part<load_rows, depth>(i * load_rows, 0),
                       args.a.tile(i < last ? i : last, step), landing);
        }
    }

    IMBREX_KERNEL static void consume(const warpgroup& self, const work_list& work, const arguments& args,
                                      shared_memory& shared) {
        if constexpr (reads_early) wait_for_kernel_before(self);
        // Rows that are not turned are read all the same.
        if constexpr (Rows < 64) fill(self, shared.turned[self.index()], 0.0f);
        auto full = shared.ring.consumer(self);
        unsigned turn = 0;
        sums sum;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            multiply(self, full, sum, work.count);
            finish(self, work.rank, tile, args, shared, sum, turn++);
        }
    }

    template <class Stages>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Stages& full, sums& sum, int count) {
        auto held = full.wait();
        Weights::multiply(self, sum, held->weights[self.index()], held->a, accumulation::replace);
        for (int i = 1; i < count; ++i) {
            if constexpr (!Weights::overlaps) held.release();
            auto next = full.wait();
            Weights::multiply(self, sum, next->weights[self.index()], next->a, accumulation::add);
            if constexpr (Weights::overlaps) wait_mma<1>(self);
            held = std::move(next);
        }
        if constexpr (Weights::overlaps) wait_mma(self, sum);
    }

    // From the sums to D.
    IMBREX_KERNEL static void finish(const warpgroup& self, int rank, int tile, const arguments& args,
                                     shared_memory& shared, const sums& sum, unsigned turn) {
        const int group = self.index();
        const auto each_turned = [&](auto&& act) {  // of those that this group reads
            for (int which = gated ? 0 : group; which < (gated ? groups : group + 1); ++which) act(which);
        };
        if constexpr (finishers > 1) shared.turned_empty[group].wait(self, turn - 1);
        self.sync();
        store(self, shared.turned[group].template part<Rows, group_columns>(0, 0), transpose_of(sum));
        self.sync();
        if constexpr (finishers > 1) {
            if constexpr (sharers > 1) fence_cluster(self);
            tell(self, shared.turned_full[group]);
            each_turned([&](int which) { shared.turned_full[which].wait(self, turn); });
            if constexpr (sharers > 1) fence_cluster(self);
        }
        write(self, rank, tile * columns, args, shared);
        if constexpr (finishers > 1) each_turned([&](int which) { tell(self, shared.turned_empty[which]); });
    }

    // This block's columns of a tile.
    IMBREX_KERNEL static void write(const warpgroup& self, int rank, int tile_column, const arguments& args,
                                    shared_memory& shared) {
        const int group = self.index();
        const int first = finished_columns * (gated ? rank * groups + group : rank);
        for (int column = first; column < first + finished_columns; column += at_once) {
            result values = gather(self, shared.turned[gated ? 0 : group], column);
            const gemm_place at{0, 0, tile_column + (gated ? 0 : group * group_columns) + column};
            if constexpr (gated) {
                args.epilogue(self, values, gather(self, shared.turned[1], column), at);
            } else {
                args.epilogue(self, values, at);
            }
            store(self, args.out.at(at.batch, at.row, at.column), to<Out>(self, values));
        }
    }

    // Arrives at this barrier in all blocks that share the tile.
    IMBREX_KERNEL static void tell(const warpgroup& self, transaction_barrier& barrier,
                                   source here = source::current()) {
        if constexpr (sharers == 1) {
            barrier.arrive(self, here);
        } else {
            for (int rank = 0; rank < sharers; ++rank) barrier.arrive_at(self, rank, here);
        }
    }

    // Some columns of a group's turned sums, over all blocks that share the tile.
    IMBREX_KERNEL static result gather(const warpgroup& self, const turned_tile& turned, int column) {
        const auto from = turned.template part<64, at_once>(0, column);
        result values;
        if constexpr (sharers == 1) {
            load(self, values, from);
        } else {
            load_from_block(self, values, from, 0);
            for (int rank = 1; rank < sharers; ++rank) {
                result more;
                load_from_block(self, more, from, rank);
                combine(self, values, more, add{});
            }
        }
        return values;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
