// imbrex::rms_norm, with a residual imbrex::add_rms_norm, and imbrex::rms_norm_, which overwrites its arguments.
#include "rows.hpp"

#include "../../bindings/calls/rms_norm.hpp"

#include <tuple>

namespace imbrex_torch {

namespace {

constexpr row_layout layout = row_layout::rows;

void require_arguments(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& residual) {
    require_row_type(x, "x");
    require_row_type(weight, "weight");
    require_same_device(x, {{"weight", weight}, {"residual", residual}});
    require_rank(x, "x", layout);
    TORCH_CHECK_VALUE(weight.dim() == 1 && weight.size(0) == x.size(-1), "weight: shape ", weight.sizes(), "; [",
                      x.size(-1), "] is needed, the columns of x");
    if (residual) require_same_kind(*residual, "residual", x, "x");
}

// `out` may be x, and the residual becomes the sum.
void run(Tensor* x, const Tensor& weight_given, Tensor* out, Tensor* residual, double eps) {
    const Tensor weight = weight_given.contiguous();
    imbrex::bindings::rms_norm_call call;
    call.weight = described(weight, "weight");
    call.epsilon = static_cast<float>(eps);
    if (residual == nullptr) {
        const auto rows = described_rows(layout, {{"x", x}, {"out", out}});
        call.x = rows[0];
        call.out = rows[1];
    } else {
        const auto rows = described_rows(layout, {{"x", x}, {"out", out}, {"residual", residual}});
        call.x = rows[0];
        call.out = rows[1];
        call.residual = rows[2];
    }
    execution_on(*x).run("rms_norm, " + type_name(*x, "x") + ", " + type_name(weight, "weight"), call);
}

Tensor rms_norm(const Tensor& x_given, const Tensor& weight, double eps) {
    require_arguments(x_given, weight, std::nullopt);
    Tensor x = x_given, out = at::empty(x.sizes(), x.options());
    run(&x, weight, &out, nullptr, eps);
    return out;
}

std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x_given, const Tensor& residual, const Tensor& weight,
                                        double eps) {
    require_arguments(x_given, weight, residual);
    Tensor x = x_given, out = at::empty(x.sizes(), x.options());
    Tensor sum = residual.clone(at::MemoryFormat::Contiguous);
    run(&x, weight, &out, &sum, eps);
    return {out, sum};
}

void rms_norm_in_place(const Tensor& x_given, const std::optional<Tensor>& residual_given, const Tensor& weight,
                       double eps) {
    require_arguments(x_given, weight, residual_given);
    overwritten x(x_given);
    if (residual_given) {
        overwritten residual(*residual_given);
        run(x.rows(), weight, x.rows(), residual.rows(), eps);
        residual.finish();
    } else {
        run(x.rows(), weight, x.rows(), nullptr, eps);
    }
    x.finish();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
    m.def("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps) -> (Tensor out, Tensor sum)");
    m.def("rms_norm_(Tensor(a!) x, Tensor(b!)? residual, Tensor weight, float eps) -> ()");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("rms_norm", rms_norm);
    m.impl("add_rms_norm", add_rms_norm);
    m.impl("rms_norm_", rms_norm_in_place);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("rms_norm", rms_norm);
    m.impl("add_rms_norm", add_rms_norm);
    m.impl("rms_norm_", rms_norm_in_place);
}

}  // namespace imbrex_torch
