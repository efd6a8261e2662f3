// Attention of prompts, with full attention.
#include "engine/model/cuda_attention_kernels.hpp"

namespace imbrex::engine {

template struct cuda_prefill<causal_mask, score_mod::identity, 64, 96, 128, 256>;

}  // namespace imbrex::engine
