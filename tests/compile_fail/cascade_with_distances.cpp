// So does an ALiBi bias.
// expect: imbrex: paged_cascade needs a score modifier that ignores query and key positions
#include <imbrex/kernels/paged_cascade.hpp>

int main() {
    using cascade = imbrex::paged_cascade<imbrex::bf16, imbrex::all_decode_head_dims, imbrex::causal_mask,
                                          imbrex::score_mod::alibi>;
    return static_cast<int>(cascade::workspace_bytes(imbrex::world::host, {}, {}));
}
