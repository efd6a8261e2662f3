// Attention of the model on a CPU. The kernels take most of the compile time of a CPU runner, so they have files of
// their own, by the type of the KV cache.
#pragma once

#include <imbrex/core/element_types.hpp>

#include "engine/model/kv_cache_format.hpp"
#include "engine/model/paged_attention.hpp"

namespace imbrex::engine {

// `softcap`: of the scores; 0: none. Throws if a new key or value is finite but may be outside the range of the cache.
void cpu_paged_attention(world where, const paged_attention<float>& p, kv_cache_format format, float softcap,
                         void* stream);

// The same for one element type; instantiated in cpu_attention_*.cpp.
template <class Cache>
void cpu_paged_attention_in(world where, const paged_attention<float>& p, float softcap, void* stream);

extern template void cpu_paged_attention_in<float>(world, const paged_attention<float>&, float, void*);
extern template void cpu_paged_attention_in<fp16>(world, const paged_attention<float>&, float, void*);
extern template void cpu_paged_attention_in<bf16>(world, const paged_attention<float>&, float, void*);
extern template void cpu_paged_attention_in<e4m3>(world, const paged_attention<float>&, float, void*);

}  // namespace imbrex::engine
