// What the producer of an attention's Hopper kernel does, in three warps that go ahead of the consumers as far as there is room
// in their rings: one finds out which pieces of work there are and what is seen of them, one loads keys and each piece's queries,
// one loads values.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/piece.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/tensor.hpp>

namespace imbrex {

template <class Kernel>
struct attention_producer {
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using piece = attention_piece;
    static constexpr int columns = Kernel::columns;
    static constexpr int groups = Kernel::groups;
    static constexpr int group_rows = Kernel::group_rows;

    template <class Block>
    IMBREX_KERNEL static void run(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        if (self.index() == 0) {
            plan(self, block, args, shared);
        } else if (self.index() == 1) {
            feed_keys(self, args, shared);
        } else {
            feed_values(self, args, shared);
        }
    }

  private:
    template <class Block>
    IMBREX_KERNEL static void plan(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        const int total = args.order.total(args.lengths);
        auto drawing = shared.ring.work.draw(self, block, total, args.counter);
        for (int number = drawing.draw(); number < total; number = drawing.draw()) {
            const piece one = attention_piece_at<Kernel::rows, columns, Kernel::part_rows, Kernel::can_pass>(
                number, args.order, args.lengths, args.mask);
            if (one.exists()) drawing.pass_on(one);
        }
        drawing.pass_on({});  // no piece at all: it is over
    }

    IMBREX_KERNEL static void feed_keys(warp& self, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.q);
        prefetch_descriptor(self, args.k);
        auto q = shared.ring.q.producer(self, shared.asked);
        auto k = shared.ring.k.producer(self, shared.keys);
        for_each_tile(self, args, shared, [&](const piece& now, int tile, const auto& place) {
            place.load(self, args.k, k.acquire());
            if (tile != now.tiles - 1) return;
            // The queries after the first keys: their memory is given back later.
            auto slot = q.acquire();
            for (int i = 0; i < groups; ++i) {
                const auto from = args.q.at(args.lengths.member(now.sequence.batch), now.sequence.head,
                                            now.first_row + i * group_rows, 0);
                load_async(self, slot->group[i], from.may_be_outside(), slot);
            }
        });
    }

    IMBREX_KERNEL static void feed_values(warp& self, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.v);
        auto v = shared.ring.v.producer(self, shared.values);
        unsigned cleaned = 0;
        for_each_tile(self, args, shared, [&](const piece& now, int tile, const auto& place) {
            const int exist = now.sequence.keys - (now.first_tile + tile) * columns;
            if (!args.lengths.keys_end_early() || exist >= columns) {
                place.load(self, args.v, v.acquire());
                return;
            }
            // Behind the last key there may be anything, even NaN, which no weight of zero would silence: those values become zero.
            auto slot = v.acquire_unseen(shared.ring.landed);
            place.load(self, args.v, slot);
            shared.ring.landed.wait_in_step(self, cleaned++);
            fill_rows(self, *slot, exist, typename Kernel::element(0.0f));
            fence_async(self);
            v.pass_on(slot);
        });
    }

    // The tiles of keys of all pieces, from each one's last to its first: visit(piece, number of the tile, where it is).
    template <class Visit>
    IMBREX_KERNEL static void for_each_tile(warp& self, const arguments& args, shared_memory& shared, Visit visit) {
        auto pieces = shared.ring.work.read(self);
        for (piece now = pieces.next(); now.exists(); now = pieces.next()) {
            if (!now.has_keys()) continue;
            const int key_head = now.sequence.head / args.heads_per_key_head;
            const int first_key = args.lengths.first_key(now.sequence.batch);
            for (int tile = now.tiles - 1; tile >= 0; --tile) {
                const int key = first_key + (now.first_tile + tile) * columns;
                visit(now, tile, key_tile<columns>(self, args.lengths, now, key_head, key, args.k.copied_rows));
            }
        }
    }
};

}  // namespace imbrex
