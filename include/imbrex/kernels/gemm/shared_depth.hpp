// D = epilogue(A B) for up to 128 rows, where there are too few tiles of columns for all multiprocessors: two blocks share a tile of
// 128 x 128, each with a half of K, and each finishes a half of its columns. As with fewer rows (few_rows.hpp) the time goes into reading
// B once, but here A has rows enough for the tensor cores to take them as they are. Made for Hopper.
//
//   producer     A and B of the next steps of the block's K into a ring of stages
//   consumers    two warpgroups, 64 rows of D each
//   exchange     each group sends the sums of the columns that the other block finishes out of its registers into that block's shared
//                memory, and adds what it is sent to those that it has kept: the same bits every time, for a sum of two is the same
//                either way round
//   leave        through the epilogue and, where the sums came in, through shared memory into rows of D
//
// Where there are tiles enough a block has one to itself, and finishes one half of its columns after the other.
//
// With a gated epilogue the first 64 columns of a tile are of the gate and the others the same columns of up.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/kernels/gemm/shared_work.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/parcel.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tensor.hpp>

#include <type_traits>

namespace imbrex {

struct shared_depth_shape {
    int sharers = 2;  // blocks that share a tile: 1 or 2
    int stages = 0;   // 0: as many as fit
};

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue, stored B, shared_depth_shape Shape = shared_depth_shape{}>
struct gemm_shared_depth {
    using element = In;
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int groups = 2;
    static constexpr int group_rows = 64;
    static constexpr int rows = groups * group_rows;
    static constexpr int warps = 4 + 4 * groups;
    static constexpr int sharers = Shape.sharers;
    static constexpr int cluster = sharers;
    static constexpr int depth = 64;      // of a step of K
    static constexpr int columns = 128;   // of B, in a tile
    static constexpr int load_rows = 16;  // of A at a time; of those that it lacks others stand in (few_rows.hpp)
    static constexpr int piece = 64;      // columns of B at a time
    static constexpr bool gated = is_gated<Epilogue>;
    static constexpr int out_columns = gated ? columns / 2 : columns;  // of D, in a tile
    static constexpr int finished = out_columns / 2;                   // and in what a block leaves at once
    static_assert(sharers == 1 || sharers == 2, "imbrex: one block or two have a tile of this GEMM");

    static constexpr bool b_across = B == stored::transposed;
    using a_tile = shared_tile<In, group_rows, depth>;
    using a_rows = shared_tile<In, load_rows, depth>;
    using b_tile = std::conditional_t<b_across, shared_tile<In, columns, depth>, shared_tile<In, depth, columns>>;
    using b_piece = std::conditional_t<b_across, shared_tile<In, piece, depth>, shared_tile<In, depth, piece>>;
    using out_tile = shared_tile<Out, group_rows, finished>;
    using sums = group_tile<float, group_rows, columns>;
    // What a block finishes comes in two parts: columns next to each other, or the same ones of gate and up.
    static constexpr int part_columns = 32;
    using part = group_tile<float, group_rows, part_columns>;
    struct parcels {
        parcel<float, group_rows, part_columns> of[2];
    };
    static constexpr IMBREX_FN int part_column(int rank, int which) {
        return gated ? out_columns * which + part_columns * rank : finished * rank + part_columns * which;
    }

    struct arguments {
        tensor<a_rows, 2> a;
        tensor<b_piece, 2> b;
        gemm_view<Out> out;
        Epilogue epilogue;
        int tiles;
        int steps;  // of K
    };
    struct stage {
        a_tile a[groups];
        b_tile b;
    };
    using leaving = overlay<parcels, out_tile>;
    static constexpr int beside_stages = groups * static_cast<int>(sizeof(leaving)) + 2048;
    static constexpr int stages_that_fit = (shared_memory_limit - beside_stages) / static_cast<int>(sizeof(stage));
    static constexpr int stages = Shape.stages > 0 ? Shape.stages : stages_that_fit;
    struct shared_memory {
        pipeline<stage, stages> ring;
        leaving places[groups];
        transaction_barrier landed[groups];  // parcels of the other block
        transaction_barrier free[groups];    // the other block's place for them
    };

    static constexpr IMBREX_FN int tiles_of(int n) { return (n + out_columns - 1) / out_columns; }
    static constexpr IMBREX_FN int steps_of(int k) { return (k + depth - 1) / depth; }

    static arguments describe(const gemm_problem<In, Out>& p, const Epilogue& epilogue) {
        detail::require_few_rows(p, rows);
        require(steps_of(p.k) >= sharers, "k: ", p.k, "; each of ", sharers, " blocks needs a step of ", depth);
        const int b_columns = p.n * (gated ? 2 : 1);
        const auto b = b_across ? matrix(p.b.pointer, b_columns, p.k, p.b.stride)
                                : matrix(p.b.pointer, p.k, b_columns, p.b.stride);
        return {tensor_of<a_rows>(matrix(p.a.pointer, p.m, p.k, p.a.stride), tensor_use::load_in_steps),
                tensor_of<b_piece>(b, tensor_use::load_in_steps),
                detail::view_of(p.out, p.m, p.n, 1),
                epilogue,
                tiles_of(p.n),
                steps_of(p.k)};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.a);
        prefetch_descriptor(block, args.b);
        shared.ring.init(block, 4 * groups);
        for (int group = 0; group < groups && sharers > 1; ++group) {
            shared.landed[group].init(block, 4);
            shared.free[group].init(block, 4);
        }
        fence_barriers(block);
        block.cluster_sync();
        wait_for_kernel_before(block);
        allow_next_kernel(block);
        const work_list work(block, args.steps);
        block.roles(producer<40>([&](warp& self) { feed(self, work, args, shared); }),
                    consumers<groups, 232>([&](warpgroup& self) { consume(self, work, args, shared); }));
    }

  private:
    using work_list = gemm_shared_work<sharers>;

    IMBREX_KERNEL static void feed(const warp& self, const work_list& work, const arguments& args,
                                   shared_memory& shared) {
        auto filling = shared.ring.producer(self);
        const int last = (args.out.rows() - 1) / load_rows;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            for (int step = work.first; step < work.first + work.count; ++step) {
                auto slot = filling.acquire();
                for (int first = 0; first < columns; first += piece) {
                    const int up = gated && first > 0 ? args.out.columns() - out_columns : 0;
                    load_piece(self, slot->b, first, tile * out_columns + first + up, step, args, slot);
                }
                for (int i = 0; i < rows / load_rows; ++i) {
                    constexpr int in_group = group_rows / load_rows;
                    load_async(self, slot->a[i / in_group].template part<load_rows, depth>(i % in_group * load_rows, 0),
                               args.a.tile(i < last ? i : last, step), slot);
                }
            }
        }
    }

    template <class Slot>
    IMBREX_KERNEL static void load_piece(const warp& self, b_tile& b, int first, int column, int step,
                                         const arguments& args, const Slot& slot) {
        if constexpr (b_across) {
            load_async(self, b.template part<piece, depth>(first, 0),
                       args.b.at(column, step * depth).may_be_outside().once(), slot);
        } else {
            load_async(self, b.template part<depth, piece>(0, first),
                       args.b.at(step * depth, column).may_be_outside().once(), slot);
        }
    }

    IMBREX_KERNEL static void consume(const warpgroup& self, const work_list& work, const arguments& args,
                                      shared_memory& shared) {
        constexpr operand b_read = b_across ? operand::across : operand::as_is;
        auto full = shared.ring.consumer(self);
        unsigned turn = 0;
        sums sum;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            const gemm_place at{0, self.index() * group_rows, tile * out_columns};
            accumulate_in_place{}.template run<operand::as_is, b_read, 0>(self, full, sum, work.count, at, [](auto) {});
            if constexpr (sharers == 1) {
                finish<0>(self, sum, at, turn, args, shared);
                finish<1>(self, sum, at, turn, args, shared);
            } else if (work.rank == 0) {
                finish<0>(self, sum, at, turn, args, shared);
            } else {
                finish<1>(self, sum, at, turn, args, shared);
            }
            if (sharers > 1 && tile + work.tile_step < args.tiles) {
                fence_async(self);
                shared.free[self.index()].arrive_at(self, 1 - work.rank);
            }
            ++turn;
        }
    }

    // The columns that are the part of the block of this rank.
    template <int Rank>
    IMBREX_KERNEL static void finish(const warpgroup& self, const sums& sum, gemm_place at, unsigned turn,
                                     const arguments& args, shared_memory& shared) {
        part parts[2];
        detail::each_part<2>(
            [&](auto which) { parts[which] = columns_of<part_column(Rank, which), part_columns>(self, sum); });
        if constexpr (sharers > 1) exchange<1 - Rank>(self, parts, sum, turn, shared);
        at.column += Rank * finished;
        leave(self, parts, at, args, shared.places[self.index()].template as<out_tile>());
    }

    // Sends what the other block finishes, and adds what that one has to these.
    template <int Other>
    IMBREX_KERNEL static void exchange(const warpgroup& self, part (&parts)[2], const sums& sum, unsigned turn,
                                       shared_memory& shared) {
        const int group = self.index();
        parcels& place = shared.places[group].template as<parcels>();
        shared.free[group].wait(self, turn - 1);
        detail::each_part<2>([&](auto which) {
            send_async(self, place.of[which], columns_of<part_column(Other, which), part_columns>(self, sum),
                       shared.landed[group], Other);
        });
        shared.landed[group].expect(self, static_cast<int>(sizeof(parcels)));
        shared.landed[group].wait(self, turn);
        fence_cluster(self);
        detail::each_part<2>([&](auto which) {
            part more;
            take(self, more, place.of[which]);
            combine(self, parts[which], more, add{});
        });
    }

    // Through the epilogue, and through the place where the other block's sums were.
    IMBREX_KERNEL static void leave(const warpgroup& self, part (&parts)[2], gemm_place at, const arguments& args,
                                    out_tile& out) {
        self.sync();
        if constexpr (gated) {
            args.epilogue(self, parts[0], parts[1], at);
            store(self, out, to<Out>(self, parts[0]));
        } else {
            detail::each_part<2>([&](auto which) {
                args.epilogue(self, parts[which], gemm_place{at.batch, at.row, at.column + which * part_columns});
                store(self, out.template part<group_rows, part_columns>(0, which * part_columns),
                      to<Out>(self, parts[which]));
            });
        }
        self.sync();
        store(self, args.out.at(at.batch, at.row, at.column), out);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
