// What becomes of a score (query times key, scaled) before the softmax. A score is any type with
//
//     IMBREX_KERNEL float operator()(const attention_sequence&, int query, int key, float score) const;
//
// and is joined with others by in_turn(softcap{30}, alibi{slopes}, ...), the first being applied first. One that changes nothing
// says so, and costs nothing; one that reads memory for each pair of query and key says so, and gets narrower tiles, which leave
// it registers. Places that do not exist are scored too, before they are masked: behind the lengths a score must not read.
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
    static constexpr bool reads_memory = true;

    const float* values;
    std::int64_t batch_stride;
    std::int64_t head_stride;
    std::int64_t query_stride;
    IMBREX_KERNEL float operator()(const attention_sequence& s, int query, int key, float score) const {
        // Behind the ends the first of a row, or the first row: a way around each element's read would cost many registers.
        const std::int64_t row =
            s.batch * batch_stride + s.head * head_stride + (query < s.queries ? query : 0) * query_stride;
        return score + (values + row)[key < s.keys ? key : 0];
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

template <class Score>
constexpr bool score_reads_memory() {
    if constexpr (requires { Score::reads_memory; }) {
        return Score::reads_memory;
    } else {
        return false;
    }
}

template <class First, class Second>
struct scores_in_turn {
    static constexpr bool changes_nothing = score_changes_nothing<First>() && score_changes_nothing<Second>();
    static constexpr bool reads_memory = score_reads_memory<First>() || score_reads_memory<Second>();

    First first;
    Second second;
    IMBREX_KERNEL float operator()(const attention_sequence& s, int query, int key, float score) const {
        return second(s, query, key, first(s, query, key, score));
    }
};

template <class Score>
constexpr Score in_turn(const Score& one) {
    return one;
}
template <class First, class... Others>
constexpr auto in_turn(const First& first, const Others&... others) {
    return scores_in_turn<First, decltype(in_turn(others...))>{first, in_turn(others...)};
}

}  // namespace imbrex
