// Producer of the Hopper attention kernel over an 8-bit KV cache: four warps.
//
//   warp 0        draws work tiles, loads Q, and loads K and V piece by piece into two rings
//   warps 1, 2    upconvert K into the consumers' stages, every other piece each
//   warp 3        upconverts V
//
// Keys behind the last one become zero on the way: they may hold anything, even NaN, and 0 * NaN is NaN.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/ops/warp/upconvert.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/tma_tensor.hpp>

namespace imbrex {

template <class Kernel>
class attention_8bit_cache_producer {
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using work_tile = attention_work_tile;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int piece_rows = Kernel::piece_rows;
    static constexpr int pieces_per_tile = block_n / piece_rows;
    static constexpr int parts_per_piece = piece_rows / page_size_step;

  public:
    template <class Block>
    IMBREX_KERNEL static void run(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto& ring = shared.ring;
        if (self.index() == 0) {
            load(self, block, args, shared);
        } else if (self.index() <= Kernel::key_warps) {
            upconvert_tiles<Kernel::key_warps>(self, shared, ring.k_pieces, shared.k_pieces, ring.k, shared.keys,
                                               args.k_scales, ring.k_scales, self.index() - 1);
        } else {
            upconvert_tiles<1>(self, shared, ring.v_pieces, shared.v_pieces, ring.v, shared.values, args.v_scales,
                               ring.v_scales, 0);
        }
    }

  private:
    template <class Block>
    IMBREX_KERNEL static void load(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.q);
        prefetch_descriptor(self, args.k);
        prefetch_descriptor(self, args.v);
        auto q = shared.ring.q.producer(self, shared.queries);
        auto k = shared.ring.k_pieces.producer(self, shared.k_pieces);
        auto v = shared.ring.v_pieces.producer(self, shared.v_pieces);
        unsigned loaded = 0;
        const int total = args.scheduler.total(args.lengths);
        auto drawing = shared.ring.work.draw(self, block, total, args.tile_counter);
        for (int number = drawing.draw(); number < total; number = drawing.draw()) {
            const work_tile now = attention_work_tile_at<Kernel::block_m, block_n, Kernel::block_m_step,
                                                         Kernel::can_skip_last_tile>(number, args.scheduler,
                                                                                     args.lengths, args.mask);
            if (!now.exists()) continue;
            drawing.publish(now);
            if (!now.has_keys()) continue;
            const int kv_head = now.sequence.head / args.q_heads_per_kv_head;
            for (int tile = now.tiles - 1; tile >= 0; --tile) {
                const auto pages = kv_tile<block_n>(self, args.lengths, now, kv_head, (now.first_tile + tile) * block_n,
                                                    args.k.copied_rows);
                load_pieces(self, args.k, k, pages, args.k_scales, shared.ring.k_scales, loaded);
                // Q after the first K: its stage is released later.
                if (tile == now.tiles - 1) load_queries(self, args, now, q);
                load_pieces(self, args.v, v, pages, args.v_scales, shared.ring.v_scales, loaded);
                loaded += pieces_per_tile;
            }
        }
        drawing.publish({});  // an empty work tile ends the loop
    }

    // The pieces of a key tile, and the scales of their pages. `loaded`: how many pieces there were before.
    template <class Tensor, class Pieces, class Pages, class PieceScales>
    IMBREX_KERNEL static void load_pieces(warp& self, const Tensor& from, Pieces& ring, const Pages& pages,
                                          const kv_cache_scales& scales, PieceScales& piece_scales, unsigned loaded) {
        for (int piece = 0, part = 0; piece < pieces_per_tile; ++piece) {
            const auto slot = ring.acquire_to_write();
            auto& scales_here = piece_scales[(loaded + piece) % Kernel::pieces];
            int next = part;
            for (int row = 0; scales.vary_by_page() && row < piece_rows; row += from.copied_rows, ++next) {
                const paged_seqlens::page_location at = warp_broadcast(self, pages.locations, next);
                const float scale = at.row >= from.extents[2] ? 1.0f : scales.of_page(at.page, pages.head);
                for (int i = row; i < row + from.copied_rows; i += page_size_step)
                    put(self, scales_here, i / page_size_step, scale);
            }
            slot.barrier().expect(self, sizeof(*slot));
            for (int row = 0; row < piece_rows; row += from.copied_rows, ++part) {
                const paged_seqlens::page_location at = warp_broadcast(self, pages.locations, part);
                const auto found = from.at(at.page, pages.head, at.row, 0);
                const bool none = at.row >= from.extents[2];
                load_rows_async(self, *slot, row, none ? found.out_of_bounds_fill() : found, slot);
            }
        }
    }

    template <class Queries>
    IMBREX_KERNEL static void load_queries(warp& self, const arguments& args, const work_tile& now, Queries& q) {
        const auto slot = q.acquire();
        for (int i = 0; i < Kernel::consumer_warpgroups; ++i) {
            const auto from = args.q.at(args.lengths.member(now.sequence.batch), now.sequence.head,
                                        now.first_row + i * Kernel::warpgroup_rows, 0);
            load_async(self, slot->group[i], from.out_of_bounds_fill(), slot);
        }
    }

    // Fills the consumers' stages. `Warps` warps take pieces in turn; each publishes every stage.
    template <int Warps, class PieceRing, class Pieces, class Ring, class Stages, class PieceScales>
    IMBREX_KERNEL static void upconvert_tiles(warp& self, shared_memory& shared, PieceRing& piece_ring, Pieces& pieces,
                                              Ring& ring, Stages& stages, const kv_cache_scales& scales,
                                              const PieceScales& piece_scales, int turn) {
        auto landed = piece_ring.consumer(self, pieces);
        landed.skip(turn);
        auto filling = ring.producer(self, stages);
        auto work_tiles = shared.ring.work.read(self);
        unsigned passed = 0;  // pieces before this tile
        unsigned next = turn;
        for (work_tile now = work_tiles.next(); now.exists(); now = work_tiles.next()) {
            if (!now.has_keys()) continue;
            for (int tile = now.tiles - 1; tile >= 0; --tile, passed += pieces_per_tile) {
                const int exist = now.sequence.seqlen_k - (now.first_tile + tile) * block_n;
                const auto slot = filling.acquire_to_write();
                for (; next < passed + pieces_per_tile; next += Warps) {
                    const int row = static_cast<int>(next - passed) * piece_rows;
                    const auto piece = landed.wait();
                    if (scales.vary_by_page()) {
                        upconvert_parts(self, *slot, row, *piece, exist - row, piece_scales[next % Kernel::pieces]);
                    } else {
                        upconvert(self, slot->template subtile<piece_rows>(row), *piece, exist - row);
                    }
                    landed.skip(Warps - 1);
                }
                fence_async(self);
                filling.publish(slot);
            }
        }
    }

    // A piece with scales per page: sixteen keys are always in one page.
    template <class Stage, class Piece, class Scales>
    IMBREX_KERNEL static void upconvert_parts(warp& self, Stage& to, int row, const Piece& piece, int exist,
                                              const Scales& scales) {
        for (int part = 0; part < parts_per_piece; ++part) {
            const int first = part * page_size_step;
            upconvert(self, to.template subtile<page_size_step>(row + first),
                      piece.template subtile<page_size_step>(first), exist - first, get(self, scales, part));
        }
    }
};

}  // namespace imbrex
