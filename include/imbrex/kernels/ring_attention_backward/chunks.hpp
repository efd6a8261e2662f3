// The chunks of the backward pass of ring attention on one rank: its own tensors, and the workspace for those of other
// ranks.
#pragma once

#include <imbrex/comm/ring_plan.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/kernels/ring_attention/steps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex {

// Q, dO and what follows from a row's whole attention: LSE and delta.
template <class In>
struct ring_queries {
    const In* q = nullptr;
    const In* d_out = nullptr;
    float* lse2 = nullptr;
    float* delta = nullptr;
};
struct ring_key_gradients {
    float* d_k = nullptr;
    float* d_v = nullptr;
};

template <class In>
struct ring_backward_tensors {
    ring_queries<In> queries;  // delta may be null: it is then in the workspace
    const In* k = nullptr;
    const In* v = nullptr;
    float* d_q = nullptr;
    ring_key_gradients key_gradients;
    void* workspace = nullptr;
};

// Buffers of the backward pass on one rank: its own chunks are in the caller's tensors, those of other ranks in the
// workspace.
//
//     keys and values    two buffers, as in the forward pass
//     their gradients    two: one collects those of this rank's queries, the other one is being sent on; and one for the
//                        sum of the ranks before, which arrives meanwhile
//     queries, their dQ  in a mesh, those of the a - 1 other ranks of the group: they stay
//     arrivals           in a mesh, parts of dQ of the own queries from those a - 1 ranks
//     delta, scratch     of the own queries; the workspace of attention_backward
template <class In>
class ring_backward_chunks {
  public:
    ring_backward_chunks(const ring_plan& plan, const ring_backward_tensors<In>& own, std::size_t scratch_bytes)
        : plan_(plan), sizes_(plan.sizes()), own_(own) {
        const std::int64_t rows = plan.max_rows();
        const auto add_floats = [&](std::int64_t elements) { return buffers_.add(elements * sizeof(float)); };
        const std::int64_t q = rows * sizes_.heads * sizes_.head_dim, d_out = rows * sizes_.heads * sizes_.head_dim_v;
        const std::int64_t k = rows * sizes_.kv_heads * sizes_.head_dim, v = rows * sizes_.kv_heads * sizes_.head_dim_v;
        delta_ = add_floats(rows * sizes_.heads);
        scratch_ = buffers_.add(scratch_bytes);
        for (int i = 0; i < std::min(2, plan.kv_chunks() - 1); ++i) {
            keys_.push_back(buffers_.add(k * sizeof(In)));
            values_.push_back(buffers_.add(v * sizeof(In)));
        }
        for (int i = 0; plan.kv_chunks() > 1 && i < 3; ++i) key_gradients_.push_back(add_floats(k + v));
        for (int i = 1; i < plan.q_chunks(); ++i) {
            queries_.push_back(buffers_.add(q * sizeof(In)));
            d_outs_.push_back(buffers_.add(d_out * sizeof(In)));
            row_values_.push_back(add_floats(2 * rows * sizes_.heads));
            d_q_.push_back(add_floats(q));
            arrivals_.push_back(add_floats(q));
        }
    }

    const workspace_layout& buffers() const { return buffers_; }
    void* scratch() const { return at<char>(scratch_); }

    // The chunk that this rank holds after `hop` hops.
    ring_queries<In> queries(int hop) const {
        if (hop == 0) {
            ring_queries<In> own = own_.queries;
            if (own.delta == nullptr) own.delta = at<float>(delta_);
            return own;
        }
        float* const lse2 = at<float>(row_values_[hop - 1]);
        const std::int64_t rows = plan_.rows_of(plan_.q_chunk_at(hop));
        return {at<In>(queries_[hop - 1]), at<In>(d_outs_[hop - 1]), lse2, lse2 + rows * sizes_.heads};
    }
    const In* keys(int hop) const { return hop == 0 ? own_.k : at<In>(keys_[(hop - 1) % 2]); }
    const In* values(int hop) const { return hop == 0 ? own_.v : at<In>(values_[(hop - 1) % 2]); }
    float* d_q(int hop) const { return hop == 0 ? own_.d_q : at<float>(d_q_[hop - 1]); }
    // Where this rank adds its part of dK and dV, and where the sum of the ranks before arrives.
    ring_key_gradients key_gradients(int hop) const {
        return plan_.kv_chunks() == 1 ? own_.key_gradients : key_gradients_at(hop % 2, hop);
    }
    ring_key_gradients arrived_key_gradients(int hop) const {
        return hop == 0 ? own_.key_gradients : key_gradients_at(2, hop);
    }
    // A part of dQ of the own queries, from the rank that held them after `hop` hops.
    float* arrived_d_q(int hop) const { return at<float>(arrivals_[hop - 1]); }

    std::vector<ring_span> sent(const ring_message& one) const {
        if (one.what == payload::dk_dv) return spans_of(key_gradients(one.hop), one.chunk);
        if (one.what == payload::dq) return {{d_q(one.hop), q_elements(one.chunk)}};
        return inputs_of(one);
    }
    std::vector<ring_span> received(const ring_message& one) const {
        if (one.what == payload::dk_dv) return spans_of(arrived_key_gradients(one.hop), one.chunk);
        if (one.what == payload::dq) return {{arrived_d_q(one.hop), q_elements(plan_.rank())}};
        return inputs_of(one);
    }

  private:
    template <class T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(static_cast<char*>(own_.workspace) + offset);
    }
    std::int64_t q_elements(int chunk) const { return plan_.rows_of(chunk) * sizes_.heads * sizes_.head_dim; }
    std::int64_t k_elements(int chunk) const { return plan_.rows_of(chunk) * sizes_.kv_heads * sizes_.head_dim; }
    std::int64_t v_elements(int chunk) const { return plan_.rows_of(chunk) * sizes_.kv_heads * sizes_.head_dim_v; }
    ring_key_gradients key_gradients_at(int buffer, int hop) const {
        float* const d_k = at<float>(key_gradients_[buffer]);
        return {d_k, d_k + k_elements(plan_.kv_chunk_at(hop))};
    }
    std::vector<ring_span> spans_of(const ring_key_gradients& both, int chunk) const {
        return {{both.d_k, k_elements(chunk)}, {both.d_v, v_elements(chunk)}};
    }
    std::vector<ring_span> inputs_of(const ring_message& one) const {
        if (one.what == payload::kv) {
            return {{keys(one.hop), k_elements(one.chunk)}, {values(one.hop), v_elements(one.chunk)}};
        }
        const ring_queries<In> all = queries(one.hop);
        const std::int64_t rows = plan_.rows_of(one.chunk) * sizes_.heads;
        return {{all.q, rows * sizes_.head_dim},
                {all.d_out, rows * sizes_.head_dim_v},
                {all.lse2, rows},
                {all.delta, rows}};
    }

    const ring_plan& plan_;
    attention_sizes sizes_;
    ring_backward_tensors<In> own_;
    std::size_t delta_, scratch_;
    std::vector<std::size_t> keys_, values_, key_gradients_, queries_, d_outs_, row_values_, d_q_, arrivals_;
    workspace_layout buffers_;
};

}  // namespace imbrex
