// architectures: 80 89 120a
// paged_decode: a program for GPUs other than Hopper has the sm_80 kernel. For Hopper, the engine of the examples
// compiles the same kernels.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_decode.hpp>

using namespace imbrex;

void launch_decode(const attention_problem<bf16>& problem) {
    using decode = paged_decode<bf16, decode_config{.head_dims = {128}}, causal_mask>;
    decode::launch(world::device, problem, {});
}
