// Both in one file: the second type takes half the time to compile there.
#include "engine/model/cpu_attention_kernels.hpp"

namespace imbrex::engine {

template void cpu_paged_attention_in<fp16>(world, const paged_attention<float>&, float, void*);
template void cpu_paged_attention_in<e4m3>(world, const paged_attention<float>&, float, void*);

}  // namespace imbrex::engine
