// D = epilogue(A B) on every GPU from sm_80 on, for any size, any distance of rows and any alignment that the elements
// have: what the copy engine cannot do is done here. There is a block for each tile, and all warps of a block do the same:
//
//   fetch       their share of A and B some steps of K ahead, by cp.async, into a ring of stages
//   multiply    64 x 64 of the tile by mma.sync; operands go to registers a slice of K ahead of their product
//   write       their part of D straight from registers, through the epilogue
//
//     slice     0             1            ...    last
//     loads     slice 1       slice 2      ...    (stage landed, all warps met)  slice 0 of the next stage
//     copies    a later step, into the stage that was used up in the step before
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
#include <type_traits>
#include <utility>

namespace imbrex {

template <class In, class Out, class Epilogue, stored A = stored::normal, stored B = stored::normal,
          gemm_ampere_shape Shape = gemm_ampere_shape{}>
struct gemm_ampere {
    static constexpr bool is_integer = std::is_same_v<In, std::int8_t>;
    static constexpr bool has_gate = is_gated<Epilogue>;
    static_assert(!std::is_same_v<Out, std::int32_t> || (is_integer && std::is_same_v<Epilogue, plain_product>),
                  "imbrex: int32 results are the sums of an int8 product as they are, without an epilogue");

    // Of a warp, which has its columns in two halves: neighbours, or one of each matrix that a gate joins.
    static constexpr int warp_rows = 64;
    static constexpr int half_columns = 32;

    static constexpr int rows = Shape.rows;
    static constexpr int columns = has_gate ? Shape.columns / 2 : Shape.columns;  // of D
    static constexpr int depth = Shape.depth_bytes / static_cast<int>(sizeof(In));
    static constexpr int stages = Shape.stages;
    static constexpr int warps_down = rows / warp_rows;
    static constexpr int warps = warps_down * (Shape.columns / (2 * half_columns));
    static constexpr int slice = 32 / static_cast<int>(sizeof(In));  // what one mma takes of K
    static constexpr int slices = depth / slice;
    static_assert(rows % warp_rows == 0 && Shape.columns % (2 * half_columns) == 0,
                  "imbrex: a GEMM tile is made of the 64 x 64 of its warps");
    static_assert(
        depth % slice == 0 && slices % 2 == 0,
        "imbrex: a step of K has an even number of slices of 32 bytes, which go through two sets of registers");
    static_assert(stages >= 3, "imbrex: of three stages one is read, one has landed and one is filled");

    static constexpr bool a_across = A == stored::transposed;
    static constexpr bool b_across = B == stored::transposed;
    static constexpr int b_tiles = has_gate ? 2 : 1;
    using a_tile = std::conditional_t<a_across, shared_tile<In, depth, rows>, shared_tile<In, rows, depth>>;
    using b_tile = std::conditional_t<b_across, shared_tile<In, columns, depth>, shared_tile<In, depth, columns>>;

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
        a_tile a;
        b_tile b[b_tiles];
    };
    struct shared_memory {
        stage ring[stages];
        transaction_barrier turn;  // a phase for each step
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.turn.init(block, warps);
        fence_barriers(block);
        block.sync();
        const gemm_place tile = tile_of(block.index().x, args);
        block.each_warp([&](warp& self) {
            progress now;
            start_tile(self, tile, args, shared, now);
            sum_tile sum[2];
            fill(self, sum[0], sum_type{});
            fill(self, sum[1], sum_type{});
            if (args.steps > 0) multiply_tile(self, args, shared, now, sum);
            write(self, args, tile, sum);
        });
    }

  private:
    using sum_type = std::conditional_t<is_integer, std::int32_t, float>;
    using sum_tile = warp_tile<sum_type, warp_rows, half_columns>;
    using a_fragment =
        std::conditional_t<a_across, warp_tile<In, slice, warp_rows, order::columns>, warp_tile<In, warp_rows, slice>>;
    using b_fragment = std::conditional_t<b_across, warp_tile<In, half_columns, slice>,
                                          warp_tile<In, slice, half_columns, order::columns>>;
    struct operands {
        a_fragment a;
        b_fragment b[2];
    };

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

    // The share of a stage's tile that a warp fetches: some rows of one of its panels.
    template <class Tile>
    struct share_of {
        static constexpr int panels = Tile::layout::panels;
        static constexpr int columns = Tile::columns / panels;
        static constexpr int rows = Tile::rows * panels / warps;
        static_assert(warps % panels == 0 && Tile::rows % (warps / panels) == 0,
                      "imbrex: each warp fetches as many rows of a stage as the others");

        IMBREX_KERNEL static int row(const warp& self) { return self.index() / panels * rows; }
        IMBREX_KERNEL static int column(const warp& self) { return self.index() % panels * columns; }
        IMBREX_KERNEL static auto of(const warp& self, Tile& tile) {
            return tile.template part<rows, columns>(row(self), column(self));
        }
        IMBREX_KERNEL static global_tile<const In> of(const warp& self, const global_tile<const In>& tile) {
            return tile.from(row(self), column(self));
        }
    };

    // The state of a warp at work.
    struct progress {
        global_tile<const In> a;  // what it fetches next
        global_tile<const In> b;
        ring_position<stages> filling;
        ring_position<stages> reading;
        unsigned phase = 0;
        operands held[2];
    };

    // What a step fetches while it multiplies. In the last one there is nothing left to wait for either.
    enum class fetching { chunks, anything, nothing, ended };

    IMBREX_KERNEL static void multiply_tile(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                            sum_tile (&sum)[2]) {
        announce_stage<stages - 2>(self, shared);
        wait_for_stage(self, shared, now);
        load_slice<0>(self, now.held[0], shared.ring[0]);
        constexpr std::make_integer_sequence<int, slices> all_slices;
        const int fetches = args.steps - (stages - 1);
        int k = 0;
        if (now.a.in_chunks() && b_at(args, now, 0).in_chunks() && b_at(args, now, b_tiles - 1).in_chunks()) {
            for (; k < fetches; ++k) multiply_step<fetching::chunks>(self, args, shared, now, sum, all_slices);
        } else {
            for (; k < fetches; ++k) multiply_step<fetching::anything>(self, args, shared, now, sum, all_slices);
        }
        for (; k + 1 < args.steps; ++k) multiply_step<fetching::nothing>(self, args, shared, now, sum, all_slices);
        multiply_step<fetching::ended>(self, args, shared, now, sum, all_slices);
    }

    // The first steps, as many as there are stages but one.
    IMBREX_KERNEL static void start_tile(const warp& self, gemm_place at, const arguments& args, shared_memory& shared,
                                         progress& now) {
        now.a = share_of<a_tile>::of(
            self, a_across ? place_in(args.a, at.batch, 0, at.row) : place_in(args.a, at.batch, at.row, 0));
        now.b = share_of<b_tile>::of(
            self, b_across ? place_in(args.b, at.batch, at.column, 0) : place_in(args.b, at.batch, 0, at.column));
        for (int step = 0; step < stages - 1; ++step) {
            if (step < args.steps) {
                fetch_a<fetching::anything>(self, shared, now);
                fetch_b<fetching::anything>(self, args, shared, now);
            }
            commit_copies(self);
        }
    }

    // What is fetched next of one of the stage's tiles of B: the second one's columns are after all of the gate's.
    IMBREX_KERNEL static global_tile<const In> b_at(const arguments& args, const progress& now, int tile) {
        const int beside = tile * args.out.columns();
        return b_across ? now.b.from(beside, 0) : now.b.from(0, beside);
    }

    // A step of K into the next stage, first of A and then of B.
    template <fetching What>
    IMBREX_KERNEL static void fetch_a(const warp& self, shared_memory& shared, progress& now) {
        fetch<What>(self, share_of<a_tile>::of(self, shared.ring[now.filling.stage()].a), now.a);
        now.a = a_across ? now.a.from(depth, 0) : now.a.from(0, depth);
    }
    template <fetching What>
    IMBREX_KERNEL static void fetch_b(const warp& self, const arguments& args, shared_memory& shared, progress& now) {
        stage& to = shared.ring[now.filling.stage()];
        for (int i = 0; i < b_tiles; ++i) fetch<What>(self, share_of<b_tile>::of(self, to.b[i]), b_at(args, now, i));
        now.b = b_across ? now.b.from(0, depth) : now.b.from(depth, 0);
        now.filling.advance();
    }
    template <fetching What, class Part>
    IMBREX_KERNEL static void fetch(const warp& self, Part to, const global_tile<const In>& from) {
        if constexpr (What == fetching::chunks) {
            copy_chunks_async(self, to, from);
        } else {
            copy_async(self, to, from);
        }
    }

    // This warp has read its stage, and its share of the next one has landed. It multiplies a slice until it needs to
    // know the same of the other warps, so they need not keep step.
    template <int StepsUnderWay>
    IMBREX_KERNEL static void announce_stage(const warp& self, shared_memory& shared) {
        wait_copies<StepsUnderWay>(self);
        shared.turn.arrive(self);
    }
    IMBREX_KERNEL static void wait_for_stage(const warp& self, shared_memory& shared, progress& now) {
        shared.turn.wait(self, now.phase++);
    }

    template <fetching What, int... Slices>
    IMBREX_KERNEL static void multiply_step(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                            sum_tile (&sum)[2], std::integer_sequence<int, Slices...>) {
        (multiply_slice<What, Slices>(self, args, shared, now, sum), ...);
    }

    template <fetching What, int Slice>
    IMBREX_KERNEL static void multiply_slice(warp& self, const arguments& args, shared_memory& shared, progress& now,
                                             sum_tile (&sum)[2]) {
        constexpr bool fetches = What == fetching::chunks || What == fetching::anything;
        constexpr bool goes_on = What != fetching::ended;
        const operands& current = now.held[Slice % 2];
        operands& next = now.held[(Slice + 1) % 2];
        if constexpr (Slice + 1 < slices) load_slice<Slice + 1>(self, next, shared.ring[now.reading.stage()]);
        if constexpr (Slice + 2 == slices && goes_on) announce_stage<stages - (slices == 2 ? 3 : 2)>(self, shared);
        // Into the stage of the step before, which all warps had read when they announced this one.
        if constexpr (Slice == 0 && fetches) fetch_a<What>(self, shared, now);
        if constexpr (Slice == 1 && fetches) fetch_b<What>(self, args, shared, now);
        if constexpr (Slice == 1 && goes_on) commit_copies(self);  // a group even if it is empty, for the count
        multiply(self, sum[0], current.a, current.b[0]);
        if constexpr (Slice + 1 == slices && goes_on) {
            now.reading.advance();
            wait_for_stage(self, shared, now);
            load_slice<0>(self, next, shared.ring[now.reading.stage()]);
        }
        multiply(self, sum[1], current.a, current.b[1]);
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

    template <int Slice>
    IMBREX_KERNEL static void load_slice(warp& self, operands& to, const stage& from) {
        if constexpr (a_across) {
            load_operand<side::left>(self, to.a, from.a.template part<slice, warp_rows>(Slice * slice, row_of(self)));
        } else {
            load_operand<side::left>(self, to.a, from.a.template part<warp_rows, slice>(row_of(self), Slice * slice));
        }
        load_half(self, to.b[0], from.b[0], Slice * slice, column_of(self, 0));
        load_half(self, to.b[1], from.b[has_gate ? 1 : 0], Slice * slice, column_of(self, 1));
    }
    IMBREX_KERNEL static void load_half(warp& self, b_fragment& to, const b_tile& from, int k, int column) {
        if constexpr (b_across) {
            load_operand<side::right>(self, to, from.template part<half_columns, slice>(column, k));
        } else {
            load_operand<side::right>(self, to, from.template part<slice, half_columns>(k, column));
        }
    }

    IMBREX_KERNEL static void write(warp& self, const arguments& args, gemm_place tile, const sum_tile (&sum)[2]) {
        if constexpr (has_gate) {
            write_half(self, args, tile, column_of(self, 0), sum[0], sum[1]);
        } else {
            write_half(self, args, tile, column_of(self, 0), sum[0]);
            write_half(self, args, tile, column_of(self, 1), sum[1]);
        }
    }

    // A half goes through an epilogue in two pieces, so that there are registers left for what the epilogue loads.
    static constexpr int piece = std::is_same_v<Epilogue, plain_product> ? half_columns : half_columns / 2;

    template <class... Sums>
    IMBREX_KERNEL static void write_half(warp& self, const arguments& args, gemm_place tile, int column,
                                         const Sums&... sums) {
        const gemm_place at{tile.batch, tile.row + row_of(self), tile.column + column};
        write_piece(self, args, at, columns_of<0, piece>(self, sums)...);
        if constexpr (piece < half_columns) {
            write_piece(self, args, {at.batch, at.row, at.column + piece}, columns_of<piece, piece>(self, sums)...);
        }
    }
    template <class Sum, class... Sums>
    IMBREX_KERNEL static void write_piece(warp& self, const arguments& args, gemm_place at, const Sum& sum,
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
