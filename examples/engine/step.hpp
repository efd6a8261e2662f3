// A batch in the memory of a world: what the kernels of one step read. The arrays lie one behind the other in memory that is there from the
// beginning, and are sent at once.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch.hpp"

namespace imbrex::engine {

// batch_arrays, with pointers into the world.
struct step {
    int tokens = 0;
    int sequences = 0;
    int samples = 0;
    int table_width = 0;
    const int* ids = nullptr;
    const int* starts = nullptr;
    const int* lengths = nullptr;
    const int* tables = nullptr;
    const int* sampled_rows = nullptr;
};

class step_memory {
  public:
    step_memory(world where, int most_tokens, int most_sequences, int most_blocks)
        : most_tokens_(most_tokens),
          most_sequences_(most_sequences),
          memory_(where, sizeof(int) * (static_cast<std::size_t>(most_tokens) + 1 +
                                        static_cast<std::size_t>(most_sequences) * (3 + std::size_t(most_blocks)))) {}

    step send(const batch_arrays& arrays, void* stream = nullptr) {
        const auto size = [](const std::vector<int>& array) { return static_cast<int>(array.size()); };
        require(size(arrays.tokens) <= most_tokens_, "batch: it has ", arrays.tokens.size(),
                " tokens; this runner was made for ", most_tokens_);
        require(size(arrays.lengths) <= most_sequences_, "batch: it has ", arrays.lengths.size(),
                " sequences; this runner was made for ", most_sequences_);
        all_.clear();
        const step now{.tokens = size(arrays.tokens),
                       .sequences = size(arrays.lengths),
                       .samples = size(arrays.sampled_rows),
                       .table_width = arrays.table_width,
                       .ids = place(arrays.tokens),
                       .starts = place(arrays.starts),
                       .lengths = place(arrays.lengths),
                       .tables = place(arrays.tables),
                       .sampled_rows = place(arrays.sampled_rows)};
        memory_.write(0, all_.data(), all_.size() * sizeof(int), stream);
        return now;
    }

  private:
    const int* place(const std::vector<int>& array) {
        const int* const there = memory_.at<int>(all_.size() * sizeof(int));
        all_.insert(all_.end(), array.begin(), array.end());
        return there;
    }

    int most_tokens_;
    int most_sequences_;
    world_memory memory_;
    std::vector<int> all_;
};

}  // namespace imbrex::engine
