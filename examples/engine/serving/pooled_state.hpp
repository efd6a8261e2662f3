// Embeddings: the hidden states behind the last norm of a prompt, pooled into one vector. The runner adds those of each
// chunk as it computes them; a sequence that starts again after a preemption begins again. Mean pooling needs the states of
// all tokens, so such a sequence takes none from the prefix cache.
#pragma once

#include <imbrex/core/error.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace imbrex::engine {

enum class pooling_mode {
    none,  // the sequence generates text
    mean,  // of all tokens of the prompt
    last,  // of its last token
};

class pooled_state {
  public:
    // The sum of the states of tokens [first, first + count); mean pooling takes them in order, from 0 on.
    void add(int first, int count, std::span<const float> sum) {
        if (first == 0) {
            sum_.assign(sum.size(), 0);
            count_ = 0;
        }
        require(first == count_ && sum.size() == sum_.size(), "pooling: ", sum.size(), " sums from token ", first,
                " on; those of ", count_, " tokens are known, of ", sum_.size(), " columns");
        for (std::size_t i = 0; i < sum.size(); ++i) sum_[i] += static_cast<double>(sum[i]);
        count_ += count;
    }
    void set_last(std::span<const float> state) {
        sum_.assign(state.begin(), state.end());
        count_ = 1;
    }

    std::vector<float> result() const {
        std::vector<float> all;
        for (const double each : sum_) all.push_back(static_cast<float>(each / count_));
        return all;
    }

  private:
    std::vector<double> sum_;
    int count_ = 0;  // tokens in the sum
};

}  // namespace imbrex::engine
