#include "engine/model/cpu_attention_kernels.hpp"

namespace imbrex::engine {

template void cpu_paged_attention_in<fp16>(world, const paged_attention<float>&, float, void*);

}  // namespace imbrex::engine
