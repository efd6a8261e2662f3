// Decode over a cache of keys and values that is split among ranks: each has some of the keys of each sequence, and every rank gets the
// attention of the new tokens to all of them.
//
//     using decode = split_decode<bf16, plain_score, decode_depths<128>>;
//     decode::problem p{...};                        // as for paged_decode: cache, table and lengths are those of this rank's share
//     decode::launch(link, p, {.workspace = workspace, .holder = 3}, {}, stream);
//
// Every rank calls it with the same queries, sinks and sizes, and its own share:
//
//     1. the tokens attend to the share                   paged_decode: O, largest scores and sums
//     2. results are merged along a tree                  comm/schedule/tree.hpp, kernels/partial_results.hpp
//     3. the last merge divides, adds sinks, and rounds   the same bits on every rank
//
// A share is any of a sequence's keys, in any order, none at all included; each key is in one share. Scores that depend on
// positions are not taken, as nobody knows them. The keys of the new tokens are in one share, all of a sequence's and at its end:
// that of the rank which holds them, where lengths count them and a token does not see those behind its own. All other keys come
// before the new tokens, and every token sees them. Which rank holds them is said for all sequences, or for each: it is the one
// whose cache they were appended to. With `no_holder` nothing is hidden: each token sees all keys.
//
// All goes into the stream, launches and exchanges; nothing is allocated on the device, and the host waits for none of it. Lengths,
// tables and holders are read when the kernel runs. What is refused is refused before anything is launched or sent, but by the rank
// alone that sees it: the others find out when they wait for it. Ranks that are not sure that they mean the same can ask before
// (require_agreement).
//
// Rows of packed queries that belong to no sequence become 0.
#pragma once

#include <imbrex/comm/agreement.hpp>
#include <imbrex/comm/schedule/tree.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/memory_rooms.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_cascade.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/partial_results.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

inline constexpr int no_holder = -1;

// Causal where the keys of the new tokens are, full elsewhere. One token sees all there is.
struct share_mask {
    static constexpr bool later_queries_see_more = true;

    const int* holders;  // of each sequence, or null: the same for all
    int holder;
    int rank;

    IMBREX_FN bool hides(const attention_sequence& s) const {
        return s.queries > 1 && (holders != nullptr ? holders[s.batch] : holder) == rank;
    }
    IMBREX_FN key_range keys(const attention_sequence& s, query_range q) const {
        return {0, hides(s) ? q.end + s.offset() : s.keys};
    }
    IMBREX_FN bool whole(const attention_sequence& s, query_range q, key_range k) const {
        return !hides(s) || k.end <= q.first + s.offset() + 1;
    }
    IMBREX_FN bool keep(const attention_sequence& s, int query, int key) const {
        return !hides(s) || key <= query + s.offset();
    }
    IMBREX_FN key_range keys_of(const attention_sequence& s, int query) const {
        return {0, hides(s) ? query + s.offset() + 1 : s.keys};
    }
};
template <>
inline constexpr bool mask_ignores_heads<share_mask> = true;

struct split_decode_options {
    // As many bytes as split_decode::workspace_bytes says, zero before the first launch, and then left to launches of as many
    // tokens. Those of other numbers, or at the same time, need one each.
    void* workspace = nullptr;
    int holder = 0;                // the rank that has the keys of the new tokens, or no_holder
    const int* holders = nullptr;  // the same for each sequence, in the memory of the kernel's world
    int first_step = 0;            // of the exchanges, for errors to name
    // As decode_options has them, of this rank's share.
    bool early = false;  // holders are read early too
    std::int64_t keys = 0;
    int blocks = 0;
};

inline namespace IMBREX_WORLDS {

template <class In, class Score = plain_score, class Depths = all_decode_depths, class Cache = In>
class split_decode {
    static_assert(score_ignores_places<Score>,
                  "imbrex: the score of a split decode does not depend on where query and key stand");

  public:
    using problem = attention_problem<In, attention_result::normalised, Cache>;

    // Depends on the number of tokens and on the device; not on lengths, nor on how many ranks there are.
    static std::size_t workspace_bytes(world where, const problem& p, int blocks = 0) {
        return layout_of(where, p, blocks).bytes;
    }

    // That all ranks have queries of the same sizes. The host waits for all of them: for the first time, not for each.
    template <transport Link>
    static void require_agreement(Link& link, const problem& p, const split_decode_options& options) {
        imbrex::require_agreement(link, {{"q.extents[0]", p.q.extents[0]},
                                         {"q.extents[1]", p.q.extents[1]},
                                         {"q.extents[2]", p.q.extents[2]},
                                         {"q.extents[3]", p.q.extents[3]},
                                         {"v.extents[3]", p.v.extents[3]},
                                         {"packed.count", p.packed.count},
                                         {"options.holder", options.holder},
                                         {"options.holders given", options.holders != nullptr},
                                         {"sinks given", p.sinks != nullptr},
                                         {"options.first_step", options.first_step}});
    }

    template <transport Link>
    static void launch(Link& link, const problem& p, const split_decode_options& options, const Score& score = {},
                       void* stream = nullptr) {
        const world where = link.where();
        const layout at = layout_of(where, p, options.blocks);
        require_split(where, link.rank(), link.ranks(), p, options, at);
        if (p.empty()) return;
        char* const workspace = static_cast<char*>(options.workspace);
        const attention_outputs own = result_at(p, workspace + at.own), theirs = result_at(p, workspace + at.theirs);
        // The decode does not write rows that belong to no sequence.
        if (p.packed.given()) clear_results::launch(where, own, stream);
        attend(where, link.rank(), p, own, options, score, stream);

        const auto finish = [&](const attention_outputs& first, const attention_outputs& second) {
            merge_results<In>::launch(
                where, {.first = first, .second = second, .out = p.out, .log2_sums = p.log2_sums, .sinks = p.sinks},
                stream);
        };
        const merge_tree tree{.ranks = link.ranks()};
        if (tree.rounds() == 0) finish(own, {});
        exchange now;
        for (int round = 0; round < tree.rounds(); ++round) {
            const tree_turn turn = tree.turn(link.rank(), round);
            if (turn.idle()) continue;
            const bool last = round == tree.last_round(link.rank());
            now.step = options.first_step + round;
            now.sends.clear();
            now.receives.clear();
            if (turn.sends) now.sends.push_back({turn.partner, own.wide.pointer, at.result_bytes});
            if (turn.receives) now.receives.push_back({turn.partner, theirs.wide.pointer, at.result_bytes});
            const exchange_ticket ticket = link.start(now, stream);
            if (last && !turn.receives) finish(own, {});
            link.wait(ticket, stream);
            if (!turn.receives) continue;
            const attention_outputs &first = turn.own_first ? own : theirs, &second = turn.own_first ? theirs : own;
            if (!turn.merges) {
                finish(theirs, {});
            } else if (last) {
                finish(first, second);
            } else {
                merge_results<float>::launch(
                    where,
                    {.first = first, .second = second, .out = own.wide, .largest = own.largest, .sums = own.sums},
                    stream);
            }
        }
    }

  private:
    using decode = paged_decode<In, share_mask, Score, attention_result::partial, Depths, Cache>;
    using partial_problem = typename decode::problem;

    // Where in the workspace results are: the rank's, and what it receives. A result is sent as it lies there. The decode's own
    // comes before them, and is left as it is from one time to the next.
    struct layout {
        std::size_t own, theirs, bytes, result_bytes;
    };
    static layout layout_of(world where, const problem& p, int blocks) {
        require_attention(where, p, attention_keys::in_pages);
        const std::int64_t tokens = p.q.extents[0] * p.q.extents[2];
        require(tokens <= detail::most_rows && tokens * p.q.extents[1] <= detail::most_rows,
                "q.extents: ", p.q.extents[0], " x ", p.q.extents[1], " x ", p.q.extents[2], "; at most ",
                detail::most_rows, " rows are allowed");
        layout made{};
        made.result_bytes = tokens * p.q.extents[1] * (p.v.extents[3] + 2) * sizeof(float);
        // Sizes follow from shapes alone, so any address will do.
        const partial_problem share = share_of(p, result_at(p, reinterpret_cast<char*>(memory_rooms::alignment)));
        memory_rooms rooms;
        rooms.add(decode::workspace_bytes(where, share, blocks));
        made.own = rooms.add(made.result_bytes);
        made.theirs = rooms.add(made.result_bytes);
        made.bytes = rooms.bytes();
        return made;
    }
    static attention_outputs result_at(const problem& p, char* begin) {
        const std::int64_t batches = p.q.extents[0], heads = p.q.extents[1], queries = p.q.extents[2];
        float* const wide = reinterpret_cast<float*>(begin);
        float* const largest = wide + batches * heads * queries * p.v.extents[3];
        attention_outputs made{};
        made.wide = batch_sequence_head(wide, batches, queries, heads, p.v.extents[3]);
        made.largest = batch_head_rows(largest, heads, queries);
        made.sums = batch_head_rows(largest + batches * heads * queries, heads, queries);
        return made;
    }
    static partial_problem share_of(const problem& p, const attention_outputs& result) {
        partial_problem made;
        made.q = p.q;
        made.k = p.k;
        made.v = p.v;
        made.out = result.wide;
        made.largest = result.largest;
        made.sums = result.sums;
        made.scale = p.scale_used();
        made.key_lengths = p.key_lengths;
        made.packed = p.packed;
        made.pages = p.pages;
        made.k_scales = p.k_scales;
        made.v_scales = p.v_scales;
        return made;
    }

    static void attend(world where, int rank, const problem& p, const attention_outputs& result,
                       const split_decode_options& options, const Score& score, void* stream) {
        decode_options of_decode;
        of_decode.workspace = options.workspace;
        of_decode.early = options.early;
        of_decode.keys = options.keys;
        of_decode.blocks = options.blocks;
        decode::launch(where, share_of(p, result), of_decode, {options.holders, options.holder, rank}, score, stream);
    }

    static void require_split(world where, int rank, int ranks, const problem& p, const split_decode_options& options,
                              const layout& at) {
        require(options.holder >= no_holder && options.holder < ranks, "options.holder: ", options.holder, "; of ",
                ranks, " ranks one is named, or none: ", no_holder, " to ", ranks - 1);
        if (p.empty()) return;
        const auto address = reinterpret_cast<std::uintptr_t>(options.workspace);
        require(address != 0 && address % alignof(decode_partial) == 0, "options.workspace: ", options.workspace, "; ",
                at.bytes, " bytes at a multiple of ", alignof(decode_partial), " are needed");
        if (where == world::device) return;
        for (int i = 0; i < p.batches(); ++i) {
            const int holder = options.holders != nullptr ? options.holders[i] : options.holder;
            require(holder >= no_holder && holder < ranks, "options.holders[", i, "]: ", holder, "; of ", ranks,
                    " ranks one is named, or none: ", no_holder, " to ", ranks - 1);
            const int tokens = p.packed.given() ? p.packed.query_starts[i + 1] - p.packed.query_starts[i] : p.queries();
            const int keys = p.key_lengths != nullptr ? p.key_lengths[i] : p.keys(attention_keys::in_pages);
            require(holder != rank || keys >= tokens, "key_lengths[", i, "]: ", keys, "; rank ", rank,
                    " holds the keys of the ", tokens, " new tokens, and its share has them all");
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
