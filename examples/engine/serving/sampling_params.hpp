// The sampling parameters of a request: temperature, top-k, top-p, min-p, penalties, bias, stop strings. The scheduler
// only carries them; the sampler reads them.
#pragma once

#include <imbrex/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/token_constraint.hpp"

namespace imbrex::engine {

inline constexpr int max_logprobs = 20;  // limit of the sampler

struct sampling_params {
    float temperature = 1;         // 0: greedy, the most likely token
    int top_k = 0;                 // keep the k most likely tokens; 0: all
    float top_p = 1;               // keep the most likely tokens up to this cumulative probability
    float min_p = 0;               // keep tokens with at least this fraction of the highest probability
    float repetition_penalty = 1;  // divides positive logits of prompt and generated tokens, multiplies negative ones
    float presence_penalty = 0;    // subtracted from the logits of generated tokens
    float frequency_penalty = 0;   // the same, times the number of occurrences
    std::vector<std::pair<int, float>> bias;  // added to logits; -infinity forbids a token
    std::uint64_t seed = 0;                   // a draw depends on the seed and the position only, not on the batch
    std::vector<std::string> stop;            // the text ends before the first of these strings
    int logprobs = 0;                         // number of top log-probabilities reported per token
    std::shared_ptr<const token_constraint> constraint{};  // what the text must be; null: anything
    bool drops_space = false;  // the text is printed without the leading space of its first token

    // They depend on the tokens of the sequence.
    bool has_penalties() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

// Throws invalid_argument for values out of range. Comparisons are written so that NaN fails.
inline void check(const sampling_params& options) {
    constexpr float huge = std::numeric_limits<float>::max();
    require(options.temperature >= 0 && options.temperature <= huge, "temperature: ", options.temperature,
            "; it must be 0 (greedy) or a positive number");
    require(options.top_k >= 0, "top_k: ", options.top_k, "; it must be 0 (all tokens) or more");
    require(options.top_p > 0 && options.top_p <= 1, "top_p: ", options.top_p,
            "; it must be more than 0 and at most 1");
    require(options.min_p >= 0 && options.min_p <= 1, "min_p: ", options.min_p, "; it must be from 0 to 1");
    require(options.repetition_penalty > 0 && options.repetition_penalty <= huge,
            "repetition_penalty: ", options.repetition_penalty, "; it must be more than 0 (1: none)");
    require(std::isfinite(options.presence_penalty), "presence_penalty: ", options.presence_penalty,
            "; it must be a finite number");
    require(std::isfinite(options.frequency_penalty), "frequency_penalty: ", options.frequency_penalty,
            "; it must be a finite number");
    for (const auto& [token, bias] : options.bias) {
        require(token >= 0, "bias: it names token ", token, "; tokens are numbered from 0");
        require(bias <= huge, "bias of token ", token, ": ", bias, "; it must be a number or -infinity");
    }
    for (const std::string& stop : options.stop)
        require(!stop.empty(), "stop: a stop string is empty; it must have a character");
    require(options.logprobs >= 0 && options.logprobs <= max_logprobs, "logprobs: ", options.logprobs,
            "; it must be from 0 (none) to ", max_logprobs);
}

}  // namespace imbrex::engine
