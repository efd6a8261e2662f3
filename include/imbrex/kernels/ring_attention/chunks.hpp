// The chunks of ring attention on one rank: its own tensors, and the workspace for those of other ranks.
#pragma once

#include <imbrex/comm/ring_plan.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/kernels/ring_attention/steps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex {

template <class In>
struct ring_tensors {
    const In* q = nullptr;
    const In* k = nullptr;
    const In* v = nullptr;
    float* out = nullptr;
    float* lse2 = nullptr;
    void* workspace = nullptr;
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
            results_.push_back(buffers_.add(result_elements(rows) * sizeof(float)));
            arrivals_.push_back(buffers_.add(result_elements(rows) * sizeof(float)));
        }
    }

    const workspace_layout& buffers() const { return buffers_; }

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

    // The bytes of a message of this rank, and those that it receives one in.
    std::vector<ring_span> sent(const ring_message& one) const { return parts_of(one); }
    std::vector<ring_span> received(const ring_message& one) const {
        return one.what == payload::partial_o ? home_of(one) : parts_of(one);
    }

  private:
    static constexpr std::int64_t element = sizeof(In);

    template <class T>
    T* at(std::size_t offset) const {
        return reinterpret_cast<T*>(static_cast<char*>(own_.workspace) + offset);
    }
    std::int64_t out_elements(std::int64_t rows) const { return rows * sizes_.heads * sizes_.head_dim_v; }
    std::int64_t result_elements(std::int64_t rows) const { return out_elements(rows) + rows * sizes_.heads; }
    ring_output result_at(std::size_t offset, std::int64_t rows) const {
        return {at<float>(offset), at<float>(offset) + out_elements(rows)};
    }

    std::vector<ring_span> parts_of(const ring_message& one) const {
        const std::int64_t rows = plan_.rows_of(one.chunk);
        switch (one.what) {
            case payload::q:
                return {{queries(one.hop), rows * sizes_.heads * sizes_.head_dim}};
            case payload::partial_o:
                return {{results(one.hop).out, result_elements(rows)}};
            default:
                return {{keys(one.hop), rows * sizes_.kv_heads * sizes_.head_dim},
                        {values(one.hop), rows * sizes_.kv_heads * sizes_.head_dim_v}};
        }
    }
    std::vector<ring_span> home_of(const ring_message& one) const {
        return {{arrival(one.hop).out, result_elements(plan_.rows_of(plan_.rank()))}};
    }

    const ring_plan& plan_;
    attention_sizes sizes_;
    ring_tensors<In> own_;
    std::vector<std::size_t> keys_, values_, queries_, results_, arrivals_;
    workspace_layout buffers_;
};

}  // namespace imbrex
