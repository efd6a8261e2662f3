// What becomes of a score (query times key, scaled) before the softmax. A score is any type with
//
//     IMBREX_KERNEL float operator()(const attention_sequence&, int query, int key, float score) const;
//
// and is joined with others by `scores_in_turn`. One that changes nothing says so, and costs nothing.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <cstdint>

namespace imbrex {

struct plain_score {
    static constexpr bool changes_nothing = true;
    IMBREX_KERNEL float operator()(const attention_sequence&, int, int, float score) const { return score; }
};

// Bent smoothly so as to stay between -cap and cap.
struct softcap {
    float cap;
    IMBREX_KERNEL float operator()(const attention_sequence&, int, int, float score) const {
        // cap tanh(x) with tanh x = 1 - 2 / (1 + e^2x)
        return cap - 2 * cap * hw::reciprocal(1 + hw::exp2(score * (2.8853900817779268f / cap)));
    }
};

// A penalty for distance, with a slope for each head.
struct alibi {
    const float* slopes;
    IMBREX_KERNEL float operator()(const attention_sequence& s, int query, int key, float score) const {
        const int distance = query + s.offset() - key;
        return score - slopes[s.head] * static_cast<float>(distance < 0 ? -distance : distance);
    }
};

// A number added to each score, from an array; a stride of 0 repeats it.
struct additive_bias {
    const float* values;
    std::int64_t batch_stride;
    std::int64_t head_stride;
    std::int64_t query_stride;
    IMBREX_KERNEL float operator()(const attention_sequence& s, int query, int key, float score) const {
        // Places beyond the lengths are scored too, before they are masked.
        const bool exists = query < s.queries && key < s.keys;
        const std::int64_t place = s.batch * batch_stride + s.head * head_stride + query * query_stride + key;
        return exists ? score + values[place] : score;
    }
};

template <class First, class Second>
struct scores_in_turn {
    First first;
    Second second;
    IMBREX_KERNEL float operator()(const attention_sequence& s, int query, int key, float score) const {
        return second(s, query, key, first(s, query, key, score));
    }
};

template <class Score>
constexpr bool score_changes_nothing() {
    if constexpr (requires { Score::changes_nothing; }) {
        return Score::changes_nothing;
    } else {
        return false;
    }
}

}  // namespace imbrex
