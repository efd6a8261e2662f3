// architectures: 90a
// paged_decode on Hopper through its launcher: 16-bit and e4m3 caches.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_decode.hpp>

using namespace imbrex;

template <class Decode>
void launch_decode() {
    Decode::launch(world::device, typename Decode::problem{}, {});
}

void launch_decodes() {
    launch_decode<paged_decode<bf16, decode_config{.head_dims = {128}}, causal_mask>>();
}
