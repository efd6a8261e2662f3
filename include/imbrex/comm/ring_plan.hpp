// What one rank does for all sequences together, and that all ranks mean the same by it. Sequences of different lengths have a
// schedule each; they differ in tokens (and in how many there are of that length) alone, so in each step the same neighbours
// exchange the same chunks, which are the rows of all sequences one behind the other: one message, however many sequences there
// are.
//
//     const ring_plan plan = make_ring_plan(comm, {long_one, short_one});         every rank calls it; the host waits for the others
//
//     rows of a rank:      [ long_one: its rows ] [ short_one: its rows of the first of the batch ] [ of the second ] ...
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

namespace detail {

// What schedules that go round together have in common, and ranks have to agree on.
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

// A chunk that goes to a rank or comes from it. `hop` says over how many ranks it has come where this rank has it: 0 is its own. Results
// that come home have the hop that they had where they come from.
struct ring_message {
    payload what = payload::kv;
    int peer = 0;
    int chunk = 0;
    int hop = 0;
    int needed_step = 0;  // the step that begins when it is there
};

struct ring_step {
    std::vector<ring_message> sends;
    std::vector<ring_message> receives;
    std::vector<attention_block> blocks;  // one for each schedule
};

class ring_plan {
  public:
    ring_plan(std::vector<ring_schedule> sequences, int rank) : sequences_(std::move(sequences)), rank_(rank) {
        require(!sequences_.empty(), "sequences: none; one schedule at least is needed");
        for (const ring_schedule& one : sequences_) {
            require_schedule(one);
            require_alike(one);
        }
        require(rank >= 0 && rank < ranks(), "rank: ", rank, "; there are ", ranks(), " ranks, 0 is the first");
        for (int step = 0; step < first().steps(); ++step) steps_.push_back(step_at(step));
        for (int chunk = 0; chunk < ranks(); ++chunk) {
            require(rows_of(chunk) <= max_tokens, "sequences: rank ", chunk, " has ", rows_of(chunk),
                    " rows of them; at most ", max_tokens, " are allowed");
        }
    }

    int rank() const { return rank_; }
    int ranks() const { return first().ranks; }
    const attention_sizes& sizes() const { return first().sizes; }
    int q_chunks() const { return first().q_chunks; }
    const std::vector<ring_schedule>& sequences() const { return sequences_; }
    const std::vector<ring_step>& steps() const { return steps_; }

    // Of all sequences together, and how many of them come before those of one schedule.
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
    // The rank whose queries this one has after so many hops.
    int q_chunk_at(int hop) const { return first().q_source(rank_, hop); }

  private:
    const ring_schedule& first() const { return sequences_.front(); }
    static std::int64_t batch_rows_of(const ring_schedule& one, int chunk) {
        return std::int64_t{one.tokens_of(chunk).count()} * one.sizes.batches;
    }
    void require_alike(const ring_schedule& one) const {
        const auto expected = detail::ring_invariants(first()), found = detail::ring_invariants(one);
        for (std::size_t i = 0; i < found.size(); ++i) {
            require(found[i].value == expected[i].value, "sequences, ", found[i].name, ": ", found[i].value, " beside ",
                    expected[i].value, "; they go round together, and differ in tokens and sizes.batches alone");
        }
    }

    ring_step step_at(int step) const {
        ring_step made;
        for (const ring_schedule& one : sequences_) {
            made.blocks.push_back(one.block(rank_, step));
            for (const transfer& sent : one.sends(rank_, step)) add(made.sends, sent, sent.to, rank_);
            for (const transfer& sent : one.receives(rank_, step)) {
                const bool home = sent.what == payload::partial_o;
                add(made.receives, sent, sent.from, home ? sent.from : rank_);
            }
        }
        // Both sides have the same order: what is needed first goes first.
        const auto earlier = [](const ring_message& a, const ring_message& b) {
            return std::pair(a.needed_step, a.what) < std::pair(b.needed_step, b.what);
        };
        std::sort(made.sends.begin(), made.sends.end(), earlier);
        std::sort(made.receives.begin(), made.receives.end(), earlier);
        return made;
    }
    // A chunk travels as a whole as soon as one sequence's part of it does.
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
    std::vector<ring_step> steps_;
};

// The plan of this rank, if all ranks name the same sequences; otherwise an error that says which rank does not, and in what.
template <transport Transport>
ring_plan make_ring_plan(Transport& comm, const std::vector<ring_schedule>& sequences) {
    std::vector<rank_invariant> numbers{{"the number of schedules", static_cast<std::int64_t>(sequences.size())}};
    const ring_schedule none{}, &first = sequences.empty() ? none : sequences.front();
    for (const rank_invariant& one : detail::ring_invariants(first)) numbers.push_back(one);
    // Of lengths there may be many: they are one number.
    std::uint64_t mixed = 0;
    for (const ring_schedule& one : sequences) {
        for (const int number : {one.tokens, one.sizes.batches}) mixed = (mixed ^ number) * 0x9e3779b97f4a7c15u;
    }
    numbers.push_back(
        {"tokens and sizes.batches of all schedules, mixed into one number", static_cast<std::int64_t>(mixed >> 1)});
    return *make_on_all_ranks(comm, numbers, [&] {
        std::optional<ring_plan> made(std::in_place, sequences, comm.rank());
        require(made->ranks() == comm.ranks(), "ranks: ", made->ranks(), "; the transport has ", comm.ranks());
        return made;
    });
}

}  // namespace imbrex
