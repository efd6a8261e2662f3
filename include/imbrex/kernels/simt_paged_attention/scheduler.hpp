// Work items of simt_paged_attention: up to `rows` packed GQA rows (query heads x tokens) of one KV head of one
// sequence (paged_decode/pack_gqa.hpp). A key that is read serves all rows of an item.
//
//     3 tokens, q_heads_per_kv_head = 7, rows = 16:       item 0   token 0: 7 heads, token 1: 7 heads, token 2: 2 heads
//                                                         item 1   token 2: 5 heads
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>

#include <cstdint>

namespace imbrex {

struct simt_paged_attention_work_item {
    int sequence;
    int kv_head;
    int first;  // packed row of the sequence; past the last one if the item does not exist
};

struct simt_paged_attention_schedule {
    int sequences;
    int kv_heads;
    int q_heads_per_kv_head;
    int rows;  // of a work item

    // Upper bound on the work items of all sequences; with varlen some of them do not exist.
    IMBREX_FN std::int64_t total(int queries, bool packed) const {
        const std::int64_t all = static_cast<std::int64_t>(queries) * q_heads_per_kv_head;
        return (packed ? all / rows + sequences : ceil_div(all, rows) * sequences) * kv_heads;
    }

    // KV heads vary fastest. The last rows of a sequence, which see the most keys, come first.
    IMBREX_FN simt_paged_attention_work_item at(int number, const attention_seqlens& lengths) const {
        const int kv_head = number % kv_heads, run = number / kv_heads;
        const int sequence = lengths.varlen() ? packed_at(run, lengths) : run / runs_of(lengths.seqlen_q);
        const int inside =
            lengths.varlen() ? run - begin_of(sequence, lengths) : run - sequence * runs_of(lengths.seqlen_q);
        const int queries = lengths.varlen() ? lengths.length_at(lengths.cu_seqlens_q, sequence) : lengths.seqlen_q;
        const int runs = runs_of(queries);
        return {sequence, kv_head, (inside < runs ? runs - 1 - inside : inside) * rows};
    }

  private:
    IMBREX_FN int runs_of(int queries) const { return (queries * q_heads_per_kv_head + rows - 1) / rows; }
    // Varlen: an upper bound on the items before a sequence, cu_seqlens_q in items plus one per sequence; it needs no
    // sum over the lengths.
    IMBREX_FN int begin_of(int sequence, const attention_seqlens& lengths) const {
        return read_element(lengths.cu_seqlens_q, sequence) * q_heads_per_kv_head / rows + sequence;
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
