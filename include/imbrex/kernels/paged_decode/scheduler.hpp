// The split-KV scheduler of paged decode: which block reads which keys. It distributes tiles as a stream-K GEMM does,
// on the device, from the lengths that it reads when the kernel runs. The units, from large to small:
//
//     work item    the packed GQA rows of one KV head of one sequence, block_m of them at most; or the rows of several
//        |         KV heads that are read together (KvHeadsPerItem)
//        v
//     split        a contiguous range of the item's keys that one block attends to. The splits of an item are merged by
//        |         their LSE (merge_splits.hpp); a single split is final
//        v
//     tile         block_n keys and their values: one iteration of a consumer
//        |
//        v
//     stage        the shared-memory buffer of a tile, filled by TMA or cp.async (producer.hpp, ampere.hpp). In
//                  the multi-KV-head kernels a tile fills one stage per consumer warp
//
//     work item  | A: seq 0, KV head 0 | B: seq 0, KV head 1 | C: 1,0| D: 1,1|
//     tile       | 0 1 2 3 4 5 6 7 8 9 | 0 1 2 3 4 5 6 7 8 9 | 0 1 2 | 0 1 2 |
//     block      | a            | b             | c             | d          |   7 tiles each, 5 for the last
//     split      | A0           | A1   | B0     | B1         |C0|C1  | D     |   A0 and A1 are the splits of A
//
// All tiles of all work items, in this order, form the tile space. It is cut into equal ranges, one per block of the
// grid. All blocks read the same number of keys, whatever the lengths. A work item has at least one tile.
//
// Two corrections apply. If there are many work items, each counts `overhead_tiles` more than it has: writing a result
// takes time, and a block with many short items gets fewer of them. If all tiles fit blocks of the minimum size, items
// are padded to a multiple of that size (`tile_multiple`): then no block has splits of two items, which it would
// process one after the other.
//
// With these dynamic splits the position of a cut depends on the whole batch, and so do the last bits of a result. With
// a fixed split size (`tiles_per_split`) each sequence is cut at multiples of it, counted from its first key, and
// results are batch invariant. A block then owns the splits that begin in its range, each of them entirely:
//
//     split             | 0    | 1    | 2    | 3  | 0 | 0 | 0    | 1  |
//     block             | a       | b       | c       | d       |     a owns splits 0 and 1 of item 0, b split 2, ...
//
// Every lane of a warp sums the tiles of some sequences; a warp-wide prefix sum gives the offset of each sequence in
// the tile space.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/ops/warp/gather.hpp>

#include <cstdint>

namespace imbrex {

// The share of one block in one work item. With dynamic splits consecutive blocks have one split each; with fixed
// splits a block may have several.
struct decode_split : attention_work {  // `keys`: visible to any row of the sequence
    int kv_head;                        // the first of KvHeadsPerItem
    int first_row;
    int first_tile;  // counted from key 0 of the sequence
    int num_tiles;
    int split_idx;
    int num_splits;
    int first_block;  // owns split 0
    int blocks;       // number of blocks that own splits of this item
    int first_slot;   // workspace slot of split 0, followed by the others (fixed splits); or -1

    // Workspace slot of a split. With dynamic splits a block has two slots: one for the item that it ends or continues,
    // and one for the item that it begins.
    IMBREX_FN int slot(int split) const {
        return first_slot >= 0 ? first_slot + split : 2 * (first_block + split) + (split == 0 ? 1 : 0);
    }
};

// Sizes that are the same for the whole launch.
struct decode_schedule {
    int batches;
    int kv_heads;
    fast_divmod q_heads_per_kv_head;
    int min_tiles_per_block;  // fewer are not worth another block
    int overhead_tiles;       // added to each work item
    int tile_multiple;        // items are padded to this, a power of two
    int tiles_per_split;      // fixed split size; 0: dynamic splits
    int max_splits;           // of an item with fixed splits: its workspace slots
    int slices_per_split;     // output slices that a workspace slot holds
};

// The range of one sequence in the tile space. All of its work items have the same number of tiles.
struct decode_sequence_span {
    key_range keys;
    int first_tile;
    int item_tiles;  // with overhead and padding
    int m_blocks;
    int work_items;
    int padding;  // tiles that are counted and not read; they come first

    IMBREX_FN int length() const { return item_tiles * work_items; }
};

// Position of a block in the tile space: plain integers, which can be kept in shared memory between two splits.
struct decode_cursor {
    int block;
    int tiles_per_block;
    int at;
    int end;
    int batch;   // sequence at `at`
    int before;  // its offset in the tile space
    decode_sequence_span now;
    int item_begin;  // range of the current item, without its padding
    int item_end;
};

// The linearised tile space.
template <int BlockM, int BlockN, class Mask, int KvHeadsPerItem = 1>
class decode_tile_space {
  public:
    IMBREX_KERNEL decode_tile_space(const decode_schedule& schedule, const paged_seqlens& lengths, const Mask& mask)
        : schedule_(&schedule), lengths_(&lengths), mask_(&mask) {}

    // Advances to the next split of the block; false at the end of its range. `complete` fills in split_idx, num_splits
    // and slots: separate, so that the producer can issue its first copies before it.
    IMBREX_KERNEL bool next(decode_cursor& cursor, decode_split& split) const {
        while (cursor.at < cursor.end) {
            while (cursor.at - cursor.before >= cursor.now.length()) {
                cursor.before += cursor.now.length();
                cursor.now = span_of(++cursor.batch);
            }
            const decode_sequence_span& now = cursor.now;
            const int item = (cursor.at - cursor.before) / now.item_tiles;
            cursor.item_end = cursor.before + (item + 1) * now.item_tiles;
            cursor.item_begin = cursor.item_end - now.item_tiles + now.padding;
            int begin = cursor.at > cursor.item_begin ? cursor.at : cursor.item_begin;
            cursor.at = cursor.item_end < cursor.end ? cursor.item_end : cursor.end;
            if (schedule_->tiles_per_split > 0 && begin > cursor.item_begin) begin += tiles_to_split(cursor, begin);
            if (cursor.at <= begin) continue;
            if (schedule_->tiles_per_split > 0) cursor.at = end_of_split(cursor, begin);
            const int before = now.m_blocks == 1 ? item : item / now.m_blocks;  // items of all row blocks
            split.kv_head = before * KvHeadsPerItem;
            split.first_row = (item - before * now.m_blocks) * BlockM;
            split.sequence = lengths_->of(cursor.batch, split.kv_head * schedule_->q_heads_per_kv_head.value);
            split.queries = {0, split.sequence.seqlen_q};
            split.keys = now.keys;
            split.first_tile = now.first_tile + begin - cursor.item_begin;
            split.num_tiles = cursor.at - begin;
            return true;
        }
        return false;
    }
    IMBREX_KERNEL void complete(const decode_cursor& cursor, decode_split& split) const {
        const bool begins_here = cursor.item_begin >= std::int64_t{cursor.block} * cursor.tiles_per_block;
        split.first_block = begins_here ? cursor.block : cursor.item_begin / cursor.tiles_per_block;
        if (schedule_->tiles_per_split > 0) return complete_split(cursor, split);
        split.split_idx = cursor.block - split.first_block;
        split.num_splits = split.blocks =
            (cursor.item_end <= cursor.end ? cursor.block : (cursor.item_end - 1) / cursor.tiles_per_block) -
            split.first_block + 1;
        split.first_slot = -1;
    }

  protected:
    // Fixed splits: tiles from `from` to the beginning of the next split, and the end of the split that begins at
    // `begin`.
    IMBREX_KERNEL int tiles_to_split(const decode_cursor& cursor, int from) const {
        const int into = (cursor.now.first_tile + from - cursor.item_begin) % schedule_->tiles_per_split;
        return into == 0 ? 0 : schedule_->tiles_per_split - into;
    }
    IMBREX_KERNEL int end_of_split(const decode_cursor& cursor, int begin) const {
        const int end = begin + 1 + tiles_to_split(cursor, begin + 1);
        return end < cursor.item_end ? end : cursor.item_end;
    }
    IMBREX_KERNEL void complete_split(const decode_cursor& cursor, decode_split& split) const {
        const int every = schedule_->tiles_per_split, first = cursor.now.first_tile;
        const int last = first + cursor.item_end - cursor.item_begin - 1;
        split.split_idx = split.first_tile / every - first / every;
        split.num_splits = last / every - first / every + 1;
        const int last_begins = cursor.item_begin + (split.num_splits == 1 ? 0 : last / every * every - first);
        split.blocks = last_begins / cursor.tiles_per_block - split.first_block + 1;
        // Varlen: an upper bound on the row blocks before this sequence, without a sum over all of them.
        const std::int64_t rows_before =
            std::int64_t{lengths_->first_query(cursor.batch)} * schedule_->q_heads_per_kv_head.value;
        const int m_blocks_before = lengths_->varlen() ? static_cast<int>(rows_before / BlockM) + cursor.batch
                                                       : cursor.batch * cursor.now.m_blocks;
        const int item = split.kv_head / KvHeadsPerItem * cursor.now.m_blocks + split.first_row / BlockM;
        split.first_slot = (m_blocks_before * (schedule_->kv_heads / KvHeadsPerItem) + item) * schedule_->max_splits;
    }

    IMBREX_KERNEL decode_sequence_span span_of(int batch) const {
        const attention_extents sequence = lengths_->of(batch, 0);
        const int heads = schedule_->q_heads_per_kv_head.value;
        decode_sequence_span made{};
        made.keys = visible_keys_of_heads(sequence, schedule_->kv_heads * heads, {0, sequence.seqlen_q}, *mask_);
        made.first_tile = made.keys.first / BlockN;
        const int tiles = (made.keys.end + BlockN - 1) / BlockN - made.first_tile, num_tiles = tiles < 1 ? 1 : tiles;
        made.item_tiles =
            (num_tiles + schedule_->overhead_tiles + schedule_->tile_multiple - 1) & -schedule_->tile_multiple;
        made.padding = made.item_tiles - num_tiles;
        made.m_blocks = (sequence.seqlen_q * heads + BlockM - 1) / BlockM;
        made.work_items = made.m_blocks * (schedule_->kv_heads / KvHeadsPerItem);
        return made;
    }

    const decode_schedule* schedule_;
    const paged_seqlens* lengths_;
    const Mask* mask_;
};

template <int BlockM, int BlockN, class Mask, int KvHeadsPerItem = 1>
class decode_scheduler : public decode_tile_space<BlockM, BlockN, Mask, KvHeadsPerItem> {
  public:
    using tile_space = decode_tile_space<BlockM, BlockN, Mask, KvHeadsPerItem>;

    // Reads all lengths.
    IMBREX_KERNEL decode_scheduler(const warp& scope, const decode_schedule& schedule, const paged_seqlens& lengths,
                                   const Mask& mask, int blocks, source here = source::current())
        : tile_space(schedule, lengths, mask), tile_prefix_sums_(tile_prefix_sums(scope, 0, schedule.batches, here)) {
        total_tiles_ = warp_broadcast(scope, tile_prefix_sums_, warp::threads - 1, here);
        tiles_per_block_ = (total_tiles_ + blocks - 1) / blocks;
        if (tiles_per_block_ < schedule.min_tiles_per_block) tiles_per_block_ = schedule.min_tiles_per_block;
    }

    // A cursor at the beginning of a block's range.
    IMBREX_KERNEL decode_cursor begin(const warp& scope, int block, source here = source::current()) const {
        const std::int64_t first = std::int64_t{block} * tiles_per_block_;
        decode_cursor made{};
        made.block = block;
        made.tiles_per_block = tiles_per_block_;
        made.at = first < total_tiles_ ? static_cast<int>(first) : total_tiles_;
        made.end = total_tiles_ - made.at < tiles_per_block_ ? total_tiles_ : made.at + tiles_per_block_;
        if (made.at < made.end) seek(scope, made, here);
        return made;
    }

    // Calls visit(split, complete) for each split of a block, in order.
    template <class Visit>
    IMBREX_KERNEL void for_each_split(const warp& scope, int block, Visit visit) const {
        decode_cursor cursor = begin(scope, block);
        for (decode_split split{}; this->next(cursor, split);) {
            visit(split, [&](decode_split& one) { this->complete(cursor, one); });
        }
    }

  private:
    using lane_sums = hw::lane_values<int, warp::threads>;

    static IMBREX_FN int each_of(int count) { return (count + warp::threads - 1) / warp::threads; }

    // Inclusive prefix sums, by lane, of the tiles of `count` sequences. Each lane has consecutive sequences.
    IMBREX_KERNEL lane_sums tile_prefix_sums(const warp& scope, int first, int count, source here) const {
        const int each = each_of(count);
        const auto num_tiles = warp_gather<warp::threads>(
            scope,
            [&](int number) {
                int sum = 0;
                for (int i = number * each; i < (number + 1) * each && i < count; ++i) {
                    sum += this->span_of(first + i).length();
                }
                return sum;
            },
            here);
        return warp_inclusive_sum(scope, num_tiles, here);
    }

    // Finds the sequence at cursor.at: first the lane that has it, then among that lane's sequences.
    IMBREX_KERNEL void seek(const warp& scope, decode_cursor& cursor, source here) const {
        lane_sums sums = tile_prefix_sums_;
        for (int count = this->schedule_->batches;;) {
            const int each = each_of(count);
            const int passed = warp_count_if(
                scope, sums, [&](int sum) { return cursor.before + sum <= cursor.at; }, here);
            if (passed > 0) cursor.before += warp_broadcast(scope, sums, passed - 1, here);
            cursor.batch += passed * each;
            if (each == 1) break;
            count = count - passed * each < each ? count - passed * each : each;
            sums = tile_prefix_sums(scope, cursor.batch, count, here);
        }
        cursor.now = this->span_of(cursor.batch);
    }

    lane_sums tile_prefix_sums_;  // of all sequences
    int total_tiles_;
    int tiles_per_block_;
};

}  // namespace imbrex
