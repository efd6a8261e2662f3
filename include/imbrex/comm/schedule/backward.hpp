// What the backward pass sends. With each row's final logarithm and delta = sum(dO * O) every block of scores stands alone: it adds to
// dQ of its queries, and to dK and dV of its keys. So blocks are visited in the order of the forward pass, and
//
//   - keys and values go round as before;
//   - dK and dV travel with them, one stage behind: what a stage has added is sent after it, and added to what the next rank found
//     meanwhile. After the last stage they have one more hop, home, so they go all round even where keys do not;
//   - in a mesh Q, dO, logarithms and deltas go round instead of Q, and parts of dQ go home instead of parts of O.
//
//     stage of rank r     0             1             2               ...   b - 1         b (nothing is attended)
//     keys of             r             r - 1         r - 2                 r + 1
//     sends keys of       r             r - 1         r - 2                 -
//     sends dK, dV of     -             r             r - 1                 r + 2         r + 1, which has them then
//
// When heads are exchanged, what goes out and comes back is different, and the three steps are the same.
#pragma once

#include <imbrex/comm/schedule/head_schedule.hpp>
#include <imbrex/comm/schedule/sequence_schedule.hpp>
#include <imbrex/comm/schedule/transfer.hpp>

#include <vector>

namespace imbrex {

// In the last one, behind the blocks, the last gradients go home.
constexpr int backward_steps(const sequence_schedule& schedule) {
    return schedule.ranks + (schedule.ranks > 1 ? 1 : 0);
}
constexpr int backward_steps(const head_schedule& schedule) {
    return schedule.steps();
}

namespace detail {

constexpr transfer key_gradients_sent(const sequence_schedule& schedule, int rank, int step) {
    const int stage = schedule.stage_of(step) - 1;
    if (schedule.key_chunks() == 1 || step % schedule.query_chunks != 0 || stage < 0) return {};
    const int chunk = schedule.key_source(rank, stage);
    const bool last = stage == schedule.key_chunks() - 1;
    return transfer_of(schedule.sizes, payload::key_value_gradients, rank, schedule.key_source(rank, -1), chunk,
                       schedule.tokens_of(chunk).count(), step, step + (last ? 1 : schedule.query_chunks));
}

inline void backward_exchange(std::vector<transfer>& all, const head_schedule& schedule, int from, int to, int step) {
    if (step == 0) {
        schedule.exchange_of(all, payload::query_states, from, to, step);
        schedule.exchange_of(all, payload::keys_values, from, to, step);
    } else if (step == 2) {
        schedule.exchange_of(all, payload::query_gradients, from, to, step);
        schedule.exchange_of(all, payload::key_value_gradients, from, to, step);
    }
}

}  // namespace detail

// What a rank starts to send, and to receive, in a step of the backward pass. What it attends to is schedule.block(rank, step).
inline std::vector<transfer> backward_sends(const sequence_schedule& schedule, int rank, int step) {
    std::vector<transfer> made;
    detail::add_transfer(made, schedule.keys_sent(rank, step));
    detail::add_transfer(made, schedule.queries_sent(rank, step, payload::query_states));
    detail::add_transfer(made, detail::key_gradients_sent(schedule, rank, step));
    detail::add_transfer(made, schedule.results_sent(rank, step, payload::query_gradients, backward_steps(schedule)));
    return made;
}
inline std::vector<transfer> backward_receives(const sequence_schedule& schedule, int rank, int step) {
    const int before = schedule.key_source(rank, 1), home_from = schedule.result_source(rank, step);
    std::vector<transfer> made;
    detail::add_transfer(made, schedule.keys_sent(before, step));
    detail::add_transfer(made, schedule.queries_sent(schedule.query_source(rank, 1), step, payload::query_states));
    detail::add_transfer(made, detail::key_gradients_sent(schedule, before, step));
    detail::add_transfer(made,
                         schedule.results_sent(home_from, step, payload::query_gradients, backward_steps(schedule)));
    return made;
}

inline std::vector<transfer> backward_sends(const head_schedule& schedule, int rank, int step) {
    std::vector<transfer> made;
    for (int distance = 1; distance < schedule.ranks; ++distance) {
        detail::backward_exchange(made, schedule, rank, (rank + distance) % schedule.ranks, step);
    }
    return made;
}
inline std::vector<transfer> backward_receives(const head_schedule& schedule, int rank, int step) {
    std::vector<transfer> made;
    for (int distance = 1; distance < schedule.ranks; ++distance) {
        detail::backward_exchange(made, schedule, (rank + schedule.ranks - distance) % schedule.ranks, rank, step);
    }
    return made;
}

}  // namespace imbrex
