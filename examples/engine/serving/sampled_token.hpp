// What is known of a token that was sampled.
#pragma once

#include <vector>

namespace imbrex::engine {

struct token_logprob {
    int token = 0;
    float value = 0;
};

// Log-probabilities are the model's own, before bias, penalties and temperature.
struct sampled_token {
    int token = 0;
    float logprob = 0;                          // where log-probabilities are asked for; otherwise 0
    std::vector<token_logprob> top_logprobs{};  // as many as are asked for and there are, the likeliest first
};

}  // namespace imbrex::engine
