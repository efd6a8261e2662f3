// Products of experts with MXFP4 weights.
#include "engine/model/cuda_expert_products.hpp"

namespace imbrex::engine {

template class cuda_packed_experts<mxfp4_rows::weights>;

}  // namespace imbrex::engine
