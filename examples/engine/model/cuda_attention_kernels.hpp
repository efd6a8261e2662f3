// The kernels behind cuda_attention.hpp.
#pragma once

#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/simt_paged_attention.hpp>

#include "engine/model/cuda_attention.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <int... HeadDims>
void cuda_prefill<HeadDims...>::launch(world where, const attention_problem<bf16>& p, void* stream) {
    using prefill =
        attention_forward<bf16, attention_options{.head_dims = {HeadDims...}, .kv = kv_layout::paged}, causal_mask>;
    prefill::launch(where, p, {}, {}, stream);
}

template <class Element>
void cuda_simt_attention<Element>::launch(world where, const attention_problem<Element>& p, int window, void* stream) {
    if (window > 0) {
        simt_paged_attention<Element, all_simt_head_dims, window_mask>::launch(where, p, {window - 1, 0}, {}, stream);
    } else {
        simt_paged_attention<Element, all_simt_head_dims, causal_mask>::launch(where, p, {}, {}, stream);
    }
}

template <int... HeadDims>
using cuda_decode_kernels = paged_decode<bf16, decode_config{.head_dims = {HeadDims...}}, causal_mask>;

template <int... HeadDims>
std::size_t cuda_decode<HeadDims...>::workspace_bytes(world where, const attention_problem<bf16>& p, int split_size) {
    return cuda_decode_kernels<HeadDims...>::workspace_bytes(where, p, 0, split_size);
}
// The preceding kernel writes only the keys and values of new tokens: older keys, lengths and block tables may be
// prefetched (PDL).
template <int... HeadDims>
void cuda_decode<HeadDims...>::launch(world where, const attention_problem<bf16>& p, void* workspace, int split_size,
                                      void* stream) {
    cuda_decode_kernels<HeadDims...>::launch(
        where, p, {.workspace = workspace, .pdl_prefetch = true, .split_size = split_size}, {}, {}, stream);
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
