#include "execution.hpp"
#include "status.hpp"

#include "../bindings/calls/gemm.hpp"

imbrex_status imbrex_gemm(const imbrex_execution* on, const imbrex_gemm_arguments* arguments) {
    using namespace imbrex_c;
    return guarded([&] {
        execution_on here(on);
        const imbrex_gemm_arguments a = structure_given(arguments, "arguments");
        imbrex::bindings::gemm_call call;
        call.a = needed_tensor(a.a, "a");
        call.b = needed_tensor(a.b, "b");
        call.out = needed_tensor(a.out, "out");
        call.bias = optional_tensor(a.bias, "bias");
        here.run(gemm_variant(call), call);
    });
}
