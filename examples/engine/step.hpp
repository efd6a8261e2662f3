// A batch in the memory of a world: what the kernels of one step read. The arrays lie one behind the other in memory that is there from the
// beginning, and are sent at once. Before the next step is placed, the stream must have come past this one's.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_mirror.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "batch.hpp"

namespace imbrex::engine {

// batch_arrays, with pointers into the world.
struct step {
    int tokens = 0;
    int sequences = 0;
    int samples = 0;
    int table_width = 0;
    bool generated = false;  // all of its tokens were, and none is a prompt's
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
                                        static_cast<std::size_t>(most_sequences) *
                                            (3 + std::size_t(table_width_for(most_blocks))))) {}

    step place(const batch_arrays& arrays) {
        const auto size = [](const std::vector<int>& array) { return static_cast<int>(array.size()); };
        require(size(arrays.tokens) <= most_tokens_, "batch: it has ", arrays.tokens.size(),
                " tokens; this runner was made for ", most_tokens_);
        require(size(arrays.lengths) <= most_sequences_, "batch: it has ", arrays.lengths.size(),
                " sequences; this runner was made for ", most_sequences_);
        end_ = 0;
        return {.tokens = size(arrays.tokens),
                .sequences = size(arrays.lengths),
                .samples = size(arrays.sampled_rows),
                .table_width = arrays.table_width,
                .ids = place_array(arrays.tokens),
                .starts = place_array(arrays.starts),
                .lengths = place_array(arrays.lengths),
                .tables = place_array(arrays.tables),
                .sampled_rows = place_array(arrays.sampled_rows)};
    }
    void send(void* stream) const { memory_.send(end_, stream); }

  private:
    const int* place_array(const std::vector<int>& array) {
        const std::size_t first = std::exchange(end_, end_ + array.size() * sizeof(int));
        std::ranges::copy(array, memory_.mirror<int>(first));
        return memory_.at<int>(first);
    }

    int most_tokens_;
    int most_sequences_;
    world_mirror memory_;
    std::size_t end_ = 0;  // of what is placed
};

}  // namespace imbrex::engine
