#include "engine/model/cuda_attention_kernels.hpp"

namespace imbrex::engine {

template struct cuda_decode<64, 128>;

}  // namespace imbrex::engine
