// attention_backward_problem: the arguments of the backward pass of attention, and their checks. Q, K, V, O and dO are
// what the forward pass took and returned, with its base-2 LSE; dQ, dK and dV are written. All are strided views
// [batch, head, row, head_dim]. GQA and MQA: dK and dV of a KV head are summed over its query heads. The caller
// provides the workspace.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace imbrex {

template <class In>
struct attention_backward_problem {
    attention_view<const In> q;       // [batch, head, query, head_dim_qk]
    attention_view<const In> k;       // [batch, kv_head, key, head_dim_qk]
    attention_view<const In> v;       // [batch, kv_head, key, head_dim_v]
    attention_view<const In> out;     // [batch, head, query, head_dim_v]
    attention_view<const In> d_out;   // as out
    attention_row_view lse2;          // base-2 LSE of the forward pass; read only
    attention_view<In> d_q;           // as q
    attention_view<In> d_k;           // as k
    attention_view<In> d_v;           // as v
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim_qk) by default
    const int* seqused_k = nullptr;   // the number of keys of each sequence of a padded batch, or null
    varlen_sequences varlen = {};
    void* workspace = nullptr;  // attention_backward::workspace_bytes(problem) bytes, aligned to 128
    std::size_t workspace_bytes = 0;

    int heads() const { return static_cast<int>(q.extents[1]); }
    int kv_heads() const { return static_cast<int>(k.extents[1]); }
    int seqlen_q() const { return q.rows(); }
    int seqlen_k() const { return k.rows(); }
    int head_dim_qk() const { return q.columns(); }
    int head_dim_v() const { return v.columns(); }
    // Batch size of the tensors.
    int members() const { return static_cast<int>(q.extents[0]); }
    // The same, or the number of varlen sequences.
    int batches() const { return varlen.given() ? varlen.count : members(); }
    bool no_queries() const { return batches() == 0 || heads() == 0 || seqlen_q() == 0; }
    bool no_keys() const { return batches() == 0 || kv_heads() == 0 || seqlen_k() == 0; }
    float scale_used() const { return forward().scale_used(); }

    // The forward pass whose gradients these are. It does not own or check O.
    attention_problem<In> forward() const {
        attention_problem<In> made{};
        made.q = q;
        made.k = k;
        made.v = v;
        made.out = {const_cast<In*>(out.pointer), out.extents, out.strides};
        made.lse2 = lse2;
        made.scale = scale;
        made.seqused_k = seqused_k;
        made.varlen = varlen;
        return made;
    }
};

namespace detail {

template <class T, class U>
void require_like(const attention_view<T>& view, const char* name, const attention_view<U>& model, const char* of) {
    const char* const what[] = {"batch entries", "heads", "rows", "columns"};
    require_view(view, name);
    for (int i = 0; i < 4; ++i) require_same(view.extents[i], name, i, model.extents[i], of, what[i]);
}

}  // namespace detail

// `needed` are the bytes of workspace.
template <class In>
void require_attention_backward(world where, const attention_backward_problem<In>& p, std::size_t needed) {
    using namespace detail;
    require_attention(where, p.forward());
    require_like(p.d_out, "d_out", p.out, "out");
    require_like(p.d_q, "d_q", p.q, "q");
    require_like(p.d_k, "d_k", p.k, "k");
    require_like(p.d_v, "d_v", p.v, "v");
    require_apart(p.d_q, "d_q");
    require_apart(p.d_k, "d_k");
    require_apart(p.d_v, "d_v");
    if (p.no_queries()) return;
    require_rows(p.lse2, "lse2", p.members(), p.heads(), p.seqlen_q());
    require(p.workspace_bytes >= needed, "workspace_bytes: ", p.workspace_bytes, "; at least ", needed,
            " are needed (workspace_bytes of the launcher)");
    require(p.workspace != nullptr, "workspace: null; ", needed, " bytes are needed");
    require(reinterpret_cast<std::uintptr_t>(p.workspace) % 128 == 0, "workspace: ", p.workspace,
            "; must be aligned to 128 bytes");
}

}  // namespace imbrex
