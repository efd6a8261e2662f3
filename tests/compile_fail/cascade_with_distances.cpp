// So would a penalty for distance.
// expect: imbrex: a cascade's score does not depend on where query and key stand
#include <imbrex/kernels/paged_cascade.hpp>

int main() {
    using cascade = imbrex::paged_cascade<imbrex::bf16, imbrex::causal_mask, imbrex::score_mod::alibi>;
    return static_cast<int>(cascade::workspace_bytes(imbrex::world::host, {}, {}));
}
