// A gradient of a score_mod's parameters with a wrong signature.
// first: imbrex: add_gradient must be IMBREX_KERNEL void add_gradient(const attention_extents&, int query, int key
#include <imbrex/kernels/attention_backward.hpp>

struct wrong_score : imbrex::score_mod::identity {
    static constexpr bool is_identity = false;
    IMBREX_KERNEL void add_gradient(int, int, float) const {}
};

int main() {
    using backward = imbrex::attention_backward<imbrex::bf16, imbrex::attention_backward_options{.head_dims = {64}},
                                                imbrex::full_mask, wrong_score>;
    backward::launch(imbrex::world::host, {});
}
