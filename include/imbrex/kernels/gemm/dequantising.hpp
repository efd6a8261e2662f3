// Fused dequantisation GEMM for Hopper: 33 to about 1,000 rows of A with packed weights (quantised_weights.hpp). Swap-AB
// as in the small-M GEMM (small_m.hpp): the weights are the M operand of wgmma, and they come from registers, where they
// are dequantised (dequantize in American spelling). `Rows` rows of A, 64 to 256, are its N, so a weight is dequantised
// once for all of them, and no dequantised weight passes through shared memory.
//
//   producer    loads packed weights and rows of A of the next K steps into a ring of stages
//   consumers   two warpgroups, 64 columns of D each, dequantise and multiply (dequantising_tile.hpp)
//   finish      transposes the accumulators through shared memory, the ring's, into rows of D, applies the epilogue and
//               stores
//
// A block has one tile. If there are too few tiles for all SMs, the two blocks of a cluster share one (cluster split-K).
// Each takes half of K, and for the columns that it finishes it reads the other's sums through DSMEM. With a GLU epilogue
// the first warpgroup has columns of the gate and the second the same columns of the up matrix.
//
// Grouped weights are multiplied by their scales and rounded to the type of A. MXFP4, int8 and e4m3 are exact.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/cluster_work.hpp>
#include <imbrex/kernels/gemm/dequantising_tile.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <cstdint>

namespace imbrex {

struct gemm_dequantising_shape {
    int cluster_size = 1;  // blocks that share a tile (cluster split-K): 1 or 2
    int stages = 0;        // 0: as many as fit
};

// The tile and cluster size with the least estimated time: waves of blocks, each of which takes a constant time to start
// and end, and for each K step the time of its weights and of its rows. In units of a row and step, measured with int4.
struct gemm_dequantising_tile {
    int rows;
    int cluster_size;
};
constexpr gemm_dequantising_tile choose_dequantising_tile(int m, int tile_columns, int steps, int num_sms) {
    constexpr int start_and_end = 3200, weights = 100;
    constexpr gemm_dequantising_tile tiles[] = {{64, 1}, {64, 2}, {128, 1}, {128, 2}, {256, 1}};
    const auto time_of = [&](const gemm_dequantising_tile& tile) {
        const std::int64_t blocks = std::int64_t{ceil_div(m, tile.rows)} * tile_columns * tile.cluster_size;
        return ceil_div(blocks, num_sms) * (start_and_end + (weights + tile.rows) * ceil_div(steps, tile.cluster_size));
    };
    gemm_dequantising_tile best = tiles[0];
    for (const gemm_dequantising_tile& tile : tiles) {
        if (tile.cluster_size <= steps && time_of(tile) < time_of(best)) best = tile;
    }
    return best;
}

inline namespace IMBREX_WORLDS {

template <dequantises_blocks Weights, class Out, class Epilogue, int Rows,
          gemm_dequantising_shape Shape = gemm_dequantising_shape{}>
struct gemm_dequantising {
    using element = typename Weights::element;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int cluster_size = Shape.cluster_size;
    static constexpr int cluster = cluster_size;
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    using tile = dequantising_tile<Weights, is_glu, Rows>;
    using stage = typename tile::stage;
    using sums = typename tile::sums;
    static constexpr int consumer_warpgroups = tile::consumer_warpgroups;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr int warpgroup_n = packed_rows;
    static constexpr int block_n = tile::block_n;
    // How many warpgroups share the epilogue of the 64 columns of one accumulator.
    static constexpr int finishers = cluster_size * (is_glu ? consumer_warpgroups : 1);
    static constexpr int finished_columns = warpgroup_n / finishers;
    static constexpr int epilogue_n = finished_columns < 32 ? finished_columns : 32;
    static constexpr int epilogue_m = 64;
    static_assert(Rows == 64 || Rows == 128 || Rows == 256, "imbrex: a tile of this GEMM has 64, 128 or 256 rows of A");
    static_assert(cluster_size == 1 || cluster_size == 2, "imbrex: the cluster size of this GEMM is 1 or 2");

    // A is loaded a few rows at a time; missing rows repeat the last ones (small_m.hpp).
    static constexpr int load_rows = 16;
    using activations_rows = shared_tile<element, load_rows, tile::step_k>;
    using transposed_tile = shared_tile<float, epilogue_m, warpgroup_n>;  // its rows are rows of D
    using result = warpgroup_tile<float, epilogue_m, epilogue_n>;

    struct arguments {
        typename Weights::argument weights;
        tma_tensor<activations_rows, 2> a;
        gemm_view<Out> out;
        Epilogue epilogue;
        int tile_rows;  // tiles of `Rows` rows
        int steps;      // K steps
    };
    static constexpr int stages_that_fit = (shared_memory_limit - 2048) / static_cast<int>(sizeof(stage));
    static constexpr int stages = Shape.stages > 0 ? Shape.stages : stages_that_fit < 12 ? stages_that_fit : 12;
    static_assert(stages >= 2, "imbrex: two stages of this GEMM do not fit in shared memory");
    struct stage_memory {
        stage items[stages];
    };
    struct transposed_sums {
        transposed_tile of[consumer_warpgroups][Rows / epilogue_m];
    };
    struct shared_memory {
        overlay<stage_memory, transposed_sums> memory;
        pipeline_barriers<stage, stages> ring;
        transaction_barrier sums_stored;
    };

    static constexpr IMBREX_FN int tile_columns_of(int n) { return tile::columns_of_n(n); }
    static constexpr IMBREX_FN int steps_of(int k) { return tile::steps_of(k); }
    static constexpr IMBREX_FN int blocks_of(int m, int n) {
        return ceil_div(m, Rows) * tile_columns_of(n) * cluster_size;
    }

    static arguments describe(const gemm_problem<element, Out>& p, const typename Weights::argument& weights,
                              const Epilogue& epilogue) {
        require(p.m >= 1, "m: ", p.m, "; there must be a row");
        require(p.n >= 1, "n: ", p.n, "; there must be a column");
        require(p.batches == 1, "batches: ", p.batches, "; this kernel takes one product");
        detail::require_operand(p.a, "a", p.m, p.k);
        detail::require_operand(p.out, "out", p.m, p.n);
        const int steps = steps_of(p.k);
        require(steps >= cluster_size, "k: ", p.k, "; each of ", cluster_size, " blocks needs a step of ",
                tile::step_k);
        return {weights,
                make_tma_tensor<activations_rows>(matrix(p.a.pointer, p.m, p.k, p.a.stride),
                                                  tma_use::load_narrow_l2_promotion),
                detail::view_of(p.out, p.m, p.n, 1),
                epilogue,
                ceil_div(p.m, Rows),
                steps};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.a);
        shared.ring.init(block, shared.memory.template as<stage_memory>().items, 4 * consumer_warpgroups);
        if constexpr (cluster_size > 1) shared.sums_stored.init(block, 4 * consumer_warpgroups * cluster_size);
        fence_barriers(block);
        block.cluster_sync();
        pdl_wait(block);
        pdl_launch_dependents(block);
        const work work_of_block(block, args);
        block.roles(
            producer<40>([&](warp& self) { feed(self, work_of_block, args, shared); }),
            consumers<consumer_warpgroups, 232>([&](warpgroup& self) { consume(self, work_of_block, args, shared); }));
        if constexpr (cluster_size > 1) block.cluster_sync();
    }

  private:
    struct all_consumers {
        static constexpr int count = 2;
    };
    using barriers = named_barriers<all_consumers>;

    // The tile of this block's cluster and the K steps of this block. Tiles of the same weights are neighbours.
    struct work : gemm_cluster_work<cluster_size> {
        int row, column;  // the first of the tile

        template <class Block>
        IMBREX_KERNEL work(const Block& block, const arguments& args)
            : gemm_cluster_work<cluster_size>(block, args.steps),
              row(this->first_tile % args.tile_rows * Rows),
              column(this->first_tile / args.tile_rows * block_n) {}
    };

    IMBREX_KERNEL static void feed(const warp& self, const work& own, const arguments& args, shared_memory& shared) {
        auto filling = shared.ring.producer(self, shared.memory.template as<stage_memory>().items);
        const int first = own.row / load_rows, last = (args.out.rows() - 1) / load_rows;
        for (int step = own.first; step < own.first + own.count; ++step) {
            auto slot = filling.acquire();
            tile::load_weights(self, slot, args.weights, own.column, args.out.columns() + own.column, step);
            for (int i = 0; i < Rows / load_rows; ++i) {
                load_async(self, slot->a.template subtile<load_rows, tile::step_k>(i * load_rows, 0),
                           args.a.tile(first + i < last ? first + i : last, step), slot);
            }
        }
    }

    IMBREX_KERNEL static void consume(const warpgroup& self, const work& own, const arguments& args,
                                      shared_memory& shared) {
        auto full = shared.ring.consumer(self, shared.memory.template as<stage_memory>().items);
        sums sum;
        tile::multiply(self, full, sum, own.count);
        store_sums(self, sum, shared);
        write(self, own, args, shared.memory.template as<transposed_sums>());
    }

    // Transposes the accumulators into the memory of the ring, for all warpgroups that finish them.
    IMBREX_KERNEL static void store_sums(const warpgroup& self, const sums& sum, shared_memory& shared) {
        constexpr int all_warps = 4 * consumer_warpgroups;
        barriers::template of<all_consumers>(0).sync(self, all_warps);  // both have read the last stages
        transposed_sums& to = shared.memory.template as<transposed_sums>();
        static_for<Rows / epilogue_m>([&](auto which) {
            store(self, to.of[self.index()][which],
                  transpose_of(columns_of<which * epilogue_m, epilogue_m>(self, sum.of[0])));
        });
        if constexpr (cluster_size > 1) {
            fence_cluster(self);
            for (int rank = 0; rank < cluster_size; ++rank) shared.sums_stored.arrive_at(self, rank);
            shared.sums_stored.wait(self, 0);
            fence_cluster(self);
        } else if constexpr (is_glu) {
            barriers::template of<all_consumers>(1).sync(self, all_warps);
        } else {
            self.sync();
        }
    }

    // The part of a tile that this warpgroup finishes.
    IMBREX_KERNEL static void write(const warpgroup& self, const work& own, const arguments& args,
                                    const transposed_sums& from) {
        const int group = self.index();
        const int first = finished_columns * (is_glu ? own.rank * consumer_warpgroups + group : own.rank);
        for (int which = 0; which < Rows / epilogue_m; ++which) {
            const int row = own.row + which * epilogue_m;
            if (row >= args.out.rows()) return;
            for (int column = first; column < first + finished_columns; column += epilogue_n) {
                result values = gather(self, from.of[is_glu ? 0 : group][which], column);
                const gemm_coord at{0, row, own.column + (is_glu ? 0 : group * warpgroup_n) + column};
                if constexpr (is_glu) {
                    args.epilogue(self, values, gather(self, from.of[1][which], column), at);
                } else {
                    args.epilogue(self, values, at);
                }
                store(self, args.out.at(at.batch, at.row, at.column), convert_to<Out>(self, values));
            }
        }
    }

    // Some columns of the transposed sums, reduced over the cluster.
    IMBREX_KERNEL static result gather(const warpgroup& self, const transposed_tile& sums, int column) {
        const auto from = sums.template subtile<epilogue_m, epilogue_n>(0, column);
        result values;
        if constexpr (cluster_size == 1) {
            load(self, values, from);
        } else {
            result more;
            dsmem_load(self, values, from, 0);
            dsmem_load(self, more, from, 1);
            combine(self, values, more, functional::add{});
        }
        return values;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
