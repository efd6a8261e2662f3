// GEMM for Hopper with up to 128 rows, by cluster split-K: if there are too few output tiles for all SMs, the two
// blocks of a cluster share a tile of 128 x 128. Each block accumulates half of K and finishes half of the columns.
// Like the small-M GEMM (small_m.hpp) it is bound by reading B once, but A has enough rows to be the M operand of
// wgmma, so there is no swap-AB.
//
//   producer   loads A and B of the block's K steps into a ring of stages
//   consumers  two warpgroups, 64 rows of D each
//   exchange   each warpgroup sends the partial sums of the columns that the other block finishes from registers to
//              that block's shared memory (DSMEM async store), and adds the partial sums it receives to its own. A sum
//              of two is commutative, so the result is bitwise reproducible
//   epilogue   through the epilogue functor and the exchange buffer, now free, into rows of D
//
// Split-K in a cluster needs no workspace and no atomics. stream-K, which splits tiles at arbitrary K steps across the
// grid and reduces through global memory, is not implemented.
//
// If there are enough tiles, a block has a tile to itself and finishes its two column halves in turn. With a GLU
// epilogue the first 64 columns of a tile are the gate and the others the same columns of the up matrix.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/cluster_work.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/dsmem_buffer.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <type_traits>

namespace imbrex {

struct cluster_split_k_shape {
    int cluster_size = 2;  // blocks that share a tile: 1 or 2
    int stages = 0;        // 0: as many as fit
};

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue, matrix_layout B, cluster_split_k_shape Shape = cluster_split_k_shape{}>
struct gemm_cluster_split_k {
    using element = In;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int consumer_warpgroups = 2;
    static constexpr int warpgroup_m = 64;
    static constexpr int block_m = consumer_warpgroups * warpgroup_m;
    static constexpr int warps = 4 + 4 * consumer_warpgroups;
    static constexpr int cluster_size = Shape.cluster_size;
    static constexpr int cluster = cluster_size;
    static constexpr int block_k = 64;    // K per mainloop step
    static constexpr int block_n = 128;   // columns of B in a tile
    static constexpr int load_rows = 16;  // rows of A per load; missing rows repeat the last ones (small_m.hpp)
    static constexpr int b_load_n = 64;   // columns of B per load
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    static constexpr int out_columns = is_glu ? block_n / 2 : block_n;  // columns of D in a tile
    static constexpr int finished = out_columns / 2;                    // columns of D that a block finishes at once
    static_assert(cluster_size == 1 || cluster_size == 2, "imbrex: cluster split-K has a cluster size of 1 or 2");

    static constexpr bool b_is_k_major = B == matrix_layout::column_major;
    using a_tile = shared_tile<In, warpgroup_m, block_k>;
    using a_rows = shared_tile<In, load_rows, block_k>;
    using b_tile =
        std::conditional_t<b_is_k_major, shared_tile<In, block_n, block_k>, shared_tile<In, block_k, block_n>>;
    using b_load_tile =
        std::conditional_t<b_is_k_major, shared_tile<In, b_load_n, block_k>, shared_tile<In, block_k, b_load_n>>;
    using out_tile = shared_tile<Out, warpgroup_m, finished>;
    using sums = warpgroup_tile<float, warpgroup_m, block_n>;
    // A block finishes two subtiles: adjacent columns, or with a GLU the same columns of gate and up.
    static constexpr int exchange_n = 32;
    using exchange_tile = warpgroup_tile<float, warpgroup_m, exchange_n>;
    struct dsmem_buffers {
        dsmem_buffer<float, warpgroup_m, exchange_n> of[2];
    };
    static constexpr IMBREX_FN int exchange_column(int rank, int which) {
        return is_glu ? out_columns * which + exchange_n * rank : finished * rank + exchange_n * which;
    }

    struct arguments {
        tma_tensor<a_rows, 2> a;
        tma_tensor<b_load_tile, 2> b;
        gemm_view<Out> out;
        Epilogue epilogue;
        int tiles;
        int steps;  // K steps
    };
    struct stage {
        a_tile a[consumer_warpgroups];
        b_tile b;
    };
    using epilogue_buffer = overlay<dsmem_buffers, out_tile>;
    static constexpr int beside_stages = consumer_warpgroups * static_cast<int>(sizeof(epilogue_buffer)) + 2048;
    static constexpr int stages_that_fit = (shared_memory_limit - beside_stages) / static_cast<int>(sizeof(stage));
    static constexpr int stages = Shape.stages > 0 ? Shape.stages : stages_that_fit;
    struct shared_memory {
        pipeline<stage, stages> ring;
        epilogue_buffer epilogue_buffers[consumer_warpgroups];
        transaction_barrier landed[consumer_warpgroups];  // the other block's partial sums have landed here
        transaction_barrier free[consumer_warpgroups];    // the other block's buffer is free
    };

    static constexpr IMBREX_FN int tiles_of(int n) { return ceil_div(n, out_columns); }
    static constexpr IMBREX_FN int steps_of(int k) { return ceil_div(k, block_k); }

    static arguments describe(const gemm_problem<In, Out>& p, const Epilogue& epilogue) {
        detail::require_small_m(p, block_m);
        require(steps_of(p.k) >= cluster_size, "k: ", p.k, "; each of ", cluster_size, " blocks needs a step of ",
                block_k);
        const int b_columns = p.n * (is_glu ? 2 : 1);
        const auto b = b_is_k_major ? matrix(p.b.pointer, b_columns, p.k, p.b.stride)
                                    : matrix(p.b.pointer, p.k, b_columns, p.b.stride);
        return {make_tma_tensor<a_rows>(matrix(p.a.pointer, p.m, p.k, p.a.stride), tma_use::load_narrow_l2_promotion),
                make_tma_tensor<b_load_tile>(b, tma_use::load_narrow_l2_promotion),
                detail::view_of(p.out, p.m, p.n, 1),
                epilogue,
                tiles_of(p.n),
                steps_of(p.k)};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.a);
        prefetch_descriptor(block, args.b);
        shared.ring.init(block, 4 * consumer_warpgroups);
        for (int group = 0; group < consumer_warpgroups && cluster_size > 1; ++group) {
            shared.landed[group].init(block, 4);
            shared.free[group].init(block, 4);
        }
        fence_barriers(block);
        block.cluster_sync();
        pdl_wait(block);
        pdl_launch_dependents(block);
        const work_list work(block, args.steps);
        block.roles(producer<40>([&](warp& self) { feed(self, work, args, shared); }),
                    consumers<consumer_warpgroups, 232>([&](warpgroup& self) { consume(self, work, args, shared); }));
    }

  private:
    using work_list = gemm_cluster_work<cluster_size>;

    IMBREX_KERNEL static void feed(const warp& self, const work_list& work, const arguments& args,
                                   shared_memory& shared) {
        auto filling = shared.ring.producer(self);
        const int last = (args.out.rows() - 1) / load_rows;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            for (int step = work.first; step < work.first + work.count; ++step) {
                auto slot = filling.acquire();
                for (int first = 0; first < block_n; first += b_load_n) {
                    const int up = is_glu && first > 0 ? args.out.columns() - out_columns : 0;
                    load_b_tile(self, slot->b, first, tile * out_columns + first + up, step, args, slot);
                }
                for (int i = 0; i < block_m / load_rows; ++i) {
                    constexpr int in_group = warpgroup_m / load_rows;
                    load_async(self,
                               slot->a[i / in_group].template subtile<load_rows, block_k>(i % in_group * load_rows, 0),
                               args.a.tile(i < last ? i : last, step), slot);
                }
            }
        }
    }

    template <class Slot>
    IMBREX_KERNEL static void load_b_tile(const warp& self, b_tile& b, int first, int column, int step,
                                          const arguments& args, const Slot& slot) {
        if constexpr (b_is_k_major) {
            load_async(self, b.template subtile<b_load_n, block_k>(first, 0),
                       args.b.at(column, step * block_k).out_of_bounds_fill().evict_first(), slot);
        } else {
            load_async(self, b.template subtile<block_k, b_load_n>(0, first),
                       args.b.at(step * block_k, column).out_of_bounds_fill().evict_first(), slot);
        }
    }

    IMBREX_KERNEL static void consume(const warpgroup& self, const work_list& work, const arguments& args,
                                      shared_memory& shared) {
        constexpr operand_transpose b_read = b_is_k_major ? operand_transpose::transposed : operand_transpose::none;
        auto full = shared.ring.consumer(self);
        unsigned phase = 0;
        sums sum;
        for (int tile = work.first_tile; tile < args.tiles; tile += work.tile_step) {
            const gemm_coord at{0, self.index() * warpgroup_m, tile * out_columns};
            accumulate_in_place{}.template run<operand_transpose::none, b_read, 0>(self, full, sum, work.count, at,
                                                                                   [](auto) {});
            if constexpr (cluster_size == 1) {
                finish<0>(self, sum, at, phase, args, shared);
                finish<1>(self, sum, at, phase, args, shared);
            } else if (work.rank == 0) {
                finish<0>(self, sum, at, phase, args, shared);
            } else {
                finish<1>(self, sum, at, phase, args, shared);
            }
            if (cluster_size > 1 && tile + work.tile_step < args.tiles) {
                fence_async(self);
                shared.free[self.index()].arrive_at(self, 1 - work.rank);
            }
            ++phase;
        }
    }

    // Finishes the columns that belong to the block with this rank.
    template <int Rank>
    IMBREX_KERNEL static void finish(const warpgroup& self, const sums& sum, gemm_coord at, unsigned phase,
                                     const arguments& args, shared_memory& shared) {
        exchange_tile parts[2];
        static_for<2>(
            [&](auto which) { parts[which] = columns_of<exchange_column(Rank, which), exchange_n>(self, sum); });
        if constexpr (cluster_size > 1) exchange<1 - Rank>(self, parts, sum, phase, shared);
        at.column += Rank * finished;
        store_epilogue(self, parts, at, args, shared.epilogue_buffers[self.index()].template as<out_tile>());
    }

    // Sends the partial sums that the other block finishes, and adds the ones it sends.
    template <int Other>
    IMBREX_KERNEL static void exchange(const warpgroup& self, exchange_tile (&parts)[2], const sums& sum,
                                       unsigned phase, shared_memory& shared) {
        const int group = self.index();
        dsmem_buffers& place = shared.epilogue_buffers[group].template as<dsmem_buffers>();
        shared.free[group].wait(self, phase - 1);
        static_for<2>([&](auto which) {
            dsmem_store_async(self, place.of[which], columns_of<exchange_column(Other, which), exchange_n>(self, sum),
                              shared.landed[group], Other);
        });
        shared.landed[group].expect(self, static_cast<int>(sizeof(dsmem_buffers)));
        shared.landed[group].wait(self, phase);
        fence_cluster(self);
        static_for<2>([&](auto which) {
            exchange_tile more;
            load_dsmem_buffer(self, more, place.of[which]);
            combine(self, parts[which], more, functional::add{});
        });
    }

    // Applies the epilogue and stores through the exchange buffer.
    IMBREX_KERNEL static void store_epilogue(const warpgroup& self, exchange_tile (&parts)[2], gemm_coord at,
                                             const arguments& args, out_tile& out) {
        self.sync();
        if constexpr (is_glu) {
            args.epilogue(self, parts[0], parts[1], at);
            store(self, out, convert_to<Out>(self, parts[0]));
        } else {
            static_for<2>([&](auto which) {
                args.epilogue(self, parts[which], gemm_coord{at.batch, at.row, at.column + which * exchange_n});
                store(self, out.template subtile<warpgroup_m, exchange_n>(0, which * exchange_n),
                      convert_to<Out>(self, parts[which]));
            });
        }
        self.sync();
        store(self, args.out.at(at.batch, at.row, at.column), out);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
