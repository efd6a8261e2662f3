// Attention of prompts, with a softcap of the scores, and a sliding window or none.
#include "engine/model/cuda_attention_kernels.hpp"

namespace imbrex::engine {

template struct cuda_prefill<window_mask, score_mod::softcap, 64, 96, 128, 256>;

}  // namespace imbrex::engine
