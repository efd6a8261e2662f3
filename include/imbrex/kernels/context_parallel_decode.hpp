// Decode with a context parallel KV cache: the paged KV cache of each sequence is sharded over ranks, and every rank
// gets the attention of the new tokens to all keys (the cross-rank form of split-KV, Flash-Decoding).
//
//     using decode = context_parallel_decode<bf16, head_dim_set{128}>;
//     decode::problem p{...};  // as for paged_decode; KV cache, block table and seqused_k are this rank's shard
//     decode::launch(comm, p, {.workspace = workspace, .append_rank = 3}, {}, stream);
//
// Every rank calls launch() with the same queries, sinks and sizes, and its own shard:
//
//     1. attention of the tokens to the shard        paged_decode: a split-KV partial (O, row_max, row_sum)
//     2. tree all-reduce of the partials             comm/schedule/tree_all_reduce.hpp, kernels/merge_lse.hpp
//     3. the last merge normalises, adds the sinks   the same bits on every rank
//        and rounds
//
// A shard holds any of a sequence's keys, in any order, possibly none; each key is in one shard. Positions of keys are
// unknown, so only a score_mod that ignores positions is allowed. The keys of a sequence's new tokens are at the end of
// one shard, that of its append_rank; seqused_k counts them there, and the causal mask applies to them. All other keys
// precede the new tokens and are visible to all of them. The append_rank is given for all sequences or for each one:
// the rank whose cache the tokens were appended to. With `no_append_rank` every token sees all keys.
//
// launch() enqueues kernels and communication in the stream, allocates no device memory and does not synchronise.
// seqused_k, block tables and append_ranks are read when the kernel runs. Invalid arguments throw imbrex::error before
// anything is launched or sent, but only on the rank that detects them; the others notice when they wait for it.
// require_same_on_all_ranks checks the arguments across ranks beforehand.
//
// Rows of varlen queries that belong to no sequence become 0.
#pragma once

#include <imbrex/comm/check_ranks.hpp>
#include <imbrex/comm/rank_consistency.hpp>
#include <imbrex/comm/schedule/tree_all_reduce.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/merge_lse.hpp>
#include <imbrex/kernels/paged_cascade.hpp>
#include <imbrex/kernels/paged_decode.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace imbrex {

inline constexpr int no_append_rank = -1;

// Causal on the shard with the keys of the new tokens, full elsewhere. A single token sees all keys.
struct kv_shard_mask {
    static constexpr bool causal_like = true;

    const int* append_ranks;  // per sequence, or null: append_rank for all
    int append_rank;
    int rank;

    IMBREX_FN bool is_causal(const attention_extents& s) const {
        return s.seqlen_q > 1 && (append_ranks != nullptr ? append_ranks[s.batch] : append_rank) == rank;
    }
    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range q) const {
        return {0, is_causal(s) ? q.end + s.offset() : s.seqlen_k};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range q, key_range k) const {
        return !is_causal(s) || k.end <= q.first + s.offset() + 1;
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        return !is_causal(s) || key <= query + s.offset();
    }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const {
        return {0, is_causal(s) ? query + s.offset() + 1 : s.seqlen_k};
    }
};
template <>
inline constexpr bool mask_ignores_heads<kv_shard_mask> = true;

struct context_parallel_decode_options {
    // context_parallel_decode::workspace_bytes bytes, zero before the first launch, then reused by launches with the
    // same number of tokens. Launches with another number, or concurrent ones, need one each.
    void* workspace = nullptr;
    int append_rank = 0;                // the rank that has the keys of the new tokens, or no_append_rank
    const int* append_ranks = nullptr;  // the same per sequence, in the memory of the kernel's world, or null
    int first_step = 0;                 // number of the first communication step in error messages
    // As in decode_options, for this rank's shard.
    bool pdl_prefetch = false;  // append_ranks are then read early, too
    std::int64_t keys = 0;
    int blocks = 0;
};

inline namespace IMBREX_WORLDS {

template <class In, head_dim_set HeadDims = all_decode_head_dims, class Score = score_mod::identity, class Cache = In>
class context_parallel_decode {
    static_assert(score_ignores_positions<Score>,
                  "imbrex: context parallel decode needs a score_mod that ignores positions");

  public:
    using problem = attention_problem<In, attention_output_mode::normalised, Cache>;

    // Depends on the number of tokens and on the device; not on sequence lengths or the number of ranks.
    static std::size_t workspace_bytes(world where, const problem& p, int blocks = 0) {
        return layout_of(where, p, blocks).bytes;
    }

    // Checks that the queries have the same sizes on all ranks. Blocks the host: call it once, not for each step.
    template <transport Transport>
    static void require_same_on_all_ranks(Transport& comm, const problem& p,
                                          const context_parallel_decode_options& options) {
        imbrex::require_same_on_all_ranks(comm, {{"q.extents[0]", p.q.extents[0]},
                                                 {"q.extents[1]", p.q.extents[1]},
                                                 {"q.extents[2]", p.q.extents[2]},
                                                 {"q.extents[3]", p.q.extents[3]},
                                                 {"v.extents[3]", p.v.extents[3]},
                                                 {"varlen.count", p.varlen.count},
                                                 {"options.append_rank", options.append_rank},
                                                 {"options.append_ranks given", options.append_ranks != nullptr},
                                                 {"sinks given", p.sinks != nullptr},
                                                 {"options.first_step", options.first_step}});
    }

    // Runs all ranks in the checked host world, under many schedules, with a problem and options for each. Returns the
    // first hazard of a rank, or none.
    static std::optional<hazard> check(const std::vector<problem>& problems, const host::check_options& options,
                                       const std::vector<context_parallel_decode_options>& of_ranks,
                                       const Score& score = {}) {
        require(of_ranks.size() == problems.size(), "of_ranks: ", of_ranks.size(), "; there must be one for each of ",
                problems.size(), " problems");
        const auto rank = [&](loopback& comm) {
            require_same_on_all_ranks(comm, problems[comm.rank()], of_ranks[comm.rank()]);
            launch(comm, problems[comm.rank()], of_ranks[comm.rank()], score);
        };
        return check_ranks(static_cast<int>(problems.size()), rank, options);
    }

    template <class Transport>
    static void launch(Transport& comm, const problem& p, const context_parallel_decode_options& options,
                       const Score& score = {}, void* stream = nullptr) {
        static_assert(detail::check_transport<Transport>());
        const world where = comm.where();
        const layout at = layout_of(where, p, options.blocks);
        require_shard(where, comm.rank(), comm.ranks(), p, options, at);
        if (p.empty()) return;
        char* const workspace = static_cast<char*>(options.workspace);
        const attention_aux_outputs own = result_at(p, workspace + at.own),
                                    theirs = result_at(p, workspace + at.theirs);
        // The decode kernel does not write rows that belong to no sequence.
        if (p.varlen.given()) clear_attention_outputs::launch(where, own, stream);
        attend(where, comm.rank(), p, own, options, score, stream);

        const auto finish = [&](const attention_aux_outputs& first, const attention_aux_outputs& second) {
            merge_lse<In>::launch(
                where, {.first = first, .second = second, .out = p.out, .lse2 = p.lse2, .sinks = p.sinks}, stream);
        };
        const tree_all_reduce tree{.ranks = comm.ranks()};
        if (tree.rounds() == 0) finish(own, {});
        send_recv_group now;
        for (int round = 0; round < tree.rounds(); ++round) {
            const tree_action action = tree.action(comm.rank(), round);
            if (action.idle()) continue;
            const bool last = round == tree.last_round(comm.rank());
            now.step = options.first_step + round;
            now.sends.clear();
            now.receives.clear();
            if (action.sends) now.sends.push_back({action.partner, own.o_accum.pointer, at.result_bytes});
            if (action.receives) now.receives.push_back({action.partner, theirs.o_accum.pointer, at.result_bytes});
            const send_recv_request request = comm.start(now, stream);
            if (last && !action.receives) finish(own, {});
            comm.wait(request, stream);
            if (!action.receives) continue;
            const attention_aux_outputs &first = action.own_first ? own : theirs,
                                        &second = action.own_first ? theirs : own;
            if (!action.merges) {
                finish(theirs, {});
            } else if (last) {
                finish(first, second);
            } else {
                merge_lse<float>::launch(where,
                                         {.first = first,
                                          .second = second,
                                          .out = own.o_accum,
                                          .row_max = own.row_max,
                                          .row_sum = own.row_sum},
                                         stream);
            }
        }
    }

  private:
    using decode = paged_decode<In, decode_config{.head_dims = HeadDims, .output = attention_output_mode::partial},
                                kv_shard_mask, Score, Cache>;
    using partial_problem = typename decode::problem;

    // Workspace offsets of the partial results: this rank's and the received one, each sent as it is stored. The decode
    // kernel's own workspace comes first and persists between launches.
    struct layout {
        std::size_t own, theirs, bytes, result_bytes;
    };
    static layout layout_of(world where, const problem& p, int blocks) {
        require_attention(where, p, kv_layout::paged);
        const std::int64_t tokens = p.q.extents[0] * p.q.extents[2];
        require(tokens <= detail::max_rows && tokens * p.q.extents[1] <= detail::max_rows,
                "q.extents: ", p.q.extents[0], " x ", p.q.extents[1], " x ", p.q.extents[2], "; at most ",
                detail::max_rows, " rows are allowed");
        layout made{};
        made.result_bytes = tokens * p.q.extents[1] * (p.v.extents[3] + 2) * sizeof(float);
        // Only shapes matter here: any aligned address will do.
        const partial_problem shard =
            shard_problem(p, result_at(p, reinterpret_cast<char*>(workspace_layout::alignment)));
        workspace_layout buffers;
        buffers.add(decode::workspace_bytes(where, shard, blocks));
        made.own = buffers.add(made.result_bytes);
        made.theirs = buffers.add(made.result_bytes);
        made.bytes = buffers.bytes();
        return made;
    }
    static attention_aux_outputs result_at(const problem& p, char* begin) {
        const std::int64_t batches = p.q.extents[0], heads = p.q.extents[1], seqlen_q = p.q.extents[2];
        float* const o_accum = reinterpret_cast<float*>(begin);
        float* const row_max = o_accum + batches * heads * seqlen_q * p.v.extents[3];
        attention_aux_outputs made{};
        made.o_accum = batch_sequence_head(o_accum, batches, seqlen_q, heads, p.v.extents[3]);
        made.row_max = batch_head_rows(row_max, heads, seqlen_q);
        made.row_sum = batch_head_rows(row_max + batches * heads * seqlen_q, heads, seqlen_q);
        return made;
    }
    static partial_problem shard_problem(const problem& p, const attention_aux_outputs& result) {
        partial_problem made;
        made.q = p.q;
        made.k = p.k;
        made.v = p.v;
        made.out = result.o_accum;
        made.row_max = result.row_max;
        made.row_sum = result.row_sum;
        made.scale = p.scale_used();
        made.seqused_k = p.seqused_k;
        made.varlen = p.varlen;
        made.paged_kv = p.paged_kv;
        made.k_scales = p.k_scales;
        made.v_scales = p.v_scales;
        return made;
    }

    static void attend(world where, int rank, const problem& p, const attention_aux_outputs& result,
                       const context_parallel_decode_options& options, const Score& score, void* stream) {
        decode_options of_decode;
        of_decode.workspace = options.workspace;
        of_decode.pdl_prefetch = options.pdl_prefetch;
        of_decode.total_seqlen_k = options.keys;
        of_decode.blocks = options.blocks;
        decode::launch(where, shard_problem(p, result), of_decode, {options.append_ranks, options.append_rank, rank},
                       score, stream);
    }

    static void require_shard(world where, int rank, int ranks, const problem& p,
                              const context_parallel_decode_options& options, const layout& at) {
        require(options.append_rank >= no_append_rank && options.append_rank < ranks,
                "options.append_rank: ", options.append_rank, "; must be ", no_append_rank, " (none) to ", ranks - 1);
        if (p.empty()) return;
        const auto address = reinterpret_cast<std::uintptr_t>(options.workspace);
        require(address != 0 && address % alignof(decode_workspace_slice) == 0,
                "options.workspace: ", options.workspace, "; ", at.bytes, " bytes at a multiple of ",
                alignof(decode_workspace_slice), " are needed");
        if (where == world::device) return;
        for (int i = 0; i < p.batches(); ++i) {
            const int append_rank = options.append_ranks != nullptr ? options.append_ranks[i] : options.append_rank;
            require(append_rank >= no_append_rank && append_rank < ranks, "options.append_ranks[", i,
                    "]: ", append_rank, "; must be ", no_append_rank, " (none) to ", ranks - 1);
            const int tokens =
                p.varlen.given() ? p.varlen.cu_seqlens_q[i + 1] - p.varlen.cu_seqlens_q[i] : p.seqlen_q();
            const int keys = p.seqused_k != nullptr ? p.seqused_k[i] : p.seqlen_k(kv_layout::paged);
            require(append_rank != rank || keys >= tokens, "seqused_k[", i, "]: ", keys, "; rank ", rank, " appends ",
                    tokens, " new tokens, so its shard must have at least that many keys");
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
