// A mask with a wrong signature.
// first: imbrex: Mask must have key_range visible_keys(const attention_extents&, query_range) const
#include <imbrex/kernels/attention_forward.hpp>

struct wrong_mask : imbrex::mask_base {
    bool keep(int query, int key) const { return key <= query; }
};

int main() {
    using attention = imbrex::attention_forward<imbrex::bf16, imbrex::attention_options{.head_dims = {64}}, wrong_mask>;
    attention::launch(imbrex::world::host, {});
}
