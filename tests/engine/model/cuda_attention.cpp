// The attention of the GPU runner, instantiated for the host world: the tests of cuda_kernels run it there.
#include "engine/model/cuda_attention_kernels.hpp"

namespace imbrex::engine {

template struct cuda_prefill<causal_mask, score_mod::identity, 64>;
template struct cuda_prefill<window_mask, score_mod::identity, 64>;
template struct cuda_prefill<window_mask, score_mod::softcap, 64>;
template struct cuda_decode<causal_mask, score_mod::identity, 64>;
template struct cuda_decode<window_mask, score_mod::identity, 64>;
template struct cuda_decode<window_mask, score_mod::softcap, 64>;
template struct cuda_simt_attention<bf16>;

}  // namespace imbrex::engine
