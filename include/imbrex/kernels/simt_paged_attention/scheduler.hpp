// How an attention is divided into units of work: so many rows of one head of keys of one sequence, a row being a head of queries of a
// token, and those that share keys lying next to each other (paged_decode/rows.hpp). So a key that is read serves all rows of a unit.
//
//     sequence of 3 tokens, 7 heads share keys, 16 rows a unit:       unit 0   token 0: 7 heads, token 1: 7 heads, token 2: 2 heads
//                                                                     unit 1   token 2: 5 heads
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>

#include <cstdint>

namespace imbrex {

struct simt_paged_attention_work_item {
    int sequence;
    int kv_head;
    int first;  // row of the sequence; behind the last one if there is no such unit
};

struct simt_paged_attention_schedule {
    int sequences;
    int kv_heads;
    int q_heads_per_kv_head;  // that share keys
    int rows;                 // of a unit

    // Units of all sequences, some of which may not exist if they are packed.
    IMBREX_FN std::int64_t total(int queries, bool packed) const {
        const std::int64_t all = static_cast<std::int64_t>(queries) * q_heads_per_kv_head;
        return (packed ? all / rows + sequences : (all + rows - 1) / rows * sequences) * kv_heads;
    }

    // The heads of keys follow one another, and the last rows of a sequence, which see the most keys, come first.
    IMBREX_FN simt_paged_attention_work_item at(int number, const attention_seqlens& lengths) const {
        const int kv_head = number % kv_heads, run = number / kv_heads;
        const int sequence = lengths.varlen() ? packed_at(run, lengths) : run / runs_of(lengths.seqlen_q);
        const int inside =
            lengths.varlen() ? run - begin_of(sequence, lengths) : run - sequence * runs_of(lengths.seqlen_q);
        const int queries =
            lengths.varlen() ? lengths.cu_seqlens_q[sequence + 1] - lengths.cu_seqlens_q[sequence] : lengths.seqlen_q;
        const int runs = runs_of(queries);
        return {sequence, kv_head, (inside < runs ? runs - 1 - inside : inside) * rows};
    }

  private:
    IMBREX_FN int runs_of(int queries) const { return (queries * q_heads_per_kv_head + rows - 1) / rows; }
    // Units are numbered from where their sequence begins, in units, plus one for each sequence before it: that is room enough for
    // all, and needs no sum over their lengths.
    IMBREX_FN int begin_of(int sequence, const attention_seqlens& lengths) const {
        return lengths.cu_seqlens_q[sequence] * q_heads_per_kv_head / rows + sequence;
    }
    IMBREX_FN int packed_at(int run, const attention_seqlens& lengths) const {
        int found = 0;
        for (int end = sequences; end - found > 1;) {
            const int middle = found + (end - found) / 2;
            (begin_of(middle, lengths) <= run ? found : end) = middle;
        }
        return found;
    }
};

}  // namespace imbrex
