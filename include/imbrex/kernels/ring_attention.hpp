// Exact attention over sequences that are sharded over ranks (context parallel): ring attention. Each rank holds some
// tokens of every sequence; KV chunks circulate while the rank computes attention on the chunk it has, and partial
// results are combined by LSE merge. One loop serves rings, zigzag and striped placements and 2D meshes
// (comm/schedule.hpp), on every transport (comm/transport.hpp).
//
//     const ring_plan plan = make_ring_plan(
//         comm, {{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::zigzag,
//                 .sizes = {.heads = 32, .kv_heads = 8, .head_dim = 128, .head_dim_v = 128}}});
//     using attention = ring_attention<bf16>;
//     world_memory workspace(where, attention::workspace_bytes(plan));
//     attention::launch(comm, plan,
//                       {.q = q, .k = k, .v = v, .out = out, .lse2 = lse2, .workspace = workspace.at()}, stream);
//     comm.synchronise(stream);  // throws if a rank has died or hangs
//
// Tensors hold the rank's own rows, [row, head, head_dim], contiguous: by schedule, then by batch entry, then in the
// order of positions. The attention kernel merges partial results in fp32. launch() allocates nothing and does not
// synchronise with the device. Outputs and workspace may be read once the stream is done. After an error Q, K and V are
// unchanged.
#pragma once

#include <imbrex/comm/check_ranks.hpp>
#include <imbrex/comm/ring_plan.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/merge_lse.hpp>
#include <imbrex/kernels/ring_attention/chunks.hpp>
#include <imbrex/kernels/ring_attention/steps.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace imbrex {

template <class In>
struct ring_problem {
    const In* q = nullptr;            // [row, head, head_dim]
    const In* k = nullptr;            // [row, kv_head, head_dim]
    const In* v = nullptr;            // [row, kv_head, head_dim_v]
    float* out = nullptr;             // [row, head, head_dim_v]
    float* lse2 = nullptr;            // [head, row]: the base-2 LSE of each row
    void* workspace = nullptr;        // workspace_bytes(plan) bytes, 256-byte aligned
    In* rounded = nullptr;            // optional: `out` in the type of the inputs, [row, head, head_dim_v]
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim) by default
    const float* sinks = nullptr;     // attention sinks: a logit per head, or null
};

inline namespace IMBREX_WORLDS {

template <class In, attention_head_dim_set HeadDims = all_attention_head_dims, class Score = score_mod::identity>
class ring_attention {
    static_assert(score_ignores_positions<Score>,
                  "imbrex: ring attention needs a score_mod that ignores positions: rows are not positions here");

  public:
    using problem = ring_problem<In>;

    static std::size_t workspace_bytes(const ring_plan& plan) { return chunks(plan, {}).buffers().bytes(); }

    // Runs the whole ring in the checked host world, under many schedules: a problem for each rank, the sequences of the
    // plan. Returns the first hazard of a rank, or none.
    static std::optional<hazard> check(const std::vector<problem>& problems, const host::check_options& options,
                                       const std::vector<ring_schedule>& sequences, const Score& score = {}) {
        const auto rank = [&](loopback& comm) {
            launch(comm, make_ring_plan(comm, sequences), problems[comm.rank()], score);
        };
        return check_ranks(static_cast<int>(problems.size()), rank, options);
    }

    template <class Transport>
    static void launch(Transport& comm, const ring_plan& plan, const problem& p, const Score& score = {},
                       void* stream = nullptr) {
        static_assert(detail::check_transport<Transport>());
        const chunks all(plan, {p.q, p.k, p.v, p.out, p.lse2, p.workspace});
        require_problem(comm.rank(), plan, p);
        all.buffers().require_given(p.workspace, "workspace");
        const rank_launcher here{comm.where(), stream, plan, all};
        here.clear();
        run_ring_steps(
            comm, plan, all, [](int) {},
            [&](std::size_t sequence, const attention_block& block) { here.attend(p, score, sequence, block); },
            stream);
        here.merge_arrivals(p.sinks);
        if (p.rounded != nullptr) here.round(p.rounded);
    }
    template <transport Transport>
    static void launch(Transport& comm, const ring_plan& plan, const problem& p, void* stream) {
        launch(comm, plan, p, Score{}, stream);
    }

  private:
    using chunks = ring_chunks<In>;
    using attention =
        attention_forward<In, attention_options{.head_dims = HeadDims, .output = attention_output_mode::merged},
                          window_mask, Score>;

    static void require_problem(int rank, const ring_plan& plan, const problem& p) {
        const attention_sizes& sizes = plan.sizes();
        require_ring_plan(plan, rank, ring_pass::forward);
        require(sizes.element_bytes == static_cast<int>(sizeof(In)),
                "plan.sizes().element_bytes: ", sizes.element_bytes, "; the elements of this attention have ",
                sizeof(In));
        require(sizes.partial_element_bytes == 4, "plan.sizes().partial_element_bytes: ", sizes.partial_element_bytes,
                "; must be 4: partial results are sent in fp32");
        const std::int64_t rows = plan.rows_of(rank);
        const auto require_tensor = [&](const void* pointer, const char* name, int heads, int head_dim) {
            require(pointer != nullptr || rows == 0, name, ": null; ", rows, " x ", heads, " x ", head_dim,
                    " elements are needed");
        };
        require_tensor(p.q, "q", sizes.heads, sizes.head_dim);
        require_tensor(p.k, "k", sizes.kv_heads, sizes.head_dim);
        require_tensor(p.v, "v", sizes.kv_heads, sizes.head_dim_v);
        require_tensor(p.out, "out", sizes.heads, sizes.head_dim_v);
        require_tensor(p.lse2, "lse2", sizes.heads, 1);
    }

    // The launches of one rank.
    struct rank_launcher {
        world where;
        void* stream;
        const ring_plan& plan;
        const chunks& all;

        const attention_sizes& sizes() const { return plan.sizes(); }
        attention_aux_outputs outputs_of(const ring_output& result, std::int64_t rows) const {
            attention_aux_outputs made{};
            made.o_accum = batch_sequence_head(result.out, 1, rows, sizes().heads, sizes().head_dim_v);
            made.lse2 = batch_head_rows(result.lse2, sizes().heads, rows);
            return made;
        }
        attention_aux_outputs own() const { return outputs_of(all.results(0), plan.rows_of(plan.rank())); }

        // Marks all results as empty (LSE of -infinity). The own queries attend to their own keys first, which only
        // reads their LSE: O need not be cleared.
        void clear() const {
            for (int hop = 0; hop < plan.q_chunks(); ++hop) {
                attention_aux_outputs result = outputs_of(all.results(hop), plan.rows_of(plan.q_chunk_at(hop)));
                if (hop == 0) result.o_accum.extents.given[3] = 0;
                clear_attention_outputs::launch(where, result, stream);
            }
        }

        void attend(const problem& p, const Score& score, std::size_t sequence, const attention_block& block) const {
            const ring_rows queries = ring_rows_of(plan, sequence, block.q_tokens, block.q_chunk);
            const ring_rows keys = ring_rows_of(plan, sequence, block.k_tokens, block.kv_chunk);
            const ring_output result = all.results(block.q_hop);
            const auto q = ring_view(all.queries(block.q_hop), queries, sizes().heads, sizes().head_dim);
            const auto k = ring_view(all.keys(block.kv_hop), keys, sizes().kv_heads, sizes().head_dim);
            const auto v = ring_view(all.values(block.kv_hop), keys, sizes().kv_heads, sizes().head_dim_v);
            const auto out = ring_view(result.out, queries, sizes().heads, sizes().head_dim_v);
            for (const score_rectangle& rectangle : block.rectangles) {
                attention::launch(where,
                                  {.q = rows_of(q, rectangle.q_start, rectangle.seqlen_q),
                                   .k = rows_of(k, rectangle.k_start, rectangle.seqlen_k),
                                   .v = rows_of(v, rectangle.k_start, rectangle.seqlen_k),
                                   .out = rows_of(out, rectangle.q_start, rectangle.seqlen_q),
                                   .lse2 = ring_row_values(result.lse2, queries, rectangle.q_start),
                                   .scale = p.scale},
                                  rectangle.mask(), score, stream);
            }
        }

        // Merges the partial results that other ranks of a mesh row computed for the own queries, and the attention
        // sinks, which belong to no rank's keys.
        void merge_arrivals(const float* sinks) const {
            merge_lse_problem<float> merging{};
            merging.first = own();
            merging.out = own().o_accum;
            merging.lse2 = own().lse2;
            for (int hop = 1; hop < plan.q_chunks(); ++hop) {
                merging.second = outputs_of(all.arrival(hop), plan.rows_of(plan.rank()));
                merge_lse<float>::launch(where, merging, stream);
            }
            if (sinks == nullptr) return;
            merging.second = {};
            merging.sinks = sinks;
            merge_lse<float>::launch(where, merging, stream);
        }
        void round(In* rounded) const {
            const attention_view<float> o_accum = own().o_accum;
            downconvert_output<In>::launch(
                where,
                {.o_accum = {o_accum.pointer, o_accum.extents, o_accum.strides},
                 .out = batch_sequence_head(rounded, 1, o_accum.rows(), sizes().heads, sizes().head_dim_v)},
                stream);
        }
    };
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
