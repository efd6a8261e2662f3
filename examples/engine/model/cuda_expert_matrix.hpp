// The matrices of all experts of a layer on a GPU, in one of the formats of cuda_expert_formats.hpp.
#pragma once

#include <imbrex/core/weight_rows.hpp>

#include <cstdint>
#include <variant>

#include "engine/loading/stacked_weights.hpp"
#include "engine/model/cuda_expert_formats.hpp"
#include "engine/model/cuda_matrix_formats.hpp"
#include "engine/model/runner.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// In the requested format, or that of the file: MXFP4, Q8_0, Q4_0 and blocks whose elements are integers of 8 bits times
// a scale per 32 are exact; other blocks become int8. bf16 if the row length is not a multiple of 32.
class cuda_expert_matrix {
  public:
    cuda_expert_matrix() = default;
    cuda_expert_matrix(const stacked_weights& from, const runner_options& options)
        : form_(load(expert_stack(from), options)) {}

    // Of one expert's gate, up or down.
    int rows() const {
        return std::visit([](const auto& form) { return form.rows(); }, form_);
    }

    // out = function(A gate^T, A up^T)
    void gate_up(world where, const expert_operands& p, const expert_glu& function, void* stream) const {
        std::visit([&](const auto& form) { form.gate_up(where, p, function, stream); }, form_);
    }
    // out = A down^T + bias
    void down(world where, const expert_operands& p, const expert_bias& bias, void* stream) const {
        std::visit([&](const auto& form) { form.down(where, p, bias, stream); }, form_);
    }

  private:
    using cuda_mxfp4_experts = cuda_packed_experts<mxfp4_rows::weights>;
    using cuda_int8_experts = cuda_packed_experts<int8_experts>;
    using cuda_int4_experts = cuda_packed_experts<int4_experts>;
    using any_form =
        std::variant<cuda_bf16_experts, cuda_mxfp4_experts, cuda_int8_experts, cuda_int4_experts, cuda_e4m3_experts>;

    static any_form load(const expert_stack& from, const runner_options& options) {
        const world where = options.where;
        if (from.columns() % weight_group_size != 0) return cuda_bf16_experts(from, where);
        switch (options.weights) {
            case weight_format::as_in_file:
                return load_as_in_file(from, where);
            case weight_format::e4m3:
                return cuda_e4m3_experts(from, where);
            case weight_format::int8:
                return grouped<int8_experts>(from, where, group_source::floats);
            case weight_format::int4:
                return grouped<int4_experts>(from, where, group_source::floats);
            default:
                return cuda_bf16_experts(from, where);
        }
    }
    static any_form load_as_in_file(const expert_stack& from, world where) {
        switch (from.type()) {
            case weight_type::mxfp4:
                return cuda_mxfp4_experts(from, where, mxfp4_rows::pack);
            case weight_type::q4_0:
                return grouped<int4_experts>(from, where, group_source::ggml_blocks);
            case weight_type::q8_0:
            case weight_type::q5_0:
            case weight_type::iq4_nl:
            case weight_type::iq4_xs:
                return grouped<int8_experts>(from, where, group_source::ggml_blocks);
            default:
                if (!from.has_blocks()) return cuda_bf16_experts(from, where);
                return grouped<int8_experts>(from, where, group_source::floats);
        }
    }
    template <class Weights>
    static any_form grouped(const expert_stack& from, world where, group_source source) {
        using matrix = cuda_grouped_matrix<typename Weights::format>;
        return cuda_packed_experts<Weights>(
            from, where, [=](const expert_stack::block& block, typename Weights::weight_tile* to) {
                matrix::template pack_block<Weights>(block.matrix, source, block.number, to);
            });
    }

    any_form form_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
