#include "execution.hpp"
#include "status.hpp"

#include "../bindings/calls/attention_backward.hpp"
#include "../bindings/calls/attention_choice.hpp"
#include "../bindings/calls/attention_forward.hpp"

#include <string>

namespace imbrex_c {

namespace {

// Fills in what forward and backward have in common; returns the name of the variant.
template <class Arguments>
std::string give_inputs(imbrex::bindings::attention_inputs& call, const Arguments& a, const char* binding) {
    call.q = needed_tensor(a.q, "q");
    call.k = needed_tensor(a.k, "k");
    call.v = needed_tensor(a.v, "v");
    if (a.scale != 0) call.scale = a.scale;
    call.sinks = optional_tensor(a.sinks, "sinks");
    call.seqused_k = optional_tensor(a.seqused_k, "seqused_k");
    call.cu_seqlens_q = optional_tensor(a.cu_seqlens_q, "cu_seqlens_q");
    call.cu_seqlens_k = optional_tensor(a.cu_seqlens_k, "cu_seqlens_k");
    require(a.mask == IMBREX_MASK_FULL || a.mask == IMBREX_MASK_CAUSAL || a.mask == IMBREX_MASK_WINDOW,
            "mask: ", a.mask, "; must be IMBREX_MASK_FULL, IMBREX_MASK_CAUSAL or IMBREX_MASK_WINDOW");
    const imbrex::bindings::attention_choice choice{static_cast<imbrex::bindings::mask_kind>(a.mask), a.window_left,
                                                    a.window_right, a.softcap};
    return choice.give_to(call, binding);
}

}  // namespace

}  // namespace imbrex_c

imbrex_status imbrex_attention(const imbrex_execution* on, const imbrex_attention_arguments* arguments) {
    using namespace imbrex_c;
    return guarded([&] {
        execution_on here(on);
        const imbrex_attention_arguments a = structure_given(arguments, "arguments");
        require(a.reserved == 0, "reserved: ", a.reserved, "; must be 0");
        imbrex::bindings::attention_forward_call call;
        const std::string variant = give_inputs(call, a, "attention_forward");
        call.out = needed_tensor(a.out, "out");
        call.lse2 = optional_tensor(a.lse2, "lse2");
        here.run(variant, call);
    });
}

imbrex_status imbrex_attention_backward(const imbrex_execution* on,
                                        const imbrex_attention_backward_arguments* arguments) {
    using namespace imbrex_c;
    return guarded([&] {
        execution_on here(on);
        const imbrex_attention_backward_arguments a = structure_given(arguments, "arguments");
        require(a.deterministic == 0 || a.deterministic == 1, "deterministic: ", a.deterministic, "; must be 0 or 1");
        imbrex::bindings::attention_backward_call call;
        std::string variant = give_inputs(call, a, "attention_backward");
        if (a.deterministic == 1) variant += ", true";
        call.delta = optional_tensor(a.delta, "delta");
        call.out = call.delta.given() ? optional_tensor(a.out, "out") : needed_tensor(a.out, "out");
        call.d_out = needed_tensor(a.d_out, "d_out");
        call.lse2 = needed_tensor(a.lse2, "lse2");
        call.d_q = needed_tensor(a.d_q, "d_q");
        call.d_k = needed_tensor(a.d_k, "d_k");
        call.d_v = needed_tensor(a.d_v, "d_v");
        call.d_sinks = optional_tensor(a.d_sinks, "d_sinks");
        here.run(variant, call);
    });
}
