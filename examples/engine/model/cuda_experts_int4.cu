// Products of experts with int4 weights.
#include "engine/model/cuda_expert_products.hpp"

namespace imbrex::engine {

template class cuda_packed_experts<int4_experts>;

}  // namespace imbrex::engine
