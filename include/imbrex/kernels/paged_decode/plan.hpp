// Who reads which keys. A unit of work is the rows of one key head of one sequence, or of some heads that are read together
// (UnitHeads), or a block of such rows; it takes as many steps as there are tiles among the keys that it sees, one at least. The
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
#include <imbrex/core/known_divisor.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/ops/warp/look_up.hpp>

#include <cstdint>

namespace imbrex {

// What a block does of a unit: all of it, if there is one part only. Otherwise blocks that follow one another have the parts, one each, or
// some each if it is cut every so many keys.
struct decode_piece : attention_work {  // its keys are those that any row of the sequence sees
    int key_head;                       // or the first, if a unit has several
    int first_row;
    int step;  // the first, counted from the sequence's first key
    int steps;
    int part;
    int parts;
    int first_block;  // has part 0
    int blocks;       // that have parts
    int first_place;  // for the results of part 0, those of the others behind it; or -1

    // Where a part's results are left. A unit without places of its own has those of the blocks: each may have parts of two, the end of
    // one, or its middle, and the beginning of another.
    IMBREX_FN int place(int of) const {
        return first_place >= 0 ? first_place + of : 2 * (first_block + of) + (of == 0 ? 1 : 0);
    }
};

// How many of what there are, the same for the whole launch.
struct decode_sizes {
    int batches;
    int key_heads;
    known_divisor heads_per_key_head;
    int least_steps;  // of a block: less is not worth another one
    int more_steps;   // that a unit counts as, before those it has
    int multiple;     // and as a multiple of so many, a power of two
    int part_steps;   // units are cut every so many; 0: where a block's range ends
    int most_parts;   // of a unit that is cut so: as many places it has
    int part_slices;  // of results, for which a place has room
};

// A sequence's part of the line. All of its units have the same length.
struct decode_stretch {
    key_range keys;
    int first_step;
    int unit_length;  // steps that are counted: those it has, and others before them
    int row_blocks;
    int units;
    int padding;  // those others

    IMBREX_FN int length() const { return unit_length * units; }
};

// Where in the line a block is: plain numbers, which may be kept anywhere between two pieces.
struct decode_walk {
    int block;
    int share;  // of every block
    int at;
    int end;
    int batch;   // the sequence there
    int before;  // where it begins
    decode_stretch now;
    int unit_begin;  // of the steps that the last piece's unit has
    int unit_end;
};

// The line itself, from any place in it on.
template <int Rows, int StepKeys, class Mask, int UnitHeads = 1>
class decode_line {
  public:
    IMBREX_KERNEL decode_line(const decode_sizes& sizes, const paged_lengths& lengths, const Mask& mask)
        : sizes_(&sizes), lengths_(&lengths), mask_(&mask) {}

    // The next piece of a block, if there is one. Which part of its unit it is, `complete` says, for who has something more urgent
    // to do first.
    IMBREX_KERNEL bool next(decode_walk& walk, decode_piece& piece) const {
        while (walk.at < walk.end) {
            while (walk.at - walk.before >= walk.now.length()) {
                walk.before += walk.now.length();
                walk.now = stretch_of(++walk.batch);
            }
            const decode_stretch& now = walk.now;
            const int unit = (walk.at - walk.before) / now.unit_length;
            walk.unit_end = walk.before + (unit + 1) * now.unit_length;
            walk.unit_begin = walk.unit_end - now.unit_length + now.padding;
            int begin = walk.at > walk.unit_begin ? walk.at : walk.unit_begin;
            walk.at = walk.unit_end < walk.end ? walk.unit_end : walk.end;
            if (sizes_->part_steps > 0 && begin > walk.unit_begin) begin += steps_to_part(walk, begin);
            if (walk.at <= begin) continue;
            if (sizes_->part_steps > 0) walk.at = end_of_part(walk, begin);
            const int before = now.row_blocks == 1 ? unit : unit / now.row_blocks;  // units of all rows
            piece.key_head = before * UnitHeads;
            piece.first_row = (unit - before * now.row_blocks) * Rows;
            piece.sequence = lengths_->of(walk.batch, piece.key_head * sizes_->heads_per_key_head.value);
            piece.queries = {0, piece.sequence.queries};
            piece.keys = now.keys;
            piece.step = now.first_step + begin - walk.unit_begin;
            piece.steps = walk.at - begin;
            return true;
        }
        return false;
    }
    IMBREX_KERNEL void complete(const decode_walk& walk, decode_piece& piece) const {
        const bool begins_here = walk.unit_begin >= std::int64_t{walk.block} * walk.share;
        piece.first_block = begins_here ? walk.block : walk.unit_begin / walk.share;
        if (sizes_->part_steps > 0) return complete_part(walk, piece);
        piece.part = walk.block - piece.first_block;
        piece.parts = piece.blocks =
            (walk.unit_end <= walk.end ? walk.block : (walk.unit_end - 1) / walk.share) - piece.first_block + 1;
        piece.first_place = -1;
    }

  protected:
    // Of a unit that is cut every so many steps of its sequence: from somewhere in the line to where the next part begins, and where one
    // ends.
    IMBREX_KERNEL int steps_to_part(const decode_walk& walk, int from) const {
        const int into = (walk.now.first_step + from - walk.unit_begin) % sizes_->part_steps;
        return into == 0 ? 0 : sizes_->part_steps - into;
    }
    IMBREX_KERNEL int end_of_part(const decode_walk& walk, int begin) const {
        const int end = begin + 1 + steps_to_part(walk, begin + 1);
        return end < walk.unit_end ? end : walk.unit_end;
    }
    IMBREX_KERNEL void complete_part(const decode_walk& walk, decode_piece& piece) const {
        const int every = sizes_->part_steps, first = walk.now.first_step;
        const int last = first + walk.unit_end - walk.unit_begin - 1;
        piece.part = piece.step / every - first / every;
        piece.parts = last / every - first / every + 1;
        const int last_begins = walk.unit_begin + (piece.parts == 1 ? 0 : last / every * every - first);
        piece.blocks = last_begins / walk.share - piece.first_block + 1;
        // Packed sequences have any number of blocks of rows each: all before this one no more than so many.
        const std::int64_t rows_before =
            std::int64_t{lengths_->first_query(walk.batch)} * sizes_->heads_per_key_head.value;
        const int row_blocks_before =
            lengths_->packed() ? static_cast<int>(rows_before / Rows) + walk.batch : walk.batch * walk.now.row_blocks;
        const int unit = piece.key_head / UnitHeads * walk.now.row_blocks + piece.first_row / Rows;
        piece.first_place = (row_blocks_before * (sizes_->key_heads / UnitHeads) + unit) * sizes_->most_parts;
    }

    IMBREX_KERNEL decode_stretch stretch_of(int batch) const {
        const attention_sequence sequence = lengths_->of(batch, 0);
        const int heads = sizes_->heads_per_key_head.value;
        decode_stretch made{};
        made.keys = keys_seen(sequence, sizes_->key_heads * heads, {0, sequence.queries}, *mask_);
        made.first_step = made.keys.first / StepKeys;
        const int tiles = (made.keys.end + StepKeys - 1) / StepKeys - made.first_step, steps = tiles < 1 ? 1 : tiles;
        made.unit_length = (steps + sizes_->more_steps + sizes_->multiple - 1) & -sizes_->multiple;
        made.padding = made.unit_length - steps;
        made.row_blocks = (sequence.queries * heads + Rows - 1) / Rows;
        made.units = made.row_blocks * (sizes_->key_heads / UnitHeads);
        return made;
    }

    const decode_sizes* sizes_;
    const paged_lengths* lengths_;
    const Mask* mask_;
};

template <int Rows, int StepKeys, class Mask, int UnitHeads = 1>
class decode_plan : public decode_line<Rows, StepKeys, Mask, UnitHeads> {
  public:
    using line = decode_line<Rows, StepKeys, Mask, UnitHeads>;

    // Reads all lengths.
    IMBREX_KERNEL decode_plan(const warp& scope, const decode_sizes& sizes, const paged_lengths& lengths,
                              const Mask& mask, int blocks, source here = source::current())
        : line(sizes, lengths, mask), sums_(sums_of(scope, 0, sizes.batches, here)) {
        total_ = entry(scope, sums_, warp::threads - 1, here);
        share_ = (total_ + blocks - 1) / blocks;
        if (share_ < sizes.least_steps) share_ = sizes.least_steps;
    }

    // To where a block begins.
    IMBREX_KERNEL decode_walk begin(const warp& scope, int block, source here = source::current()) const {
        const std::int64_t first = std::int64_t{block} * share_;
        decode_walk made{};
        made.block = block;
        made.share = share_;
        made.at = first < total_ ? static_cast<int>(first) : total_;
        made.end = total_ - made.at < share_ ? total_ : made.at + share_;
        if (made.at < made.end) seek(scope, made, here);
        return made;
    }

    // Visits the pieces of a block, in their order: visit(piece, complete).
    template <class Visit>
    IMBREX_KERNEL void for_each_piece(const warp& scope, int block, Visit visit) const {
        decode_walk walk = begin(scope, block);
        for (decode_piece piece{}; this->next(walk, piece);) {
            visit(piece, [&](decode_piece& one) { this->complete(walk, one); });
        }
    }

  private:
    using lane_sums = hw::lane_values<int, warp::threads>;

    static IMBREX_FN int each_of(int count) { return (count + warp::threads - 1) / warp::threads; }

    // So many sequences dealt to the lanes: the steps of each lane's, and of those before it.
    IMBREX_KERNEL lane_sums sums_of(const warp& scope, int first, int count, source here) const {
        const int each = each_of(count);
        const auto steps = look_up<warp::threads>(
            scope,
            [&](int number) {
                int sum = 0;
                for (int i = number * each; i < (number + 1) * each && i < count; ++i) {
                    sum += this->stretch_of(first + i).length();
                }
                return sum;
            },
            here);
        return running_sums(scope, steps, here);
    }

    // The sequence that the walk's step belongs to: first the lane that has it, then the same among the lane's sequences.
    IMBREX_KERNEL void seek(const warp& scope, decode_walk& walk, source here) const {
        lane_sums sums = sums_;
        for (int count = this->sizes_->batches;;) {
            const int each = each_of(count);
            const int passed = count_of(
                scope, sums, [&](int sum) { return walk.before + sum <= walk.at; }, here);
            if (passed > 0) walk.before += entry(scope, sums, passed - 1, here);
            walk.batch += passed * each;
            if (each == 1) break;
            count = count - passed * each < each ? count - passed * each : each;
            sums = sums_of(scope, walk.batch, count, here);
        }
        walk.now = this->stretch_of(walk.batch);
    }

    lane_sums sums_;  // of all sequences
    int total_;       // steps
    int share_;       // of a block
};

}  // namespace imbrex
