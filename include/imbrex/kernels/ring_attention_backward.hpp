// The backward pass of ring attention: dQ, dK and dV of attention over sequences that are sharded over ranks. With the LSE
// and delta = rowsum(dO * O) of each query over all keys, the gradients of the blocks of scores add up, so the blocks are
// those of the forward pass, in its order. K and V rotate; the sums of dK and dV follow them, one stage behind, and return
// to their rank. In a mesh Q, dO, LSE and delta rotate, too, and parts of dQ return (comm/schedule/backward.hpp).
//
//     const ring_plan plan = make_ring_plan(comm, sequences, ring_pass::backward);  // the sequences of the forward pass
//     using backward = ring_attention_backward<bf16>;
//     world_memory workspace(where, backward::workspace_bytes(plan));
//     backward::launch(comm, plan,
//                      {.q = q, .k = k, .v = v, .out = out, .lse2 = lse2, .d_out = d_out, .d_q = d_q, .d_k = d_k,
//                       .d_v = d_v, .workspace = workspace.at()}, stream);
//     comm.synchronise(stream);  // throws if a rank has died or hangs
//
// Tensors hold the rank's own rows, as in ring_attention.hpp; O and the LSE are its results in fp32. The gradients are in
// fp32. With `Deterministic` they have the same bits in every run with the same schedule. launch() allocates nothing and
// does not synchronise with the device. Outputs and workspace may be read once the stream is done. After an error the
// inputs are unchanged.
#pragma once

#include <imbrex/comm/check_ranks.hpp>
#include <imbrex/comm/ring_plan.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention_backward.hpp>
#include <imbrex/kernels/attention_backward/delta.hpp>
#include <imbrex/kernels/merge_lse.hpp>
#include <imbrex/kernels/ring_attention/steps.hpp>
#include <imbrex/kernels/ring_attention_backward/chunks.hpp>
#include <imbrex/kernels/ring_attention_backward/rows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace imbrex {

template <class In>
struct ring_backward_problem {
    const In* q = nullptr;       // [row, head, head_dim]
    const In* k = nullptr;       // [row, kv_head, head_dim]
    const In* v = nullptr;       // [row, kv_head, head_dim_v]
    const float* out = nullptr;  // [row, head, head_dim_v]
    float* lse2 = nullptr;       // [head, row]: the base-2 LSE of each row; read only
    const In* d_out = nullptr;   // [row, head, head_dim_v]
    float* d_q = nullptr;        // as q
    float* d_k = nullptr;        // as k
    float* d_v = nullptr;        // as v
    void* workspace = nullptr;   // workspace_bytes(plan) bytes, 256-byte aligned
    In* rounded_d_q = nullptr;   // optional: the gradients in the type of the inputs
    In* rounded_d_k = nullptr;
    In* rounded_d_v = nullptr;
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim) by default
    const float* sinks = nullptr;     // attention sinks of the forward pass, for d_sinks: a logit per head, or null
    float* d_sinks = nullptr;  // optional: their gradient over this rank's queries, to be added to those of others
};

inline namespace IMBREX_WORLDS {

template <class In, attention_head_dim_set HeadDims = all_attention_head_dims, class Score = score_mod::identity,
          bool Deterministic = false>
class ring_attention_backward {
    static_assert(score_ignores_positions<Score>,
                  "imbrex: ring attention needs a score_mod that ignores positions: rows are not positions here");

  public:
    using problem = ring_backward_problem<In>;

    static std::size_t workspace_bytes(const ring_plan& plan) { return chunks_of(plan, {}).buffers().bytes(); }

    // Runs the whole ring in the checked host world, under many schedules: a problem for each rank, the sequences of the
    // plan. Returns the first hazard of a rank, or none.
    static std::optional<hazard> check(const std::vector<problem>& problems, const host::check_options& options,
                                       const std::vector<ring_schedule>& sequences, const Score& score = {}) {
        const auto rank = [&](loopback& comm) {
            launch(comm, make_ring_plan(comm, sequences, ring_pass::backward), problems[comm.rank()], score);
        };
        return check_ranks(static_cast<int>(problems.size()), rank, options);
    }

    template <class Transport>
    static void launch(Transport& comm, const ring_plan& plan, const problem& p, const Score& score = {},
                       void* stream = nullptr) {
        static_assert(detail::check_transport<Transport>());
        require_ring_plan(plan, comm.rank(), ring_pass::backward);
        const chunks all = chunks_of(plan, p);
        require_problem(plan, p);
        all.buffers().require_given(p.workspace, "workspace");
        const rank_launcher here{comm.where(), stream, plan, all, p, score};
        here.prepare();
        run_ring_steps(
            comm, plan, all, [&](int step) { here.begin(step); },
            [&](std::size_t sequence, const attention_block& block) { here.attend(sequence, block); }, stream);
        here.finish();
    }
    template <transport Transport>
    static void launch(Transport& comm, const ring_plan& plan, const problem& p, void* stream) {
        launch(comm, plan, p, Score{}, stream);
    }

  private:
    using chunks = ring_backward_chunks<In>;
    static constexpr attention_backward_options options{
        .head_dims = HeadDims, .deterministic = Deterministic, .gradients = attention_gradients::accumulated};
    using backward = attention_backward<In, options, window_mask, Score>;

    static chunks chunks_of(const ring_plan& plan, const problem& p) {
        return {
            plan, {{p.q, p.d_out, p.lse2, nullptr}, p.k, p.v, p.d_q, {p.d_k, p.d_v}, p.workspace}, scratch_bytes(plan)};
    }
    // The workspace of the largest block.
    static std::size_t scratch_bytes(const ring_plan& plan) {
        const attention_sizes& sizes = plan.sizes();
        std::size_t bytes = 0;
        for (const ring_schedule& one : plan.sequences()) {
            for (int chunk = 0; chunk < plan.ranks(); ++chunk) {
                typename backward::problem largest{};
                largest.q.extents = {one.sizes.batches, sizes.heads, one.tokens_of(chunk).count(), sizes.head_dim};
                largest.k.extents = {one.sizes.batches, sizes.kv_heads, one.tokens_of(chunk).count(), sizes.head_dim};
                largest.v.extents = {one.sizes.batches, sizes.kv_heads, one.tokens_of(chunk).count(), sizes.head_dim_v};
                bytes = std::max(bytes, backward::workspace_bytes(largest));
            }
        }
        return bytes;
    }

    static void require_problem(const ring_plan& plan, const problem& p) {
        const attention_sizes& sizes = plan.sizes();
        require(sizes.element_bytes == static_cast<int>(sizeof(In)),
                "plan.sizes().element_bytes: ", sizes.element_bytes, "; the elements of this attention have ",
                sizeof(In));
        require(sizes.partial_element_bytes == 4, "plan.sizes().partial_element_bytes: ", sizes.partial_element_bytes,
                "; must be 4: gradients are sent in fp32");
        const std::int64_t rows = plan.rows_of(plan.rank());
        const auto require_tensor = [&](const void* pointer, const char* name, int heads, int head_dim) {
            require(pointer != nullptr || rows == 0, name, ": null; ", rows, " x ", heads, " x ", head_dim,
                    " elements are needed");
        };
        require_tensor(p.q, "q", sizes.heads, sizes.head_dim);
        require_tensor(p.k, "k", sizes.kv_heads, sizes.head_dim);
        require_tensor(p.v, "v", sizes.kv_heads, sizes.head_dim_v);
        require_tensor(p.out, "out", sizes.heads, sizes.head_dim_v);
        require_tensor(p.lse2, "lse2", sizes.heads, 1);
        require_tensor(p.d_out, "d_out", sizes.heads, sizes.head_dim_v);
        require_tensor(p.d_q, "d_q", sizes.heads, sizes.head_dim);
        require_tensor(p.d_k, "d_k", sizes.kv_heads, sizes.head_dim);
        require_tensor(p.d_v, "d_v", sizes.kv_heads, sizes.head_dim_v);
        require(p.d_sinks == nullptr || p.sinks != nullptr, "sinks: null; d_sinks needs the ", sizes.heads,
                " logits of the forward pass");
    }

    // The launches of one rank.
    struct rank_launcher {
        world where;
        void* stream;
        const ring_plan& plan;
        const chunks& all;
        const problem& p;
        const Score& score;

        const attention_sizes& sizes() const { return plan.sizes(); }
        std::int64_t own_rows() const { return plan.rows_of(plan.rank()); }
        template <class T>
        static attention_view<T> tensor(T* pointer, std::int64_t rows, int heads, int head_dim) {
            return batch_sequence_head(pointer, 1, rows, heads, head_dim);
        }

        // delta of the own queries, the gradient of sinks, and dQ = 0.
        void prepare() const {
            const ring_queries<In> own = all.queries(0);
            launch_attention_delta(where, tensor(p.out, own_rows(), sizes().heads, sizes().head_dim_v),
                                   tensor(p.d_out, own_rows(), sizes().heads, sizes().head_dim_v), own.delta, stream);
            if (p.d_sinks != nullptr) {
                const auto of_heads = [&](float* rows) { return batch_head_rows(rows, sizes().heads, own_rows()); };
                imbrex::launch<attention_backward_sinks<row_alignment::unaligned>>(
                    where, {sizes().heads},
                    {p.sinks, p.d_sinks, of_heads(own.lse2), of_heads(own.delta), 1, static_cast<int>(own_rows()),
                     false},
                    stream);
            }
            for (int hop = 0; hop < plan.q_chunks(); ++hop) add_to_d_q(hop, nullptr);
            if (plan.kv_chunks() == 1) add_to_keys(0, {});
        }

        // Before the messages of a stage: what arrived for the keys of the last stage completes their sum, which is sent
        // on now, and the gradients of the next keys begin at 0.
        void begin(int step) const {
            if (plan.kv_chunks() == 1 || step % plan.q_chunks() != 0) return;
            const int stage = step / plan.q_chunks();
            if (stage > 1) add_to_keys(stage - 1, all.arrived_key_gradients(stage - 1));
            if (stage < plan.kv_chunks()) add_to_keys(stage, {});
        }

        void attend(std::size_t sequence, const attention_block& block) const {
            const ring_rows queries = ring_rows_of(plan, sequence, block.q_tokens, block.q_chunk);
            const ring_rows keys = ring_rows_of(plan, sequence, block.k_tokens, block.kv_chunk);
            const ring_queries<In> inputs = all.queries(block.q_hop);
            const ring_key_gradients gradients = all.key_gradients(block.kv_hop);
            const int heads = sizes().heads, kv_heads = sizes().kv_heads;
            const int head_dim = sizes().head_dim, head_dim_v = sizes().head_dim_v;
            for (const score_rectangle& one : block.rectangles) {
                const auto of_queries = [&](auto* from, int columns) {
                    return rows_of(ring_view(from, queries, heads, columns), one.q_start, one.seqlen_q);
                };
                const auto of_keys = [&](auto* from, int columns) {
                    return rows_of(ring_view(from, keys, kv_heads, columns), one.k_start, one.seqlen_k);
                };
                typename backward::problem made{};
                made.q = of_queries(inputs.q, head_dim);
                made.k = of_keys(all.keys(block.kv_hop), head_dim);
                made.v = of_keys(all.values(block.kv_hop), head_dim_v);
                made.d_out = of_queries(inputs.d_out, head_dim_v);
                made.lse2 = ring_row_values(inputs.lse2, queries, one.q_start);
                made.delta = ring_row_values(inputs.delta, queries, one.q_start);
                made.d_q = of_queries(all.d_q(block.q_hop), head_dim);
                made.d_k = of_keys(gradients.d_k, head_dim);
                made.d_v = of_keys(gradients.d_v, head_dim_v);
                made.scale = p.scale;
                made.workspace = all.scratch();
                made.workspace_bytes = backward::workspace_bytes(made);
                backward::launch(where, made, one.mask(), score, stream);
            }
        }

        // The parts of dQ from other ranks of a mesh row, and the rounded gradients.
        void finish() const {
            for (int hop = 1; hop < plan.q_chunks(); ++hop) add_to_d_q(0, all.arrived_d_q(hop));
            round(p.d_q, p.rounded_d_q, sizes().heads, sizes().head_dim);
            round(p.d_k, p.rounded_d_k, sizes().kv_heads, sizes().head_dim);
            round(p.d_v, p.rounded_d_v, sizes().kv_heads, sizes().head_dim_v);
        }

        // Sets the gradient to 0 without `more`.
        void add_to_d_q(int hop, const float* more) const {
            const std::int64_t rows = plan.rows_of(plan.q_chunk_at(hop));
            launch_add_gradients(where, tensor(all.d_q(hop), rows, sizes().heads, sizes().head_dim), more, stream);
        }
        void add_to_keys(int hop, const ring_key_gradients& more) const {
            const std::int64_t rows = plan.rows_of(plan.kv_chunk_at(hop));
            const ring_key_gradients sum = all.key_gradients(hop);
            launch_add_gradients(where, tensor(sum.d_k, rows, sizes().kv_heads, sizes().head_dim), more.d_k, stream);
            launch_add_gradients(where, tensor(sum.d_v, rows, sizes().kv_heads, sizes().head_dim_v), more.d_v, stream);
        }
        void round(const float* exact, In* rounded, int heads, int head_dim) const {
            if (rounded == nullptr) return;
            downconvert_output<In>::launch(where,
                                           {.o_accum = tensor(exact, own_rows(), heads, head_dim),
                                            .out = tensor(rounded, own_rows(), heads, head_dim)},
                                           stream);
        }
    };
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
