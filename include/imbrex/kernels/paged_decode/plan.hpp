// Who reads which keys. A unit of work is the rows of one key head of one sequence, or a block of them; it takes as many steps as
// there are tiles among the keys that it sees, one at least. The steps of all units stand in one line, which is cut into equal
// ranges for the blocks of the grid: whatever the lengths are, all have the same to read.
//
//     units     | 0                     | 1 | 2 | 3         |
//     blocks    | a       | b       | c       | d       |          b has a part of unit 0, c the end of it, 1, 2, ...
//
// Where there are many units, each counts as some steps more than it has: putting results together takes its time, and a block with many
// short units gets fewer.
//
// The lengths are read by the kernel itself, from where the caller keeps them: what is planned is what they are when it runs. All
// lanes of a warp read a share of them each, and their sums tell where in the line a sequence begins.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/ops/warp/look_up.hpp>

#include <cstdint>

namespace imbrex {

// What a block does of a unit. All of it, if there is one part only; otherwise blocks that follow one another have the parts.
struct decode_piece : attention_work {  // its keys are those that any row of the sequence sees
    int key_head;
    int first_row;
    int step;  // the first, counted from the sequence's first key
    int steps;
    int part;
    int parts;
    int first_block;  // has part 0
};

// How many of what there are, the same for the whole launch.
struct decode_sizes {
    int batches;
    int key_heads;
    int heads_per_key_head;
    int least_steps;  // of a block: less is not worth another one
    int more_steps;   // that a unit counts as, before those it has
};

// A sequence's part of the line. All of its units have the same length.
struct decode_stretch {
    key_range keys;
    int first_step;
    int unit_length;  // steps that are counted
    int row_blocks;
    int units;

    IMBREX_FN int length() const { return unit_length * units; }
};

template <int Rows, int StepKeys, class Mask>
class decode_plan {
  public:
    // Reads all lengths.
    IMBREX_KERNEL decode_plan(const warp& scope, const decode_sizes& sizes, const paged_lengths& lengths,
                              const Mask& mask, int blocks, source here = source::current())
        : sizes_(&sizes), lengths_(&lengths), mask_(&mask), sums_(sums_of(scope, 0, sizes.batches, here)) {
        total_ = entry(scope, sums_, warp::threads - 1, here);
        share_ = (total_ + blocks - 1) / blocks;
        if (share_ < sizes.least_steps) share_ = sizes.least_steps;
    }

    // Visits the pieces of a block, in their order. `complete(piece)` says which part of its unit it is, for who has something more
    // urgent to do first.
    template <class Visit>
    IMBREX_KERNEL void for_each_piece(const warp& scope, int block, Visit visit) {
        const std::int64_t first = std::int64_t{block} * share_;
        if (first >= total_) return;
        const int begin = static_cast<int>(first), end = total_ - begin < share_ ? total_ : begin + share_;
        seek(scope, begin);
        for (int at = begin; at < end;) {
            while (at - before_ >= now_.length()) {
                before_ += now_.length();
                now_ = stretch_of(++batch_);
            }
            const int unit = (at - before_) / now_.unit_length;
            const int unit_end = before_ + (unit + 1) * now_.unit_length;
            const int unit_begin = unit_end - now_.unit_length + sizes_->more_steps;  // of the steps that it has
            const int piece_begin = at > unit_begin ? at : unit_begin;
            at = unit_end < end ? unit_end : end;
            if (at <= piece_begin) continue;
            decode_piece piece{};
            piece.key_head = now_.row_blocks == 1 ? unit : unit / now_.row_blocks;
            piece.first_row = (unit - piece.key_head * now_.row_blocks) * Rows;
            piece.sequence = lengths_->of(batch_, piece.key_head * sizes_->heads_per_key_head);
            piece.queries = {0, piece.sequence.queries};
            piece.keys = now_.keys;
            piece.step = now_.first_step + piece_begin - unit_begin;
            piece.steps = at - piece_begin;
            visit(piece, [&](decode_piece& one) {
                one.first_block = unit_begin >= begin ? block : unit_begin / share_;
                one.part = block - one.first_block;
                one.parts = (unit_end <= end ? block : (unit_end - 1) / share_) - one.first_block + 1;
            });
        }
    }

  private:
    using lane_sums = hw::lane_values<int, warp::threads>;

    IMBREX_KERNEL decode_stretch stretch_of(int batch) const {
        const attention_sequence sequence = lengths_->of(batch, 0);
        const int heads = sizes_->heads_per_key_head;
        decode_stretch made{};
        made.keys = keys_seen(sequence, sizes_->key_heads * heads, {0, sequence.queries}, *mask_);
        made.first_step = made.keys.first / StepKeys;
        const int steps = (made.keys.end + StepKeys - 1) / StepKeys - made.first_step;
        made.unit_length = (steps < 1 ? 1 : steps) + sizes_->more_steps;
        made.row_blocks = (sequence.queries * heads + Rows - 1) / Rows;
        made.units = made.row_blocks * sizes_->key_heads;
        return made;
    }

    static IMBREX_FN int each_of(int count) { return (count + warp::threads - 1) / warp::threads; }

    // So many sequences dealt to the lanes: the steps of each lane's, and of those before it.
    IMBREX_KERNEL lane_sums sums_of(const warp& scope, int first, int count, source here) const {
        const int each = each_of(count);
        const auto steps = look_up<warp::threads>(
            scope,
            [&](int number) {
                int sum = 0;
                for (int i = number * each; i < (number + 1) * each && i < count; ++i) {
                    sum += stretch_of(first + i).length();
                }
                return sum;
            },
            here);
        return running_sums(scope, steps, here);
    }

    // The sequence that a step belongs to: first the lane that has it, then the same among the lane's sequences.
    IMBREX_KERNEL void seek(const warp& scope, int step, source here = source::current()) {
        batch_ = before_ = 0;
        lane_sums sums = sums_;
        for (int count = sizes_->batches;;) {
            const int each = each_of(count);
            const int passed = count_of(
                scope, sums, [&](int sum) { return before_ + sum <= step; }, here);
            if (passed > 0) before_ += entry(scope, sums, passed - 1, here);
            batch_ += passed * each;
            if (each == 1) break;
            count = count - passed * each < each ? count - passed * each : each;
            sums = sums_of(scope, batch_, count, here);
        }
        now_ = stretch_of(batch_);
    }

    const decode_sizes* sizes_;
    const paged_lengths* lengths_;
    const Mask* mask_;
    lane_sums sums_;  // of all sequences
    int total_;       // steps
    int share_;       // of a block
    int batch_ = 0;   // the sequence that is walked
    int before_ = 0;  // where in the line it begins
    decode_stretch now_ = {};
};

}  // namespace imbrex
