// GEMM for every GPU from sm_80 on, D = epilogue(A B), with cp.async and mma.sync. It accepts any size, stride and
// element alignment, so it is also the fallback for operands that TMA cannot read. One block per output tile. There is
// no warp specialization; every warp does
//
//   fetch       its share of A and B, some K steps ahead, by cp.async into a ring of stages
//   multiply    a warp tile of 96 x 64 (or 64 x 64) by mma.sync, in atoms of 16 rows by half of the columns
//   write       its warp tile of D from registers, through the epilogue
//
// The accumulators take most of the registers, so the operand fragments are single-buffered: each is reloaded for the
// next K slice as soon as the current slice no longer needs it.
//
//     slice     0                                     ...   last
//     half      left             right                      left                          right
//     atoms     0 1 2 3 4 5      0 1 2 3 4 5                0 1 2 3 4 5                   0 1 2 3 4 5
//     loads     B left at its    A, each atom               (next stage landed, sync)     A
//               end              after its products         B left of the next stage      B right
//     copies    A, a later step  B                          into the stage that the previous step has consumed
//
// With a GLU epilogue half of a block's columns are the gate and half the up matrix, so each warp holds both inputs of
// an element of D. Tiles are visited in rasterisation groups (GROUP_M, ops/grid/scheduler.hpp) for L2 reuse.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>

namespace imbrex {

template <class In, class Out, class Epilogue, matrix_layout A = matrix_layout::row_major,
          matrix_layout B = matrix_layout::row_major,
          gemm_ampere_shape Shape =
              default_ampere_shape(sizeof(In), A, B, std::is_same_v<Epilogue, epilogue::identity>)>
struct gemm_ampere {
    static constexpr bool is_integer = std::is_same_v<In, std::int8_t>;
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    static_assert(!std::is_same_v<Out, std::int32_t> || (is_integer && std::is_same_v<Epilogue, epilogue::identity>),
                  "imbrex: int32 output requires int8 inputs and epilogue::identity");

    // A warp tile consists of two column halves: adjacent, or with a GLU one of the gate and one of the up matrix.
    static constexpr int warp_rows = Shape.block_m % 96 == 0 ? 96 : 64;
    static constexpr int half_columns = 32;
    static constexpr int atom_m = 16;
    static constexpr int m_atoms = warp_rows / atom_m;

    static constexpr int block_m = Shape.block_m;
    static constexpr int block_n = is_glu ? Shape.block_n / 2 : Shape.block_n;  // columns of D
    static constexpr int block_k = Shape.block_k_bytes / static_cast<int>(sizeof(In));
    static constexpr int stages = Shape.stages;
    static constexpr int warps_down = block_m / warp_rows;
    static constexpr int warps = warps_down * (Shape.block_n / (2 * half_columns));
    static constexpr int mma_k = 32 / static_cast<int>(sizeof(In));  // K of one mma.sync
    static constexpr int mma_k_steps = block_k / mma_k;
    static_assert(block_m % warp_rows == 0 && Shape.block_n % (2 * half_columns) == 0,
                  "imbrex: a GEMM tile is a multiple of the 96 x 64 or 64 x 64 warp tile");
    static_assert(block_k % mma_k == 0 && mma_k_steps >= 2, "imbrex: block_k has at least two slices of 32 bytes");
    static_assert(stages >= 3, "imbrex: at least 3 stages: one is read, one has landed and one is being filled");

    static constexpr bool a_is_m_major = A == matrix_layout::column_major;
    static constexpr bool b_is_k_major = B == matrix_layout::column_major;
    // A stage of an operand is split into tiles: the rows of one warp if the operand is K-major, and panels of 64 bytes
    // x block_k if it is MN-major. All tiles share one swizzle, so the swizzled offset of a lane is computed once and
    // stays in the same registers for all of them.
    static constexpr int panel_width = 64 / static_cast<int>(sizeof(In));
    static constexpr int matrices = is_glu ? 2 : 1;
    static constexpr int a_tiles = a_is_m_major ? block_m / panel_width : warps_down;
    static constexpr int b_tiles = block_n / (b_is_k_major ? half_columns : panel_width);  // per matrix
    using a_tile =
        std::conditional_t<a_is_m_major, shared_tile<In, block_k, panel_width>, shared_tile<In, warp_rows, block_k>>;
    using b_tile =
        std::conditional_t<b_is_k_major, shared_tile<In, half_columns, block_k>, shared_tile<In, block_k, panel_width>>;

    struct arguments {
        gemm_view<const In> a;  // [batch, m, k], or [batch, k, m] if column-major; batch extent 1: shared by all
        gemm_view<const In> b;  // [batch, k, n], or [batch, n, k] if column-major
        gemm_view<Out> out;
        Epilogue epilogue;
        int tile_rows;     // tiles of block_m rows in D
        int tile_columns;  // tiles of block_n columns
        int steps;         // K steps
        int batches;
    };
    struct stage {
        a_tile a[a_tiles];
        b_tile b[matrices][b_tiles];
    };
    struct shared_memory {
        stage ring[stages];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const gemm_coord tile = tile_of(block.index().x, args);
        block.each_warp([&](warp& self) {
            progress now;
            start_tile(self, tile, args, shared, now);
            sums sum;
            for (auto& half : sum.of) {
                for (sum_tile& strip : half) fill(self, strip, sum_type{});
            }
            if (args.steps > 0) multiply_tile(self, args, shared, now, sum);
            write(self, args, tile, sum, std::make_integer_sequence<int, m_atoms>{});
        });
    }

  private:
    using sum_type = std::conditional_t<is_integer, std::int32_t, float>;
    using sum_tile = warp_tile<sum_type, atom_m, half_columns>;
    struct sums {
        sum_tile of[2][m_atoms];
    };
    using a_fragment = std::conditional_t<a_is_m_major, warp_tile<In, mma_k, atom_m, register_layout::column_major>,
                                          warp_tile<In, atom_m, mma_k>>;
    using b_fragment = std::conditional_t<b_is_k_major, warp_tile<In, half_columns, mma_k>,
                                          warp_tile<In, mma_k, half_columns, register_layout::column_major>>;
    struct operands {
        a_fragment a[m_atoms];
        b_fragment b[2];
    };
    struct everybody {};
    using barriers = named_barriers<everybody>;

    // The coordinate of the first element of a block's tile.
    IMBREX_KERNEL static gemm_coord tile_of(int number, const arguments& args) {
        const rasterisation_groups order{args.tile_rows, args.tile_columns, Shape.group_m};
        const int batch = number / order.tiles();
        const tile_coord tile = order.at(number - batch * order.tiles());
        return {batch, tile.row * block_m, tile.column * block_n};
    }

    template <class T>
    IMBREX_KERNEL static global_tile<T> batch_tile(const gemm_view<T>& view, int batch, int row, int column) {
        return view.at(view.extents[0] == 1 ? 0 : batch, row, column);
    }

    // The share of an operand's tiles that one warp copies: a multiple of 8 rows of some or all of the tiles. The tiles
    // of a K-major operand are stacked vertically, those of an MN-major one horizontally.
    template <class Tile, int Tiles, bool Along>
    struct share_of {
        static constexpr bool along = Along;
        static constexpr int down = std::gcd(warps, Tile::rows / 8);
        static constexpr int beside = warps / down;
        static constexpr int rows = Tile::rows / down;
        static_assert(Tiles % beside == 0, "imbrex: every warp must copy an equal share of a stage");

        IMBREX_KERNEL static int row(const warp& self) { return self.index() % down * rows; }
        IMBREX_KERNEL static int tile(const warp& self) { return self.index() / down; }
        IMBREX_KERNEL static global_tile<const In> tile_of(const global_tile<const In>& all, int number) {
            return Along ? all.from(number * Tile::rows, 0) : all.from(0, number * Tile::columns);
        }
        IMBREX_KERNEL static global_tile<const In> of(const warp& self, const global_tile<const In>& all) {
            return tile_of(all, tile(self)).from(row(self), 0);
        }
    };
    using a_share = share_of<a_tile, a_tiles, !a_is_m_major>;
    using b_share = share_of<b_tile, b_tiles, b_is_k_major>;

    // The per-warp state of the mainloop.
    struct progress {
        global_tile<const In> a;  // the newest copied step
        global_tile<const In> b;
        pipeline_state<stages> filling;
        pipeline_state<stages> reading;
        operands held;
    };

    // What a mainloop step copies while it multiplies: 16-byte chunks fully inside K, or nothing. `ended` also
    // skips loading the first fragments of the next step.
    enum class fetching { chunks, nothing, ended };

    // Atoms of a step, over all slices and both halves, in execution order.
    static constexpr int atom_count = mma_k_steps * 2 * m_atoms;

    IMBREX_KERNEL static void multiply_tile(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                            sums& sum) {
        wait_for_stage<stages - 2>(self);
        load_first(self, now.held, shared.ring[0], std::make_integer_sequence<int, m_atoms>{});
        const int fetches = args.steps - (stages - 1);
        int k = 0;
        if (now.a.is_16_byte_aligned() && b_at(args, now, 0).is_16_byte_aligned() &&
            b_at(args, now, matrices - 1).is_16_byte_aligned()) {
            const int whole = (a_is_m_major ? args.a.rows() : args.a.columns()) / block_k - (stages - 1);
            for (; k < whole; ++k) multiply_step<fetching::chunks>(self, args, shared, now, sum);
        }
        // Unaligned or partial steps. The general copy needs registers, which are free only when no fragment is live.
        for (; k < fetches; ++k) {
            multiply_step<fetching::ended>(self, args, shared, now, sum);
            advance_a(now), advance_b(now);
            fetch_a<false>(self, shared, now);
            fetch_b<false>(self, args, shared, now);
            now.filling.advance();
            commit_copies(self);
            wait_for_stage<stages - 2>(self);
            now.reading.advance();
            load_first(self, now.held, shared.ring[now.reading.stage()], std::make_integer_sequence<int, m_atoms>{});
        }
        for (; k + 1 < args.steps; ++k) multiply_step<fetching::nothing>(self, args, shared, now, sum);
        multiply_step<fetching::ended>(self, args, shared, now, sum);
    }

    // Prologue: copies the first stages - 1 steps.
    IMBREX_KERNEL static void start_tile(const warp& self, gemm_coord at, const arguments& args, shared_memory& shared,
                                         progress& now) {
        now.a = a_share::of(
            self, a_is_m_major ? batch_tile(args.a, at.batch, 0, at.row) : batch_tile(args.a, at.batch, at.row, 0));
        now.b = b_share::of(self, b_is_k_major ? batch_tile(args.b, at.batch, at.column, 0)
                                               : batch_tile(args.b, at.batch, 0, at.column));
        for (int step = 0; step < stages - 1; ++step) {
            if (step > 0) advance_a(now), advance_b(now);
            if (step < args.steps) {
                fetch_a<false>(self, shared, now);
                fetch_b<false>(self, args, shared, now);
            }
            now.filling.advance();
            commit_copies(self);
        }
    }

    // The copy source for matrix 0 or 1 of B. With a GLU the up matrix starts n columns after the gate.
    IMBREX_KERNEL static global_tile<const In> b_at(const arguments& args, const progress& now, int matrix) {
        const int beside = matrix * args.out.columns();
        return b_is_k_major ? now.b.from(beside, 0) : now.b.from(0, beside);
    }

    IMBREX_KERNEL static void advance_a(progress& now) {
        now.a = a_is_m_major ? now.a.from(block_k, 0) : now.a.from(0, block_k);
    }
    IMBREX_KERNEL static void advance_b(progress& now) {
        now.b = b_is_k_major ? now.b.from(0, block_k) : now.b.from(block_k, 0);
    }

    // Copies one K step into the next stage, A first, then B.
    template <bool Chunks>
    IMBREX_KERNEL static void fetch_a(const warp& self, shared_memory& shared, const progress& now) {
        fetch<Chunks, a_share>(self, shared.ring[now.filling.stage()].a, now.a);
    }
    template <bool Chunks>
    IMBREX_KERNEL static void fetch_b(const warp& self, const arguments& args, shared_memory& shared,
                                      const progress& now) {
        stage& to = shared.ring[now.filling.stage()];
        for (int i = 0; i < matrices; ++i) fetch<Chunks, b_share>(self, to.b[i], b_at(args, now, i));
    }
    template <bool Chunks, class Share, class Tile, int Tiles>
    IMBREX_KERNEL static void fetch(const warp& self, Tile (&to)[Tiles], global_tile<const In> from) {
        if constexpr (Chunks) (Share::along ? from.columns : from.rows) = block_k;  // skips the bounds checks along K
        for (int i = 0; i < Tiles; i += Share::beside) {
            const auto part =
                to[Share::tile(self) + i].template subtile<Share::rows, Tile::columns>(Share::row(self), 0);
            if constexpr (Chunks) {
                copy_aligned_async(self, part, Share::tile_of(from, i));
            } else {
                copy_async(self, part, Share::tile_of(from, i));
            }
        }
    }

    // Waits until this warp's copies for the next stage have landed and until all warps have read the current one.
    template <int StepsUnderWay>
    IMBREX_KERNEL static void wait_for_stage(const warp& self) {
        wait_copies<StepsUnderWay>(self);
        barriers::template of<everybody>().sync(self, warps);
    }

    template <fetching What>
    IMBREX_KERNEL static void multiply_step(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                            sums& sum) {
        [&]<int... Places>(std::integer_sequence<int, Places...>) {
            (multiply_atom<What, Places>(self, args, shared, now, sum), ...);
        }
        (std::make_integer_sequence<int, atom_count>{});
    }

    // The products of one atom, and the copies and fragment loads that are due after it.
    template <fetching What, int Place>
    IMBREX_KERNEL static void multiply_atom(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                            sums& sum) {
        constexpr int at_k_step = Place / (2 * m_atoms), half = Place / m_atoms % 2, strip = Place % m_atoms;
        constexpr bool ends_half = strip + 1 == m_atoms, ends_step = at_k_step + 1 == mma_k_steps;
        constexpr bool fetches = What == fetching::chunks;
        constexpr bool goes_on = What != fetching::ended;
        // Copies into the stage of the previous step, which all warps had read at the barrier. The source advances
        // before the copies: advancing it after them would wait until they have read their addresses.
        if constexpr (Place == 0 && fetches) {
            advance_a(now);
            fetch_a<true>(self, shared, now);
        }
        if constexpr (Place == m_atoms && fetches) {
            advance_b(now);
            fetch_b<true>(self, args, shared, now);
            now.filling.advance();
        }
        if constexpr (Place == m_atoms && goes_on) commit_copies(self);  // also if empty, to keep the group count
        multiply(self, sum.of[half][strip], now.held.a[strip], now.held.b[half]);
        if constexpr (ends_step && half == 0 && ends_half && goes_on) {
            wait_for_stage<stages - 2>(self);
            now.reading.advance();
        }
        if constexpr (!ends_step || goes_on) {
            constexpr int next = (at_k_step + 1) % mma_k_steps;
            const stage& from = shared.ring[now.reading.stage()];
            if constexpr (half == 1) load_a_atom<next, strip>(self, now.held, from);
            if constexpr (ends_half) load_half<next, half>(self, now.held, from);
        }
    }

    IMBREX_KERNEL static void multiply(warp& self, sum_tile& sum, const a_fragment& a, const b_fragment& b) {
        if constexpr (a_is_m_major && b_is_k_major) {
            mma_atbt(self, sum, a, b);
        } else if constexpr (a_is_m_major) {
            mma_atb(self, sum, a, b);
        } else if constexpr (b_is_k_major) {
            mma_abt(self, sum, a, b);
        } else {
            mma_ab(self, sum, a, b);
        }
    }

    // The first row of the warp tile, and the first column of one of its halves.
    IMBREX_KERNEL static int row_of(const warp& self) { return self.index() % warps_down * warp_rows; }
    IMBREX_KERNEL static int column_of(const warp& self, int half) {
        return self.index() / warps_down * (is_glu ? half_columns : 2 * half_columns) +
               (is_glu ? 0 : half * half_columns);
    }

    template <int Slice, int Strip>
    IMBREX_KERNEL static void load_a_atom(warp& self, operands& to, const stage& from) {
        if constexpr (a_is_m_major) {
            const int row = row_of(self) + Strip * atom_m;
            load_operand<mma_operand::a>(
                self, to.a[Strip],
                from.a[row / panel_width].template subtile<mma_k, atom_m>(Slice * mma_k, row % panel_width));
        } else {
            load_operand<mma_operand::a>(
                self, to.a[Strip],
                from.a[row_of(self) / warp_rows].template subtile<atom_m, mma_k>(Strip * atom_m, Slice * mma_k));
        }
    }
    template <int Slice, int Half>
    IMBREX_KERNEL static void load_half(warp& self, operands& to, const stage& from) {
        const auto& tiles = from.b[is_glu ? Half : 0];
        const int column = column_of(self, Half);
        if constexpr (b_is_k_major) {
            load_operand<mma_operand::b>(
                self, to.b[Half], tiles[column / half_columns].template subtile<half_columns, mma_k>(0, Slice * mma_k));
        } else {
            load_operand<mma_operand::b>(
                self, to.b[Half],
                tiles[column / panel_width].template subtile<mma_k, half_columns>(Slice * mma_k, column % panel_width));
        }
    }
    template <int... Strips>
    IMBREX_KERNEL static void load_first(warp& self, operands& to, const stage& from,
                                         std::integer_sequence<int, Strips...>) {
        (load_a_atom<0, Strips>(self, to, from), ...);
        load_half<0, 0>(self, to, from);
        load_half<0, 1>(self, to, from);
    }

    template <int... Strips>
    IMBREX_KERNEL static void write(warp& self, const arguments& args, gemm_coord tile, const sums& sum,
                                    std::integer_sequence<int, Strips...>) {
        const gemm_coord left{tile.batch, tile.row + row_of(self), tile.column + column_of(self, 0)};
        const auto write_row = [&](int strip, const sum_tile& first, const sum_tile& second) {
            const gemm_coord at{left.batch, left.row + strip * atom_m, left.column};
            if constexpr (is_glu) {
                store_atom(self, args, at, first, second);
            } else {
                store_atom(self, args, at, first);
                store_atom(self, args, {at.batch, at.row, at.column + half_columns}, second);
            }
        };
        (write_row(Strips, sum.of[0][Strips], sum.of[1][Strips]), ...);
    }
    template <class Sum, class... Sums>
    IMBREX_KERNEL static void store_atom(warp& self, const arguments& args, gemm_coord at, const Sum& sum,
                                         const Sums&... up_sum) {
        const global_tile<Out> place = args.out.at(at.batch, at.row, at.column);
        if constexpr (std::is_same_v<Out, std::int32_t>) {
            store(self, place, sum);
        } else {
            auto values = convert_to<float>(self, sum);
            args.epilogue(self, values, convert_to<float>(self, up_sum)..., at);
            store(self, place, convert_to<Out>(self, values));
        }
    }
};

}  // namespace imbrex
