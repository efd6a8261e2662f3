// Who reads which keys. A unit of work is the rows of one key head of one sequence, or of some heads that are read together
// (KvHeadsPerItem), or a block of such rows; it takes as many steps as there are tiles among the keys that it sees, one at least. The
// steps of all units stand in one line, which is cut into equal ranges for the blocks of the grid: whatever the lengths are, all
// have the same to read.
//
//     units     | 0                     | 1 | 2 | 3         |
//     blocks    | a       | b       | c       | d       |          b has a part of unit 0, c the end of it, 1, 2, ...
//
// Where there are many units, each counts as some steps more than it has: putting results together takes its time, and a block with
// many short units gets fewer. Where there can be so little only that a block's range is the least that is worth while, units count
// as multiples of it: then no block has parts of two of them, which it would do one after the other.
//
// So where a unit is cut depends on all of them, and with it the last bits of its result. Who wants these to be the unit's own has
// it cut every so many keys, from the sequence's first on. A block then has the parts that begin in its range, all of them whole:
//
//     parts     | 0    | 1    | 2    | 3  | 0 | 0 | 0    | 1  |
//     blocks    | a       | b       | c       | d       |          a has parts 0 and 1 of unit 0, b part 2, ...
//
// The lengths are read by the kernel itself, from where the caller keeps them: what is planned is what they are when it runs. All
// lanes of a warp read a share of them each, and their sums tell where in the line a sequence begins.
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

// What a block does of a unit: all of it, if there is one part only. Otherwise blocks that follow one another have the parts, one each, or
// some each if it is cut every so many keys.
struct decode_split : attention_work {  // its keys are those that any row of the sequence sees
    int kv_head;                        // or the first, if a unit has several
    int first_row;
    int first_tile;  // the first, counted from the sequence's first key
    int num_tiles;
    int split_idx;
    int num_splits;
    int first_block;  // has part 0
    int blocks;       // that have parts
    int first_slot;   // for the results of part 0, those of the others behind it; or -1

    // Where a part's results are left. A unit without places of its own has those of the blocks: each may have parts of two, the end of
    // one, or its middle, and the beginning of another.
    IMBREX_FN int slot(int split) const {
        return first_slot >= 0 ? first_slot + split : 2 * (first_block + split) + (split == 0 ? 1 : 0);
    }
};

// How many of what there are, the same for the whole launch.
struct decode_schedule {
    int batches;
    int kv_heads;
    fast_divmod q_heads_per_kv_head;
    int min_tiles_per_block;  // of a block: less is not worth another one
    int overhead_tiles;       // that a unit counts as, before those it has
    int tile_multiple;        // and as a multiple of so many, a power of two
    int tiles_per_split;      // units are cut every so many; 0: where a block's range ends
    int max_splits;           // of a unit that is cut so: as many places it has
    int slices_per_split;     // of results, for which a place has room
};

// A sequence's part of the line. All of its units have the same length.
struct decode_sequence_span {
    key_range keys;
    int first_tile;
    int item_tiles;  // steps that are counted: those it has, and others before them
    int m_blocks;
    int work_items;
    int padding;  // those others

    IMBREX_FN int length() const { return item_tiles * work_items; }
};

// Where in the line a block is: plain numbers, which may be kept anywhere between two pieces.
struct decode_cursor {
    int block;
    int tiles_per_block;  // of every block
    int at;
    int end;
    int batch;   // the sequence there
    int before;  // where it begins
    decode_sequence_span now;
    int item_begin;  // of the steps that the last piece's unit has
    int item_end;
};

// The line itself, from any place in it on.
template <int BlockM, int BlockN, class Mask, int KvHeadsPerItem = 1>
class decode_tile_space {
  public:
    IMBREX_KERNEL decode_tile_space(const decode_schedule& schedule, const paged_seqlens& lengths, const Mask& mask)
        : schedule_(&schedule), lengths_(&lengths), mask_(&mask) {}

    // The next piece of a block, if there is one. Which part of its unit it is, `complete` says, for who has something more urgent
    // to do first.
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
            const int before = now.m_blocks == 1 ? item : item / now.m_blocks;  // units of all rows
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
    // Of a unit that is cut every so many steps of its sequence: from somewhere in the line to where the next part begins, and where one
    // ends.
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
        // Packed sequences have any number of blocks of rows each: all before this one no more than so many.
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

    // To where a block begins.
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

    // Visits the pieces of a block, in their order: visit(piece, complete).
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

    // So many sequences dealt to the lanes: the steps of each lane's, and of those before it.
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

    // The sequence that the walk's step belongs to: first the lane that has it, then the same among the lane's sequences.
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
    int total_tiles_;             // steps
    int tiles_per_block_;         // of a block
};

}  // namespace imbrex
