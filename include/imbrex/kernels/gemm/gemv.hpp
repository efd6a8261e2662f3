// GEMV (skinny GEMM) for Hopper: D = epilogue(A W^T) for 1 to 16 rows of A, with weights of any format. It is bound by
// memory bandwidth, so it is built to keep weight loads in flight without a gap, within a launch and, by PDL, from one
// launch to the next.
//
// No warp waits for another before the final reduction. Each warp has its own K steps and its own small ring in shared
// memory. It issues cp.async for its weight subtiles, 64 columns of D by 64 of K, and for the matching activations;
// loads a subtile into registers as stored; issues the copy of a later subtile into the freed buffer; and then
// dequantizes and multiplies by mma.sync. A warp owns all 64 columns of a subtile, so activation fragments are reused
// across many weights.
//
//   block     64 columns of D (with a GLU: of gate and up), and all of K, or a range of K with cluster split-K
//   warp      every 8th K step, of two consecutive subtiles
//   finish    adds the partial sums of all warps, and of all blocks of the cluster, in a fixed order: the result is
//             bitwise reproducible. A warp finishes 8 columns
//
// With `rms_norm_input` each warp also sums the squares of the activations it multiplies, and the products are divided
// by the root mean square of their row at the end (fused RMSNorm).
//
// A block takes half of an SM, unless its shape says otherwise, so that blocks of the next launch fit beside it. Those
// start early, fill their rings with weights and wait in pdl_wait; when the previous kernel ends, their first weights
// are there. A launch with small weights triggers its dependents before its own pdl_wait: then several launches are
// resident, and memory stays busy while short kernels wait for each other. (No kernel ends before its pdl_wait returns,
// so waiting for one kernel implies waiting for all before it.)
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/gemv_rows.hpp>
#include <imbrex/kernels/gemm/gemv_weights.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/global_view.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

struct gemv_shape {
    int cluster_size = 1;  // blocks that share a tile (cluster split-K): 1, 2, 4 or 8
    int warps = 8;
    int stages = 0;                   // weight subtiles in flight per warp; 0: as many as fit
    int min_blocks_per_sm = 2;        // resident blocks that share the shared memory of an SM
    bool pdl_launch_at_once = false;  // pdl_launch_dependents right after the first weight copies
};

// How rows of A are read.
struct unnormalised_input {};
struct rms_norm_input {
    float epsilon = 0;  // added to the mean of the squares
};

template <class Weights, class Out, class Epilogue, int Rows, gemv_shape Shape = gemv_shape{},
          class Input = unnormalised_input, class Placement = every_row>
struct gemv_kernel {
    static_assert(Rows == 8 || Rows == 16, "imbrex: a GEMV has 8 or 16 rows");
    using element = typename Weights::element;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int warps = Shape.warps;
    static constexpr int cluster_size = Shape.cluster_size;
    static constexpr int cluster = cluster_size;
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    static constexpr int tiles = is_glu ? 2 : 1;                        // weight matrices: gate and up
    static constexpr int block_n = detail::subtile_rows_of<Weights>();  // columns of D in a block
    static constexpr int n_atoms = block_n / 16;                        // of 16 columns of D
    static constexpr int block_k = packed_columns;                      // of a subtile
    // Eighths of its steps after which a warp triggers the dependent launch. Earlier, the next launch's weight loads
    // compete with this one's; later, memory idles at the end of this one. (Measured.)
    static constexpr int pdl_launch_after_eighths = Rows == 8 ? 5 : 6;
    // Whether blocks visit their K steps in different orders, so that they do not all read the same activations at
    // once. (Measured: with 8 rows there is too little activation traffic for it to matter.)
    static constexpr bool staggers_k = Rows == 16;
    static constexpr int epilogue_n = 8;  // columns that a warp finishes at a time
    // Two blocks per SM leave 128 registers per thread: too few for 16 rows with a GLU, or with more than 2 bytes of
    // scales per row; for 8 rows with four sums of activations, or a GLU and 6-bit weights.
    static constexpr int scale_bytes = detail::scale_bytes_of<Weights>();
    static constexpr bool takes_whole_sm = Rows == 16 ? is_glu || scale_bytes > 2
                                                      : detail::group_sums_of<Weights>() > 2 ||
                                                            (is_glu && detail::high_words_of<Weights>() > 1);
    static constexpr int min_blocks_per_sm = !takes_whole_sm ? Shape.min_blocks_per_sm : warps < 8 ? 8 / warps : 1;
    // Addresses of a cluster would not fit into the registers of 16 rows with a GLU and four sums of activations.
    static constexpr bool can_split = !(Rows == 16 && is_glu && detail::group_sums_of<Weights>() > 2);
    // A GLU, and the table of a code book, leave no registers for addresses.
    static constexpr bool holds_addresses = !is_glu && !requires { requires Weights::has_code_book; };
    // Consecutive weight subtiles per step. (With a GLU there are registers for one only.)
    static constexpr int subtiles = !is_glu && Weights::block_k % (2 * block_k) == 0 ? 2 : 1;
    static_assert(
        warps * subtiles * block_k % Weights::block_k == 0,
        "imbrex: in a GEMV the block_k of packed weights must divide 128 times the warps (with a GLU 64 times)");

    using weight_subtile = typename Weights::weight_subtile;
    using activations = shared_tile<element, Rows, block_k>;
    using sum = warp_tile<float, 16, Rows>;  // 16 columns of D
    using transposed_tile = shared_tile<float, 16, block_n>;
    using result = warp_tile<float, 16, epilogue_n>;

    // Shared memory per warp: its share of the SM, less the 1 KiB that the system reserves per block.
    static constexpr int bytes_per_warp = (228 * 1024 / Shape.min_blocks_per_sm - 1024) / warps / 1024 * 1024;
    static constexpr int stages_that_fit =
        bytes_per_warp / (activations::bytes + tiles * static_cast<int>(sizeof(weight_subtile)));
    static constexpr int stages = Shape.stages > 0 ? Shape.stages : stages_that_fit;
    static_assert(stages > 0, "imbrex: shared memory does not hold a weight subtile for each warp");
    struct warp_ring {
        activations a[stages];
        weight_subtile weights[stages][tiles];
    };
    struct transposed_sums {
        transposed_tile of[tiles];
    };
    struct arguments {
        typename Weights::argument weights;
        gemm_view<const element> a;
        gemm_view<Out> out;
        Epilogue epilogue;
        int tiles;
        int steps;  // K steps
        Input input;
        Placement placement;
    };
    static constexpr bool fuses_rms_norm = std::is_same_v<Input, rms_norm_input>;
    static_assert(!fuses_rms_norm || cluster_size == 1, "imbrex: rms_norm_input requires a cluster size of 1");
    struct shared_memory {
        overlay<warp_ring, transposed_sums> warp_buffers[warps];       // one per warp
        shared_vector<float, 16> squares[fuses_rms_norm ? warps : 1];  // per warp: sums of squares of rows of A
    };

    static constexpr IMBREX_FN int tiles_of(int n) { return ceil_div(n, block_n); }
    static constexpr IMBREX_FN int steps_of(int k) { return (k + subtiles * block_k - 1) / (subtiles * block_k); }

    // The number of blocks to launch. If there are fewer tiles than SMs, extra blocks repeat the work of others and
    // store nothing: two blocks of the next launch would otherwise share an empty SM and finish late.
    static constexpr IMBREX_FN int blocks_of(int n, int num_sms) {
        const int needed = tiles_of(n) * cluster_size, all = num_sms / cluster_size * cluster_size;
        return needed < all ? all : needed;
    }

    // Whether every row of A starts and ends at a multiple of 16 bytes.
    static bool can_implement(const gemm_operand<const element>& a, int k) {
        return detail::view_of(a, 1, k, 1).at(0, 0, 0).is_16_byte_aligned();
    }

    static arguments describe(const gemm_problem<element, Out>& p, const typename Weights::argument& weights,
                              const Epilogue& epilogue, const Input& input = {}) {
        detail::require_small_m(p, Rows);
        require(!is_glu || p.n % block_n == 0, "n: ", p.n, "; gate and up must be a multiple of ", block_n,
                " columns each");
        require(can_implement(p.a, p.k), "a: ", static_cast<const void*>(p.a.pointer), ", rows of ", p.k, " elements ",
                p.a.stride == 0 ? p.k : p.a.stride, " apart; rows must begin and end at multiples of 16 bytes");
        return {weights,
                detail::view_of(p.a, p.m, p.k, 1),
                detail::view_of(p.out, p.m, p.n, 1),
                epilogue,
                tiles_of(p.n),
                steps_of(p.k),
                input,
                {}};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        if constexpr (Placement::waits_first) pdl_wait(block);
        const int rank = block.cluster_rank(), number = block.index().x / cluster_size;
        const gemv_place place = args.placement.at(number, args.tiles);
        if (Placement::follows_routing && !place.exists) {
            if constexpr (!Placement::waits_first) pdl_wait(block);
            return;
        }
        block.each_warp([&](warp& self) {
            sum sums[tiles][n_atoms];
            multiply(self, sums, warp_work(self, rank, place, args), args, shared);
            store_transposed(self, sums, shared.warp_buffers[self.index()].template as<transposed_sums>());
        });
        block.cluster_sync();
        block.each_warp([&](warp& self) {
            if (!place.exists) return;
            constexpr int column_groups = block_n / epilogue_n, together = cluster_size * warps;
            static_for<ceil_div(column_groups, together)>([&](auto round) {
                const int part = round * together + rank + cluster_size * self.index();
                if (column_groups % together == 0 || part < column_groups) {
                    finish(self, place, part * epilogue_n, args, shared);
                }
            });
        });
        if constexpr (cluster_size > 1) block.cluster_sync();
    }

  private:
    // The K steps of a warp: every `warps`-th step of its block.
    struct warp_work {
        gemv_place place;
        int first;
        int count;
        int stagger;

        IMBREX_KERNEL warp_work(const warp& self, int rank, const gemv_place& place, const arguments& args)
            : place(place), first(args.steps * rank / cluster_size + self.index()) {
            const int left = args.steps * (rank + 1) / cluster_size - first;
            count = left > 0 ? ceil_div(left, warps) : 0;
            const int power_of_two = count & -count;
            stagger = staggers_k ? place.column_tile & (power_of_two - 1) : 0;
        }
        // The step that a warp processes at position `time`; the permutation differs between blocks.
        IMBREX_KERNEL int at_time(int time) const { return time ^ stagger; }
        // The offset of a step from the warp's first step, in columns of K and in packed tiles.
        static IMBREX_KERNEL int column_of(int step) { return step * warps * subtiles * block_k; }
        static IMBREX_KERNEL int part_of(int step) { return step * (warps * subtiles * block_k / Weights::block_k); }
        IMBREX_KERNEL int first_column() const { return first * subtiles * block_k; }
    };

    // The sources of a warp's weights, one per weight matrix.
    struct source_list {
        typename Weights::source of[tiles];
    };
    template <int... Tiles>
    IMBREX_KERNEL static source_list sources(const warp& self, const warp_work& work, const arguments& args,
                                             std::integer_sequence<int, Tiles...>) {
        const int column = work.first_column(), up = args.out.columns() / block_n;
        return source_list{
            {Weights::source_of(self, args.weights.at(work.place.weight_tile + Tiles * up, column / Weights::block_k),
                                column % Weights::block_k)...}};
    }

    IMBREX_KERNEL static void multiply(const warp& self, sum (&sums)[tiles][n_atoms], const warp_work& work,
                                       const arguments& args, shared_memory& shared) {
        warp_ring& own = shared.warp_buffers[self.index()].template as<warp_ring>();
        const source_list weights = sources(self, work, args, std::make_integer_sequence<int, tiles>{});
        // A subtile is identified by the position of its step and its compile-time index in that step.
        const auto copy_weights = [&](int time, auto number, int tile, int place) {
            Weights::copy_subtile(self, own.weights[place][tile], weights.of[tile], work.part_of(work.at_time(time)),
                                  detail::subtile_index<number, subtiles>{});
        };
        const auto copy_first_weights = [&] {
            static_for<stages>([&](auto i) {
                for (int tile = 0; tile < tiles && i / subtiles < work.count; ++tile) {
                    copy_weights(i / subtiles, std::integral_constant<int, i % subtiles>{}, tile, i);
                }
            });
            if (Shape.pdl_launch_at_once || work.count == 0) pdl_launch_dependents(self);
        };
        // Row addresses are computed while weight copies are in flight, unless they depend on loads: those would queue
        // behind the weights.
        if constexpr (!Placement::waits_first) copy_first_weights();
        const auto rows = args.placement.template rows_of<Rows, block_k, holds_addresses>(
            self, args.a, work.place.first_row, work.first_column());
        if constexpr (Placement::waits_first) copy_first_weights();
        const auto copy_rows = [&](int time, int number, int place) {
            copy_async(self, own.a[place], rows, work.column_of(work.at_time(time)) + number * block_k);
        };
        if constexpr (!Placement::waits_first) pdl_wait(self);
        for (int i = 0; i < stages; ++i) {
            if (i / subtiles < work.count) copy_rows(i / subtiles, i % subtiles, i);
            for (int tile = 0; tile < tiles; ++tile) commit_copies(self);
        }

        for (auto& of_tile : sums) {
            for (sum& one : of_tile) fill(self, one, 0.0f);
        }
        row_values<float, 16, warp> squares;
        fill(self, squares, 0.0f);
        int place = 0;
        for (int step = 0; step < work.count; ++step) {
            if (!Shape.pdl_launch_at_once && step == work.count * pdl_launch_after_eighths / 8)
                pdl_launch_dependents(self);
            sum products[n_atoms];
            static_for<subtiles>([&](auto number) {
                constexpr detail::subtile_index<number, subtiles> at;
                typename detail::gemv_activations<Weights, Rows>::type a;
                static_for<tiles>([&](auto tile) {
                    wait_copies<stages * tiles - 1>(self);
                    self.sync();
                    if constexpr (tile == 0) {
                        load_rows(self, a, rows, own.a[place]);
                        if constexpr (detail::gemv_activations<Weights, Rows>::are_summed) Weights::sum_groups(self, a);
                    }
                    typename Weights::weight_fragment held;
                    Weights::load_fragment(self, held, own.weights[place][tile], at);
                    // The subtile is in registers, so its buffer is free.
                    self.sync();
                    constexpr int later = number + stages;
                    if (step + later / subtiles < work.count) {
                        // Weights first: they come from DRAM. (The other order takes 3% longer.)
                        copy_weights(step + later / subtiles, std::integral_constant<int, later % subtiles>{}, tile,
                                     place);
                        if constexpr (tile == 0) copy_rows(step + later / subtiles, later % subtiles, place);
                    }
                    commit_copies(self);
                    if constexpr (fuses_rms_norm && tile == 0)
                        fold_rows(self, squares, convert_to<float>(self, a), functional::add_square{});
                    // Last to first: the compiler generates a loop that takes 1% less time.
                    static_for<n_atoms>([&](auto number_from_last) {
                        constexpr int block = n_atoms - 1 - number_from_last;
                        Weights::template multiply_rows<16 * block>(self, sums[tile][block], products[block], held, a,
                                                                    at);
                    });
                });
                place = place + 1 < stages ? place + 1 : 0;
            });
        }
        static_for<tiles>([&](auto tile) {
            for (sum& one : sums[tile]) Weights::finish(self, one);
        });
        if constexpr (fuses_rms_norm) {
            finish_rows(self, squares, functional::add{});
            store(self, shared.squares[self.index()], squares);
        }
    }

    // 1 / sqrt(mean square + epsilon) of each row.
    IMBREX_KERNEL static row_values<float, 16, warp> inverse_rms(const warp& self, const arguments& args,
                                                                 const shared_memory& shared) {
        row_values<float, 16, warp> total;
        load(self, total, shared.squares[0]);
        for (int other = 1; other < warps; ++other) {
            row_values<float, 16, warp> more;
            load(self, more, shared.squares[other]);
            combine(self, total, more, functional::add{});
        }
        const float k = static_cast<float>(args.a.columns()), epsilon = args.input.epsilon;
        map(self, total, [=](float sum) { return 1.0f / std::sqrt(sum / k + epsilon); });
        return total;
    }

    // Stores the transposed sums over the warp's ring, which is no longer used.
    IMBREX_KERNEL static void store_transposed(const warp& self, const sum (&sums)[tiles][n_atoms],
                                               transposed_sums& to) {
        sum zeros;
        fill(self, zeros, 0.0f);
        const auto nothing = transpose_of(zeros);
        static_for<tiles>([&](auto tile) {
            static_for<n_atoms>([&](auto block) {
                store(self, to.of[tile].template subtile<Rows, 16>(0, 16 * block), transpose_of(sums[tile][block]));
                // Rows beyond `Rows` are read too.
                if constexpr (Rows < 16) store(self, to.of[tile].template subtile<Rows, 16>(Rows, 16 * block), nothing);
            });
        });
    }

    IMBREX_KERNEL static void finish(const warp& self, const gemv_place& place, int column, const arguments& args,
                                     shared_memory& shared) {
        const gemm_coord at{place.expert, place.first_row, place.column_tile * block_n + column};
        // Computed before the sums arrive: this is the critical path of the next launch.
        const auto to = Placement::template out_rows<Rows>(args.out.at(0, at.row, at.column));
        result values = gather(self, args, shared, 0, column);
        if constexpr (is_glu) {
            args.epilogue(self, values, gather(self, args, shared, 1, column), at);
        } else {
            args.epilogue(self, values, at);
        }
        store(self, to, convert_to<Out>(self, values));
    }

    // Some columns of a tile's sums, reduced over all warps and all blocks of the cluster.
    IMBREX_KERNEL static result gather(const warp& self, const arguments& args, shared_memory& shared, int tile,
                                       int column) {
        result values;
        fill(self, values, 0.0f);
        // All loads of the own block are issued before the first addition.
        constexpr int at_a_time = cluster_size == 1 ? warps : 1;
        for (int rank = 0; rank < cluster_size; ++rank) {
            for (int first = 0; first < warps; first += at_a_time) {
                result more[at_a_time];
                for (int i = 0; i < at_a_time; ++i) {
                    const auto from = shared.warp_buffers[first + i]
                                          .template as<transposed_sums>()
                                          .of[tile]
                                          .template subtile<16, epilogue_n>(0, column);
                    if constexpr (cluster_size == 1) {
                        load(self, more[i], from);
                    } else {
                        dsmem_load(self, more[i], from, rank);
                    }
                }
                for (const result& one : more) combine(self, values, one, functional::add{});
            }
        }
        if constexpr (fuses_rms_norm)
            combine_with_rows(self, values, inverse_rms(self, args, shared), imbrex::functional::multiply{});
        return values;
    }
};

}  // namespace imbrex
