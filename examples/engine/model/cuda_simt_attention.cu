#include "engine/model/cuda_attention_kernels.hpp"

namespace imbrex::engine {

template struct cuda_simt_attention<bf16>;

}  // namespace imbrex::engine
