// Perplexity of a text under a model: exp of the mean of -log p(token | the tokens before it). The text is cut into windows;
// the first half of a window is context alone, the second half is scored. That is what llama.cpp's tool computes too.
#pragma once

#include "engine/model/runner.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace imbrex::engine {

struct perplexity_options {
    int window = 512;             // tokens, with the prefix
    std::vector<int> prefix{};    // of each window, such as the token that begins a text
    int max_batched_tokens = 64;  // of a step of the runner
    int max_scored = 64;          // tokens that a step scores: the runner's max_num_seqs
    int block_size = 16;
    int cache_groups = 1;  // of the runner
};

struct perplexity_result {
    std::int64_t tokens = 0;  // scored
    double mean = 0;          // of -log p
    double deviation = 0;     // standard deviation of -log p

    double perplexity() const;
    double standard_error() const;  // of the perplexity
};

// Called with the scored tokens and all of them; false stops the computation.
using perplexity_progress = std::function<bool(std::int64_t, std::int64_t)>;

// The runner needs blocks for one window. A text that is shorter than a window is one by itself; otherwise a last part that is
// shorter is left out. Throws if a window has less than two tokens of text.
perplexity_result perplexity_of(runner& model, std::span<const int> text, int vocab_size,
                                const perplexity_options& options, const perplexity_progress& progress = {});

}  // namespace imbrex::engine
