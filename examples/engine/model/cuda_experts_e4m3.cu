// Products of experts with e4m3 weights, whose scales the epilogue applies.
#include "engine/model/cuda_expert_products.hpp"

namespace imbrex {
namespace epilogue {

// A biased GLU of products of rows with a scale each. The scales lie as the biases do.
struct scaled_expert_glu {
    gemm_vector<float> scales;
    imbrex::engine::expert_glu then;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_coord at) const {
        const int columns = scales.count / 2;
        Tile scaled_up = up;
        scale_columns{{scales.pointer, columns, scales.batch_stride}}(self, gate, at);
        scale_columns{{scales.pointer + columns, columns, scales.batch_stride}}(self, scaled_up, at);
        then(self, gate, scaled_up, at);
    }
};
template <>
inline constexpr bool is_glu<scaled_expert_glu> = true;

}  // namespace epilogue

namespace engine {
inline namespace IMBREX_WORLDS {

void cuda_e4m3_experts::gate_up(world where, const expert_operands& p, const expert_glu& function, void* stream) const {
    const epilogue::scaled_expert_glu scaled{{scales_.data(), 2 * rows_, 2 * rows_}, function};
    multiply_packed_experts<weights, moe_rows::gathered>(where, expert_problem(p, rows_, columns_), tiles_.data(),
                                                         scaled, stream);
}
void cuda_e4m3_experts::down(world where, const expert_operands& p, const expert_bias& bias, void* stream) const {
    const auto scaled = epilogue::compose(epilogue::scale_columns{{scales_.data(), rows_, rows_}}, bias);
    multiply_packed_experts<weights, moe_rows::sorted>(where, expert_problem(p, rows_, columns_), tiles_.data(), scaled,
                                                       stream);
}

}  // namespace IMBREX_WORLDS
}  // namespace engine
}  // namespace imbrex
