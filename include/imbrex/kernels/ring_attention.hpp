// Exact attention over sequences that no single device holds: each rank has some tokens of each, and what it lacks comes from
// others while it works on what it has. The same loop serves rings, zigzag, striped and meshes (comm/schedule.hpp), and every
// transport (comm/transport.hpp).
//
//     const ring_plan plan = agreed_plan(link, {{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::zigzag,
//                                                .sizes = {.heads = 32, .key_heads = 8, .depth = 128, .value_depth = 128}}});
//     using attention = ring_attention<bf16>;
//     world_memory workspace(where, attention::workspace_bytes(plan));
//     attention::launch(link, plan, {.q = q, .k = k, .v = v, .out = out, .log2_sums = sums, .workspace = workspace.at()}, stream);
//     link.finish(stream);                                             throws if a rank has died or hangs
//
// Tensors are those of the rank's own rows, [row, head, column] without gaps: the rows of each schedule one behind the other, in
// the order of their positions, and before that by members of a batch. Parts of a result are merged by the attention kernel in
// fp32. The host waits for nothing on the device, and nothing is allocated. Results and workspace may be read once the stream is
// done. Errors leave Q, K and V as they were.
#pragma once

#include <imbrex/comm/ring_plan.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/partial_results.hpp>
#include <imbrex/kernels/ring_attention/chunks.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace imbrex {

template <class In>
struct ring_problem {
    const In* q = nullptr;            // [row, head, depth]
    const In* k = nullptr;            // [row, key head, depth]
    const In* v = nullptr;            // [row, key head, value depth]
    float* out = nullptr;             // [row, head, value depth]
    float* log2_sums = nullptr;       // [head, row]: the base-2 logarithm of each row's sum
    void* workspace = nullptr;        // ring_attention::workspace_bytes(plan) of them, at a multiple of 256
    In* rounded = nullptr;            // [row, head, value depth]: `out` in the type of the inputs, if it is wanted
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(depth) if left out
    const float* sinks = nullptr;     // a logit for each head that takes up weight
};

inline namespace IMBREX_WORLDS {

template <class In, class Score = plain_score, class Tiles = all_attention_tiles>
class ring_attention {
    static_assert(score_ignores_places<Score>,
                  "imbrex: a ring's score does not depend on where query and key stand: rows are not positions there");

  public:
    using problem = ring_problem<In>;

    static std::size_t workspace_bytes(const ring_plan& plan) { return chunks(plan, {}).rooms().bytes(); }

    template <transport Link>
    static void launch(Link& link, const ring_plan& plan, const problem& p, const Score& score = {},
                       void* stream = nullptr) {
        const chunks all(plan, {p.q, p.k, p.v, p.out, p.log2_sums, p.workspace});
        require_problem(link.rank(), plan, p);
        all.rooms().require_given(p.workspace, "workspace");
        const place here{link.where(), stream, plan, all};
        here.clear();
        const int steps = static_cast<int>(plan.steps().size());
        std::vector<std::vector<exchange_ticket>> due(steps + 1);
        const auto wait_for_what_is_due = [&](int step) {
            for (const exchange_ticket ticket : due[step]) link.wait(ticket, stream);
        };
        for (int step = 0; step < steps; ++step) {
            wait_for_what_is_due(step);
            const ring_step& now = plan.steps()[step];
            for (int need = step + 1; need <= steps; ++need) {
                const exchange one = all.exchange_of(now, step, need);
                if (!one.empty()) due[need].push_back(link.start(one, stream));
            }
            for (std::size_t i = 0; i < now.blocks.size(); ++i) here.attend(p, score, i, now.blocks[i]);
        }
        wait_for_what_is_due(steps);
        here.merge_arrivals(p.sinks);
        if (p.rounded != nullptr) here.round(p.rounded);
    }
    template <transport Link>
    static void launch(Link& link, const ring_plan& plan, const problem& p, void* stream) {
        launch(link, plan, p, Score{}, stream);
    }

  private:
    using chunks = ring_chunks<In>;
    using attention = attention_forward<In, window_mask, Score, attention_result::merged, Tiles>;

    static void require_problem(int rank, const ring_plan& plan, const problem& p) {
        const attention_sizes& sizes = plan.sizes();
        require(plan.rank() == rank, "plan.rank(): ", plan.rank(), "; the transport's rank is ", rank);
        require(sizes.element_bytes == static_cast<int>(sizeof(In)),
                "plan.sizes().element_bytes: ", sizes.element_bytes, "; the elements of this attention have ",
                sizeof(In));
        require(sizes.result_element_bytes == 4, "plan.sizes().result_element_bytes: ", sizes.result_element_bytes,
                "; results travel in fp32, 4 bytes");
        const std::int64_t rows = plan.rows_of(rank);
        const auto require_tensor = [&](const void* pointer, const char* name, int heads, int depth) {
            require(pointer != nullptr || rows == 0, name, ": null; ", rows, " x ", heads, " x ", depth,
                    " elements are needed");
        };
        require_tensor(p.q, "q", sizes.heads, sizes.depth);
        require_tensor(p.k, "k", sizes.key_heads, sizes.depth);
        require_tensor(p.v, "v", sizes.key_heads, sizes.value_depth);
        require_tensor(p.out, "out", sizes.heads, sizes.value_depth);
        require_tensor(p.log2_sums, "log2_sums", sizes.heads, 1);
    }

    // Launches of one rank: what a step is made of.
    struct place {
        world where;
        void* stream;
        const ring_plan& plan;
        const chunks& all;

        const attention_sizes& sizes() const { return plan.sizes(); }
        attention_outputs outputs_of(const ring_result& result, std::int64_t rows) const {
            attention_outputs made{};
            made.wide = batch_sequence_head(result.out, 1, rows, sizes().heads, sizes().value_depth);
            made.log2_sums = batch_head_rows(result.log2_sums, sizes().heads, rows);
            return made;
        }
        attention_outputs own() const { return outputs_of(all.results(0), plan.rows_of(plan.rank())); }

        // Nothing is seen yet, of the own queries and of those that will come. The own ones see their own keys at once: of them only the
        // logarithms are read before they are written.
        void clear() const {
            for (int hop = 0; hop < plan.query_chunks(); ++hop) {
                attention_outputs result = outputs_of(all.results(hop), plan.rows_of(plan.query_chunk_at(hop)));
                if (hop == 0) result.wide.extents.given[3] = 0;
                clear_results::launch(where, result, stream);
            }
        }

        void attend(const problem& p, const Score& score, std::size_t sequence, const attended_block& block) const {
            if (block.parts.count == 0) return;
            const ring_rows queries = all.rows_of(sequence, block.queries, block.query_chunk);
            const ring_rows keys = all.rows_of(sequence, block.keys, block.key_chunk);
            const ring_result result = all.results(block.query_hop);
            const auto view = [&](auto* tensor, const ring_rows& rows, std::int64_t heads, std::int64_t depth) {
                return batch_sequence_head(tensor + rows.before * heads * depth, rows.batches, rows.count, heads,
                                           depth);
            };
            const auto q = view(all.queries(block.query_hop), queries, sizes().heads, sizes().depth);
            const auto k = view(all.keys(block.key_hop), keys, sizes().key_heads, sizes().depth);
            const auto v = view(all.values(block.key_hop), keys, sizes().key_heads, sizes().value_depth);
            const auto out = view(result.out, queries, sizes().heads, sizes().value_depth);
            for (const block_part& part : block.parts) {
                attention::launch(
                    where,
                    {.q = rows_of(q, part.first_query, part.queries),
                     .k = rows_of(k, part.first_key, part.keys),
                     .v = rows_of(v, part.first_key, part.keys),
                     .out = rows_of(out, part.first_query, part.queries),
                     .log2_sums = {result.log2_sums + queries.before + part.first_query, queries.count, queries.all},
                     .scale = p.scale},
                    part.mask(), score, stream);
            }
        }

        // What other ranks of the group have found for the own queries; and the sinks, which are no rank's keys.
        void merge_arrivals(const float* sinks) const {
            merge_results_problem<float> merging{};
            merging.first = own();
            merging.out = own().wide;
            merging.log2_sums = own().log2_sums;
            for (int hop = 1; hop < plan.query_chunks(); ++hop) {
                merging.second = outputs_of(all.arrival(hop), plan.rows_of(plan.rank()));
                merge_results<float>::launch(where, merging, stream);
            }
            if (sinks == nullptr) return;
            merging.second = {};
            merging.sinks = sinks;
            merge_results<float>::launch(where, merging, stream);
        }
        void round(In* rounded) const {
            const attention_view<float> wide = own().wide;
            round_results<In>::launch(
                where,
                {.wide = {wide.pointer, wide.extents, wide.strides},
                 .out = batch_sequence_head(rounded, 1, wide.rows(), sizes().heads, sizes().value_depth)},
                stream);
        }
    };
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
