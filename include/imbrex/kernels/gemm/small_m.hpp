// small-M GEMM for Hopper: 1 to 64 rows of A, bound by reading B once. (Up to 128 rows: cluster_split_k.hpp. Up to 16
// rows with packed or constant weights: gemv.hpp.)
//
// It uses swap-AB: D^T = B^T A^T, so the columns of B (rows of a weight matrix [n, k]) fill the 64 rows of wgmma's M
// and the `Rows` rows of A become its N. The tensor cores multiply no padding, and each byte of B is read by one block.
//
//   producer     loads the weights and the activations (A) of the next K steps into a deep ring of stages
//   consumers    two warpgroups, 64 columns of D each
//   finish       transposes the accumulators through shared memory into rows of D, applies the epilogue and stores
//
// If there are too few output tiles for all SMs, the blocks of a cluster share a tile (cluster split-K). Each block
// takes a range of K and reads the partial sums of the others through DSMEM for the columns that it finishes. They are
// added in the order of K, so the result is bitwise reproducible, and no workspace is needed.
//
// With a GLU epilogue the first warpgroup has columns of the gate and the second the same columns of the up matrix.
//
// The policy `Weights` defines the weights of a stage and their product:
//
//   using element = ...;                     type that the tensor cores multiply, and type of the activations
//   static constexpr int block_k = ...;      K per mainloop step
//   static constexpr bool overlaps = ...;    whether `multiply` returns while its wgmma is in flight
//   struct argument;                         kernel argument: a TMA tensor, or a pointer and sizes
//   struct weight_tile;                      64 columns of B x block_k, in a stage; has `bytes`, or sizeof is taken
//   static void load(const warp&, weight_tile& to, const argument& from, int first_column, int step, const Slot& slot);
//   static void multiply(const warpgroup&, Sum&, const weight_tile&, const Activations&, accumulation);
//
// `load` may be called for columns beyond the last and must then also complete the full transaction bytes of the tile.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/gemm/cluster_work.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
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
#include <imbrex/tile/tma_tensor.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

inline namespace IMBREX_WORLDS {

// Unquantised weights, loaded by TMA from B. 256 bytes of K per step read slightly faster than less.
template <class In, matrix_layout B, int BlockK = 128>
struct unquantised_tma_weights {
    using element = In;
    static constexpr int block_k = BlockK;
    static constexpr bool overlaps = true;
    static constexpr bool b_is_k_major = B == matrix_layout::column_major;
    using weight_tile = std::conditional_t<b_is_k_major, shared_tile<In, 64, block_k>, shared_tile<In, block_k, 64>>;
    using argument = tma_tensor<weight_tile, 2>;

    // `columns` of B: 2 n with a GLU epilogue.
    static argument describe(const gemm_operand<const In>& b, int columns, int k) {
        return make_tma_tensor<weight_tile>(
            b_is_k_major ? matrix(b.pointer, columns, k, b.stride) : matrix(b.pointer, k, columns, b.stride),
            tma_use::load_narrow_l2_promotion);
    }

    template <class Slot>
    IMBREX_KERNEL static void load(const warp& self, weight_tile& to, const argument& from, int first_column, int step,
                                   const Slot& slot) {
        const auto tile = b_is_k_major ? from.at(first_column, step * block_k) : from.at(step * block_k, first_column);
        load_async(self, to, tile.out_of_bounds_fill().evict_first(), slot);
    }
    template <class Sum, class Activations>
    IMBREX_KERNEL static void multiply(const warpgroup& self, Sum& sum, const weight_tile& weights,
                                       const Activations& activations, accumulation how) {
        mma_async<b_is_k_major ? operand_transpose::none : operand_transpose::transposed,
                  operand_transpose::transposed>(self, sum, weights, activations, how);
    }
};

}  // namespace IMBREX_WORLDS

struct small_m_shape {
    int cluster_size = 1;  // blocks that share a tile (cluster split-K): 1, 2, 4 or 8
    int stages = 0;        // 0: as many as fit
    // PDL: loads weights before pdl_wait, while the previous kernel in the stream still runs; that kernel must not
    // write them. If false, only work that reads no global memory precedes pdl_wait.
    bool pdl_prefetch_weights = false;
};

// The cluster size, 1, 2 or 4, for `tiles` output tiles of `steps` K steps: the smallest that saturates memory
// bandwidth or, with more rows, the tensor cores, and that fits on the SMs. (Clusters of four leave some SMs of a
// device idle.)
constexpr IMBREX_FN int small_m_cluster_size(int rows, int tiles, int steps, int num_sms) {
    const int enough = rows <= 16 ? num_sms * 9 / 20 : num_sms * 3 / 4;
    int cluster_size = 1;
    for (const int room : {num_sms, num_sms * 4 / 5}) {
        if (tiles * cluster_size >= enough || tiles * cluster_size * 2 > room || steps < cluster_size * 2) break;
        cluster_size *= 2;
    }
    return cluster_size;
}

// The number of blocks to launch: as many as give each cluster the same number of tiles. Two thirds of the SMs reach
// full memory bandwidth.
constexpr IMBREX_FN int small_m_grid_blocks(int tiles, int cluster_size, int num_sms) {
    const int most = num_sms / cluster_size, rounds = ceil_div(tiles, most);
    return ceil_div(tiles, rounds) * cluster_size;
}

inline namespace IMBREX_WORLDS {

template <class Weights, class Out, class Epilogue, int Rows, small_m_shape Shape = small_m_shape{}>
struct gemm_small_m {
    using element = typename Weights::element;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr int consumer_warpgroups = 2;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr int cluster_size = Shape.cluster_size;
    static constexpr int cluster = cluster_size;
    static constexpr bool uses_pdl = true;
    static constexpr bool prefetches_weights = Shape.pdl_prefetch_weights;
    static constexpr int warpgroup_n = 64;
    static constexpr int block_k = Weights::block_k;
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    static constexpr int block_n = is_glu ? warpgroup_n : consumer_warpgroups * warpgroup_n;  // columns of D in a tile
    // How many warpgroups share the epilogue of the 64 columns of one accumulator, and how many columns each takes at a
    // time.
    static constexpr int finishers = cluster_size * (is_glu ? consumer_warpgroups : 1);
    static constexpr int finished_columns = warpgroup_n / finishers;
    static constexpr int epilogue_n = finished_columns < 32 ? finished_columns : 32;
    static_assert(Rows % 8 == 0 && Rows <= 64, "imbrex: the small-M GEMM has a multiple of 8 rows up to 64");
    static_assert(finished_columns % 8 == 0, "imbrex: the cluster size is at most 8, 4 with a GLU epilogue");

    // A is loaded a few rows at a time. Out-of-bounds rows are slow to load and their values do not matter, so the last
    // rows are loaded again instead.
    static constexpr int load_rows = Rows < 64 ? 8 : 16;
    using activations = shared_tile<element, Rows, block_k>;
    using activations_rows = shared_tile<element, load_rows, block_k>;
    using weight_tile = typename Weights::weight_tile;
    using sums = warpgroup_tile<float, warpgroup_n, Rows>;
    using transposed_tile = shared_tile<float, 64, warpgroup_n>;  // its rows are rows of D
    using result = warpgroup_tile<float, 64, epilogue_n>;

    struct arguments {
        typename Weights::argument weights;
        tma_tensor<activations_rows, 2> a;
        gemm_view<Out> out;
        Epilogue epilogue;
        int tiles;
        int steps;  // K steps
    };
    struct stage {
        static constexpr int bytes = consumer_warpgroups * bytes_of_item<weight_tile>() + activations::bytes;
        weight_tile weights[consumer_warpgroups];
        activations a;
    };
    static constexpr int beside_stages = consumer_warpgroups * static_cast<int>(sizeof(transposed_tile)) + 2048;
    static constexpr int stages_that_fit = (shared_memory_limit - beside_stages) / static_cast<int>(sizeof(stage));
    static constexpr int stages = Shape.stages > 0 ? Shape.stages : stages_that_fit < 16 ? stages_that_fit : 16;
    struct shared_memory {
        pipeline<stage, stages> ring;
        transposed_tile transposed_sums[consumer_warpgroups];
        transaction_barrier transposed_full[consumer_warpgroups];
        transaction_barrier transposed_empty[consumer_warpgroups];
    };

    static constexpr IMBREX_FN int tiles_of(int n) { return ceil_div(n, block_n); }
    static constexpr IMBREX_FN int steps_of(int k) { return ceil_div(k, block_k); }

    static constexpr IMBREX_FN int blocks_of(int n, int num_sms) {
        return small_m_grid_blocks(tiles_of(n), cluster_size, num_sms);
    }

    static arguments describe(const gemm_problem<element, Out>& p, const typename Weights::argument& weights,
                              const Epilogue& epilogue) {
        detail::require_small_m(p, Rows);
        require(steps_of(p.k) >= cluster_size, "k: ", p.k, "; each of ", cluster_size, " blocks needs a step of ",
                block_k);
        return {weights,
                make_tma_tensor<activations_rows>(matrix(p.a.pointer, p.m, p.k, p.a.stride),
                                                  tma_use::load_narrow_l2_promotion),
                detail::view_of(p.out, p.m, p.n, 1),
                epilogue,
                tiles_of(p.n),
                steps_of(p.k)};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.a);
        if constexpr (requires { args.weights.map; }) prefetch_descriptor(block, args.weights);
        shared.ring.init(block, 4 * consumer_warpgroups);
        for (int group = 0; group < consumer_warpgroups && finishers > 1; ++group) {
            shared.transposed_full[group].init(block, 4 * cluster_size);
            shared.transposed_empty[group].init(block, 4 * finishers);
        }
        fence_barriers(block);
        block.cluster_sync();
        if constexpr (!prefetches_weights) pdl_wait(block);
        pdl_launch_dependents(block);
        const work_list work(block, args.steps);
        block.roles(producer<40>([&](warp& self) { feed(self, work, args, shared); }),
                    consumers<consumer_warpgroups, 232>([&](warpgroup& self) { consume(self, work, args, shared); }));
        if constexpr (cluster_size > 1) block.cluster_sync();
    }

  private:
    using work_list = gemm_cluster_work<cluster_size>;

    IMBREX_KERNEL static void feed(const warp& self, const work_list& work, const arguments& args,
                                   shared_memory& shared) {
        auto filling = shared.ring.producer(self);
        // The weights of the first `ahead` steps are loaded before the activations become readable (PDL).
        int ahead = !prefetches_weights ? 0 : stages < work.count ? stages : work.count;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            for (int i = 0; i < work.count; ++i) {
                auto slot = filling.acquire();
                const int step = work.first + i;
                for (int group = 0; group < consumer_warpgroups; ++group) {
                    const int apart = is_glu ? args.out.columns() : warpgroup_n;
                    Weights::load(self, slot->weights[group], args.weights, tile * block_n + group * apart, step, slot);
                }
                if (i >= ahead) {
                    load_activations(self, slot->a, args, step, slot.barrier());
                } else if (i == ahead - 1) {
                    pdl_wait(self);
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
            load_async(self, to.template subtile<load_rows, block_k>(i * load_rows, 0),
                       args.a.tile(i < last ? i : last, step), landing);
        }
    }

    IMBREX_KERNEL static void consume(const warpgroup& self, const work_list& work, const arguments& args,
                                      shared_memory& shared) {
        if constexpr (prefetches_weights) pdl_wait(self);
        // Rows beyond `Rows` are read too.
        if constexpr (Rows < 64) fill(self, shared.transposed_sums[self.index()], 0.0f);
        auto full = shared.ring.consumer(self);
        unsigned phase = 0;
        sums sum;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            multiply(self, full, sum, work.count);
            finish(self, work.rank, tile, args, shared, sum, phase++);
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

    // Transposes the accumulators and stores D.
    IMBREX_KERNEL static void finish(const warpgroup& self, int rank, int tile, const arguments& args,
                                     shared_memory& shared, const sums& sum, unsigned phase) {
        const int group = self.index();
        const auto each_transposed = [&](auto&& act) {  // for each tile that this warpgroup reads
            for (int which = is_glu ? 0 : group; which < (is_glu ? consumer_warpgroups : group + 1); ++which)
                act(which);
        };
        if constexpr (finishers > 1) shared.transposed_empty[group].wait(self, phase - 1);
        if constexpr (finishers == 1 || Rows < 64) self.sync();  // with the fill, too
        store(self, shared.transposed_sums[group].template subtile<Rows, warpgroup_n>(0, 0), transpose_of(sum));
        if constexpr (finishers == 1) {
            self.sync();
        } else {
            if constexpr (cluster_size > 1) fence_cluster(self);
            arrive_in_cluster(self, shared.transposed_full[group]);
            each_transposed([&](int which) { shared.transposed_full[which].wait(self, phase); });
            if constexpr (cluster_size > 1) fence_cluster(self);
        }
        write(self, rank, tile * block_n, args, shared);
        if constexpr (finishers > 1)
            each_transposed([&](int which) { arrive_in_cluster(self, shared.transposed_empty[which]); });
    }

    // The columns of a tile that this block finishes.
    IMBREX_KERNEL static void write(const warpgroup& self, int rank, int tile_column, const arguments& args,
                                    shared_memory& shared) {
        const int group = self.index();
        const int first = finished_columns * (is_glu ? rank * consumer_warpgroups + group : rank);
        for (int column = first; column < first + finished_columns; column += epilogue_n) {
            result values = gather(self, shared.transposed_sums[is_glu ? 0 : group], column);
            const gemm_coord at{0, 0, tile_column + (is_glu ? 0 : group * warpgroup_n) + column};
            if constexpr (is_glu) {
                args.epilogue(self, values, gather(self, shared.transposed_sums[1], column), at);
            } else {
                args.epilogue(self, values, at);
            }
            store(self, args.out.at(at.batch, at.row, at.column), convert_to<Out>(self, values));
        }
    }

    // Arrives at this barrier in every block that shares the tile.
    IMBREX_KERNEL static void arrive_in_cluster(const warpgroup& self, transaction_barrier& barrier,
                                                source here = source::current()) {
        if constexpr (cluster_size == 1) {
            barrier.arrive(self, here);
        } else {
            for (int rank = 0; rank < cluster_size; ++rank) barrier.arrive_at(self, rank, here);
        }
    }

    // Some columns of the transposed sums, reduced over the cluster.
    IMBREX_KERNEL static result gather(const warpgroup& self, const transposed_tile& transposed_sums, int column) {
        const auto from = transposed_sums.template subtile<64, epilogue_n>(0, column);
        result values;
        if constexpr (cluster_size == 1) {
            load(self, values, from);
        } else {
            dsmem_load(self, values, from, 0);
            for (int rank = 1; rank < cluster_size; ++rank) {
                result more;
                dsmem_load(self, more, from, rank);
                combine(self, values, more, functional::add{});
            }
        }
        return values;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
