// GEMM for Hopper, D = epilogue(A B): a persistent kernel with warp specialization, one TMA producer warp and two
// consumer warpgroups that issue wgmma.
//
//   producer  loads A and B of the next K steps into a ring of stages. With a cluster, each block loads a slice of B
//             and sends it to all blocks of the cluster by TMA multicast
//   consumer  64 rows of the tile each. It waits for a stage, issues its wgmma and releases the stage before it once
//             that one's wgmma has completed, so one wgmma is always queued (mainloop.hpp)
//   epilogue  applies the epilogue functor to the accumulators and converts to the type of D. The store overlaps the
//             mainloop of the next tile: one subtile of columns at a time through shared memory and TMA. If TMA
//             cannot store D, the registers are stored directly, without overlap
//
// Tiles are visited in rasterisation groups (GROUP_M, ops/grid/scheduler.hpp) for L2 reuse. One launch covers a grouped
// GEMM of up to `Problems` problems of any sizes, each of them batched.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>
#include <imbrex/kernels/gemm/output_tile.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue = epilogue::identity, matrix_layout A = matrix_layout::row_major,
          matrix_layout B = matrix_layout::row_major, gemm_shape Shape = gemm_shape{},
          class Mainloop = accumulate_in_place, int Problems = 1>
struct gemm_hopper {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr int consumer_warpgroups = 2;
    static constexpr int warpgroup_m = 64;
    static constexpr int block_m = consumer_warpgroups * warpgroup_m;
    static constexpr int block_n = Shape.block_n;
    static constexpr int block_k = Shape.block_k;
    static constexpr int cluster = Shape.cluster;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    using output = gemm_output_tile<Out, Epilogue, warpgroup_m, block_n>;
    static constexpr bool is_glu = output::is_glu;
    static constexpr int out_columns = output::columns;
    static constexpr int multicast_n = block_n / cluster;
    // B is loaded in slices. With a GLU epilogue the columns of a tile come from two places in B.
    static constexpr int b_load_n = multicast_n < out_columns ? multicast_n : out_columns;

    static constexpr bool a_is_m_major = A == matrix_layout::column_major;
    static constexpr bool b_is_k_major = B == matrix_layout::column_major;
    using a_tile =
        std::conditional_t<a_is_m_major, shared_tile<In, block_k, warpgroup_m>, shared_tile<In, warpgroup_m, block_k>>;
    using b_tile =
        std::conditional_t<b_is_k_major, shared_tile<In, block_n, block_k>, shared_tile<In, block_k, block_n>>;
    using b_load_tile =
        std::conditional_t<b_is_k_major, shared_tile<In, b_load_n, block_k>, shared_tile<In, block_k, b_load_n>>;
    using out_tile = typename output::shared;
    using sums = warpgroup_tile<float, warpgroup_m, block_n>;

    struct problem {
        tma_tensor<a_tile, 3> a;
        tma_tensor<b_load_tile, 3> b;
        tma_tensor<out_tile, 3> out;
        gemm_view<Out> out_view;
        Epilogue epilogue;
        Mainloop mainloop;
        int tile_rows;     // tiles of block_m rows in D
        int tile_columns;  // tiles of out_columns columns
        int steps;         // K steps
        int batches;
        bool tma_stores;

        // The blocks of a cluster take vertically adjacent tiles of the same columns.
        IMBREX_FN rasterisation_groups order() const {
            return {ceil_div(tile_rows, cluster), tile_columns, Shape.group_m};
        }
        IMBREX_FN int cluster_tiles() const { return order().tiles() * batches; }
    };
    struct arguments {
        problem problems[Problems];
        int count;
    };
    struct stage {
        a_tile a[consumer_warpgroups];
        b_tile b;
    };
    struct shared_memory {
        pipeline<stage, Shape.stages, cluster> ring;
        out_tile out[consumer_warpgroups][2];
    };

    // Encodes the TMA descriptors. Throws imbrex::error if TMA cannot read A or B.
    static problem describe(const gemm_problem<In, Out>& p, const Epilogue& epilogue, const Mainloop& mainloop = {}) {
        const gemm_views<In, Out, A, B, is_glu> views(p);
        problem made{};
        made.a = make_tma_tensor<a_tile>(views.a);
        made.b = make_tma_tensor<b_load_tile>(views.b);
        made.out_view = views.out;
        made.tma_stores = output::tma_can_store(views.out);
        if (made.tma_stores) made.out = make_tma_tensor<out_tile>(views.out, tma_use::store);
        made.epilogue = epilogue;
        made.mainloop = mainloop;
        made.tile_rows = ceil_div(p.m, block_m);
        made.tile_columns = ceil_div(p.n, out_columns);
        made.steps = ceil_div(p.k, block_k);
        made.batches = p.batches;
        return made;
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4 * consumer_warpgroups);
        fence_barriers(block);
        block.cluster_sync();
        block.roles(producer<24>([&](warp& self) { feed(self, block, args, shared); }),
                    consumers<consumer_warpgroups, 240>([&](warpgroup& self) { consume(self, block, args, shared); }));
        if constexpr (cluster > 1) block.cluster_sync();
    }

  private:
    // With a single problem the index is a compile-time constant, which saves registers.
    IMBREX_KERNEL static const problem& problem_of(const arguments& args, int which) {
        return args.problems[Problems == 1 ? 0 : which];
    }

    // Static persistent tile scheduler: the tiles of this block's cluster, through all problems and batches.
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
        // Advances to the problem that contains the linear tile index.
        IMBREX_KERNEL void settle() {
            while (which_ < args_->count && number_ >= now().cluster_tiles()) {
                number_ -= now().cluster_tiles();
                ++which_;
            }
            if (which_ == args_->count) return;
            const rasterisation_groups order = now().order();
            batch = number_ / order.tiles();
            const tile_coord together = order.at(number_ % order.tiles());
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
            // A block beyond the last row has no tile, but still loads its slice of B for the multicast.
            const int row = work.row < one.tile_rows ? work.row : 0;
            const int a_batch = one.a.extents[0] > 1 ? work.batch : 0;
            const int b_batch = one.b.extents[0] > 1 ? work.batch : 0;
            for (int k = 0; k < one.steps; ++k) {
                auto slot = filling.acquire();
                for (int i = 0; i < consumer_warpgroups; ++i) {
                    const int group_row = row * consumer_warpgroups + i;
                    const auto from =
                        a_is_m_major ? one.a.tile(a_batch, k, group_row) : one.a.tile(a_batch, group_row, k);
                    load_async(self, slot->a[i], from.out_of_bounds_fill(), slot);
                }
                for (int first = work.rank * multicast_n; first < (work.rank + 1) * multicast_n; first += b_load_n) {
                    const int column = column_in_b(one, work.column, first);
                    const auto from =
                        b_is_k_major ? one.b.at(b_batch, column, k * block_k) : one.b.at(b_batch, k * block_k, column);
                    load_b_tile(self, slot->b, first, from.out_of_bounds_fill(), slot);
                }
            }
        }
    }

    // The column of B for column `first` of a tile. In a GLU tile the second half is the up matrix, n columns after the
    // gate.
    IMBREX_KERNEL static int column_in_b(const problem& one, int tile_column, int first) {
        const int up = is_glu && first >= out_columns ? one.out_view.columns() - out_columns : 0;
        return tile_column * out_columns + first + up;
    }

    template <class From, class Slot>
    IMBREX_KERNEL static void load_b_tile(warp& self, b_tile& b, int first, const From& from, const Slot& slot) {
        const auto to = [&] {
            if constexpr (b_is_k_major) {
                return b.template subtile<b_load_n, block_k>(first, 0);
            } else {
                return b.template subtile<block_k, b_load_n>(0, first);
            }
        }();
        if constexpr (cluster == 1) {
            load_async(self, to, from, slot);
        } else {
            load_multicast(self, to, from, slot, (1u << cluster) - 1);
        }
    }

    // A converted tile that waits to be stored, and the index of its problem.
    static constexpr int none = -1;
    struct finished_tile {
        output tile;
        int of = none;
    };

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        constexpr operand_transpose a_read = a_is_m_major ? operand_transpose::transposed : operand_transpose::none;
        constexpr operand_transpose b_read = b_is_k_major ? operand_transpose::transposed : operand_transpose::none;
        auto full = shared.ring.consumer(self);
        sums sum;
        finished_tile done;
        work_list work(block, args);
        const auto store_subtile = [&](auto which) {
            if (done.of == none) return;
            const problem& one = problem_of(args, done.of);
            done.tile.template store_subtile<which>(self, one.out, one.out_view.rows(), shared.out[self.index()]);
        };
        // Work overlapped with the wgmma in flight: the stores of the previous tile, and then the index arithmetic of
        // the next tile, whose divisions are slow.
        constexpr int overlapped_subtiles = output::overlaps_store ? output::subtile_count : 0;
        const auto overlapped_work = [&](auto part) {
            if constexpr (part < overlapped_subtiles) {
                store_subtile(part);
            } else {
                done.of = work.which();
                done.tile.at = {work.batch, work.row * block_m + self.index() * warpgroup_m, work.column * out_columns};
                work.advance();
            }
        };
        while (work.more()) {
            const problem& one = work.now();
            const gemm_coord at{work.batch, work.row * block_m + self.index() * warpgroup_m, work.column * out_columns};
            one.mainloop.template run<a_read, b_read, overlapped_subtiles + 1>(self, full, sum, one.steps, at,
                                                                               overlapped_work);
            finish(self, args, sum, done);
            if constexpr (!output::overlaps_store) static_for<output::subtile_count>(store_subtile);
        }
        if constexpr (output::overlaps_store) static_for<output::subtile_count>(store_subtile);
        wait_stores_read(self);
    }

    // Applies the epilogue and converts. Stores directly if TMA cannot store D.
    IMBREX_KERNEL static void finish(warpgroup& self, const arguments& args, const sums& sum, finished_tile& done) {
        const problem& one = problem_of(args, done.of);
        done.tile.finish(self, one.epilogue, sum);
        if (one.tma_stores) return;
        done.tile.store_rows(self, one.out_view);
        done.of = none;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
