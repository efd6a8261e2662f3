// The kernel of simt_paged_attention: float FMAs, whatever the types in memory. A warp takes 16 packed GQA rows of one
// KV head and loops over all keys that any of them sees. Warps do not synchronise, and all state is in registers.
//
//   for each tile of keys      S = Q K^T                          (ops/warp/simt_attention.hpp)
//                              score_mod and mask
//                              online softmax, rescale O
//                              O += P V
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/paged_row_blocks.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/kernels/simt_paged_attention/scheduler.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/simt_attention.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <cstdint>

namespace imbrex {

// head_dim_v is at most HeadDim.
template <class In, int HeadDim, class Mask = causal_mask, class Score = score_mod::identity, class Cache = In>
struct simt_paged_attention_kernel {
    static_assert(HeadDim % 16 == 0, "imbrex: HeadDim must be a multiple of 16");
    static constexpr int warps = 1;
    static constexpr int rows = 16;
    static constexpr int keys_at_once = HeadDim > 128 ? 32 : 64;  // limited by registers

    struct arguments {
        attention_view<const In> q;
        attention_view<const Cache> k;
        attention_view<const Cache> v;
        attention_view<In> out;
        attention_row_view lse2;  // optional, as are sinks
        const float* sinks;
        Mask mask;
        Score score;
        float scale;
        paged_seqlens lengths;
        simt_paged_attention_schedule schedule;
        fast_divmod q_heads_per_kv_head;
        int work_items;
    };
    struct shared_memory {};

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        block.each_warp([&](const warp& self) {
            for (const int number : static_tile_scheduler(block, args.work_items)) {
                const work_item work(args, args.schedule.at(number, args.lengths));
                if (work.exist > 0) work.run(self);
            }
        });
    }

  private:
    using row_numbers = row_values<float, rows, warp>;

    struct work_item {
        const arguments& args;
        gqa_rows own;
        int exist;  // rows that exist
        int member, first_query, kv_head;

        IMBREX_KERNEL work_item(const arguments& all, const simt_paged_attention_work_item& item)
            : args(all),
              own{all.lengths.of(item.sequence, item.kv_head * all.schedule.q_heads_per_kv_head),
                  all.q_heads_per_kv_head, item.first},
              exist(hw::min(own.sequence.seqlen_q * all.schedule.q_heads_per_kv_head - own.first, rows)),
              member(all.lengths.member(item.sequence)),
              first_query(all.lengths.first_query(item.sequence)),
              kv_head(item.kv_head) {}

        IMBREX_KERNEL void run(const warp& self) const {
            warp_tile<float, rows, HeadDim> out;
            row_numbers row_max, row_sum, corrections;
            fill(self, out, 0.0f);
            fill(self, row_max, minus_infinity);
            fill(self, row_sum, 0.0f);
            const query_range queries{own.query(0), own.query(exist - 1) + 1};
            const key_range seen =
                visible_keys_of_heads(own.sequence, args.schedule.q_heads_per_kv_head, queries, args.mask);
            // Tiles begin at multiples of keys_at_once, whatever the other rows are: each row sums in a fixed order.
            for (int first = seen.first / keys_at_once * keys_at_once; first < seen.end; first += keys_at_once) {
                warp_tile<float, rows, keys_at_once> scores;
                simt_qk(
                    self, scores, exist, [&](int row) { return place_in(args.q, row); }, blocks_of(args.k, first, seen),
                    args.q.columns());
                apply_score_mod_and_mask_gqa(self, scores, own, first, seen.end, args.mask, args.score, args.scale);
                simt_online_softmax(self, scores, exist, factor(), row_max, row_sum, corrections);
                combine_with_rows(self, out, corrections, functional::multiply{});
                simt_pv(self, out, scores, exist, blocks_of(args.v, first, seen), args.v.columns());
            }
            finish(self, out, row_max, row_sum);
        }

      private:
        IMBREX_KERNEL float factor() const { return scale_log2_after(args.score, args.scale).value; }

        template <class T>
        IMBREX_KERNEL T* place_in(const attention_view<T>& view, int row) const {
            return view.at(member, own.head(row), first_query + own.query(row), 0).pointer;
        }

        // Rows of K or V from `first` on, limited to the visible ones.
        IMBREX_KERNEL auto blocks_of(const attention_view<const Cache>& view, int first, const key_range& seen) const {
            const auto place = [this, &view, first](int number) -> const Cache* {
                const int key = first + number * page_size_step, entry = key / args.lengths.page_size;
                const auto blocks_before =
                    static_cast<std::int64_t>(own.sequence.batch) * args.lengths.max_blocks_per_seq;
                const int page = read_element(args.lengths.block_table, blocks_before + entry);
                const int pages = static_cast<int>(view.extents[0]);
                hw::require_in_kernel(page >= 0 && page < pages,
                                      "paged_kv.block_table: page %d of sequence %d; there are %d pages", page,
                                      own.sequence.batch, pages);
                return view.at(page, kv_head, key - entry * args.lengths.page_size, 0).pointer;
            };
            static_assert(paged_row_blocks<decltype(place)>::rows_in_block == page_size_step,
                          "imbrex: a block of rows must not cross a page");
            return paged_row_blocks<decltype(place)>{place, view.strides[2], hw::max(seen.first - first, 0),
                                                     hw::min(seen.end - first, keys_at_once)};
        }

        // An attention sink adds one logit to the denominator.
        IMBREX_KERNEL void finish(const warp& self, warp_tile<float, rows, HeadDim>& out, row_numbers& row_max,
                                  row_numbers& row_sum) const {
            const float to_log2 = factor();
            row_numbers inverse = row_sum;
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
                inverse, row_sum, row_max);
            combine_with_rows(self, out, inverse, functional::multiply{});
            simt_store_rows(
                self, [&](int row) { return place_in(args.out, row); }, out, exist, args.v.columns());
            if (args.lse2.pointer == nullptr) return;
            hw::visit_rows(
                self, hw::use::read, source::current(),
                [&](int row, const float& sum, const float& most) {
                    if (row >= exist) return;
                    *args.lse2.at(member, own.head(row), first_query + own.query(row)) =
                        sum > 0 ? hw::log2(sum) + most : minus_infinity;
                },
                row_sum, row_max);
        }
    };
};

}  // namespace imbrex
