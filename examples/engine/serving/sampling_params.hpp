// How the next token is chosen from a model's logits: what a request may ask for. The scheduler carries these options beside a sequence
// without looking at them; the sampler reads them.
#pragma once

#include <imbrex/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::engine {

inline constexpr int max_logprobs = 20;  // that the sampler keeps of a token

struct sampling_params {
    float temperature = 1;         // 0: greedy, the most likely token
    int top_k = 0;                 // only the k most likely tokens; 0: all
    float top_p = 1;               // only the most likely tokens that have this probability together
    float min_p = 0;               // only tokens with this part of the most likely one's probability
    float repetition_penalty = 1;  // divides positive logits of tokens that are there, multiplies negative ones
    float presence_penalty = 0;    // taken off the logits of tokens generated so far
    float frequency_penalty = 0;   // the same, times how often
    std::vector<std::pair<int, float>> bias;  // added to the logits of some tokens; -infinity forbids one
    std::uint64_t seed = 0;         // with the position, all that chance depends on: the batch does not matter
    std::vector<std::string> stop;  // the text ends before the first of these
    int logprobs = 0;               // how many of the likeliest tokens are reported with each token
};

// Refuses what has no meaning. Comparisons are such that NaN fails them.
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
