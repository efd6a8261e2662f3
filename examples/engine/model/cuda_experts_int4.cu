// Products of experts with int4 weights.
#include "engine/model/cuda_expert_products.hpp"

namespace imbrex::engine {

template class cuda_packed_experts<cuda_grouped_matrix<int4x2>::weights>;

}  // namespace imbrex::engine
