// Which part of an attention a block works on next, and how long its sequences are.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>

namespace imbrex {

// Blocks of queries of all heads of a batch, in the order in which they are worked on. Where all take the same time, those of
// one head follow one another, and find its keys in L2. Where later queries see more keys, the longest come first, so that
// no block is left alone with a long one at the end; in sections of heads whose keys fit L2 together.
struct attention_order {
    int batches;
    int heads;
    int blocks;   // of queries, in a head
    int section;  // heads; 0: no such sections, one head after the other

    struct place {
        int batch;
        int head;
        int block;
    };

    IMBREX_FN int total() const { return batches * heads * blocks; }
    IMBREX_FN place at(int number) const {
        if (section == 0) {
            const int head = number / blocks;
            return {head / heads, head % heads, number - head * blocks};
        }
        const int first = number / (section * blocks) * section;
        const int inside = number - first * blocks;
        const int together = batches * heads - first < section ? batches * heads - first : section;
        const int head = first + inside % together;
        return {head / heads, head % heads, blocks - 1 - inside / together};
    }
};

// How many queries and keys there are: the same for the whole batch; of a padded batch, where each member has a number of keys
// of its own; or of sequences packed one behind the other, where each begins at its number in `starts`, and the next begins
// where it ends.
struct attention_lengths {
    int queries;
    int keys;
    const int* key_lengths = nullptr;
    const int* query_starts = nullptr;
    const int* key_starts = nullptr;

    IMBREX_FN bool packed() const { return query_starts != nullptr; }
    // Whether there may be something behind a sequence's last key.
    IMBREX_FN bool keys_end_early() const { return packed() || key_lengths != nullptr; }
    IMBREX_FN attention_sequence of(int batch, int head) const {
        if (packed()) {
            return {batch, head, query_starts[batch + 1] - query_starts[batch],
                    key_starts[batch + 1] - key_starts[batch]};
        }
        return {batch, head, queries, key_lengths == nullptr ? keys : key_lengths[batch]};
    }
    // Row of the tensors where a sequence begins.
    IMBREX_FN int first_query(int batch) const { return packed() ? query_starts[batch] : 0; }
    IMBREX_FN int first_key(int batch) const { return packed() ? key_starts[batch] : 0; }
    // And which member of the tensors' batch it is in.
    IMBREX_FN int member(int batch) const { return packed() ? 0 : batch; }
};

}  // namespace imbrex
