// imbrex::attention_fp8: attention of e4m3 Q, K and V.
#include "attention_arguments.hpp"

#include "../../bindings/calls/attention_fp8.hpp"

#include <string>
#include <tuple>

namespace imbrex_torch {

namespace {

void require_fp8(const Tensor& t, const char* name) {
    TORCH_CHECK_TYPE(t.scalar_type() == at::kFloat8_e4m3fn, name, ".dtype: ", t.scalar_type(),
                     "; must be Float8_e4m3fn");
}

void require_scale(const optional_tensor& scale, const char* name) {
    TORCH_CHECK_TYPE(!scale || scale->scalar_type() == at::kFloat, name, ".dtype: ", scale->scalar_type(),
                     "; must be Float");
}

std::tuple<Tensor, Tensor> attention_fp8(const Tensor& q_given, const Tensor& k_given, const Tensor& v_given,
                                         const optional_tensor& q_scale, const optional_tensor& k_scale,
                                         const optional_tensor& v_scale, const optional_tensor& out_scale,
                                         IMBREX_ATTENTION_PARAMETERS, std::string accumulation,
                                         at::ScalarType out_dtype) {
    const attention_arguments more = IMBREX_ATTENTION_ARGUMENTS;
    require_fp8(q_given, "q");
    require_qkv(q_given, k_given, v_given, more);
    require_same_device(q_given, {{"q_scale", q_scale}, {"k_scale", k_scale}, {"v_scale", v_scale}});
    require_same_device(q_given, {{"out_scale", out_scale}});
    require_scale(q_scale, "q_scale");
    require_scale(k_scale, "k_scale");
    require_scale(v_scale, "v_scale");
    require_scale(out_scale, "out_scale");
    TORCH_CHECK_VALUE(accumulation == "promoted" || accumulation == "fast", "accumulation: '", accumulation,
                      "'; must be 'promoted' or 'fast'");
    const bool out_of_8_bits = out_dtype == at::kFloat8_e4m3fn;
    TORCH_CHECK_TYPE(out_of_8_bits || out_dtype == at::kBFloat16 || out_dtype == at::kHalf, "out_dtype: ", out_dtype,
                     "; must be BFloat16, Half or Float8_e4m3fn");
    TORCH_CHECK_VALUE(out_of_8_bits || !out_scale, "out_scale: given for ", out_dtype,
                      "; only an output of Float8_e4m3fn has a scale");
    const Tensor q = with_contiguous_rows(q_given), k = with_contiguous_rows(k_given),
                 v = with_contiguous_rows(v_given);
    const Tensor out = empty_output(q, v, out_dtype), lse2 = empty_rows(q);
    const attention_functor mask_functor = mask_of(more), score_functor = score_of(more);
    imbrex::bindings::attention_fp8_call call;
    give_inputs(call, q, k, v, more, mask_functor, score_functor);
    call.q_scale = described(q_scale, "q_scale");
    call.k_scale = described(k_scale, "k_scale");
    call.v_scale = described(v_scale, "v_scale");
    call.out_scale = described(out_scale, "out_scale");
    call.fast = accumulation == "fast";
    call.out = described(out, "out");
    call.lse2 = described(lse2, "lse2");
    execution_on(q).run(attention_fp8_variant(call, mask_functor.type, score_functor.type), call);
    return {out, lse2};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def(
        "attention_fp8(Tensor q, Tensor k, Tensor v, Tensor? q_scale, Tensor? k_scale, Tensor? v_scale, "
        "Tensor? out_scale, " IMBREX_ATTENTION_SCHEMA
        ", str accumulation, ScalarType out_dtype) -> (Tensor out, Tensor lse2)");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("attention_fp8", attention_fp8);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("attention_fp8", attention_fp8);
}

}  // namespace imbrex_torch
