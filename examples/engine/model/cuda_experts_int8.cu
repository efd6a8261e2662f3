// Products of experts with int8 weights.
#include "engine/model/cuda_expert_products.hpp"

namespace imbrex::engine {

template class cuda_packed_experts<int8_experts>;

}  // namespace imbrex::engine
