// What a runner is given in one step: for each sequence some tokens to compute, and copies of blocks to make before anything is
// written. It gives back a token for each entry that samples, in their order.
#pragma once

#include "block_manager.hpp"
#include "sequence.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

namespace imbrex::engine {

struct batch_entry {
    std::shared_ptr<const imbrex::engine::sequence> sequence;  // its tokens, blocks and sampling options
    int first = 0;                                             // the position of the first token to compute
    int count = 0;
    bool samples = false;  // the last token's logits give the next token; otherwise more of the prompt is to come
};

struct batch {
    std::vector<block_copy> copies;  // no block is both read and written by them: they may all be made at once
    std::vector<batch_entry> entries;

    int tokens() const {
        int all = 0;
        for (const batch_entry& entry : entries) all += entry.count;
        return all;
    }
    int samples() const { return static_cast<int>(std::ranges::count(entries, true, &batch_entry::samples)); }
    // Entries whose tokens were all generated.
    int generated() const {
        return static_cast<int>(std::ranges::count_if(
            entries, [](const batch_entry& one) { return one.first >= one.sequence->prompt_length; }));
    }
};

// The same as arrays, as kernels over pages read them: rows of all entries packed one after the other.
struct batch_arrays {
    std::vector<int> tokens;        // a row each
    std::vector<int> starts;        // entry i has rows [starts[i], starts[i + 1])
    std::vector<int> lengths;       // tokens in the cache with those of this batch, by entry
    std::vector<int> tables;        // [entry, table_width]: their blocks; behind the last there is block 0
    int table_width = 0;            // a power of two: sequences that grow have few different ones
    std::vector<int> sampled_rows;  // the rows whose logits are needed
};

inline int table_width_for(int blocks) {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(blocks)));
}

inline batch_arrays arrays_of(const batch& all, int block_size) {
    batch_arrays arrays;
    const auto width = [&](const batch_entry& entry) {
        return (entry.first + entry.count + block_size - 1) / block_size;
    };
    for (const batch_entry& entry : all.entries) arrays.table_width = std::max(arrays.table_width, width(entry));
    arrays.table_width = table_width_for(arrays.table_width);
    arrays.starts.push_back(0);
    for (const batch_entry& entry : all.entries) {
        const int last = entry.first + entry.count;
        const auto tokens = entry.sequence->tokens.begin();
        const auto blocks = entry.sequence->blocks.begin();
        arrays.tokens.insert(arrays.tokens.end(), tokens + entry.first, tokens + last);
        arrays.starts.push_back(static_cast<int>(arrays.tokens.size()));
        arrays.lengths.push_back(last);
        arrays.tables.insert(arrays.tables.end(), blocks, blocks + width(entry));
        arrays.tables.resize(arrays.lengths.size() * static_cast<std::size_t>(arrays.table_width), 0);
        if (entry.samples) arrays.sampled_rows.push_back(arrays.starts.back() - 1);
    }
    return arrays;
}

}  // namespace imbrex::engine
