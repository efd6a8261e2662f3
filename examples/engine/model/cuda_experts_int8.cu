// Products of experts with int8 weights.
#include "engine/model/cuda_expert_products.hpp"

namespace imbrex::engine {

template class cuda_packed_experts<cuda_grouped_matrix<std::int8_t>::weights>;

}  // namespace imbrex::engine
