// The ring attention plan of one rank for a batch of sequences, checked to agree on all ranks. Sequences of different
// lengths have one ring_schedule each. They differ in tokens (and in the number of sequences of that length) only, so
// in each step the same neighbours exchange the same chunks. The rows of all sequences are concatenated: each step
// sends one message, whatever the number of sequences.
//
//     const ring_plan plan = make_ring_plan(comm, {long_one, short_one});         collective; blocks the host
//     const ring_plan back = make_ring_plan(comm, {long_one, short_one}, ring_pass::backward);
//
//     rows of a rank:      [ long_one: its rows ] [ short_one: its rows of sequence 0 ] [ of sequence 1 ] ...
#pragma once

#include <imbrex/comm/rank_consistency.hpp>
#include <imbrex/comm/schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace imbrex {

enum class ring_pass { forward, backward };

namespace detail {

// What the schedules of one plan have in common, and all ranks must agree on.
inline std::vector<rank_invariant> ring_invariants(const ring_schedule& one) {
    return {{"ranks", one.ranks},
            {"placement", static_cast<int>(one.placement)},
            {"q_chunks", one.q_chunks},
            {"mask.left", one.mask.left},
            {"mask.right", one.mask.right},
            {"rotation", static_cast<int>(one.rotation)},
            {"sizes.heads", one.sizes.heads},
            {"sizes.kv_heads", one.sizes.kv_heads},
            {"sizes.head_dim", one.sizes.head_dim},
            {"sizes.head_dim_v", one.sizes.head_dim_v},
            {"sizes.element_bytes", one.sizes.element_bytes},
            {"sizes.partial_element_bytes", one.sizes.partial_element_bytes}};
}

}  // namespace detail

// A chunk sent to or received from a peer. `hop` is the number of ranks it has travelled when this rank holds it; 0 is
// the rank's own chunk. Returned partial results and parts of dQ keep the hop that they had at the sender.
struct ring_message {
    payload what = payload::kv;
    int peer = 0;
    int chunk = 0;
    int hop = 0;
    int needed_step = 0;  // the step that waits for it
};

struct ring_step {
    std::vector<ring_message> sends;
    std::vector<ring_message> receives;
    std::vector<attention_block> blocks;  // one per schedule
};

class ring_plan {
  public:
    ring_plan(std::vector<ring_schedule> sequences, int rank, ring_pass pass = ring_pass::forward)
        : sequences_(std::move(sequences)), rank_(rank), pass_(pass) {
        require(!sequences_.empty(), "sequences: none; at least one schedule is needed");
        for (const ring_schedule& one : sequences_) {
            require_schedule(one);
            require_alike(one);
        }
        require(rank >= 0 && rank < ranks(), "rank: ", rank, "; there are ", ranks(), " ranks, 0 is the first");
        const int steps = pass == ring_pass::forward ? first().steps() : backward_steps(first());
        for (int step = 0; step < steps; ++step) steps_.push_back(step_at(step));
        for (int chunk = 0; chunk < ranks(); ++chunk) {
            require(rows_of(chunk) <= max_tokens, "sequences: rank ", chunk, " has ", rows_of(chunk),
                    " rows of them; at most ", max_tokens, " are allowed");
        }
    }

    int rank() const { return rank_; }
    ring_pass pass() const { return pass_; }
    int ranks() const { return first().ranks; }
    const attention_sizes& sizes() const { return first().sizes; }
    int q_chunks() const { return first().q_chunks; }
    int kv_chunks() const { return first().kv_chunks(); }
    const std::vector<ring_schedule>& sequences() const { return sequences_; }
    const std::vector<ring_step>& steps() const { return steps_; }

    // Rows of all sequences, and the row offset of one schedule.
    std::int64_t rows_of(int chunk) const { return rows_before(sequences_.size(), chunk); }
    std::int64_t rows_before(std::size_t sequence, int chunk) const {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < sequence; ++i) sum += batch_rows_of(sequences_[i], chunk);
        return sum;
    }
    std::int64_t max_rows() const {
        std::int64_t most = 0;
        for (int chunk = 0; chunk < ranks(); ++chunk) most = std::max(most, rows_of(chunk));
        return most;
    }
    // The rank whose queries, or keys, this rank holds after `hop` hops.
    int q_chunk_at(int hop) const { return first().q_source(rank_, hop); }
    int kv_chunk_at(int hop) const { return first().kv_source(rank_, hop); }

  private:
    const ring_schedule& first() const { return sequences_.front(); }
    static std::int64_t batch_rows_of(const ring_schedule& one, int chunk) {
        return std::int64_t{one.tokens_of(chunk).count()} * one.sizes.batches;
    }
    void require_alike(const ring_schedule& one) const {
        const auto expected = detail::ring_invariants(first()), found = detail::ring_invariants(one);
        for (std::size_t i = 0; i < found.size(); ++i) {
            require(found[i].value == expected[i].value, "sequences, ", found[i].name, ": ", found[i].value, " and ",
                    expected[i].value, "; schedules of one plan may differ in tokens and sizes.batches only");
        }
    }

    ring_step step_at(int step) const {
        ring_step made;
        for (const ring_schedule& one : sequences_) {
            made.blocks.push_back(one.block(rank_, step));
            const bool forward = pass_ == ring_pass::forward;
            for (const transfer& sent : forward ? one.sends(rank_, step) : backward_sends(one, rank_, step)) {
                add(made.sends, sent, sent.to, rank_);
            }
            for (const transfer& sent : forward ? one.receives(rank_, step) : backward_receives(one, rank_, step)) {
                const bool home = sent.what == payload::partial_o || sent.what == payload::dq;
                add(made.receives, sent, sent.from, home ? sent.from : rank_);
            }
        }
        // The same order on both sides: what is needed first goes first.
        const auto earlier = [](const ring_message& a, const ring_message& b) {
            return std::pair(a.needed_step, a.what) < std::pair(b.needed_step, b.what);
        };
        std::sort(made.sends.begin(), made.sends.end(), earlier);
        std::sort(made.receives.begin(), made.receives.end(), earlier);
        return made;
    }
    // The whole chunk is sent if any sequence needs its part.
    void add(std::vector<ring_message>& all, const transfer& one, int peer, int holder) const {
        const auto source = [&](int hop) {
            return is_per_kv_head(one.what) ? first().kv_source(holder, hop) : first().q_source(holder, hop);
        };
        int hop = 0;
        while (source(hop) != one.chunk) ++hop;
        const auto same = [&](const ring_message& other) { return other.what == one.what && other.peer == peer; };
        if (std::none_of(all.begin(), all.end(), same))
            all.push_back({one.what, peer, one.chunk, hop, one.needed_step});
    }

    std::vector<ring_schedule> sequences_;
    int rank_;
    ring_pass pass_;
    std::vector<ring_step> steps_;
};

// Collective. Throws if ranks pass different sequences; the message names the rank and the value that differs.
template <transport Transport>
ring_plan make_ring_plan(Transport& comm, const std::vector<ring_schedule>& sequences,
                         ring_pass pass = ring_pass::forward) {
    std::vector<rank_invariant> numbers{{"the number of schedules", static_cast<std::int64_t>(sequences.size())},
                                        {"pass", static_cast<int>(pass)}};
    const ring_schedule none{}, &first = sequences.empty() ? none : sequences.front();
    for (const rank_invariant& one : detail::ring_invariants(first)) numbers.push_back(one);
    // The lengths are hashed into one number, since there may be many.
    std::uint64_t mixed = 0;
    for (const ring_schedule& one : sequences) {
        for (const int number : {one.tokens, one.sizes.batches}) mixed = (mixed ^ number) * 0x9e3779b97f4a7c15u;
    }
    numbers.push_back({"hash of tokens and sizes.batches of all schedules", static_cast<std::int64_t>(mixed >> 1)});
    return *make_on_all_ranks(comm, numbers, [&] {
        std::optional<ring_plan> made(std::in_place, sequences, comm.rank(), pass);
        require(made->ranks() == comm.ranks(), "ranks: ", made->ranks(), "; the transport has ", comm.ranks());
        return made;
    });
}

}  // namespace imbrex
