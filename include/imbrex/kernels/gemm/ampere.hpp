// D = epilogue(A B) on every GPU from sm_80 on, for any size, any distance of rows and any alignment that the elements
// have: what the copy engine cannot do is done here. There is a block for each tile, and all warps of a block do the same:
//
//   fetch       their share of A and B some steps of K ahead, by cp.async, into a ring of stages
//   multiply    96 x 64 (or 64 x 64) of the tile by mma.sync, in strips of 16 rows by half of the columns
//   write       their part of D straight from registers, through the epilogue
//
// The sums take most of the registers, so there is one set of operands: each is loaded for the next slice of K as soon as the
// present slice has no more use for it.
//
//     slice     0                                     ...   last
//     half      left             right                      left                          right
//     strips    0 1 2 3 4 5      0 1 2 3 4 5                0 1 2 3 4 5                   0 1 2 3 4 5
//     loads     B left at its    A, each strip              (stage landed, all met)       A
//               end              after its products         B left of the next stage      B right
//     copies    A, a later step  B                          into the stage that was used up in the step before
//
// With a gated epilogue half of a block's columns are the gate's and half are the other matrix's, so that each warp has
// both of an element of D. Tiles are walked in bands of rows (supergroups), so that blocks at work together find their
// operands in L2.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/numeric.hpp>
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

template <class In, class Out, class Epilogue, stored A = stored::normal, stored B = stored::normal,
          gemm_ampere_shape Shape = usual_ampere_shape(sizeof(In), A, B, std::is_same_v<Epilogue, plain_product>)>
struct gemm_ampere {
    static constexpr bool is_integer = std::is_same_v<In, std::int8_t>;
    static constexpr bool has_gate = is_gated<Epilogue>;
    static_assert(!std::is_same_v<Out, std::int32_t> || (is_integer && std::is_same_v<Epilogue, plain_product>),
                  "imbrex: int32 results are the sums of an int8 product as they are, without an epilogue");

    // Of a warp, which has its columns in two halves: neighbours, or one of each matrix that a gate joins.
    static constexpr int warp_rows = Shape.rows % 96 == 0 ? 96 : 64;
    static constexpr int half_columns = 32;
    static constexpr int strip_rows = 16;
    static constexpr int strips = warp_rows / strip_rows;

    static constexpr int rows = Shape.rows;
    static constexpr int columns = has_gate ? Shape.columns / 2 : Shape.columns;  // of D
    static constexpr int depth = Shape.depth_bytes / static_cast<int>(sizeof(In));
    static constexpr int stages = Shape.stages;
    static constexpr int warps_down = rows / warp_rows;
    static constexpr int warps = warps_down * (Shape.columns / (2 * half_columns));
    static constexpr int slice = 32 / static_cast<int>(sizeof(In));  // what one mma takes of K
    static constexpr int slices = depth / slice;
    static_assert(rows % warp_rows == 0 && Shape.columns % (2 * half_columns) == 0,
                  "imbrex: a GEMM tile is made of the 96 x 64 or 64 x 64 of its warps");
    static_assert(depth % slice == 0 && slices >= 2, "imbrex: a step of K has at least two slices of 32 bytes");
    static_assert(stages >= 3, "imbrex: of three stages one is read, one has landed and one is filled");

    static constexpr bool a_across = A == stored::transposed;
    static constexpr bool b_across = B == stored::transposed;
    // An operand's stage is made of tiles: what a warp reads of one that lies along K, and 64 bytes by the depth of one that lies
    // across. So all are swizzled alike, and what is known of a lane's place in one of them is known for all, in the same registers.
    static constexpr int narrow = 64 / static_cast<int>(sizeof(In));
    static constexpr int matrices = has_gate ? 2 : 1;
    static constexpr int a_tiles = a_across ? rows / narrow : warps_down;
    static constexpr int b_tiles = columns / (b_across ? half_columns : narrow);  // of each matrix
    using a_tile = std::conditional_t<a_across, shared_tile<In, depth, narrow>, shared_tile<In, warp_rows, depth>>;
    using b_tile = std::conditional_t<b_across, shared_tile<In, half_columns, depth>, shared_tile<In, depth, narrow>>;

    struct arguments {
        gemm_view<const In> a;  // [batch, m, k], or [batch, k, m] if transposed; one batch: all products share it
        gemm_view<const In> b;  // [batch, k, n], or [batch, n, k] if transposed
        gemm_view<Out> out;
        Epilogue epilogue;
        int tile_rows;     // tiles of `rows` rows in D
        int tile_columns;  // and of `columns` columns
        int steps;         // of K
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
        const gemm_place tile = tile_of(block.index().x, args);
        block.each_warp([&](warp& self) {
            progress now;
            start_tile(self, tile, args, shared, now);
            sums sum;
            for (auto& half : sum.of) {
                for (sum_tile& strip : half) fill(self, strip, sum_type{});
            }
            if (args.steps > 0) multiply_tile(self, args, shared, now, sum);
            write(self, args, tile, sum, std::make_integer_sequence<int, strips>{});
        });
    }

  private:
    using sum_type = std::conditional_t<is_integer, std::int32_t, float>;
    using sum_tile = warp_tile<sum_type, strip_rows, half_columns>;
    struct sums {
        sum_tile of[2][strips];
    };
    using a_fragment = std::conditional_t<a_across, warp_tile<In, slice, strip_rows, order::columns>,
                                          warp_tile<In, strip_rows, slice>>;
    using b_fragment = std::conditional_t<b_across, warp_tile<In, half_columns, slice>,
                                          warp_tile<In, slice, half_columns, order::columns>>;
    struct operands {
        a_fragment a[strips];
        b_fragment b[2];
    };
    struct everybody {};
    using barriers = named_barriers<everybody>;

    // The first element of a block's tile.
    IMBREX_KERNEL static gemm_place tile_of(int number, const arguments& args) {
        const supergroups order{args.tile_rows, args.tile_columns, Shape.band};
        const int batch = number / order.tiles();
        const tile_place tile = order.at(number - batch * order.tiles());
        return {batch, tile.row * rows, tile.column * columns};
    }

    template <class T>
    IMBREX_KERNEL static global_tile<T> place_in(const gemm_view<T>& view, int batch, int row, int column) {
        return view.at(view.extents[0] == 1 ? 0 : batch, row, column);
    }

    // The share of an operand's tiles that a warp fetches: some rows, eight or a multiple of them, of some or all tiles. The tiles
    // are beside each other, or below each other if the operand lies along K.
    template <class Tile, int Tiles, bool Along>
    struct share_of {
        static constexpr bool along = Along;
        static constexpr int down = std::gcd(warps, Tile::rows / 8);
        static constexpr int beside = warps / down;
        static constexpr int rows = Tile::rows / down;
        static_assert(Tiles % beside == 0, "imbrex: each warp fetches as much of a stage as the others");

        IMBREX_KERNEL static int row(const warp& self) { return self.index() % down * rows; }
        IMBREX_KERNEL static int tile(const warp& self) { return self.index() / down; }
        IMBREX_KERNEL static global_tile<const In> tile_of(const global_tile<const In>& all, int number) {
            return Along ? all.from(number * Tile::rows, 0) : all.from(0, number * Tile::columns);
        }
        IMBREX_KERNEL static global_tile<const In> of(const warp& self, const global_tile<const In>& all) {
            return tile_of(all, tile(self)).from(row(self), 0);
        }
    };
    using a_share = share_of<a_tile, a_tiles, !a_across>;
    using b_share = share_of<b_tile, b_tiles, b_across>;

    // The state of a warp at work.
    struct progress {
        global_tile<const In> a;  // what it has fetched last
        global_tile<const In> b;
        ring_position<stages> filling;
        ring_position<stages> reading;
        operands held;
    };

    // What a step fetches while it multiplies: chunks of 16 bytes all of whose K exists, or nothing. With `ended` it does not load the
    // first operands of the next one either.
    enum class fetching { chunks, nothing, ended };

    // Strips of a step, in both halves and all slices, numbered as they follow each other.
    static constexpr int places = slices * 2 * strips;

    IMBREX_KERNEL static void multiply_tile(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                            sums& sum) {
        meet<stages - 2>(self);
        load_first(self, now.held, shared.ring[0], std::make_integer_sequence<int, strips>{});
        const int fetches = args.steps - (stages - 1);
        int k = 0;
        if (now.a.in_chunks() && b_at(args, now, 0).in_chunks() && b_at(args, now, matrices - 1).in_chunks()) {
            const int whole = (a_across ? args.a.rows() : args.a.columns()) / depth - (stages - 1);
            for (; k < whole; ++k) multiply_step<fetching::chunks>(self, args, shared, now, sum);
        }
        // Anything else takes registers that only operands can spare.
        for (; k < fetches; ++k) {
            multiply_step<fetching::ended>(self, args, shared, now, sum);
            advance_a(now), advance_b(now);
            fetch_a<false>(self, shared, now);
            fetch_b<false>(self, args, shared, now);
            now.filling.advance();
            commit_copies(self);
            meet<stages - 2>(self);
            now.reading.advance();
            load_first(self, now.held, shared.ring[now.reading.stage()], std::make_integer_sequence<int, strips>{});
        }
        for (; k + 1 < args.steps; ++k) multiply_step<fetching::nothing>(self, args, shared, now, sum);
        multiply_step<fetching::ended>(self, args, shared, now, sum);
    }

    // The first steps, as many as there are stages but one.
    IMBREX_KERNEL static void start_tile(const warp& self, gemm_place at, const arguments& args, shared_memory& shared,
                                         progress& now) {
        now.a =
            a_share::of(self, a_across ? place_in(args.a, at.batch, 0, at.row) : place_in(args.a, at.batch, at.row, 0));
        now.b = b_share::of(
            self, b_across ? place_in(args.b, at.batch, at.column, 0) : place_in(args.b, at.batch, 0, at.column));
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

    // What is fetched of one of the matrices that are B: the second one's columns are after all of the gate's.
    IMBREX_KERNEL static global_tile<const In> b_at(const arguments& args, const progress& now, int matrix) {
        const int beside = matrix * args.out.columns();
        return b_across ? now.b.from(beside, 0) : now.b.from(0, beside);
    }

    IMBREX_KERNEL static void advance_a(progress& now) {
        now.a = a_across ? now.a.from(depth, 0) : now.a.from(0, depth);
    }
    IMBREX_KERNEL static void advance_b(progress& now) {
        now.b = b_across ? now.b.from(0, depth) : now.b.from(depth, 0);
    }

    // A step of K into the next stage, first of A and then of B.
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
        if constexpr (Chunks) (Share::along ? from.columns : from.rows) = depth;  // or more, which need not be asked
        for (int i = 0; i < Tiles; i += Share::beside) {
            const auto part = to[Share::tile(self) + i].template part<Share::rows, Tile::columns>(Share::row(self), 0);
            if constexpr (Chunks) {
                copy_chunks_async(self, part, Share::tile_of(from, i));
            } else {
                copy_async(self, part, Share::tile_of(from, i));
            }
        }
    }

    // All warps have read the stage of this step, and their shares of the next one have landed.
    template <int StepsUnderWay>
    IMBREX_KERNEL static void meet(const warp& self) {
        wait_copies<StepsUnderWay>(self);
        barriers::template of<everybody>().sync(self, warps);
    }

    template <fetching What>
    IMBREX_KERNEL static void multiply_step(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                            sums& sum) {
        [&]<int... Places>(std::integer_sequence<int, Places...>) {
            (multiply_place<What, Places>(self, args, shared, now, sum), ...);
        }
        (std::make_integer_sequence<int, places>{});
    }

    // One strip's products in one half, and what is due after them.
    template <fetching What, int Place>
    IMBREX_KERNEL static void multiply_place(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                             sums& sum) {
        constexpr int at_slice = Place / (2 * strips), half = Place / strips % 2, strip = Place % strips;
        constexpr bool ends_half = strip + 1 == strips, ends_step = at_slice + 1 == slices;
        constexpr bool fetches = What == fetching::chunks;
        constexpr bool goes_on = What != fetching::ended;
        // Into the stage of the step before, which all warps had read when they met. The place in memory is moved on before the
        // copies and not after them, for that would wait until they have read it.
        if constexpr (Place == 0 && fetches) {
            advance_a(now);
            fetch_a<true>(self, shared, now);
        }
        if constexpr (Place == strips && fetches) {
            advance_b(now);
            fetch_b<true>(self, args, shared, now);
            now.filling.advance();
        }
        if constexpr (Place == strips && goes_on) commit_copies(self);  // if empty too, for the count
        multiply(self, sum.of[half][strip], now.held.a[strip], now.held.b[half]);
        if constexpr (ends_step && half == 0 && ends_half && goes_on) {
            meet<stages - 2>(self);
            now.reading.advance();
        }
        if constexpr (!ends_step || goes_on) {
            constexpr int next = (at_slice + 1) % slices;
            const stage& from = shared.ring[now.reading.stage()];
            if constexpr (half == 1) load_strip<next, strip>(self, now.held, from);
            if constexpr (ends_half) load_half<next, half>(self, now.held, from);
        }
    }

    IMBREX_KERNEL static void multiply(warp& self, sum_tile& sum, const a_fragment& a, const b_fragment& b) {
        if constexpr (a_across && b_across) {
            mma_atbt(self, sum, a, b);
        } else if constexpr (a_across) {
            mma_atb(self, sum, a, b);
        } else if constexpr (b_across) {
            mma_abt(self, sum, a, b);
        } else {
            mma_ab(self, sum, a, b);
        }
    }

    // A warp's first row in a tile of A, and the first column of one of its halves in a tile of B.
    IMBREX_KERNEL static int row_of(const warp& self) { return self.index() % warps_down * warp_rows; }
    IMBREX_KERNEL static int column_of(const warp& self, int half) {
        return self.index() / warps_down * (has_gate ? half_columns : 2 * half_columns) +
               (has_gate ? 0 : half * half_columns);
    }

    template <int Slice, int Strip>
    IMBREX_KERNEL static void load_strip(warp& self, operands& to, const stage& from) {
        if constexpr (a_across) {
            const int row = row_of(self) + Strip * strip_rows;
            load_operand<side::left>(
                self, to.a[Strip], from.a[row / narrow].template part<slice, strip_rows>(Slice * slice, row % narrow));
        } else {
            load_operand<side::left>(
                self, to.a[Strip],
                from.a[row_of(self) / warp_rows].template part<strip_rows, slice>(Strip * strip_rows, Slice * slice));
        }
    }
    template <int Slice, int Half>
    IMBREX_KERNEL static void load_half(warp& self, operands& to, const stage& from) {
        const auto& tiles = from.b[has_gate ? Half : 0];
        const int column = column_of(self, Half);
        if constexpr (b_across) {
            load_operand<side::right>(
                self, to.b[Half], tiles[column / half_columns].template part<half_columns, slice>(0, Slice * slice));
        } else {
            load_operand<side::right>(
                self, to.b[Half],
                tiles[column / narrow].template part<slice, half_columns>(Slice * slice, column % narrow));
        }
    }
    template <int... Strips>
    IMBREX_KERNEL static void load_first(warp& self, operands& to, const stage& from,
                                         std::integer_sequence<int, Strips...>) {
        (load_strip<0, Strips>(self, to, from), ...);
        load_half<0, 0>(self, to, from);
        load_half<0, 1>(self, to, from);
    }

    template <int... Strips>
    IMBREX_KERNEL static void write(warp& self, const arguments& args, gemm_place tile, const sums& sum,
                                    std::integer_sequence<int, Strips...>) {
        const gemm_place left{tile.batch, tile.row + row_of(self), tile.column + column_of(self, 0)};
        const auto write_row = [&](int strip, const sum_tile& first, const sum_tile& second) {
            const gemm_place at{left.batch, left.row + strip * strip_rows, left.column};
            if constexpr (has_gate) {
                write_strip(self, args, at, first, second);
            } else {
                write_strip(self, args, at, first);
                write_strip(self, args, {at.batch, at.row, at.column + half_columns}, second);
            }
        };
        (write_row(Strips, sum.of[0][Strips], sum.of[1][Strips]), ...);
    }
    template <class Sum, class... Sums>
    IMBREX_KERNEL static void write_strip(warp& self, const arguments& args, gemm_place at, const Sum& sum,
                                          const Sums&... gated_sum) {
        const global_tile<Out> place = args.out.at(at.batch, at.row, at.column);
        if constexpr (std::is_same_v<Out, std::int32_t>) {
            store(self, place, sum);
        } else {
            auto values = to<float>(self, sum);
            args.epilogue(self, values, to<float>(self, gated_sum)..., at);
            store(self, place, to<Out>(self, values));
        }
    }
};

}  // namespace imbrex
