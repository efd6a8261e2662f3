// A score_mod with a wrong signature.
// first: imbrex: Score must have IMBREX_KERNEL float operator()(const attention_extents&, int query, int key, float score) const
#include <imbrex/kernels/attention_forward.hpp>

struct wrong_score {
    float operator()(float score) const { return score; }
};

int main() {
    using attention = imbrex::attention_forward<imbrex::bf16, imbrex::attention_options{.head_dims = {64}},
                                                imbrex::full_mask, wrong_score>;
    attention::launch(imbrex::world::host, {});
}
