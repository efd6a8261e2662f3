// The kernels behind cuda_attention.hpp.
#pragma once

#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/simt_paged_attention.hpp>

#include "engine/model/cuda_attention.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class Mask, class Score, int... HeadDims>
void cuda_prefill<Mask, Score, HeadDims...>::launch(world where, const attention_problem<bf16>& p, const Mask& mask,
                                                    const Score& score, void* stream) {
    using prefill =
        attention_forward<bf16, attention_options{.head_dims = {HeadDims...}, .kv = kv_layout::paged}, Mask, Score>;
    prefill::launch(where, p, mask, score, stream);
}

template <class Element>
void cuda_simt_attention<Element>::launch(world where, const attention_problem<Element>& p, const attention_kind& kind,
                                          void* stream) {
    visit_attention_kind(kind, [&]<class Mask, class Score>(const Mask& mask, const Score& score) {
        simt_paged_attention<Element, all_simt_head_dims, Mask, Score>::launch(where, p, mask, score, stream);
    });
}

template <class Mask, class Score, int... HeadDims>
using cuda_decode_kernels = paged_decode<bf16, decode_config{.head_dims = {HeadDims...}}, Mask, Score>;

template <class Mask, class Score, int... HeadDims>
std::size_t cuda_decode<Mask, Score, HeadDims...>::workspace_bytes(world where, const attention_problem<bf16>& p,
                                                                   int split_size) {
    return cuda_decode_kernels<Mask, Score, HeadDims...>::workspace_bytes(where, p, 0, split_size);
}
// The preceding kernel writes only the keys and values of new tokens: older keys, lengths and block tables may be
// prefetched (PDL).
template <class Mask, class Score, int... HeadDims>
void cuda_decode<Mask, Score, HeadDims...>::launch(world where, const attention_problem<bf16>& p, const Mask& mask,
                                                   const Score& score, void* workspace, int split_size, void* stream) {
    cuda_decode_kernels<Mask, Score, HeadDims...>::launch(
        where, p, {.workspace = workspace, .pdl_prefetch = true, .split_size = split_size}, mask, score, stream);
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
