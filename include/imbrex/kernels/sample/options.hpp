// Sampling options of one row (temperature, top-k, top-p, min-p, penalties, seed), in the memory of the kernel's world,
// and the scalar functions of a score that follow from them.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_math.hpp>
#include <imbrex/hw/math.hpp>

#include <cstdint>
#include <limits>

namespace imbrex {

struct sample_options {
    float temperature = 1;         // 0: greedy
    int top_k = 0;                 // 0: all
    float top_p = 1;               // 1: all
    float min_p = 0;               // 0: all
    float repetition_penalty = 1;  // 1: none
    float presence_penalty = 0;
    float frequency_penalty = 0;
    int position = 0;  // the random numbers depend on the seed and the position only
    std::uint64_t seed = 0;
};

// Bias and penalty counts of one token.
struct logit_adjustment {
    int token = 0;
    int generated = 0;  // number of times, for the presence and frequency penalties
    int in_prompt = 0;  // nonzero: in the prompt; the repetition penalty applies to both
    float bias = 0;
};

// The tokens that may be drawn: scores above min_score, and at min_score the token ids up to last_token.
struct sample_threshold {
    float min_score = -std::numeric_limits<float>::infinity();
    int last_token = -1;

    IMBREX_FN bool keeps(float score, int token) const {
        return static_cast<bool>(static_cast<int>(score > min_score) |
                                 (static_cast<int>(score == min_score) & static_cast<int>(token <= last_token)));
    }
};

namespace detail {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Maps a logit to a score that is safe to compare and subtract: NaN to -infinity, +infinity to the largest float, -0 to
// 0.
IMBREX_FN float score_of_logit(float logit) {
    const float number = logit == logit ? logit : minus_infinity;
    const float finite = number < std::numeric_limits<float>::max() ? number : std::numeric_limits<float>::max();
    return finite + 0.0f;
}

// Order-preserving map from scores to integers, and back.
IMBREX_FN std::int32_t sort_key_of_score(float score) {
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, score);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
IMBREX_FN float score_of_sort_key(std::int32_t order) {
    return __builtin_bit_cast(float, order ^ ((order >> 31) & 0x7fffffff));
}

// Rebases a function of (token, score) to the columns of a tile that starts at token `first`.
template <class Function>
struct from_token {
    Function function;
    int first;
    IMBREX_FN auto operator()(int column, float score) const { return function(first + column, score); }
};

// Scores of one tile of a row. Columns past the end of the row get -infinity, which is never drawn.
struct score_in_row {
    int columns;
    IMBREX_FN float operator()(int column, float logit) const {
        return column < columns ? score_of_logit(logit) : minus_infinity;
    }
};

// Token masks: bit t % 32 of word t / 32 is set if token t may be drawn. A mask begins at a word boundary.
IMBREX_FN constexpr int token_mask_words(int vocab_size) {
    return (vocab_size - 1) / 32 + 1;
}
IMBREX_FN bool is_in_word(std::uint32_t word, unsigned token) {
    return (word >> (token & 31u) & 1u) != 0;
}
IMBREX_FN bool is_in_mask(const std::uint32_t* mask, int token) {
    return is_in_word(mask[static_cast<unsigned>(token) / 32], static_cast<unsigned>(token));
}

// The scores of a tile whose first token is bit 0 of `mask`, of which at least one word is there. Unsigned arithmetic lets
// the compiler see that neighbouring columns share a word.
struct masked_score {
    unsigned last_word;
    const std::uint32_t* mask;
    IMBREX_FN float operator()(int column, float score) const {
        const unsigned token = static_cast<unsigned>(column), word = token / 32;
        return is_in_word(mask[word < last_word ? word : last_word], token) ? score : minus_infinity;
    }
};

// Applies bias, then the repetition, frequency and presence penalties.
struct adjusted_score {
    const sample_options& options;
    const logit_adjustment& adjustment;

    IMBREX_KERNEL float operator()(float score) const {
        float adjusted = score + adjustment.bias;
        if (adjustment.generated > 0 || adjustment.in_prompt != 0) {
            adjusted = adjusted > 0 ? adjusted / options.repetition_penalty : adjusted * options.repetition_penalty;
        }
        if (adjustment.generated > 0) {
            // An explicit fma, so that contraction by the compiler cannot change the rounding.
            adjusted = hw::fma(-options.frequency_penalty, static_cast<float>(adjustment.generated), adjusted);
            adjusted -= options.presence_penalty;
        }
        return score_of_logit(adjusted);
    }
};

// Probability of a token relative to the most likely one, at most 1.
struct relative_probability {
    float max_score;
    float inverse;  // log2(e) / temperature

    static IMBREX_FN relative_probability of(float max_score, float temperature) {
        const float inverse = 1.44269504f / temperature;
        return relative_probability{max_score, inverse < 1e37f ? inverse : 1e37f};
    }
    IMBREX_FN float operator()(float score) const { return fast_exp2((score - max_score) * inverse); }
};

// The same in fixed point, so that sums are exact and independent of the order of addition and of the work split.
struct fixed_point_probability {
    static constexpr float one = 0x1p40f;
    relative_probability weight;
    sample_threshold within;

    IMBREX_FN std::uint64_t operator()(int token, float score) const {
        const float kept = within.keeps(score, token) ? weight(score) * one : 0.0f;
        return static_cast<std::uint64_t>(static_cast<std::int64_t>(kept));
    }
    // Whether a tile with this maximum can contribute to the sum.
    IMBREX_FN bool may_count(float tile_max) const {
        return tile_max >= within.min_score && weight(tile_max) * one >= 1;
    }
};

struct count_one {
    IMBREX_FN std::uint64_t operator()(int, float) const { return 1; }
};

}  // namespace detail

}  // namespace imbrex
