// imbrex::swiglu: activation(gate) * up.
#include "rows.hpp"

#include "../../bindings/calls/swiglu.hpp"

namespace imbrex_torch {

namespace {

constexpr row_layout layout = row_layout::rows;

// `activation` is a functor of imbrex::activation.
Tensor swiglu(const Tensor& gate_given, const Tensor& up_given, const std::string& activation) {
    require_row_type(gate_given, "gate");
    require_same_device(gate_given, {{"up", up_given}});
    require_rank(gate_given, "gate", layout);
    require_same_kind(up_given, "up", gate_given, "gate");
    Tensor gate = gate_given, up = up_given, out = at::empty(gate.sizes(), gate.options());
    const auto rows = described_rows(layout, {{"gate", &gate}, {"up", &up}, {"out", &out}});
    const imbrex::bindings::swiglu_call call{.gate = rows[0], .up = rows[1], .out = rows[2]};
    execution_on(gate).run("swiglu, " + type_name(gate, "gate") + ", activation::" + activation, call);
    return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def("swiglu(Tensor gate, Tensor up, str activation) -> Tensor");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("swiglu", swiglu);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("swiglu", swiglu);
}

}  // namespace imbrex_torch
