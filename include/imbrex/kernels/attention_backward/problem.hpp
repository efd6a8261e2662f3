// attention_backward_problem: the arguments of the backward pass of attention, and their checks. Q, K, V, O and dO are
// what the forward pass took and returned, with its base-2 LSE; dQ, dK and dV are written or, with
// attention_gradients::accumulated, added to. All are strided views [batch, head, row, head_dim]. GQA and MQA: dK and dV
// of a KV head are summed over its query heads. The caller provides the workspace.
//
// delta = rowsum(dO * O) is computed from O, or given. Give it where O is not that of these keys alone, or not at hand:
// with the LSE and delta of all keys, the gradients of parts of the keys add up to those of all.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_backward/options.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace imbrex {

template <class In, attention_gradients Gradients = attention_gradients::rounded>
struct attention_backward_problem {
    using gradient = attention_gradient<In, Gradients>;

    attention_view<const In> q;       // [batch, head, query, head_dim_qk]
    attention_view<const In> k;       // [batch, kv_head, key, head_dim_qk]
    attention_view<const In> v;       // [batch, kv_head, key, head_dim_v]
    attention_view<const In> out;     // [batch, head, query, head_dim_v]; not used if delta is given
    attention_view<const In> d_out;   // [batch, head, query, head_dim_v]
    attention_row_view lse2;          // base-2 LSE of the forward pass; read only
    attention_row_view delta = {};    // optional: rowsum(dO * O); read only
    attention_view<gradient> d_q;     // as q
    attention_view<gradient> d_k;     // as k
    attention_view<gradient> d_v;     // as v
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim_qk) by default
    const float* sinks = nullptr;     // attention sinks of the forward pass, for d_sinks: a logit per head, or null
    float* d_sinks = nullptr;         // optional: their gradient, one number per head
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

    bool has_delta() const { return delta.pointer != nullptr; }

    // The forward pass whose gradients these are. Its output stands for that with the shape of O: nothing is written.
    attention_problem<In> forward() const {
        const auto& given = has_delta() ? d_out : out;
        attention_problem<In> made{};
        made.q = q;
        made.k = k;
        made.v = v;
        made.out = batch_head_sequence(const_cast<In*>(given.pointer), given.extents[0], given.extents[1],
                                       given.extents[2], given.extents[3]);
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

template <class In, attention_gradients Gradients>
void require_attention_backward(world where, const attention_backward_problem<In, Gradients>& p) {
    using namespace detail;
    if (p.has_delta()) {
        require_view(p.d_out, "d_out");
        const char* const what[] = {"batch entries", "heads", "rows"};
        for (int i = 0; i < 3; ++i) require_same(p.d_out.extents[i], "d_out", i, p.q.extents[i], "q", what[i]);
        require_same(p.d_out.extents[3], "d_out", 3, p.v.extents[3], "v", "columns");
    }
    require_attention(where, p.forward());
    if (!p.has_delta()) {
        require_view(p.out, "out");
        require_like(p.d_out, "d_out", p.out, "out");
    }
    require_like(p.d_q, "d_q", p.q, "q");
    require_like(p.d_k, "d_k", p.k, "k");
    require_like(p.d_v, "d_v", p.v, "v");
    require_apart(p.d_q, "d_q");
    require_apart(p.d_k, "d_k");
    require_apart(p.d_v, "d_v");
    require(p.d_sinks == nullptr || p.sinks != nullptr, "sinks: null; d_sinks needs the ", p.heads(),
            " logits of the forward pass");
    if (p.no_queries()) return;
    require_rows(p.lse2, "lse2", p.members(), p.heads(), p.seqlen_q());
    if (p.has_delta()) require_rows(p.delta, "delta", p.members(), p.heads(), p.seqlen_q());
}

// `needed` are the bytes of workspace.
template <class In, attention_gradients Gradients>
void require_workspace(const attention_backward_problem<In, Gradients>& p, std::size_t needed) {
    if (p.no_queries()) return;
    require(p.workspace_bytes >= needed, "workspace_bytes: ", p.workspace_bytes, "; at least ", needed,
            " are needed (workspace_bytes of the launcher)");
    require(p.workspace != nullptr, "workspace: null; ", needed, " bytes are needed");
    require(reinterpret_cast<std::uintptr_t>(p.workspace) % 128 == 0, "workspace: ", p.workspace,
            "; must be aligned to 128 bytes");
}

}  // namespace imbrex
