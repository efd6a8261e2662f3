// Transfers of the backward pass of ring, mesh and Ulysses attention. With the final LSE and delta = sum(dO * O) of
// each row, every block of scores is independent: it adds to dQ of its queries, and to dK and dV of its keys. So blocks
// are visited in the order of the forward pass:
//
//   - K and V rotate as in the forward pass.
//   - dK and dV rotate with them, one stage behind: the sum of a stage is sent after it and added to what the next rank
//     computed meanwhile. After the last stage they take one more hop to their owner, so they complete the ring even
//     where K and V do not.
//   - In a mesh, Q, dO, LSE and delta rotate instead of Q, and partial dQ returns instead of partial O.
//
//     stage of rank r     0             1             2               ...   b - 1         b (no block)
//     K, V of             r             r - 1         r - 2                 r + 1
//     sends K, V of       r             r - 1         r - 2                 -
//     sends dK, dV of     -             r             r - 1                 r + 2         r + 1, their owner
//
// Ulysses has the same three steps with other payloads. Its gradients are complete: they have the type of the inputs.
#pragma once

#include <imbrex/comm/schedule/ring_schedule.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/comm/schedule/ulysses_schedule.hpp>

#include <vector>

namespace imbrex {

// One more step than the forward pass, in which the last gradients return to their owners.
constexpr int backward_steps(const ring_schedule& schedule) {
    return schedule.ranks + (schedule.ranks > 1 ? 1 : 0);
}
constexpr int backward_steps(const ulysses_schedule& schedule) {
    return schedule.steps();
}

namespace detail {

constexpr transfer dk_dv_transfer(const ring_schedule& schedule, int rank, int step) {
    const int stage = schedule.stage_of(step) - 1;
    if (schedule.kv_chunks() == 1 || step % schedule.q_chunks != 0 || stage < 0) return {};
    const int chunk = schedule.kv_source(rank, stage);
    const bool last = stage == schedule.kv_chunks() - 1;
    return transfer_of(schedule.sizes, payload::dk_dv, rank, schedule.kv_source(rank, -1), chunk,
                       schedule.tokens_of(chunk).count(), step, step + (last ? 1 : schedule.q_chunks));
}

inline void backward_all_to_all(std::vector<transfer>& all, const ulysses_schedule& schedule, int from, int to,
                                int step) {
    if (step == 0) {
        schedule.add_all_to_all(all, payload::q_do_lse_delta, from, to, step);
        schedule.add_all_to_all(all, payload::kv, from, to, step);
    } else if (step == 2) {
        ulysses_schedule complete = schedule;
        complete.sizes.partial_element_bytes = schedule.sizes.element_bytes;
        complete.add_all_to_all(all, payload::dq, from, to, step);
        complete.add_all_to_all(all, payload::dk_dv, from, to, step);
    }
}

}  // namespace detail

// Transfers that a rank posts in a step of the backward pass. Its block is schedule.block(rank, step).
inline std::vector<transfer> backward_sends(const ring_schedule& schedule, int rank, int step) {
    std::vector<transfer> made;
    detail::add_transfer(made, schedule.kv_transfer(rank, step));
    detail::add_transfer(made, schedule.q_transfer(rank, step, payload::q_do_lse_delta));
    detail::add_transfer(made, detail::dk_dv_transfer(schedule, rank, step));
    detail::add_transfer(made, schedule.partial_transfer(rank, step, payload::dq, backward_steps(schedule)));
    return made;
}
inline std::vector<transfer> backward_receives(const ring_schedule& schedule, int rank, int step) {
    const int before = schedule.kv_source(rank, 1), home_from = schedule.partial_source(rank, step);
    std::vector<transfer> made;
    detail::add_transfer(made, schedule.kv_transfer(before, step));
    detail::add_transfer(made, schedule.q_transfer(schedule.q_source(rank, 1), step, payload::q_do_lse_delta));
    detail::add_transfer(made, detail::dk_dv_transfer(schedule, before, step));
    detail::add_transfer(made, schedule.partial_transfer(home_from, step, payload::dq, backward_steps(schedule)));
    return made;
}

inline std::vector<transfer> backward_sends(const ulysses_schedule& schedule, int rank, int step) {
    std::vector<transfer> made;
    for (int distance = 1; distance < schedule.ranks; ++distance) {
        detail::backward_all_to_all(made, schedule, rank, (rank + distance) % schedule.ranks, step);
    }
    return made;
}
inline std::vector<transfer> backward_receives(const ulysses_schedule& schedule, int rank, int step) {
    std::vector<transfer> made;
    for (int distance = 1; distance < schedule.ranks; ++distance) {
        detail::backward_all_to_all(made, schedule, (rank + schedule.ranks - distance) % schedule.ranks, rank, step);
    }
    return made;
}

}  // namespace imbrex
