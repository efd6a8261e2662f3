// Attention of the model on a GPU: prefill and decode with tensor cores for the listed head_dims, SIMT attention for
// other head_dims and for layers with a sliding window. cuda_attention_kernels.hpp has the definitions;
// cuda_prefill.cu, cuda_decode.cu and cuda_simt_attention.cu instantiate them, so that they compile in parallel.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>

#include <cstddef>

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <int... HeadDims>
struct cuda_prefill {
    static void launch(world where, const attention_problem<bf16>& p, void* stream);
};

// Without tensor cores, for any head_dim. `window`: visible keys of a query; 0: causal.
template <class Element>
struct cuda_simt_attention {
    static void launch(world where, const attention_problem<Element>& p, int window, void* stream);
};

template <int... HeadDims>
struct cuda_decode {
    static std::size_t workspace_bytes(world where, const attention_problem<bf16>& p, int split_size);
    static void launch(world where, const attention_problem<bf16>& p, void* workspace, int split_size, void* stream);
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
