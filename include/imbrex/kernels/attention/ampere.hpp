// O = softmax(mask(score(Q K^T))) V on every GPU from sm_80 on, with the logarithm of each row's sum of exponentials, for any
// distance of rows and any alignment that the elements have. All warps of a block do the same, each for queries of its own:
//
//   fetch       their share of the next keys and values, by cp.async, while those before are multiplied
//   multiply    by mma.sync, operands from shared memory; scores and weights never leave the registers
//   write       their rows of O straight from registers
//
//     one stage      meet   V lands under Q K   meet   the next K lands under softmax and P V
//     two stages     meet   the next K and V land under Q K, softmax and P V
//
// One stage takes half the memory, so that two blocks fit a multiprocessor and one multiplies while the other waits; two
// stages leave the warps of a single block free to drift apart, one's softmax under another's products.
//
// Keys are walked from the last to the first, since a causal mask cuts the last ones; what a mask hides from all queries of a
// block is not loaded, and only tiles that it cuts are masked.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/schedule.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention/write.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// Shapes that need at most 99 KB of shared memory, which every such GPU has, and no more registers than there are: a score
// that changes something wants some of its own.
constexpr attention_ampere_shape attention_ampere_shape_for(int key_depth, int value_depth,
                                                            bool scores_unchanged = false) {
    const bool keep_queries = key_depth <= (scores_unchanged ? 128 : 96);
    if (key_depth <= 128 && value_depth <= 128) return {.keep_queries = keep_queries};
    if (key_depth <= 192 && value_depth <= 128) return {.stages = 1};
    return {.columns = 32, .stages = 1};
}

template <class In, int KeyDepth, int ValueDepth, class Mask = full_mask, class Score = plain_score,
          attention_ampere_shape Shape =
              attention_ampere_shape_for(KeyDepth, ValueDepth, score_changes_nothing<Score>()),
          attention_result Result = attention_result::normalised, class Lengths = attention_lengths>
struct attention_ampere {
    static_assert(sizeof(In) == 2, "imbrex: attention multiplies bf16 or fp16");
    static constexpr int warps = Shape.warps;
    static constexpr int warp_rows = Shape.warp_rows;
    static constexpr int rows = warps * warp_rows;
    static constexpr int part_rows = rows;
    static constexpr bool can_rest = false;
    static constexpr int columns = Shape.columns;
    static constexpr int stages = Shape.stages;
    static constexpr int slice = 16;  // what one mma takes of depth or keys
    static_assert(KeyDepth % slice == 0 && ValueDepth % slice == 0 && columns % slice == 0,
                  "imbrex: depths and keys of an attention tile are multiples of 16");
    static_assert(std::is_same_v<Lengths, attention_lengths> || page_step % (columns / warps) == 0,
                  "imbrex: a warp fetches its keys from one page");
    static_assert(stages == 1 || stages == 2, "imbrex: keys are fetched half a tile ahead, or a whole one");

    using q_tile = shared_tile<In, rows, KeyDepth>;
    using k_tile = shared_tile<In, columns, KeyDepth>;
    using v_tile = shared_tile<In, columns, ValueDepth>;

    // Columns may be fewer than the depths; those that do not exist are taken as zero.
    struct arguments {
        attention_view<const In> q;
        attention_view<const In> k;
        attention_view<const In> v;
        attention_view<In> out;
        attention_outputs outputs;
        Mask mask;
        Score score;
        float scale;
        factor_after_score<Score> factor;
        attention_order order;  // of blocks of `rows` queries
        Lengths lengths;        // attention_lengths, or paged_lengths
        int heads_per_key_head;
        const float* sinks;  // a logit for each head that takes up weight, or null
    };
    struct shared_memory {
        q_tile q;
        k_tile k[stages];
        v_tile v[stages];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            int stage = 0;
            for (const int number : static_tiles(block, args.order.total(args.lengths))) {
                const attention_work now =
                    attention_work_at(number, rows, part_rows, args.order, args.lengths, args.mask);
                if (!now.exists()) continue;
                sums out;
                fill(self, out, 0.0f);
                online_softmax<warp_rows, warp> softmax(self, args.factor);
                if (now.keys.first < now.keys.end) attend(self, now, args, shared, stage, softmax, out);
                write(self, now, args, out, softmax);
            }
        });
    }

  private:
    using scores = warp_tile<float, warp_rows, columns>;
    using weights = warp_tile<In, warp_rows, columns>;
    using sums = warp_tile<float, warp_rows, ValueDepth>;
    using query_slice = warp_tile<In, warp_rows, slice>;
    static constexpr std::make_integer_sequence<int, KeyDepth / slice> key_slices{};
    static constexpr std::make_integer_sequence<int, columns / slice> value_slices{};

    struct kept_queries {
        query_slice slices[KeyDepth / slice];
    };
    struct queries_in_memory {};
    using queries = std::conditional_t<Shape.keep_queries, kept_queries, queries_in_memory>;

    struct everybody {};
    using barriers = named_barriers<everybody>;

    // All warps have read what they read before, and what they have fetched is there for all.
    IMBREX_KERNEL static void meet(const warp& self, source here = source::current()) {
        wait_copies(self, here);
        barriers::template of<everybody>().sync(self, warps, here);
    }

    // This warp's share of rows.
    template <class Tile, class Rows>
    IMBREX_KERNEL static void fetch(const warp& self, Tile& to, const Rows& from) {
        using layout = typename Tile::layout;
        constexpr int share = Tile::rows / warps;
        const int row = self.index() * share;
        const global_tile<const In> mine = from.from(row, 0);
        if (mine.in_chunks()) {
            for (int column = 0; column < Tile::columns; column += layout::panel_columns) {
                copy_chunks_async(self, to.template part<share, layout::panel_columns>(row, column),
                                  mine.from(0, column));
            }
        } else {
            copy_async(self, to.template part<share>(row), mine);
        }
    }

    template <class Softmax>
    IMBREX_KERNEL static void attend(warp& self, const attention_work& now, const arguments& args,
                                     shared_memory& shared, int& stage, Softmax& softmax, sums& out) {
        const int key_head = now.sequence.head / args.heads_per_key_head;
        const auto keys = key_rows(args.k, args.lengths, now, key_head);
        const auto values = key_rows(args.v, args.lengths, now, key_head);
        const int last = (now.keys.end - 1) / columns;
        const int first = now.keys.first / columns;
        const int first_query = now.queries.first + self.index() * warp_rows;
        // Where all had read when they last met; the last queries' other keys may still be read. With one stage they met after they
        // read queries, which each warp reads alone; with two its lanes do here.
        if constexpr (stages == 2) self.sync();
        fetch(self, shared.q, queries_of(now, args));
        fetch(self, shared.k[stage], keys.from(last * columns, 0));
        if constexpr (stages == 2) fetch(self, shared.v[stage], values.from(last * columns, 0));
        commit_copies(self);
        queries q;
        for (int tile = last; tile >= first; --tile) {
            meet(self);
            if constexpr (Shape.keep_queries) {
                if (tile == last) keep(self, q, shared.q, key_slices);
            }
            const int next = stages - 1 - stage;
            if constexpr (stages == 1) {
                fetch(self, shared.v[0], values.from(tile * columns, 0));
                commit_copies(self);
            } else if (tile > first) {
                fetch(self, shared.k[next], keys.from((tile - 1) * columns, 0));
                fetch(self, shared.v[next], values.from((tile - 1) * columns, 0));
                commit_copies(self);
            }
            scores s;
            fill(self, s, 0.0f);
            multiply_keys(self, s, q, shared.q, shared.k[stage], key_slices);
            if constexpr (stages == 1) {
                meet(self);
                if (tile > first) {
                    fetch(self, shared.k[0], keys.from((tile - 1) * columns, 0));
                    commit_copies(self);
                }
            }
            judge_scores(self, s, now, first_query, tile * columns, args.mask, args.score, args.scale);
            softmax.step(self, s, out);
            multiply_values(self, out, to<In>(self, s), shared.v[stage], value_slices);
            stage = next;
        }
    }

    IMBREX_KERNEL static global_tile<const In> queries_of(const attention_work& now, const arguments& args) {
        const int batch = now.sequence.batch;
        global_tile<const In> found = args.q.at(args.lengths.member(batch), now.sequence.head,
                                                args.lengths.first_query(batch) + now.queries.first, 0);
        found.rows = now.queries.end - now.queries.first;
        return found;
    }

    template <int... Slices>
    IMBREX_KERNEL static void keep(warp& self, queries& q, const q_tile& from, std::integer_sequence<int, Slices...>) {
        (load_queries(self, q.slices[Slices], from, Slices), ...);
    }
    IMBREX_KERNEL static void load_queries(warp& self, query_slice& to, const q_tile& from, int number) {
        load_operand<side::left>(self, to,
                                 from.template part<warp_rows, slice>(self.index() * warp_rows, number * slice));
    }

    template <int... Slices>
    IMBREX_KERNEL static void multiply_keys(warp& self, scores& s, const queries& q, const q_tile& q_memory,
                                            const k_tile& k, std::integer_sequence<int, Slices...>) {
        (multiply_key_slice<Slices>(self, s, q, q_memory, k), ...);
    }
    template <int Slice>
    IMBREX_KERNEL static void multiply_key_slice(warp& self, scores& s, const queries& q, const q_tile& q_memory,
                                                 const k_tile& k) {
        warp_tile<In, columns, slice> keys;
        load_operand<side::right>(self, keys, k.template part<columns, slice>(0, Slice * slice));
        if constexpr (Shape.keep_queries) {
            mma_abt(self, s, q.slices[Slice], keys);
        } else {
            query_slice from_memory;
            load_queries(self, from_memory, q_memory, Slice);
            mma_abt(self, s, from_memory, keys);
        }
    }

    template <int... Slices>
    IMBREX_KERNEL static void multiply_values(warp& self, sums& out, const weights& p, const v_tile& v,
                                              std::integer_sequence<int, Slices...>) {
        (multiply_value_slice<Slices>(self, out, p, v), ...);
    }
    template <int Slice>
    IMBREX_KERNEL static void multiply_value_slice(warp& self, sums& out, const weights& p, const v_tile& v) {
        warp_tile<In, slice, ValueDepth, order::columns> values;
        load_operand<side::right>(self, values, v.template part<slice, ValueDepth>(Slice * slice, 0));
        mma_ab(self, out, columns_of<Slice * slice, slice>(self, p), values);
    }

    template <class Softmax>
    IMBREX_KERNEL static void write(warp& self, const attention_work& now, const arguments& args, sums& out,
                                    Softmax& softmax) {
        const int batch = now.sequence.batch, head = now.sequence.head;
        const int first = now.queries.first + self.index() * warp_rows;
        const attention_place at{args.lengths.member(batch), head, args.lengths.first_query(batch) + first,
                                 now.queries.end - first};
        if (at.exist <= 0) return;
        write_rows<Result, ValueDepth>(self, args.outputs, args.out, at, out, softmax, args.sinks);
    }
};

}  // namespace imbrex
