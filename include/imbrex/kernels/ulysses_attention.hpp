// Ulysses attention (DeepSpeed-Ulysses): exact context parallel attention by all-to-all. Each rank exchanges heads for
// tokens, so that it has all tokens of its own heads, computes ordinary attention on them, and a second all-to-all
// returns the outputs (comm/schedule/ulysses_schedule.hpp).
//
//     const ulysses_schedule schedule{.tokens = 1 << 20, .ranks = 8,
//                                     .sizes = {.heads = 32, .kv_heads = 8, .head_dim = 128, .head_dim_v = 128}};
//     using attention = ulysses_attention<bf16>;
//     attention::require_same_on_all_ranks(comm, schedule);  // once, on every rank; blocks the host
//     world_memory workspace(where, attention::workspace_bytes(schedule, comm.rank()));
//     attention::launch(comm, schedule, {.q = q, .k = k, .v = v, .out = out, .workspace = workspace.at()}, {}, stream);
//
// Tensors hold the rank's own rows, [batch, row, head, head_dim], contiguous, rows in the order of positions. Compared
// with ring attention: fewer bytes and no LSE merge, but communication is not overlapped and there can be at most
// kv_heads ranks. The backward pass (ulysses_attention_backward.hpp) needs `lse2`.
#pragma once

#include <imbrex/comm/check_ranks.hpp>
#include <imbrex/comm/schedule/ulysses_schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/ulysses_attention/arguments.hpp>
#include <imbrex/kernels/ulysses_attention/exchange.hpp>
#include <imbrex/kernels/ulysses_attention/workspace.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace imbrex {

template <class In>
struct ulysses_problem {
    const In* q = nullptr;            // [batch, row, head, head_dim]
    const In* k = nullptr;            // [batch, row, kv_head, head_dim]
    const In* v = nullptr;            // [batch, row, kv_head, head_dim_v]
    In* out = nullptr;                // [batch, row, head, head_dim_v]
    float* lse2 = nullptr;            // [batch, head, row]: optional, the base-2 LSE
    void* workspace = nullptr;        // workspace_bytes(schedule, rank) bytes, 256-byte aligned
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim) by default
};

inline namespace IMBREX_WORLDS {

template <class In, attention_head_dim_set HeadDims = all_attention_head_dims, class Score = score_mod::identity>
class ulysses_attention {
  public:
    using problem = ulysses_problem<In>;

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
        ulysses_exchange<Transport> exchange(comm, schedule, p.workspace, stream);
        exchange.scatter_heads({{at.q, p.q}, {at.k, p.k}, {at.v, p.v}});
        attention::launch(comm.where(), gathered_problem(at, p), schedule.mask, score, stream);
        exchange.gather_heads({{at.out, p.out}, {at.lse2, p.lse2}});
    }

  private:
    using attention = attention_forward<In, attention_options{.head_dims = HeadDims}, window_mask, Score>;

    struct tensors {
        ulysses_workspace all;
        ulysses_tensor q, k, v, out, lse2;

        tensors(const ulysses_schedule& schedule, int rank) : all(schedule, rank) {
            const std::size_t row = sizeof(In) * schedule.sizes.head_dim;
            const std::size_t row_v = sizeof(In) * schedule.sizes.head_dim_v;
            q = all.add_input({.head_bytes = row});
            k = all.add_input({.heads = ulysses_heads::kv, .head_bytes = row});
            v = all.add_input({.heads = ulysses_heads::kv, .head_bytes = row_v});
            out = all.add_output({.head_bytes = row_v});
            lse2 = all.add_output({.layout = ulysses_layout::row_values, .head_bytes = sizeof(float)});
        }
    };

    // Attention over all tokens of the own heads.
    static typename attention::problem gathered_problem(const tensors& at, const problem& p) {
        typename attention::problem made{};
        made.q = at.all.template rows<const In>(at.q, p.workspace);
        made.k = at.all.template rows<const In>(at.k, p.workspace);
        made.v = at.all.template rows<const In>(at.v, p.workspace);
        made.out = at.all.template rows<In>(at.out, p.workspace);
        made.lse2 = at.all.row_values(at.lse2, p.workspace);
        made.scale = p.scale;
        return made;
    }

    static void require_problem(const ulysses_schedule& schedule, int rank, const problem& p) {
        const attention_sizes& sizes = schedule.sizes;
        const auto require_tensor = [&](const void* pointer, const char* name, int heads, int head_dim) {
            require_ulysses_tensor(schedule, rank, pointer, name, heads, head_dim);
        };
        require_tensor(p.q, "q", sizes.heads, sizes.head_dim);
        require_tensor(p.k, "k", sizes.kv_heads, sizes.head_dim);
        require_tensor(p.v, "v", sizes.kv_heads, sizes.head_dim_v);
        require_tensor(p.out, "out", sizes.heads, sizes.head_dim_v);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
