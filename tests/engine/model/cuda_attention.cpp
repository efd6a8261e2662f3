// The attention of the GPU runner, instantiated for the host world: the tests of cuda_kernels run it there.
#include "engine/model/cuda_attention_kernels.hpp"

namespace imbrex::engine {

template struct cuda_prefill<64>;
template struct cuda_decode<64>;
template struct cuda_simt_attention<bf16>;

}  // namespace imbrex::engine
