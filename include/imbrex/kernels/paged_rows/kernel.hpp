// Attention of the tokens of sequences, any number of them each, to keys and values in pages, without matrix instructions: in
// float arithmetic, whatever the types in memory are. A warp takes 16 rows of queries that share keys at a time and goes over all
// keys that any of them sees; no warp waits for another, and nothing is kept but in registers.
//
//   for some keys       scores = rows of queries * keys           (ops/warp/weighted_rows.hpp)
//                       mask and score them
//                       weights = softmax, online; sums follow
//                       sums += weights * values
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/known_divisor.hpp>
#include <imbrex/core/row_blocks.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/requirement.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/kernels/paged_rows/order.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/weighted_rows.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <cstdint>

namespace imbrex {

// Values have at most Depth columns.
template <class In, int Depth, class Mask = causal_mask, class Score = plain_score, class Cache = In>
struct paged_rows_kernel {
    static_assert(Depth % 16 == 0, "imbrex: sums have a multiple of 16 columns, of which some may be left unused");
    static constexpr int warps = 1;
    static constexpr int rows = 16;
    static constexpr int keys_at_once = Depth > 128 ? 32 : 64;  // fewer where sums take up most of the registers

    struct arguments {
        attention_view<const In> q;
        attention_view<const Cache> k;
        attention_view<const Cache> v;
        attention_view<In> out;
        attention_rows log2_sums;  // may be left out, and so may sinks
        const float* sinks;
        Mask mask;
        Score score;
        float scale;
        paged_lengths lengths;
        paged_rows_order order;
        known_divisor sharing;  // heads that share keys
        int units;
    };
    struct shared_memory {};

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        block.each_warp([&](const warp& self) {
            for (const int number : static_tiles(block, args.units)) {
                const unit_of_work work(args, args.order.at(number, args.lengths));
                if (work.exist > 0) work.run(self);
            }
        });
    }

  private:
    using row_numbers = row_values<float, rows, warp>;

    struct unit_of_work {
        const arguments& args;
        decode_rows own;
        int exist;  // rows
        int member, first_query, key_head;

        IMBREX_KERNEL unit_of_work(const arguments& all, const paged_rows_unit& unit)
            : args(all),
              own{all.lengths.of(unit.sequence, unit.key_head * all.order.heads), all.sharing, unit.first},
              exist(hw::min(own.sequence.queries * all.order.heads - own.first, rows)),
              member(all.lengths.member(unit.sequence)),
              first_query(all.lengths.first_query(unit.sequence)),
              key_head(unit.key_head) {}

        IMBREX_KERNEL void run(const warp& self) const {
            warp_tile<float, rows, Depth> out;
            row_numbers largest, sums, corrections;
            fill(self, out, 0.0f);
            fill(self, largest, minus_infinity);
            fill(self, sums, 0.0f);
            const query_range queries{own.query(0), own.query(exist - 1) + 1};
            const key_range seen = keys_seen(own.sequence, args.order.heads, queries, args.mask);
            // Steps lie the same whatever rows there are, and so a row's sums are made in the same order.
            for (int first = seen.first / keys_at_once * keys_at_once; first < seen.end; first += keys_at_once) {
                warp_tile<float, rows, keys_at_once> scores;
                score_rows(
                    self, scores, exist, [&](int row) { return place_in(args.q, row); }, blocks_of(args.k, first, seen),
                    args.q.columns());
                judge_rows(self, scores, own, first, seen.end, args.mask, args.score, args.scale);
                weigh_rows(self, scores, exist, factor(), largest, sums, corrections);
                combine_with_rows(self, out, corrections, multiply{});
                add_weighted_rows(self, out, scores, exist, blocks_of(args.v, first, seen), args.v.columns());
            }
            finish(self, out, largest, sums);
        }

      private:
        IMBREX_KERNEL float factor() const { return factor_after(args.score, args.scale).value; }

        template <class T>
        IMBREX_KERNEL T* place_in(const attention_view<T>& view, int row) const {
            return view.at(member, own.head(row), first_query + own.query(row), 0).pointer;
        }

        // Those keys, or their values, from this one on that some row sees.
        IMBREX_KERNEL auto blocks_of(const attention_view<const Cache>& view, int first, const key_range& seen) const {
            const auto place = [this, &view, first](int number) -> const Cache* {
                const int key = first + number * page_step, entry = key / args.lengths.page_rows;
                const int page =
                    args.lengths
                        .table[static_cast<std::int64_t>(own.sequence.batch) * args.lengths.pages_per_sequence + entry];
                const int pages = static_cast<int>(view.extents[0]);
                hw::require_in_kernel(page >= 0 && page < pages,
                                      "pages.table: page %d of sequence %d; there are %d pages", page,
                                      own.sequence.batch, pages);
                return view.at(page, key_head, key - entry * args.lengths.page_rows, 0).pointer;
            };
            static_assert(row_blocks<decltype(place)>::rows_in_block == page_step,
                          "imbrex: a block of rows must not reach from one page into another");
            return row_blocks<decltype(place)>{place, view.strides[2], hw::max(seen.first - first, 0),
                                               hw::min(seen.end - first, keys_at_once)};
        }

        // A sink is one more score, which has no value.
        IMBREX_KERNEL void finish(const warp& self, warp_tile<float, rows, Depth>& out, row_numbers& largest,
                                  row_numbers& sums) const {
            const float to_log2 = factor();
            row_numbers inverse = sums;
            hw::visit_rows(
                self, hw::use::update, source::current(),
                [&](int row, float& share, float& sum, float& most) {
                    most *= to_log2;
                    share = 1.0f;
                    if (args.sinks != nullptr) {
                        const float sink = args.sinks[own.head(row)] * log2_of_e, top = hw::max(most, sink);
                        share = most == minus_infinity ? 0.0f : hw::exp2(most - top);
                        sum = sum * share + hw::exp2(sink - top);
                        most = top;
                    }
                    share = sum > 0 ? share * hw::reciprocal(sum) : 0.0f;
                },
                inverse, sums, largest);
            combine_with_rows(self, out, inverse, multiply{});
            store_some_rows(
                self, [&](int row) { return place_in(args.out, row); }, out, exist, args.v.columns());
            if (args.log2_sums.pointer == nullptr) return;
            hw::visit_rows(
                self, hw::use::read, source::current(),
                [&](int row, const float& sum, const float& most) {
                    if (row >= exist) return;
                    *args.log2_sums.at(member, own.head(row), first_query + own.query(row)) =
                        sum > 0 ? hw::log2(sum) + most : minus_infinity;
                },
                sums, largest);
        }
    };
};

}  // namespace imbrex
