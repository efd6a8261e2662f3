// A sampled token and its log-probabilities.
#pragma once

#include <vector>

namespace imbrex::engine {

struct token_logprob {
    int token = 0;
    float value = 0;
};

// Log-probabilities are those of the raw logits, before bias, penalties and temperature; under a constraint, over the
// tokens that it allows.
struct sampled_token {
    int token = 0;
    float logprob = 0;                          // 0 if not requested
    std::vector<token_logprob> top_logprobs{};  // most likely first
};

}  // namespace imbrex::engine
