// imbrex_attention_forward and imbrex_attention_backward. Tensors are [batch, sequence, heads, head_dim], the LSE (base 2) and
// delta [batch, heads, sequence].
#include "handler.hpp"

#include "../../bindings/calls/attention_backward.hpp"
#include "../../bindings/calls/attention_choice.hpp"
#include "../../bindings/calls/attention_forward.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace imbrex_jax {

struct attention_attributes {
    float scale;
    float softcap;
    std::int32_t mask;
    std::int32_t window_left;
    std::int32_t window_right;
    bool deterministic;
};

}  // namespace imbrex_jax

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(imbrex_jax::attention_attributes, xla::ffi::StructMember<float>("scale"),
                                      xla::ffi::StructMember<float>("softcap"),
                                      xla::ffi::StructMember<std::int32_t>("mask"),
                                      xla::ffi::StructMember<std::int32_t>("window_left"),
                                      xla::ffi::StructMember<std::int32_t>("window_right"),
                                      xla::ffi::StructMember<bool>("deterministic"));

namespace imbrex_jax {

namespace {

using buffer = ffi::AnyBuffer;
using result = ffi::Result<ffi::AnyBuffer>;

std::string give_inputs(imbrex::bindings::attention_inputs& call, const buffer& q, const buffer& k, const buffer& v,
                        const attention_attributes& given, const char* binding) {
    call.q = described(q, "q", 4);
    call.k = described(k, "k", 4);
    call.v = described(v, "v", 4);
    call.scale = given.scale;
    imbrex::require(given.mask >= 0 && given.mask <= 2, "mask: ", given.mask, "; must be 0 to 2");
    const imbrex::bindings::attention_choice choice{static_cast<imbrex::bindings::mask_kind>(given.mask),
                                                    given.window_left, given.window_right, given.softcap};
    return choice.give_to(call, binding);
}

ffi::Error forward(const place& where, const buffer& q, const buffer& k, const buffer& v, result out, result lse2,
                   const attention_attributes& given) {
    using call_type = imbrex::bindings::attention_forward_call;
    return execution_at(where).run<call_type>([&](call_type& call) {
        call.out = described(*out, "out", 4);
        call.lse2 = described(*lse2, "lse2", 3);
        return give_inputs(call, q, k, v, given, "attention_forward");
    });
}

ffi::Error backward(const place& where, const buffer& d_out, const buffer& delta, const buffer& q, const buffer& k,
                    const buffer& v, const buffer& lse2, result d_q, result d_k, result d_v,
                    const attention_attributes& given) {
    using call_type = imbrex::bindings::attention_backward_call;
    return execution_at(where).run<call_type>([&](call_type& call) {
        call.d_out = described(d_out, "d_out", 4);
        call.delta = described(delta, "delta", 3);
        call.lse2 = described(lse2, "lse2", 3);
        call.d_q = described(*d_q, "d_q", 4);
        call.d_k = described(*d_k, "d_k", 4);
        call.d_v = described(*d_v, "d_v", 4);
        const std::string variant = give_inputs(call, q, k, v, given, "attention_backward");
        return given.deterministic ? variant + ", true" : variant;
    });
}

// The parameters of the handlers after those that only CUDA has: arguments, results, attributes.
template <class Binding>
auto forward_parameters(Binding&& binding) {
    return std::forward<Binding>(binding)
        .template Arg<buffer>()
        .template Arg<buffer>()
        .template Arg<buffer>()
        .template Ret<buffer>()
        .template Ret<buffer>()
        .template Attrs<attention_attributes>();
}
template <class Binding>
auto backward_parameters(Binding&& binding) {
    return std::forward<Binding>(binding)
        .template Arg<buffer>()
        .template Arg<buffer>()
        .template Arg<buffer>()
        .template Arg<buffer>()
        .template Arg<buffer>()
        .template Arg<buffer>()
        .template Ret<buffer>()
        .template Ret<buffer>()
        .template Ret<buffer>()
        .template Attrs<attention_attributes>();
}
auto for_cpu() {
    return ffi::Ffi::Bind();
}
auto for_cuda() {
    return ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::ScratchAllocator>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    imbrex_attention_forward_cpu, [](const auto&... all) { return forward(place{}, all...); },
    forward_parameters(for_cpu()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    imbrex_attention_backward_cpu, [](const auto&... all) { return backward(place{}, all...); },
    backward_parameters(for_cpu()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    imbrex_attention_forward_cuda,
    [](void* stream, ffi::ScratchAllocator scratch, const auto&... all) {
        return forward(place{imbrex::world::device, stream, &scratch}, all...);
    },
    forward_parameters(for_cuda()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    imbrex_attention_backward_cuda,
    [](void* stream, ffi::ScratchAllocator scratch, const auto&... all) {
        return backward(place{imbrex::world::device, stream, &scratch}, all...);
    },
    backward_parameters(for_cuda()));

}  // namespace imbrex_jax
