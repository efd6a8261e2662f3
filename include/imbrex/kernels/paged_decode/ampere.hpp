// Split-KV decode kernel for every GPU from sm_80 on, and for strides that TMA cannot read. Several small blocks per
// SM, without a producer warp: each warp copies its own keys and values by cp.async.
//
//   schedule  each warp runs the scheduler itself (paged_decode/scheduler.hpp)
//   copy      A warp has its own stages. While other warps multiply, its next tile is in flight. With more than 16
//             query rows the warps share a ring of stages, and each copies a part of every stage.
//   merge     in the memory of the stages, since there is no room for both. Another block of the SM reads meanwhile.
//
// Masked tiles are not read. Keys that are not read, and rows past the last key, become zero.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/consumer.hpp>
#include <imbrex/kernels/paged_decode/consumer_interface.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class In, int HeadDim, class Mask = full_mask, class Score = score_mod::identity,
          decode_shape Shape = decode_shape{}, attention_output_mode Result = attention_output_mode::normalised,
          class Cache = In>
struct paged_decode_ampere {
    using consumers = decode_consumer<In, HeadDim, Shape, Result, Cache>;
    static_assert(decode_split_consumer<consumers>, "imbrex: see paged_decode/consumer_interface.hpp");
    static constexpr int warps = consumers::count;
    static constexpr int min_blocks_per_sm = Shape.min_blocks_per_sm;
    static constexpr int kv_heads_per_item = 1;
    static constexpr int block_m = consumers::block_m;
    static constexpr int block_n = Shape.block_n;
    static constexpr int warps_m = consumers::warps_m;
    static constexpr int warps_n = consumers::warps_n;
    static constexpr int stages = Shape.stages / warps_n;  // of each group of warps that share stages
    static_assert(Shape.uses_cp_async, "imbrex: paged_decode_ampere needs Shape.uses_cp_async");
    static_assert(warps_m == 1 || stages > 1, "imbrex: warps that share stages need at least two of them");
    static_assert(warps_m <= 4, "imbrex: at most four warps share a stage");
    using key_tile = typename consumers::key_tile;
    using stage = typename consumers::stage;

    // The views may have fewer columns than HeadDim; the rest is zero. Any strides of K and V.
    struct arguments : decode_arguments<In, Mask, Score> {
        attention_view<const Cache> k;
        attention_view<const Cache> v;
    };
    struct rings {
        stage items[warps_n][stages];
    };
    using warp_partials = typename consumers::warp_partials;
    struct shared_memory {
        overlay<rings, warp_partials> both;
        typename consumers::query_buffer q;
        shared_vector<decode_cursor, 1> cursors[warps];  // kept here between splits, to save registers
    };
    static_assert(sizeof(shared_memory) <= 99 * 1024,
                  "imbrex: shared memory exceeds the 99 KB per block that every supported GPU has");

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            struct memory {
                warp_partials& partials;
                typename consumers::query_buffer& q;
            };
            memory consumed{shared.both.template as<warp_partials>(), shared.q};
            cp_async_producer own(self, block, args, shared.both.template as<rings>(), shared.cursors[self.index()]);
            consumers::run(self, args, consumed, own, own);
        });
    }

  private:
    // A warp's splits and stages, in the order of its tiles. Copies are in flight only for the current split.
    class cp_async_producer {
      public:
        template <class Block>
        IMBREX_KERNEL cp_async_producer(warp& self, const Block& block, const arguments& args, rings& all,
                                        shared_vector<decode_cursor, 1>& cursor)
            : self_(&self),
              args_(&args),
              ring_(all.items[consumers::warp_n_of(self)]),
              cursor_(&cursor),
              first_(consumers::warp_n_of(self)) {
            const decode_scheduler<block_m, block_n, Mask> scheduler(self, args.schedule, args.lengths, args.mask,
                                                                     block.count().x);
            put(self, cursor, 0, scheduler.begin(self, block.index().x));
        }

        IMBREX_KERNEL decode_split next() {
            const decode_tile_space<block_m, block_n, Mask> tile_space(args_->schedule, args_->lengths, args_->mask);
            first_ = (first_ + warps_n - split_.num_tiles % warps_n) % warps_n;
            issued_ = 0;
            split_ = {};
            decode_cursor cursor = get(*self_, *cursor_, 0);
            if (tile_space.next(cursor, split_)) tile_space.complete(cursor, split_);
            put(*self_, *cursor_, 0, cursor);
            return split_;
        }

        // Issues the first copies of the split.
        IMBREX_KERNEL void begin(source here = source::current()) {
            for (int i = 0; i < ahead; ++i) fetch(here);
        }

        // Stages are indexed by tile: there is nothing to skip.
        IMBREX_KERNEL void skip(int) {}

        // A private stage is refilled at the end of this scope, a shared one when all warps have reached the next.
        class held {
          public:
            IMBREX_KERNEL held(cp_async_producer& from, stage& item, source here)
                : from_(&from), item_(&item), here_(here) {}
            held(const held&) = delete;
            held& operator=(const held&) = delete;
            // Throws in the host world if the copy itself is a hazard.
            IMBREX_KERNEL ~held() noexcept(false) {
                if constexpr (warps_m == 1) {
                    from_->self_->sync(here_);  // all lanes have read it
                    from_->fetch(here_);
                }
            }
            IMBREX_KERNEL stage* operator->() const { return item_; }

          private:
            cp_async_producer* from_;
            stage* item_;
            [[no_unique_address]] source here_;
        };
        IMBREX_KERNEL held wait(source here = source::current()) {
            wait_copies<ahead - 1>(*self_, here);
            consumers::sync_stage_warps(*self_, here);
            stage& item = ring_[(issued_ - ahead) % stages];
            if constexpr (warps_m > 1) fetch(here);
            return held(*this, item, here);
        }

      private:
        static constexpr int ahead = warps_m == 1 ? stages : stages - 1;
        static constexpr int copies_per_stage = block_n / page_size_step;  // each within one page
        static constexpr int stages_per_gather = warp::threads / copies_per_stage;

        // Copies the next tile, if there is one. Commits a cp.async group in any case, to keep the count. The lanes
        // look up the block table for several tiles at once.
        IMBREX_KERNEL void fetch(source here) {
            const int tile_idx = first_ + issued_ * warps_n;
            if (tile_idx < split_.num_tiles) {
                const int number = issued_ % stages_per_gather;
                if (number == 0) {
                    page_coords_ = warp_gather<warp::threads>(
                        *self_,
                        [&](int of) {
                            const int key = key_of(tile_idx + of / copies_per_stage * warps_n) +
                                            of % copies_per_stage * page_size_step;
                            const paged_seqlens::page_location at = args_->lengths.locate(split_, key, page_size_step);
                            const int pages = static_cast<int>(args_->k.extents[0]);
                            hw::require_in_kernel(
                                at.row == args_->lengths.page_size || (at.page >= 0 && at.page < pages),
                                "paged_kv.block_table: page %d of sequence %d; there are %d pages", at.page,
                                split_.sequence.batch, pages);
                            return at;
                        },
                        here);
                }
                stage& to = ring_[issued_ % stages];
                for (int copy_idx = 0; copy_idx < copies_per_stage; ++copy_idx) {
                    const paged_seqlens::page_location at =
                        warp_broadcast(*self_, page_coords_, number * copies_per_stage + copy_idx, here);
                    const int exist = split_.keys.end - key_of(tile_idx) - copy_idx * page_size_step;
                    copy(to, copy_idx * page_size_step, at, exist, here);
                }
            }
            commit_copies(*self_, here);
            ++issued_;
        }
        IMBREX_KERNEL int key_of(int tile_idx) const { return (split_.first_tile + tile_idx) * block_n; }

        // Copies rows of one page: K and V, or this warp's share of them if the stage is shared.
        IMBREX_KERNEL void copy(stage& to, int row, const paged_seqlens::page_location& at, int exist, source here) {
            constexpr int share = warps_m == 4 ? page_size_step / 2 : page_size_step;
            const int group = self_->index() % warps_m;
            const int first = warps_m == 4 ? group % 2 * share : 0;
            if (warps_m == 1 || group < warps_m / 2) copy_rows<share>(to.k, row, first, args_->k, at, exist, here);
            if (warps_m == 1 || group >= warps_m / 2) copy_rows<share>(to.v, row, first, args_->v, at, exist, here);
        }
        template <int Rows>
        IMBREX_KERNEL void copy_rows(key_tile& to, int row, int first, const attention_view<const Cache>& view,
                                     const paged_seqlens::page_location& at, int exist, source here) {
            constexpr int panel = key_tile::layout::panel_columns;
            constexpr int chunks = Rows * panel * static_cast<int>(sizeof(Cache)) / 16;
            global_tile<const Cache> from = view.at(at.page, split_.kv_head, at.row, 0);
            if (at.row < args_->lengths.page_size) from.rows = exist;
            from = from.from(first, 0);
            if constexpr (chunks % warp::threads == 0) {
                if (from.is_16_byte_aligned()) {
                    static_for<HeadDim / panel>([&](auto number) {
                        copy_aligned_async(*self_, to.template subtile<Rows, panel>(row + first, number * panel),
                                           from.from(0, number * panel), here);
                    });
                    return;
                }
            }
            copy_async(*self_, to.template subtile<Rows>(row + first), from, here);
        }

        warp* self_;
        const arguments* args_;
        stage* ring_;
        shared_vector<decode_cursor, 1>* cursor_;
        decode_split split_ = {};
        hw::lane_values<paged_seqlens::page_location, warp::threads> page_coords_ = {};
        int first_;       // first tile of the split that is this warp's
        int issued_ = 0;  // tiles whose copies have been issued
    };
};

}  // namespace imbrex
