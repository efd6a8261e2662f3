// O = softmax(mask(score(Q K^T))) V on Hopper, with the logarithm of each row's sum of exponentials.
//
//   producer     Q once a tile, then K and V, a block of keys at a time, each into a ring of its own
//   consumers    64 queries each, in step: the tensor cores get the scores of the next keys together with the values of the
//                last ones, and the softmax of these scores runs while the values are still being added
//   turns        the consumers hand the tensor cores to one another, so that one's softmax hides under the other's products
//
//     group 0    [Q K1][P0 V0]  softmax 1      [Q K2][P1 V1]  softmax 2    ...
//     group 1       softmax 0   [Q K1][P0 V0]   softmax 1     [Q K2][P1 V1]
//
// The weights P never leave the registers. Keys are walked from the last to the first, since a causal mask cuts the last ones;
// what a mask hides from all queries of a tile is not loaded, and only tiles that it cuts are masked.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/schedule.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention/write.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tensor.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

struct attention_shape {
    int groups = 2;     // of 64 queries
    int columns = 128;  // keys in a tile
    int stages = 2;
    int producer_registers = 24;
    int consumer_registers = 240;
};

template <class In, int KeyDepth, int ValueDepth, class Mask = full_mask, class Score = plain_score,
          attention_shape Shape = attention_shape{}, attention_result Result = attention_result::normalised>
struct attention_hopper {
    static constexpr bool needs_hopper = true;
    static constexpr int groups = Shape.groups;
    static constexpr int group_rows = 64;
    static constexpr int rows = groups * group_rows;
    static constexpr int columns = Shape.columns;
    static constexpr int warps = 4 + 4 * groups;

    using q_tile = shared_tile<In, group_rows, KeyDepth>;
    using k_tile = shared_tile<In, columns, KeyDepth>;
    using v_tile = shared_tile<In, columns, ValueDepth>;
    using out_tile = shared_tile<In, group_rows, ValueDepth>;
    using scores = group_tile<float, group_rows, columns>;
    using weights = group_tile<In, group_rows, columns>;
    using sums = group_tile<float, group_rows, ValueDepth>;

    struct arguments {
        tensor<q_tile, 4> q;
        tensor<k_tile, 4> k;
        tensor<v_tile, 4> v;
        tensor<out_tile, 4> out;
        attention_view<In> out_view;
        attention_outputs outputs;
        Mask mask;
        Score score;
        float scale;
        attention_order order;
        attention_lengths lengths;
        int heads_per_key_head;
        const float* sinks;  // a logit for each head that takes up weight, or null
    };
    struct queries {
        q_tile group[groups];
    };
    struct rings {
        pipeline<queries, 1> q;
        pipeline<k_tile, Shape.stages> k;
        pipeline<v_tile, Shape.stages> v;
    };
    // O leaves through memory of its own where there is room, else through that of Q, which then must wait for it; results in fp32
    // leave straight from registers.
    static constexpr bool by_engine = Result == attention_result::normalised;
    static constexpr bool own_out = !by_engine || sizeof(rings) + groups * sizeof(out_tile) <= shared_memory_limit;
    static_assert(own_out || KeyDepth == ValueDepth, "imbrex: there is no room in shared memory for O beside Q");
    struct no_out {};
    struct with_out {
        out_tile tile[groups];
    };
    struct shared_memory : rings {
        std::conditional_t<by_engine && own_out, with_out, no_out> out;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.q.init(block, 4 * groups);
        shared.k.init(block, 4 * groups);
        shared.v.init(block, 4 * groups);
        fence_barriers(block);
        block.sync();
        block.roles(
            producer<Shape.producer_registers>([&](warp& self) { feed(self, block, args, shared); }),
            consumers<groups, Shape.consumer_registers>([&](warpgroup& self) { consume(self, block, args, shared); }));
    }

  private:
    struct turn {
        static constexpr int count = groups;
    };
    struct cleaned {};
    using barriers = named_barriers<turn, cleaned>;

    // A block's work, and the tiles of keys that any of its queries sees.
    struct work : attention_work {
        int first_tile;
        int end_tile;
    };

    IMBREX_KERNEL static work work_at(const arguments& args, int number) {
        const attention_work one = attention_work_at(number, rows, args.order, args.lengths, args.mask);
        const int first = one.keys.first / columns;
        return {one, first, one.keys.end > one.keys.first ? (one.keys.end + columns - 1) / columns : first};
    }

    template <class Block>
    IMBREX_KERNEL static void feed(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.q);
        prefetch_descriptor(self, args.k);
        prefetch_descriptor(self, args.v);
        auto q = shared.q.producer(self);
        auto k = shared.k.producer(self);
        auto v = shared.v.producer(self);
        for (const int number : turning_tiles(block, args.order.total())) {
            const work now = work_at(args, number);
            if (!now.exists() || now.first_tile == now.end_tile) continue;
            const int batch = args.lengths.member(now.sequence.batch);
            const int key_head = now.sequence.head / args.heads_per_key_head;
            const int first_key = args.lengths.first_key(now.sequence.batch);
            const int first_query = args.lengths.first_query(now.sequence.batch) + now.queries.first;
            {
                auto slot = q.acquire();
                for (int i = 0; i < groups; ++i) {
                    const auto from = args.q.at(batch, now.sequence.head, first_query + i * group_rows, 0);
                    load_async(self, slot->group[i], from.may_be_outside(), slot);
                }
            }
            for (int tile = now.end_tile - 1; tile >= now.first_tile; --tile) {
                const int row = first_key + tile * columns;
                auto keys = k.acquire();
                load_async(self, *keys, args.k.at(batch, key_head, row, 0), keys);
                auto values = v.acquire();
                load_async(self, *values, args.v.at(batch, key_head, row, 0), values);
            }
        }
    }

    template <class Block>
    IMBREX_KERNEL static void consume(warpgroup& self, const Block& block, const arguments& args,
                                      shared_memory& shared) {
        // The first turn is the first group's. One arrival is left over at the end, which nobody needs.
        if (self.index() == groups - 1) barriers::template of<turn>(0).arrive(self, 8);
        auto q = shared.q.consumer(self);
        auto k = shared.k.consumer(self);
        auto v = shared.v.consumer(self);
        for (const int number : turning_tiles(block, args.order.total())) {
            const work now = work_at(args, number);
            if (!now.exists()) continue;
            sums out;
            fill(self, out, 0.0f);
            online_softmax<group_rows, warpgroup> softmax(self, score_changes_nothing<Score>() ? args.scale : 1.0f);
            auto query = q.nothing();
            if (now.first_tile < now.end_tile) {
                query = q.wait();
                attend(self, now, args, query, k, v, softmax, out);
            }
            if constexpr (by_engine && !own_out) {
                write(self, now, args, shared.q.items[0].group[self.index()], out, softmax);
                wait_stores_read(self);
            } else if constexpr (by_engine) {
                write(self, now, args, shared.out.tile[self.index()], out, softmax);
            } else {
                const attention_place at = place_of(self, now, args);
                if (at.exist > 0) write_wide<Result>(self, args.outputs, at, out, softmax, args.sinks);
            }
        }
        wait_stores_read(self);
    }

    template <class Query, class Keys, class Values, class Softmax>
    IMBREX_KERNEL static void attend(warpgroup& self, const work& now, const arguments& args, Query& query, Keys& k,
                                     Values& v, Softmax& softmax, sums& out) {
        const auto mine = barriers::template of<turn>(self.index());
        const auto next = barriers::template of<turn>((self.index() + 1) % groups);
        scores s;
        weights p;
        int tile = now.end_tile - 1;
        {
            auto key = k.wait();
            mine.sync(self, 8);
            mma_abt_async(self, s, query->group[self.index()], *key, accumulation::replace);
            next.arrive(self, 8);
            wait_mma(self, s);
        }
        judge(self, now, args, s, tile);
        softmax.weigh(self, s);
        convert(self, p, s);
        clean(self, now, args, v);
        if (tile > now.first_tile) k.await();
        for (--tile; tile >= now.first_tile; --tile) {
            auto key = k.take();
            mine.sync(self, 8);
            mma_abt_async(self, s, query->group[self.index()], *key, accumulation::replace);
            auto value = v.wait();
            mma_ab_async(self, out, p, *value);
            next.arrive(self, 8);
            wait_mma<1>(self, s);
            key.release();
            judge(self, now, args, s, tile);
            const auto rescale = softmax.weigh(self, s);
            // Here and not before the keys are used: a compiler does not move the softmax across this wait, while it would put
            // it off until after the next one.
            if (tile > now.first_tile) k.await();
            wait_mma(self, out);
            value.release();
            combine_with_rows(self, out, rescale, multiply{});
            convert(self, p, s);
        }
        if constexpr (own_out) query.release();
        auto value = v.wait();
        mma_ab_async(self, out, p, *value);
        wait_mma(self, out);
    }

    // Behind the last key there may be anything, even NaN, which no weight of zero would silence: those values become zero. All
    // groups meet here, so none may have its turn.
    template <class Values>
    IMBREX_KERNEL static void clean(warpgroup& self, const work& now, const arguments& args, Values& v) {
        const int exist = now.sequence.keys - (now.end_tile - 1) * columns;
        if (!args.lengths.keys_end_early() || exist >= columns) return;
        if (self.index() == 0) {
            v.await();
            map_indexed(self, v.ahead(), [=](int row, int, In value) { return row < exist ? value : In(0.0f); });
            fence_async(self);
        }
        barriers::template of<cleaned>().sync(self, 4 * groups);
    }

    IMBREX_KERNEL static void judge(warpgroup& self, const work& now, const arguments& args, scores& s, int tile) {
        judge_scores(self, s, now, now.queries.first + self.index() * group_rows, tile * columns, args.mask, args.score,
                     args.scale);
    }

    IMBREX_KERNEL static attention_place place_of(const warpgroup& self, const work& now, const arguments& args) {
        const int first = now.queries.first + self.index() * group_rows;
        return {args.lengths.member(now.sequence.batch), now.sequence.head,
                args.lengths.first_query(now.sequence.batch) + first, now.sequence.queries - first};
    }

    template <class Softmax>
    IMBREX_KERNEL static void write(warpgroup& self, const work& now, const arguments& args, out_tile& buffer,
                                    sums& out, Softmax& softmax) {
        finish_attention(self, out, softmax, args.sinks, now.sequence.head);
        const attention_place at = place_of(self, now, args);
        if (at.exist <= 0) return;
        if (args.outputs.log2_sums.pointer != nullptr) {
            store(self, args.outputs.log2_sums.at(at.batch, at.head, at.row), at.exist, softmax.log2_sum(self));
        }
        // Behind the last rows of a packed sequence there are another's, which the copy engine would overwrite. And where no
        // query was loaded, its memory is not this group's.
        const bool memory_is_free = own_out || now.first_tile < now.end_tile;
        if ((args.lengths.packed() && at.exist < group_rows) || !memory_is_free) {
            global_tile<In> rows_here = args.out_view.at(at.batch, at.head, at.row, 0);
            rows_here.rows = at.exist;
            store(self, rows_here, to<In>(self, out));
            return;
        }
        wait_stores_read(self);
        self.sync();
        store(self, buffer, to<In>(self, out));
        fence_async(self);
        self.sync();
        store_async(self, args.out.at(at.batch, at.head, at.row, 0), buffer);
        commit_stores(self);
    }
};

}  // namespace imbrex
