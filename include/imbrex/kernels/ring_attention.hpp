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
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/merge_lse.hpp>

#include <algorithm>
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

template <class In>
struct ring_tensors {
    const In* q = nullptr;
    const In* k = nullptr;
    const In* v = nullptr;
    float* out = nullptr;
    float* lse2 = nullptr;
    void* workspace = nullptr;
};

// The rows of a chunk that belong to one schedule, over its whole batch.
struct ring_rows {
    std::int64_t before;  // the offset in the chunk
    std::int64_t batches;
    std::int64_t count;  // of each batch entry
    std::int64_t all;    // of the chunk
};

struct ring_output {
    float* out = nullptr;
    float* lse2 = nullptr;
};

// Buffers of ring attention on one rank: its own chunks are in the caller's tensors, those of other ranks in the
// workspace.
//
//     keys and values    two buffers: one KV chunk is in use and being sent on while the next one arrives
//     queries, results   in a mesh, those of the a - 1 other ranks of the group: they stay
//     arrivals           in a mesh, the partial results of the own queries from those a - 1 ranks
//
// A partial result is O in fp32 [row, head, head_dim_v] followed by the base-2 LSE [head, row]: one message.
template <class In>
class ring_chunks {
  public:
    ring_chunks(const ring_plan& plan, const ring_tensors<In>& own) : plan_(plan), sizes_(plan.sizes()), own_(own) {
        const std::int64_t rows = plan.max_rows();
        const int others = plan.q_chunks() - 1, kv_chunks = plan.ranks() / plan.q_chunks();
        for (int i = 0; i < std::min(2, kv_chunks - 1); ++i) {
            keys_.push_back(buffers_.add(rows * sizes_.kv_heads * sizes_.head_dim * element));
            values_.push_back(buffers_.add(rows * sizes_.kv_heads * sizes_.head_dim_v * element));
        }
        for (int i = 0; i < others; ++i) {
            queries_.push_back(buffers_.add(rows * sizes_.heads * sizes_.head_dim * element));
            results_.push_back(buffers_.add(result_bytes(rows)));
            arrivals_.push_back(buffers_.add(result_bytes(rows)));
        }
    }

    const workspace_layout& buffers() const { return buffers_; }

    ring_rows rows_of(std::size_t sequence, const token_ranges& tokens, int chunk) const {
        return {plan_.rows_before(sequence, chunk), plan_.sequences()[sequence].sizes.batches, tokens.count(),
                plan_.rows_of(chunk)};
    }

    // The chunk that this rank holds after `hop` hops.
    const In* queries(int hop) const { return hop == 0 ? own_.q : at<In>(queries_[hop - 1]); }
    const In* keys(int hop) const { return hop == 0 ? own_.k : at<In>(keys_[(hop - 1) % 2]); }
    const In* values(int hop) const { return hop == 0 ? own_.v : at<In>(values_[(hop - 1) % 2]); }
    ring_output results(int hop) const {
        if (hop == 0) return {own_.out, own_.lse2};
        return result_at(results_[hop - 1], plan_.rows_of(plan_.q_chunk_at(hop)));
    }
    // The partial result of the own queries from the rank that held them after `hop` hops.
    ring_output arrival(int hop) const { return result_at(arrivals_[hop - 1], plan_.rows_of(plan_.rank())); }

    // The messages that start in `step` and are needed in step `need`.
    send_recv_group send_recv_group_of(const ring_step& now, int step, int need) const {
        send_recv_group made{step, {}, {}};
        for (const ring_message& one : now.sends) {
            if (one.needed_step != need) continue;
            for (const span& part : parts_of(one)) made.sends.push_back({one.peer, part.bytes, part.count});
        }
        for (const ring_message& one : now.receives) {
            if (one.needed_step != need) continue;
            const bool home = one.what == payload::partial_o;
            for (const span& part : home ? home_of(one) : parts_of(one)) {
                made.receives.push_back({one.peer, const_cast<void*>(part.bytes), part.count});
            }
        }
        return made;
    }

  private:
    static constexpr std::int64_t element = sizeof(In);
    struct span {
        const void* bytes;
        std::size_t count;
    };

    template <class T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(static_cast<char*>(own_.workspace) + offset);
    }
    std::int64_t out_elements(std::int64_t rows) const { return rows * sizes_.heads * sizes_.head_dim_v; }
    std::int64_t result_bytes(std::int64_t rows) const {
        return (out_elements(rows) + rows * sizes_.heads) * static_cast<std::int64_t>(sizeof(float));
    }
    ring_output result_at(std::size_t offset, std::int64_t rows) const {
        return {at<float>(offset), at<float>(offset) + out_elements(rows)};
    }

    std::vector<span> parts_of(const ring_message& one) const {
        const std::int64_t rows = plan_.rows_of(one.chunk);
        const auto bytes = [&](int heads, int head_dim) {
            return static_cast<std::size_t>(rows * heads * head_dim * element);
        };
        switch (one.what) {
            case payload::q:
                return {{queries(one.hop), bytes(sizes_.heads, sizes_.head_dim)}};
            case payload::partial_o:
                return {{results(one.hop).out, static_cast<std::size_t>(result_bytes(rows))}};
            default:
                return {{keys(one.hop), bytes(sizes_.kv_heads, sizes_.head_dim)},
                        {values(one.hop), bytes(sizes_.kv_heads, sizes_.head_dim_v)}};
        }
    }
    std::vector<span> home_of(const ring_message& one) const {
        return {{arrival(one.hop).out, static_cast<std::size_t>(result_bytes(plan_.rows_of(plan_.rank())))}};
    }

    const ring_plan& plan_;
    attention_sizes sizes_;
    ring_tensors<In> own_;
    std::vector<std::size_t> keys_, values_, queries_, results_, arrivals_;
    workspace_layout buffers_;
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
        const int steps = static_cast<int>(plan.steps().size());
        std::vector<std::vector<send_recv_request>> due(steps + 1);
        const auto wait_for_due = [&](int step) {
            for (const send_recv_request request : due[step]) comm.wait(request, stream);
        };
        for (int step = 0; step < steps; ++step) {
            wait_for_due(step);
            const ring_step& now = plan.steps()[step];
            for (int need = step + 1; need <= steps; ++need) {
                const send_recv_group one = all.send_recv_group_of(now, step, need);
                if (!one.empty()) due[need].push_back(comm.start(one, stream));
            }
            for (std::size_t i = 0; i < now.blocks.size(); ++i) here.attend(p, score, i, now.blocks[i]);
        }
        wait_for_due(steps);
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
        require(plan.rank() == rank, "plan.rank(): ", plan.rank(), "; the transport's rank is ", rank);
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
            if (block.rectangles.count == 0) return;
            const ring_rows queries = all.rows_of(sequence, block.q_tokens, block.q_chunk);
            const ring_rows keys = all.rows_of(sequence, block.k_tokens, block.kv_chunk);
            const ring_output result = all.results(block.q_hop);
            const auto view = [&](auto* tensor, const ring_rows& rows, std::int64_t heads, std::int64_t head_dim) {
                return batch_sequence_head(tensor + rows.before * heads * head_dim, rows.batches, rows.count, heads,
                                           head_dim);
            };
            const auto q = view(all.queries(block.q_hop), queries, sizes().heads, sizes().head_dim);
            const auto k = view(all.keys(block.kv_hop), keys, sizes().kv_heads, sizes().head_dim);
            const auto v = view(all.values(block.kv_hop), keys, sizes().kv_heads, sizes().head_dim_v);
            const auto out = view(result.out, queries, sizes().heads, sizes().head_dim_v);
            for (const score_rectangle& rectangle : block.rectangles) {
                attention::launch(
                    where,
                    {.q = rows_of(q, rectangle.q_start, rectangle.seqlen_q),
                     .k = rows_of(k, rectangle.k_start, rectangle.seqlen_k),
                     .v = rows_of(v, rectangle.k_start, rectangle.seqlen_k),
                     .out = rows_of(out, rectangle.q_start, rectangle.seqlen_q),
                     .lse2 = {result.lse2 + queries.before + rectangle.q_start, queries.count, queries.all},
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
