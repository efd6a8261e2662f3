// architectures: 80 89 100a 120a
// Norms, gates, embeddings and rotations, on every GPU from sm_80 on.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/embed.hpp>
#include <imbrex/kernels/gated.hpp>
#include <imbrex/kernels/norm.hpp>
#include <imbrex/kernels/rotate.hpp>

using namespace imbrex;

template <class Kernel>
void launch_one() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_all() {
    launch_one<rms_norm<bf16>::kernel<128, 1>>();
    launch_one<rms_norm<fp16, float>::kernel<512, 8>>();
    launch_one<rms_norm<float>::any_kernel<row_chunks::ragged>>();
    launch_one<gated_activation<bf16>::kernel<1, 256, row_chunks::whole>>();
    launch_one<gated_activation<fp16, gelu_tanh>::kernel<1, 256, row_chunks::ragged>>();
    launch_one<embed<bf16>::kernel<2, 256, row_chunks::whole>>();
    launch_one<rotate_rows<bf16>::kernel<64, row_chunks::whole>>();
    launch_one<rotate_rows<float>::kernel<32, row_chunks::whole>>();
    launch_one<rotate_rows<fp16>::kernel<32, row_chunks::ragged>>();
}
