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
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/consumers.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class In, int Depth, class Mask = full_mask, class Score = plain_score, decode_shape Shape = decode_shape{},
          attention_result Result = attention_result::normalised, class Cache = In>
struct paged_decode_ampere {
    using consumers = decode_consumers<In, Depth, Shape, Result, Cache>;
    static constexpr int warps = consumers::count;
    static constexpr int residents = Shape.residents;
    static constexpr int unit_heads = 1;
    static constexpr int rows = consumers::rows;
    static constexpr int columns = Shape.keys;
    static constexpr int groups = consumers::groups;
    static constexpr int sharers = consumers::sharers;
    static constexpr int stages = Shape.stages / sharers;  // of those who share them
    static_assert(Shape.threads_copy, "imbrex: keys are copied by threads here");
    static_assert(groups == 1 || stages > 1, "imbrex: of stages that warps share, one is read while others are filled");
    static_assert(groups <= 4, "imbrex: a stage is copied by four warps at most");
    using key_tile = typename consumers::key_tile;
    using stage = typename consumers::stage;

    // Columns may be fewer than the depth; those that do not exist are taken as zero. Any distances of keys and values will do.
    struct arguments : decode_arguments<In, Mask, Score> {
        attention_view<const Cache> k;
        attention_view<const Cache> v;
    };
    struct rings {
        stage items[sharers][stages];
    };
    using results_of_warps = typename consumers::results_of_warps;
    struct shared_memory {
        overlay<rings, results_of_warps> both;
        typename consumers::query_room q;
        shared_vector<decode_walk, 1> walks[warps];  // between pieces
    };
    static_assert(sizeof(shared_memory) <= 99 * 1024, "imbrex: some GPUs have 99 KB of shared memory a block");

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            struct memory {
                results_of_warps& left;
                typename consumers::query_room& q;
            };
            memory consumed{shared.both.template as<results_of_warps>(), shared.q};
            feed own(self, block, args, shared.both.template as<rings>(), shared.walks[self.index()]);
            consumers::run(self, args, consumed, own, own);
        });
    }

  private:
    // A warp's pieces of work and its stages of keys, which come in the order of its steps. Copies are on their way for a piece
    // only while it is attended to.
    class feed {
      public:
        template <class Block>
        IMBREX_KERNEL feed(warp& self, const Block& block, const arguments& args, rings& all,
                           shared_vector<decode_walk, 1>& walk)
            : self_(&self),
              args_(&args),
              ring_(all.items[consumers::turn_of(self)]),
              walk_(&walk),
              first_(consumers::turn_of(self)) {
            const decode_plan<rows, columns, Mask> plan(self, args.sizes, args.lengths, args.mask, block.count().x);
            put(self, walk, 0, plan.begin(self, block.index().x));
        }

        IMBREX_KERNEL decode_piece next() {
            const decode_line<rows, columns, Mask> line(args_->sizes, args_->lengths, args_->mask);
            first_ = (first_ + sharers - piece_.steps % sharers) % sharers;
            asked_ = 0;
            piece_ = {};
            decode_walk walk = get(*self_, *walk_, 0);
            if (line.next(walk, piece_)) line.complete(walk, piece_);
            put(*self_, *walk_, 0, walk);
            return piece_;
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
            IMBREX_KERNEL held(feed& from, stage& item, source here) : from_(&from), item_(&item), here_(here) {}
            held(const held&) = delete;
            held& operator=(const held&) = delete;
            // Throws in the host world if the copy itself is a hazard.
            IMBREX_KERNEL ~held() noexcept(false) {
                if constexpr (groups == 1) {
                    from_->self_->sync(here_);  // all lanes have read it
                    from_->fetch(here_);
                }
            }
            IMBREX_KERNEL stage* operator->() const { return item_; }

          private:
            feed* from_;
            stage* item_;
            [[no_unique_address]] source here_;
        };
        IMBREX_KERNEL held wait(source here = source::current()) {
            wait_copies<ahead - 1>(*self_, here);
            consumers::meet_sharers(*self_, here);
            stage& item = ring_[(asked_ - ahead) % stages];
            if constexpr (groups > 1) fetch(here);
            return held(*this, item, here);
        }

      private:
        static constexpr int ahead = groups == 1 ? stages : stages - 1;
        static constexpr int parts = columns / page_step;  // of a stage, each in one page
        static constexpr int looked_up = warp::threads / parts;

        // The next step's keys and values, if there is one; a group of copies in any case, for the count. The lanes look up the pages of
        // many steps at once.
        IMBREX_KERNEL void fetch(source here) {
            const int step = first_ + asked_ * sharers;
            if (step < piece_.steps) {
                const int number = asked_ % looked_up;
                if (number == 0) {
                    places_ = look_up<warp::threads>(
                        *self_,
                        [&](int of) {
                            const int key = key_of(step + of / parts * sharers) + of % parts * page_step;
                            const paged_lengths::place at = args_->lengths.place_of(piece_, key, page_step);
                            const int pages = static_cast<int>(args_->k.extents[0]);
                            hw::require_in_kernel(
                                at.row == args_->lengths.page_rows || (at.page >= 0 && at.page < pages),
                                "pages.table: page %d of sequence %d; there are %d pages", at.page,
                                piece_.sequence.batch, pages);
                            return at;
                        },
                        here);
                }
                stage& to = ring_[asked_ % stages];
                for (int part = 0; part < parts; ++part) {
                    const paged_lengths::place at = entry(*self_, places_, number * parts + part, here);
                    const int exist = piece_.keys.end - key_of(step) - part * page_step;
                    copy(to, part * page_step, at, exist, here);
                }
            }
            commit_copies(*self_, here);
            ++asked_;
        }
        IMBREX_KERNEL int key_of(int step) const { return (piece_.step + step) * columns; }

        // Some keys and values that lie in one page: all of them, the ones or the others, or some rows of either.
        IMBREX_KERNEL void copy(stage& to, int row, const paged_lengths::place& at, int exist, source here) {
            constexpr int share = groups == 4 ? page_step / 2 : page_step;
            const int group = self_->index() % groups;
            const int first = groups == 4 ? group % 2 * share : 0;
            if (groups == 1 || group < groups / 2) copy_rows<share>(to.k, row, first, args_->k, at, exist, here);
            if (groups == 1 || group >= groups / 2) copy_rows<share>(to.v, row, first, args_->v, at, exist, here);
        }
        template <int Rows>
        IMBREX_KERNEL void copy_rows(key_tile& to, int row, int first, const attention_view<const Cache>& view,
                                     const paged_lengths::place& at, int exist, source here) {
            constexpr int panel = key_tile::layout::panel_columns;
            constexpr int chunks = Rows * panel * static_cast<int>(sizeof(Cache)) / 16;
            global_tile<const Cache> from = view.at(at.page, piece_.key_head, at.row, 0);
            if (at.row < args_->lengths.page_rows) from.rows = exist;
            from = from.from(first, 0);
            if constexpr (chunks % warp::threads == 0) {
                if (from.in_chunks()) {
                    for_each_constant<Depth / panel>([&](auto number) {
                        copy_chunks_async(*self_, to.template part<Rows, panel>(row + first, number * panel),
                                          from.from(0, number * panel), here);
                    });
                    return;
                }
            }
            copy_async(*self_, to.template part<Rows>(row + first), from, here);
        }

        warp* self_;
        const arguments* args_;
        stage* ring_;
        shared_vector<decode_walk, 1>* walk_;
        decode_piece piece_ = {};
        hw::lane_values<paged_lengths::place, warp::threads> places_ = {};
        int first_;      // step of the piece that is this warp's
        int asked_ = 0;  // for how many of its steps keys have been asked
    };
};

}  // namespace imbrex
