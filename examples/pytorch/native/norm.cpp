// imbrex::rms_norm and imbrex::layer_norm; with a residual imbrex::add_rms_norm and imbrex::add_layer_norm; and with _ those
// that overwrite x and the residual.
#include "rows.hpp"

#include "../../bindings/calls/layer_norm.hpp"
#include "../../bindings/calls/rms_norm.hpp"

#include <tuple>

namespace imbrex_torch {

namespace {

using optional_tensor = std::optional<Tensor>;
constexpr row_layout layout = row_layout::rows;

void require_column_values(const optional_tensor& values, const char* name, const Tensor& x) {
    if (!values) return;
    require_row_type(*values, name);
    TORCH_CHECK_VALUE(values->dim() == 1 && values->size(0) == x.size(-1), name, ": shape ", values->sizes(), "; [",
                      x.size(-1), "] is needed, the columns of x");
}

void require_arguments(const Tensor& x, const optional_tensor& weight, const optional_tensor& bias,
                       const optional_tensor& residual) {
    require_row_type(x, "x");
    require_same_device(x, {{"weight", weight}, {"bias", bias}, {"residual", residual}});
    require_rank(x, "x", layout);
    require_column_values(weight, "weight", x);
    require_column_values(bias, "bias", x);
    if (weight && bias) require_same_kind(*bias, "bias", *weight, "weight");
    if (residual) require_same_kind(*residual, "residual", x, "x");
}

// What both norms do: rows of x, of `out`, which may be x, and of the residual, which becomes the sum.
template <class Call>
void run(Call& call, const char* binding, const Tensor& column_values, Tensor* x, Tensor* out, Tensor* residual,
         double eps) {
    call.epsilon = static_cast<float>(eps);
    const auto rows = residual == nullptr ? described_rows(layout, {{"x", x}, {"out", out}})
                                          : described_rows(layout, {{"x", x}, {"out", out}, {"residual", residual}});
    call.x = rows[0];
    call.out = rows[1];
    if (residual != nullptr) call.residual = rows[2];
    execution_on(*x).run(std::string(binding) + ", " + type_name(*x, "x") + ", " + type_name(column_values, "weight"),
                         call);
}

struct rms {
    const Tensor& weight;

    void require(const Tensor& x, const optional_tensor& residual) const {
        require_arguments(x, weight, std::nullopt, residual);
    }
    void run(Tensor* x, Tensor* out, Tensor* residual, double eps) const {
        const Tensor values = weight.contiguous();
        imbrex::bindings::rms_norm_call call;
        call.weight = described(values, "weight");
        imbrex_torch::run(call, "rms_norm", values, x, out, residual, eps);
    }
};

struct layer {
    const optional_tensor &weight, &bias;

    void require(const Tensor& x, const optional_tensor& residual) const {
        require_arguments(x, weight, bias, residual);
    }
    void run(Tensor* x, Tensor* out, Tensor* residual, double eps) const {
        const Tensor scales = weight ? weight->contiguous() : Tensor(), shifts = bias ? bias->contiguous() : Tensor();
        imbrex::bindings::layer_norm_call call;
        call.weight = described(scales, "weight");
        call.bias = described(shifts, "bias");
        imbrex_torch::run(call, "layer_norm", weight ? scales : bias ? shifts : *x, x, out, residual, eps);
    }
};

template <class Norm>
Tensor normed(const Norm& norm, const Tensor& x_given, double eps) {
    norm.require(x_given, std::nullopt);
    Tensor x = x_given, out = at::empty(x.sizes(), x.options());
    norm.run(&x, &out, nullptr, eps);
    return out;
}

template <class Norm>
std::tuple<Tensor, Tensor> added_and_normed(const Norm& norm, const Tensor& x_given, const Tensor& residual,
                                            double eps) {
    norm.require(x_given, residual);
    Tensor x = x_given, out = at::empty(x.sizes(), x.options());
    Tensor sum = residual.clone(at::MemoryFormat::Contiguous);
    norm.run(&x, &out, &sum, eps);
    return {out, sum};
}

template <class Norm>
void norm_in_place(const Norm& norm, const Tensor& x_given, const optional_tensor& residual_given, double eps) {
    norm.require(x_given, residual_given);
    overwritten x(x_given), residual(residual_given.value_or(Tensor()));
    norm.run(x.rows(), x.rows(), residual_given ? residual.rows() : nullptr, eps);
    if (residual_given) residual.finish();
    x.finish();
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
    return normed(rms{weight}, x, eps);
}
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
    return added_and_normed(rms{weight}, x, residual, eps);
}
void rms_norm_(const Tensor& x, const optional_tensor& residual, const Tensor& weight, double eps) {
    norm_in_place(rms{weight}, x, residual, eps);
}

Tensor layer_norm(const Tensor& x, const optional_tensor& weight, const optional_tensor& bias, double eps) {
    return normed(layer{weight, bias}, x, eps);
}
std::tuple<Tensor, Tensor> add_layer_norm(const Tensor& x, const Tensor& residual, const optional_tensor& weight,
                                          const optional_tensor& bias, double eps) {
    return added_and_normed(layer{weight, bias}, x, residual, eps);
}
void layer_norm_(const Tensor& x, const optional_tensor& residual, const optional_tensor& weight,
                 const optional_tensor& bias, double eps) {
    norm_in_place(layer{weight, bias}, x, residual, eps);
}

void implement(torch::Library& m) {
    m.impl("rms_norm", rms_norm);
    m.impl("add_rms_norm", add_rms_norm);
    m.impl("rms_norm_", rms_norm_);
    m.impl("layer_norm", layer_norm);
    m.impl("add_layer_norm", add_layer_norm);
    m.impl("layer_norm_", layer_norm_);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
    m.def("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor out, Tensor sum)");
    m.def("rms_norm_(Tensor(a!) x, Tensor(b!)? residual, Tensor weight, float eps) -> ()");
    m.def("layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor");
    m.def(
        "add_layer_norm(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps) "
        "-> (Tensor out, Tensor sum)");
    m.def("layer_norm_(Tensor(a!) x, Tensor(b!)? residual, Tensor? weight, Tensor? bias, float eps) -> ()");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    implement(m);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    implement(m);
}

}  // namespace imbrex_torch
