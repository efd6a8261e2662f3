// A sampled token and its log-probabilities; or the embedding of a prompt.
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
    std::vector<float> embedding{};             // of a sequence with pooling: its result; the token means nothing
};

}  // namespace imbrex::engine
