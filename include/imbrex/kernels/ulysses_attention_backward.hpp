// The backward pass of Ulysses attention: dQ, dK and dV of attention over sequences that are sharded over ranks. An
// all-to-all gives each rank all tokens of its own heads, attention_backward runs on them, and a second all-to-all returns
// the gradients (comm/schedule/backward.hpp). delta = rowsum(dO * O) is computed before the exchange, and one number per
// row is sent instead of O.
//
//     using attention = ulysses_attention<bf16>;
//     using backward = ulysses_attention_backward<bf16>;
//     attention::launch(comm, schedule, {.q = q, .k = k, .v = v, .out = out, .lse2 = lse2, ...}, {}, stream);
//     world_memory workspace(where, backward::workspace_bytes(schedule, comm.rank()));
//     backward::launch(comm, schedule,
//                      {.q = q, .k = k, .v = v, .out = out, .lse2 = lse2, .d_out = d_out, .d_q = d_q, .d_k = d_k,
//                       .d_v = d_v, .workspace = workspace.at()}, {}, stream);
//
// The schedule and the tensors are those of ulysses_attention.hpp: a rank's own rows. The gradients have the type of the
// inputs. With `Deterministic` they have the same bits in every run. launch() allocates no device memory and does not
// synchronise with the device. A score_mod sees the heads counted from the rank's first, and its parameters get the
// gradients of these heads.
#pragma once

#include <imbrex/comm/check_ranks.hpp>
#include <imbrex/comm/schedule/ulysses_schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/kernels/attention_backward.hpp>
#include <imbrex/kernels/attention_backward/delta.hpp>
#include <imbrex/kernels/ulysses_attention/arguments.hpp>
#include <imbrex/kernels/ulysses_attention/exchange.hpp>
#include <imbrex/kernels/ulysses_attention/workspace.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace imbrex {

template <class In>
struct ulysses_backward_problem {
    const In* q = nullptr;            // [batch, row, head, head_dim]
    const In* k = nullptr;            // [batch, row, kv_head, head_dim]
    const In* v = nullptr;            // [batch, row, kv_head, head_dim_v]
    const In* out = nullptr;          // [batch, row, head, head_dim_v]; not used if delta is given
    const float* lse2 = nullptr;      // [batch, head, row]: the base-2 LSE of the forward pass
    const In* d_out = nullptr;        // [batch, row, head, head_dim_v]
    In* d_q = nullptr;                // as q
    In* d_k = nullptr;                // as k
    In* d_v = nullptr;                // as v
    void* workspace = nullptr;        // workspace_bytes(schedule, rank) bytes, 256-byte aligned
    const float* delta = nullptr;     // [batch, head, row]: optional, rowsum(dO * O)
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim) by default
};

inline namespace IMBREX_WORLDS {

template <class In, attention_head_dim_set HeadDims = all_attention_head_dims, class Score = score_mod::identity,
          bool Deterministic = false>
class ulysses_attention_backward {
  public:
    using problem = ulysses_backward_problem<In>;

    template <transport Transport>
    static void require_same_on_all_ranks(Transport& comm, const ulysses_schedule& schedule) {
        require_same_ulysses_schedule(comm, schedule, sizeof(In));
    }

    static std::size_t workspace_bytes(const ulysses_schedule& schedule, int rank) {
        require_schedule(schedule);
        return tensors(schedule, rank).all.buffers().bytes();
    }

    // Runs all ranks in the checked host world, under many schedules, with a problem for each. Returns the first hazard of
    // a rank, or none.
    static std::optional<hazard> check(const std::vector<problem>& problems, const host::check_options& options,
                                       const ulysses_schedule& schedule, const Score& score = {}) {
        const auto rank = [&](loopback& comm) {
            require_same_on_all_ranks(comm, schedule);
            launch(comm, schedule, problems[comm.rank()], score);
        };
        return check_ranks(static_cast<int>(problems.size()), rank, options);
    }

    template <class Transport>
    static void launch(Transport& comm, const ulysses_schedule& schedule, const problem& p, const Score& score = {},
                       void* stream = nullptr) {
        static_assert(detail::check_transport<Transport>());
        require_ulysses_schedule(schedule, comm.ranks(), sizeof(In));
        require_problem(schedule, comm.rank(), p);
        const tensors at(schedule, comm.rank());
        at.all.buffers().require_given(p.workspace, "workspace");
        const float* const delta = delta_of(comm.where(), schedule, comm.rank(), at, p, stream);
        ulysses_exchange<Transport> exchange(comm, schedule, p.workspace, stream);
        exchange.scatter_heads(
            {{at.q, p.q}, {at.k, p.k}, {at.v, p.v}, {at.d_out, p.d_out}, {at.lse2, p.lse2}, {at.delta, delta}});
        backward::launch(comm.where(), gathered_problem(at, p), schedule.mask, score, stream);
        exchange.gather_heads({{at.d_q, p.d_q}, {at.d_k, p.d_k}, {at.d_v, p.d_v}});
    }

  private:
    using backward =
        attention_backward<In, attention_backward_options{.head_dims = HeadDims, .deterministic = Deterministic},
                           window_mask, Score>;

    struct tensors {
        ulysses_workspace all;
        ulysses_tensor q, k, v, d_out, lse2, delta, d_q, d_k, d_v;
        std::size_t own_delta, scratch, scratch_bytes;  // byte offsets; the workspace of attention_backward

        tensors(const ulysses_schedule& schedule, int rank) : all(schedule, rank) {
            const attention_sizes& sizes = schedule.sizes;
            const std::size_t row = sizeof(In) * sizes.head_dim, row_v = sizeof(In) * sizes.head_dim_v;
            const ulysses_tensor values{.layout = ulysses_layout::row_values, .head_bytes = sizeof(float)};
            q = all.add_input({.head_bytes = row});
            k = all.add_input({.heads = ulysses_heads::kv, .head_bytes = row});
            v = all.add_input({.heads = ulysses_heads::kv, .head_bytes = row_v});
            d_out = all.add_input({.head_bytes = row_v});
            lse2 = all.add_input(values);
            delta = all.add_input(values);
            d_q = all.add_gradient(q);
            d_k = all.add_gradient(k);
            d_v = all.add_gradient(v);
            own_delta = all.add(sizeof(float) * sizes.batches * sizes.heads * schedule.tokens_of(rank).count());
            scratch_bytes = backward::workspace_bytes(gathered_problem(*this, {}));
            scratch = all.add(scratch_bytes);
        }
    };

    // The given delta of the own rows, or the computed one.
    static const float* delta_of(world where, const ulysses_schedule& schedule, int rank, const tensors& at,
                                 const problem& p, void* stream) {
        if (p.delta != nullptr) return p.delta;
        const attention_sizes& sizes = schedule.sizes;
        const auto own_rows = [&](const In* tensor) {
            return batch_sequence_head(tensor, sizes.batches, schedule.tokens_of(rank).count(), sizes.heads,
                                       sizes.head_dim_v);
        };
        float* const delta = bytes_at<float>(p.workspace, at.own_delta);
        launch_attention_delta(where, own_rows(p.out), own_rows(p.d_out), delta, stream);
        return delta;
    }

    // The backward pass over all tokens of the own heads. Without a workspace: its extents.
    static typename backward::problem gathered_problem(const tensors& at, const problem& p) {
        const auto read = [&](const ulysses_tensor& one) { return at.all.template rows<const In>(one, p.workspace); };
        const auto write = [&](const ulysses_tensor& one) { return at.all.template rows<In>(one, p.workspace); };
        typename backward::problem made{};
        made.q = read(at.q);
        made.k = read(at.k);
        made.v = read(at.v);
        made.d_out = read(at.d_out);
        made.lse2 = at.all.row_values(at.lse2, p.workspace);
        made.delta = at.all.row_values(at.delta, p.workspace);
        made.d_q = write(at.d_q);
        made.d_k = write(at.d_k);
        made.d_v = write(at.d_v);
        made.scale = p.scale;
        if (p.workspace != nullptr) {
            made.workspace = bytes_at<void>(p.workspace, at.scratch);
            made.workspace_bytes = at.scratch_bytes;
        }
        return made;
    }
    template <class T>
    static T* bytes_at(void* workspace, std::size_t offset) {
        return reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + offset);
    }

    static void require_problem(const ulysses_schedule& schedule, int rank, const problem& p) {
        const attention_sizes& sizes = schedule.sizes;
        const auto require_tensor = [&](const void* pointer, const char* name, int heads, int head_dim) {
            require_ulysses_tensor(schedule, rank, pointer, name, heads, head_dim);
        };
        require_tensor(p.q, "q", sizes.heads, sizes.head_dim);
        require_tensor(p.k, "k", sizes.kv_heads, sizes.head_dim);
        require_tensor(p.v, "v", sizes.kv_heads, sizes.head_dim_v);
        if (p.delta == nullptr) require_tensor(p.out, "out", sizes.heads, sizes.head_dim_v);
        require_tensor(p.lse2, "lse2", sizes.heads, 1);
        require_tensor(p.d_out, "d_out", sizes.heads, sizes.head_dim_v);
        require_tensor(p.d_q, "d_q", sizes.heads, sizes.head_dim);
        require_tensor(p.d_k, "d_k", sizes.kv_heads, sizes.head_dim);
        require_tensor(p.d_v, "d_v", sizes.kv_heads, sizes.head_dim_v);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
