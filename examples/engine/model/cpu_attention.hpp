// Attention of the model on a CPU. The kernels take most of the compile time of a CPU runner, so they have a file of
// their own.
#pragma once

#include <imbrex/kernels/attention/problem.hpp>

namespace imbrex::engine {

// `window`: visible keys of a query, its own included; 0: all before it. `softcap`: of the scores; 0: none.
void cpu_paged_attention(world where, const attention_problem<float>& p, int window, float softcap, void* stream);

}  // namespace imbrex::engine
