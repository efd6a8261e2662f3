// architectures: 80 89 120a
// Decode over a paged cache: a program for other GPUs than Hopper has the kernel of the sm_80 class.
// For Hopper itself, the engine of the examples has the same kernels.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_decode.hpp>

using namespace imbrex;

void launch_decode(const attention_problem<bf16>& problem) {
    using decode =
        paged_decode<bf16, causal_mask, score_mod::identity, attention_output_mode::normalised, decode_head_dims<128>>;
    decode::launch(world::device, problem, {});
}
