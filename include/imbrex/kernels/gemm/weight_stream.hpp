// D = epilogue(A W^T) for 1 to 16 rows of A and weights of any kind, the reading of which is all that should take time: a stream
// of them that hardly stops, from one launch to the next. Made for Hopper.
//
// Nothing in it waits for another warp before the end. Each warp has steps of K of its own, and in shared memory a small ring
// of its own: it asks for its pieces of weights, 64 columns of D by 64 of K, and for the activations that go with them; takes a
// piece into registers as it is, asks for a later one into the same place, and then makes floats of it and multiplies. A warp
// has all 64 columns of a piece, so that activations, once loaded into registers, are multiplied with many weights.
//
//   block     64 columns of D (gated: of the gate and of up); all of K, or a part of it where the blocks of a cluster share
//             the columns
//   warp      every 8th step of K, of two pieces that follow each other
//   finish    the sums of all warps, and of all blocks that share the columns, are added in one order: the result has the same
//             bits every time. A warp finishes 8 columns.
//
// With `normed_rows`, rows of A are divided by the root mean square of their elements: each warp adds up the squares of those that
// it multiplies, and the products are divided at the end.
//
// A block takes half of a multiprocessor, unless its shape says otherwise, so that the blocks of the next launch have room beside
// those of this one. They begin early, ask for as many weights as they have room for, and wait: when the kernel before is done,
// these are there. A launch with few weights lets the next one begin before it waits itself: then those after it have begun as
// well, and memory has something to do while small kernels wait for one another. (None ends before it has waited, so that whoever
// waits for it has waited for all before.)
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/repeated_copy.hpp>
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

namespace detail {
// Rows of weights in a piece.
template <class Weights>
constexpr int rows_of_piece() {
    if constexpr (requires { Weights::piece_rows; }) {
        return Weights::piece_rows;
    } else {
        return packed_rows;
    }
}
// Bytes of scales for each row of a piece that are held until its products are there.
template <class Weights>
constexpr int scale_bytes_of() {
    if constexpr (Weights::piece_groups > 0) {
        return Weights::piece_groups * static_cast<int>(sizeof(typename Weights::scale));
    } else {
        return 0;
    }
}
}  // namespace detail

struct weight_stream_shape {
    int sharers = 1;  // blocks that share a tile: 1, 2, 4 or 8
    int warps = 8;
    int ahead = 0;                // pieces that a warp asks for before it needs them; 0: as many as fit
    int residents = 2;            // blocks among which the memory of a multiprocessor is divided
    bool allows_at_once = false;  // the next launch begins when this one has asked for its first weights
};

// How rows of A are taken.
struct plain_rows {};
struct normed_rows {
    float epsilon = 0;  // that is added to the mean of the squares
};

template <class Weights, class Out, class Epilogue, int Rows, weight_stream_shape Shape = weight_stream_shape{},
          class Input = plain_rows>
struct gemm_weight_stream {
    static_assert(Rows == 8 || Rows == 16, "imbrex: a stream of weights is multiplied with 8 or 16 rows");
    using element = typename Weights::element;
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int warps = Shape.warps;
    static constexpr int sharers = Shape.sharers;
    static constexpr int cluster = sharers;
    static constexpr bool gated = is_gated<Epilogue>;
    static constexpr int tiles = gated ? 2 : 1;                       // of rows of weights
    static constexpr int columns = detail::rows_of_piece<Weights>();  // of D, in a block
    static constexpr int parts = columns / 16;                        // of a piece, multiplied one after the other
    static constexpr int depth = packed_columns;                      // of a piece
    // Eighths of its steps after which a warp lets the next launch begin. Sooner, and the weights of that one would take memory from
    // this one's; later, and memory would have nothing to do at this one's end. (Measured.)
    static constexpr int allowed_after = Rows == 8 ? 5 : 6;
    // Whether blocks go through their steps in different orders, lest all of them ask for the same activations at once. (Measured: of
    // fewer rows there is too little to ask for.)
    static constexpr bool takes_turns = Rows == 16;
    static constexpr int at_once = 8;  // columns that a warp finishes
    // Two blocks have 128 registers a thread: too few for twice the sums of 16 rows, or for several scales of each row or wide ones.
    static constexpr int scale_bytes = detail::scale_bytes_of<Weights>();
    static constexpr int residents = Rows == 16 && (gated || scale_bytes > 2) ? 1 : Shape.residents;
    // Pieces of K that follow each other and are multiplied by one warp. (Gated, there are no registers for two.)
    static constexpr int pieces = !gated && Weights::depth % (2 * depth) == 0 ? 2 : 1;
    static_assert(
        warps * pieces * depth % Weights::depth == 0,
        "imbrex: in a stream, packed weights have a depth that divides 128 times the warps (gated: 64 times)");

    using piece = typename Weights::piece;
    using activations = shared_tile<element, Rows, depth>;
    using sum = warp_tile<float, 16, Rows>;  // 16 columns of D
    using turned = shared_tile<float, 16, columns>;
    using result = warp_tile<float, 16, at_once>;

    // What a warp has of the shared memory: its share of the multiprocessor's, less what the system takes of it.
    static constexpr int room = (228 * 1024 / Shape.residents - 1024) / warps / 1024 * 1024;
    static constexpr int pieces_that_fit = room / (activations::bytes + tiles * static_cast<int>(sizeof(piece)));
    static constexpr int ahead = Shape.ahead > 0 ? Shape.ahead : pieces_that_fit;
    static_assert(ahead > 0, "imbrex: so many warps have no room for a piece of weights each");
    struct stock {
        activations a[ahead];
        piece weights[ahead][tiles];
    };
    struct turned_sums {
        turned of[tiles];
    };
    struct arguments {
        typename Weights::argument weights;
        gemm_view<const element> a;
        gemm_view<Out> out;
        Epilogue epilogue;
        int tiles;
        int steps;  // of K
        Input input;
    };
    static constexpr bool norms = std::is_same_v<Input, normed_rows>;
    static_assert(!norms || sharers == 1, "imbrex: a block that norms rows has all of their columns");
    struct shared_memory {
        overlay<stock, turned_sums> places[warps];            // one for each warp
        shared_vector<float, 16> squares[norms ? warps : 1];  // of rows of A, as far as a warp has added them
    };

    static constexpr IMBREX_FN int tiles_of(int n) { return (n + columns - 1) / columns; }
    static constexpr IMBREX_FN int steps_of(int k) { return (k + pieces * depth - 1) / (pieces * depth); }

    // How many blocks to launch. Where they are fewer than the multiprocessors there are some more that repeat others' work and
    // store nothing: if a multiprocessor stayed empty two blocks of the next launch would meet there, and end late.
    static constexpr IMBREX_FN int blocks_of(int n, int multiprocessors) {
        const int needed = tiles_of(n) * sharers, all = multiprocessors / sharers * sharers;
        return needed < all ? all : needed;
    }

    // Whether the rows of A begin and end at multiples of 16 bytes.
    static bool can_take(const gemm_operand<const element>& a, int k) {
        return detail::view_of(a, 1, k, 1).at(0, 0, 0).in_chunks();
    }

    static arguments describe(const gemm_problem<element, Out>& p, const typename Weights::argument& weights,
                              const Epilogue& epilogue, const Input& input = {}) {
        detail::require_few_rows(p, Rows);
        require(!gated || p.n % columns == 0, "n: ", p.n, "; gate and up must be a multiple of ", columns,
                " columns each");
        require(can_take(p.a, p.k), "a: ", static_cast<const void*>(p.a.pointer), ", rows of ", p.k, " elements ",
                p.a.stride == 0 ? p.k : p.a.stride, " apart; rows must begin and end at multiples of 16 bytes");
        return {weights,
                detail::view_of(p.a, p.m, p.k, 1),
                detail::view_of(p.out, p.m, p.n, 1),
                epilogue,
                tiles_of(p.n),
                steps_of(p.k),
                input};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const int rank = block.cluster_rank(), number = block.index().x / sharers, tile = number % args.tiles;
        block.each_warp([&](warp& self) {
            sum sums[tiles][parts];
            multiply(self, sums, work_of_warp(self, rank, tile, args), args, shared);
            turn(self, sums, shared.places[self.index()].template as<turned_sums>());
        });
        block.cluster_sync();
        block.each_warp([&](warp& self) {
            if (number >= args.tiles) return;
            constexpr int finished = columns / at_once, together = sharers * warps;
            detail::for_each_constant<(finished + together - 1) / together>([&](auto round) {
                const int part = round * together + rank + sharers * self.index();
                if (finished % together == 0 || part < finished) {
                    finish(self, tile * columns, part * at_once, args, shared);
                }
            });
        });
        if constexpr (sharers > 1) block.cluster_sync();
    }

  private:
    // The steps of K of a warp: each `warps`th of its block's.
    struct work_of_warp {
        int tile;
        int first;
        int count;
        int turn;

        IMBREX_KERNEL work_of_warp(const warp& self, int rank, int tile, const arguments& args)
            : tile(tile), first(args.steps * rank / sharers + self.index()) {
            const int left = args.steps * (rank + 1) / sharers - first;
            count = left > 0 ? (left + warps - 1) / warps : 0;
            const int power_of_two = count & -count;
            turn = takes_turns ? tile & (power_of_two - 1) : 0;
        }
        // Which of its steps a warp does at some time: in each of so many blocks it is another.
        IMBREX_KERNEL int at_time(int time) const { return time ^ turn; }
        // Of K, where a step begins, counted from the warp's first.
        static IMBREX_KERNEL int column_of(int step) { return step * warps * pieces * depth; }
        static IMBREX_KERNEL int part_of(int step) { return step * (warps * pieces * depth / Weights::depth); }
        IMBREX_KERNEL int first_column() const { return first * pieces * depth; }
    };

    // Where a warp's weights come from, of each tile.
    struct source_list {
        typename Weights::source of[tiles];
    };
    template <int... Tiles>
    IMBREX_KERNEL static source_list sources(const warp& self, const work_of_warp& work, const arguments& args,
                                             std::integer_sequence<int, Tiles...>) {
        const int column = work.first_column(), up = args.out.columns() / columns;
        return source_list{{Weights::source_of(self, args.weights.at(work.tile + Tiles * up, column / Weights::depth),
                                               column % Weights::depth)...}};
    }

    IMBREX_KERNEL static void multiply(const warp& self, sum (&sums)[tiles][parts], const work_of_warp& work,
                                       const arguments& args, shared_memory& shared) {
        stock& own = shared.places[self.index()].template as<stock>();
        const source_list weights = sources(self, work, args, std::make_integer_sequence<int, tiles>{});
        // A piece is named by when its step is done and by its number there, a constant.
        const auto ask_for_weights = [&](int time, auto number, int tile, int place) {
            Weights::copy_piece(self, own.weights[place][tile], weights.of[tile], work.part_of(work.at_time(time)),
                                detail::piece_number<number, pieces>{});
        };
        detail::for_each_constant<ahead>([&](auto i) {
            for (int tile = 0; tile < tiles && i / pieces < work.count; ++tile) {
                ask_for_weights(i / pieces, std::integral_constant<int, i % pieces>{}, tile, i);
            }
        });
        if (Shape.allows_at_once || work.count == 0) allow_next_kernel(self);
        // Where rows come from is found out while weights are on their way.
        const repeated_rows<element, Rows, depth, !gated> rows(self, args.a.at(0, 0, work.first_column()));
        const auto ask_for_rows = [&](int time, int number, int place) {
            copy_async(self, own.a[place], rows, work.column_of(work.at_time(time)) + number * depth);
        };
        wait_for_kernel_before(self);
        for (int i = 0; i < ahead; ++i) {
            if (i / pieces < work.count) ask_for_rows(i / pieces, i % pieces, i);
            for (int tile = 0; tile < tiles; ++tile) commit_copies(self);
        }

        for (auto& of_tile : sums) {
            for (sum& one : of_tile) fill(self, one, 0.0f);
        }
        row_values<float, 16, warp> squares;
        fill(self, squares, 0.0f);
        int place = 0;
        for (int step = 0; step < work.count; ++step) {
            if (!Shape.allows_at_once && step == work.count * allowed_after / 8) allow_next_kernel(self);
            sum products[parts];
            detail::for_each_constant<pieces>([&](auto number) {
                constexpr detail::piece_number<number, pieces> at;
                warp_tile<element, 16, depth> a;
                detail::for_each_constant<tiles>([&](auto tile) {
                    wait_copies<ahead * tiles - 1>(self);
                    self.sync();
                    if constexpr (tile == 0) load_rows(self, a, rows, own.a[place]);
                    typename Weights::held held;
                    Weights::take(self, held, own.weights[place][tile], at);
                    // What is in registers makes room for what comes later.
                    self.sync();
                    constexpr int later = number + ahead;
                    if (step + later / pieces < work.count) {
                        // Weights first, which are far away. (The other way round it took 3% longer.)
                        ask_for_weights(step + later / pieces, std::integral_constant<int, later % pieces>{}, tile,
                                        place);
                        if constexpr (tile == 0) ask_for_rows(step + later / pieces, later % pieces, place);
                    }
                    commit_copies(self);
                    if constexpr (norms && tile == 0) fold_rows(self, squares, to<float>(self, a), add_square{});
                    // From the last to the first, which the compiler makes a loop of that takes 1% less time.
                    detail::for_each_constant<parts>([&](auto number_from_last) {
                        constexpr int block = parts - 1 - number_from_last;
                        Weights::template multiply_rows<16 * block>(self, sums[tile][block], products[block], held, a,
                                                                    at);
                    });
                });
                place = place + 1 < ahead ? place + 1 : 0;
            });
        }
        detail::for_each_constant<tiles>([&](auto tile) {
            for (sum& one : sums[tile]) Weights::finish(self, one);
        });
        if constexpr (norms) {
            finish_rows(self, squares, add{});
            store(self, shared.squares[self.index()], squares);
        }
    }

    // One over the root of each row's mean square.
    IMBREX_KERNEL static row_values<float, 16, warp> inverses(const warp& self, const arguments& args,
                                                              const shared_memory& shared) {
        row_values<float, 16, warp> total;
        load(self, total, shared.squares[0]);
        for (int other = 1; other < warps; ++other) {
            row_values<float, 16, warp> more;
            load(self, more, shared.squares[other]);
            combine(self, total, more, add{});
        }
        const float columns = static_cast<float>(args.a.columns()), epsilon = args.input.epsilon;
        map(self, total, [=](float sum) { return 1.0f / std::sqrt(sum / columns + epsilon); });
        return total;
    }

    // The sums into rows of D, in the place where the warp's ring was.
    IMBREX_KERNEL static void turn(const warp& self, const sum (&sums)[tiles][parts], turned_sums& to) {
        sum zeros;
        fill(self, zeros, 0.0f);
        const auto nothing = transpose_of(zeros);
        detail::for_each_constant<tiles>([&](auto tile) {
            detail::for_each_constant<parts>([&](auto block) {
                store(self, to.of[tile].template part<Rows, 16>(0, 16 * block), transpose_of(sums[tile][block]));
                // Rows that are not there are read all the same.
                if constexpr (Rows < 16) store(self, to.of[tile].template part<Rows, 16>(Rows, 16 * block), nothing);
            });
        });
    }

    IMBREX_KERNEL static void finish(const warp& self, int first_column, int column, const arguments& args,
                                     shared_memory& shared) {
        const gemm_place at{0, 0, first_column + column};
        // Found out before the sums are there: the next launch waits for this.
        const auto place = args.out.at(at.batch, at.row, at.column);
        result values = gather(self, args, shared, 0, column);
        if constexpr (gated) {
            args.epilogue(self, values, gather(self, args, shared, 1, column), at);
        } else {
            args.epilogue(self, values, at);
        }
        store(self, place, to<Out>(self, values));
    }

    // Some columns of a tile's sums, over all warps of all blocks that share it.
    IMBREX_KERNEL static result gather(const warp& self, const arguments& args, shared_memory& shared, int tile,
                                       int column) {
        result values;
        fill(self, values, 0.0f);
        // Those of the own block are all asked for before one is added.
        constexpr int at_a_time = sharers == 1 ? warps : 1;
        for (int rank = 0; rank < sharers; ++rank) {
            for (int first = 0; first < warps; first += at_a_time) {
                result more[at_a_time];
                for (int i = 0; i < at_a_time; ++i) {
                    const auto from =
                        shared.places[first + i].template as<turned_sums>().of[tile].template part<16, at_once>(0,
                                                                                                                column);
                    if constexpr (sharers == 1) {
                        load(self, more[i], from);
                    } else {
                        load_from_block(self, more[i], from, rank);
                    }
                }
                for (const result& one : more) combine(self, values, one, add{});
            }
        }
        if constexpr (norms) combine_with_rows(self, values, inverses(self, args, shared), imbrex::multiply{});
        return values;
    }
};

}  // namespace imbrex
