// RMSNorm and LayerNorm of bf16 rows behind C functions, so that bench/kernels/norm.py can call them on PyTorch tensors.
#include <imbrex/kernels/layer_norm.hpp>
#include <imbrex/kernels/rms_norm.hpp>

#include "attention_calls.hpp"

using namespace imbrex;

namespace {

template <class Problem>
Problem problem_of(const bf16* x, const bf16* weight, bf16* residual, bf16* out, int rows, int columns, float epsilon) {
    Problem p{};
    p.x = as_rows(x, rows, columns);
    p.weight = weight;
    p.out = as_rows(out, rows, columns);
    if (residual != nullptr) p.residual = as_rows(residual, rows, columns);
    p.epsilon = epsilon;
    return p;
}

}  // namespace

extern "C" {

const char* imbrex_norm_last_error() {
    return bench::last_error().c_str();
}

// The residual may be null; it becomes x + residual.
int imbrex_rms_norm(const bf16* x, const bf16* weight, bf16* residual, bf16* out, int rows, int columns, float epsilon,
                    void* stream) {
    return bench::status_of([&] {
        using problem = rms_norm_problem<bf16>;
        rms_norm<bf16>::launch(world::device, problem_of<problem>(x, weight, residual, out, rows, columns, epsilon),
                               stream);
    });
}

int imbrex_layer_norm(const bf16* x, const bf16* weight, const bf16* bias, bf16* residual, bf16* out, int rows,
                      int columns, float epsilon, void* stream) {
    return bench::status_of([&] {
        auto p = problem_of<layer_norm_problem<bf16>>(x, weight, residual, out, rows, columns, epsilon);
        p.bias = bias;
        layer_norm<bf16>::launch(world::device, p, stream);
    });
}

}  // extern "C"
