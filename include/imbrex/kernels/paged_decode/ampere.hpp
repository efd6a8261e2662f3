// Attention of a few new tokens of each sequence to keys and values in pages, on every GPU from sm_80 on. A grid of some small
// blocks for each multiprocessor, whose warps all do the same (paged_decode/consumers.hpp), and copy their keys by themselves:
//
//   plan      each warp finds out the block's pieces of work by itself (paged_decode/plan.hpp)
//   fetch     A warp has a stage of its own. While others multiply theirs, its next keys and values come by cp.async. With more than
//             16 rows of queries the warps share a ring of stages, and each copies a part of every one.
//   combine   where the stages were: the memory is enough for one of the two. Another block of the multiprocessor reads meanwhile.
//
// What no row sees is not read; it lands as zero, and so does what is behind the last key.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/requirement.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/consumer.hpp>
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
    static constexpr int warps = consumers::count;
    static constexpr int min_blocks_per_sm = Shape.min_blocks_per_sm;
    static constexpr int kv_heads_per_item = 1;
    static constexpr int block_m = consumers::block_m;
    static constexpr int block_n = Shape.block_n;
    static constexpr int warps_m = consumers::warps_m;
    static constexpr int warps_n = consumers::warps_n;
    static constexpr int stages = Shape.stages / warps_n;  // of those who share them
    static_assert(Shape.uses_cp_async, "imbrex: keys are copied by threads here");
    static_assert(warps_m == 1 || stages > 1,
                  "imbrex: of stages that warps share, one is read while others are filled");
    static_assert(warps_m <= 4, "imbrex: a stage is copied by four warps at most");
    using key_tile = typename consumers::key_tile;
    using stage = typename consumers::stage;

    // Columns may be fewer than the depth; those that do not exist are taken as zero. Any distances of keys and values will do.
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
        shared_vector<decode_cursor, 1> cursors[warps];  // between pieces
    };
    static_assert(sizeof(shared_memory) <= 99 * 1024, "imbrex: some GPUs have 99 KB of shared memory a block");

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
    // A warp's pieces of work and its stages of keys, which come in the order of its steps. Copies are on their way for a piece
    // only while it is attended to.
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

        // The first keys of the piece.
        IMBREX_KERNEL void begin(source here = source::current()) {
            for (int i = 0; i < ahead; ++i) fetch(here);
        }

        // Stages go to their warps by the numbers of their steps.
        IMBREX_KERNEL void skip(int) {}

        // A stage of this warp alone is filled again at its end; a shared one when all have come to the next.
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
        static constexpr int copies_per_stage = block_n / page_size_step;  // of a stage, each in one page
        static constexpr int stages_per_gather = warp::threads / copies_per_stage;

        // The next step's keys and values, if there is one; a group of copies in any case, for the count. The lanes look up the pages of
        // many steps at once.
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

        // Some keys and values that lie in one page: all of them, the ones or the others, or some rows of either.
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
        int first_;       // step of the piece that is this warp's
        int issued_ = 0;  // for how many of its steps keys have been asked
    };
};

}  // namespace imbrex
