// How an attention is divided into units of work: so many rows of one head of keys of one sequence, a row being a head of queries of a
// token, and those that share keys lying next to each other (paged_decode/rows.hpp). So a key that is read serves all rows of a unit.
//
//     sequence of 3 tokens, 7 heads share keys, 16 rows a unit:       unit 0   token 0: 7 heads, token 1: 7 heads, token 2: 2 heads
//                                                                     unit 1   token 2: 5 heads
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/schedule.hpp>

#include <cstdint>

namespace imbrex {

struct paged_rows_unit {
    int sequence;
    int key_head;
    int first;  // row of the sequence; behind the last one if there is no such unit
};

struct paged_rows_order {
    int sequences;
    int key_heads;
    int heads;  // that share keys
    int rows;   // of a unit

    // Units of all sequences, some of which may not exist if they are packed.
    IMBREX_FN std::int64_t total(int queries, bool packed) const {
        const std::int64_t all = static_cast<std::int64_t>(queries) * heads;
        return (packed ? all / rows + sequences : (all + rows - 1) / rows * sequences) * key_heads;
    }

    // The heads of keys follow one another, and the last rows of a sequence, which see the most keys, come first.
    IMBREX_FN paged_rows_unit at(int number, const attention_lengths& lengths) const {
        const int key_head = number % key_heads, run = number / key_heads;
        const int sequence = lengths.packed() ? packed_at(run, lengths) : run / runs_of(lengths.queries);
        const int inside =
            lengths.packed() ? run - begin_of(sequence, lengths) : run - sequence * runs_of(lengths.queries);
        const int queries =
            lengths.packed() ? lengths.query_starts[sequence + 1] - lengths.query_starts[sequence] : lengths.queries;
        const int runs = runs_of(queries);
        return {sequence, key_head, (inside < runs ? runs - 1 - inside : inside) * rows};
    }

  private:
    IMBREX_FN int runs_of(int queries) const { return (queries * heads + rows - 1) / rows; }
    // Units are numbered from where their sequence begins, in units, plus one for each sequence before it: that is room enough for
    // all, and needs no sum over their lengths.
    IMBREX_FN int begin_of(int sequence, const attention_lengths& lengths) const {
        return lengths.query_starts[sequence] * heads / rows + sequence;
    }
    IMBREX_FN int packed_at(int run, const attention_lengths& lengths) const {
        int found = 0;
        for (int end = sequences; end - found > 1;) {
            const int middle = found + (end - found) / 2;
            (begin_of(middle, lengths) <= run ? found : end) = middle;
        }
        return found;
    }
};

}  // namespace imbrex
