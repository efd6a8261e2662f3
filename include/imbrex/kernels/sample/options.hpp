// What a row of logits is sampled by, as it lies in the memory of the kernel's world, and the functions of a score that follow from it.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_math.hpp>
#include <imbrex/hw/math.hpp>

#include <cstdint>
#include <limits>

namespace imbrex {

// Of one row.
struct sample_options {
    float temperature = 1;         // 0: greedy
    int top_k = 0;                 // 0: all
    float top_p = 1;               // 1: all
    float min_p = 0;               // 0: all
    float repetition_penalty = 1;  // 1: none
    float presence_penalty = 0;
    float frequency_penalty = 0;
    int position = 0;  // with the seed, all that chance depends on
    std::uint64_t seed = 0;
};

// A token whose logit is not taken as it is.
struct logit_adjustment {
    int token = 0;
    int generated = 0;  // how often it was, for the presence and frequency penalties
    int in_prompt = 0;  // not 0: it was there from the beginning; the repetition penalty asks for either
    float bias = 0;
};

// The tokens that may be drawn: those of a higher score, and of those with the same score the ones up to a number.
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

// Logits as scores, which can all be compared and subtracted: NaN is -infinity, +infinity the largest float, and -0 is 0.
IMBREX_FN float score_of_logit(float logit) {
    const float number = logit == logit ? logit : minus_infinity;
    const float finite = number < std::numeric_limits<float>::max() ? number : std::numeric_limits<float>::max();
    return finite + 0.0f;
}

// Integers in the order of scores, and back.
IMBREX_FN std::int32_t sort_key_of_score(float score) {
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, score);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}
IMBREX_FN float score_of_sort_key(std::int32_t order) {
    return __builtin_bit_cast(float, order ^ ((order >> 31) & 0x7fffffff));
}

// A function of tokens and scores, for the piece of a row that begins with this token.
template <class Function>
struct from_token {
    Function function;
    int first;
    IMBREX_FN auto operator()(int column, float score) const { return function(first + column, score); }
};

// The logits of one piece of a row: columns behind the row's end have the score of what is never drawn.
struct score_in_row {
    int columns;
    IMBREX_FN float operator()(int column, float logit) const {
        return column < columns ? score_of_logit(logit) : minus_infinity;
    }
};

// Bias, then penalties.
struct adjusted_score {
    const sample_options& options;
    const logit_adjustment& adjustment;

    IMBREX_KERNEL float operator()(float score) const {
        float adjusted = score + adjustment.bias;
        if (adjustment.generated > 0 || adjustment.in_prompt != 0) {
            adjusted = adjusted > 0 ? adjusted / options.repetition_penalty : adjusted * options.repetition_penalty;
        }
        if (adjustment.generated > 0) {
            // Rounded once in every program, whatever its compiler thinks of multiplying and adding.
            adjusted = hw::fma(-options.frequency_penalty, static_cast<float>(adjustment.generated), adjusted);
            adjusted -= options.presence_penalty;
        }
        return score_of_logit(adjusted);
    }
};

// How likely a token is, relative to the likeliest: 1 at most.
struct relative_probability {
    float max_score;  // the largest score
    float inverse;    // log2(e) / temperature

    static IMBREX_FN relative_probability of(float max_score, float temperature) {
        const float inverse = 1.44269504f / temperature;
        return relative_probability{max_score, inverse < 1e37f ? inverse : 1e37f};
    }
    IMBREX_FN float operator()(float score) const { return fast_exp2((score - max_score) * inverse); }
};

// The same as a whole number, so that sums are exact: no order of adding, and no sharing out of the work, makes a difference.
struct fixed_point_probability {
    static constexpr float one = 0x1p40f;
    relative_probability weight;
    sample_threshold within;

    IMBREX_FN std::uint64_t operator()(int token, float score) const {
        const float kept = within.keeps(score, token) ? weight(score) * one : 0.0f;
        return static_cast<std::uint64_t>(static_cast<std::int64_t>(kept));
    }
    // Whether any score up to this one counts.
    IMBREX_FN bool may_count(float tile_max) const {
        return tile_max >= within.min_score && weight(tile_max) * one >= 1;
    }
};

struct count_one {
    IMBREX_FN std::uint64_t operator()(int, float) const { return 1; }
};

}  // namespace detail

}  // namespace imbrex
