// architectures: 80 89 100a 120a
// RMSNorm, LayerNorm, SwiGLU, embeddings and RoPE on every GPU from sm_80 on.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/embedding.hpp>
#include <imbrex/kernels/layer_norm.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/rope.hpp>
#include <imbrex/kernels/swiglu.hpp>

using namespace imbrex;

template <class Kernel>
void launch_one() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_all() {
    launch_one<rms_norm<bf16>::kernel<128, 1>>();
    launch_one<rms_norm<fp16, float>::kernel<512, 8>>();
    launch_one<rms_norm<float>::two_pass_kernel<row_alignment::unaligned>>();
    launch_one<layer_norm<bf16>::kernel<64, 1>>();
    launch_one<layer_norm<fp16, float>::kernel<512, 8>>();
    launch_one<layer_norm<float>::kernel<512, 32>>();
    launch_one<layer_norm<bf16>::two_pass_kernel<row_alignment::unaligned>>();
    launch_one<swiglu_activation<bf16>::kernel<1, 256, row_alignment::aligned>>();
    launch_one<swiglu_activation<fp16, activation::gelu_tanh>::kernel<1, 256, row_alignment::unaligned>>();
    launch_one<embedding<bf16>::kernel<2, 256, row_alignment::aligned>>();
    launch_one<apply_rope<bf16>::kernel<64, row_alignment::aligned>>();
    launch_one<apply_rope<float>::kernel<32, row_alignment::aligned>>();
    launch_one<apply_rope<fp16>::kernel<32, row_alignment::unaligned>>();
}
