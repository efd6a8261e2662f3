// architectures: 90a
// Decode over a paged cache on Hopper as its launcher makes it: of 16-bit elements and of e4m3.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_decode.hpp>

using namespace imbrex;

template <class Decode>
void launch_decode() {
    Decode::launch(world::device, typename Decode::problem{}, {});
}

void launch_decodes() {
    launch_decode<paged_decode<bf16, causal_mask, score_mod::identity, attention_output_mode::normalised,
                               decode_head_dims<128>>>();
}
