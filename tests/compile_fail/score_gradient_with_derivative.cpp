// The gradient of a parameter in a score_mod that does not add a term.
// first: imbrex: a score_mod with add_gradient or head_gradient must add a term
#include <imbrex/kernels/attention_backward.hpp>

int main() {
    using score = imbrex::score_mod::composed<imbrex::score_mod::softcap, imbrex::score_mod::alibi_with_gradient>;
    using backward = imbrex::attention_backward<imbrex::bf16, imbrex::attention_backward_options{.head_dims = {64}},
                                                imbrex::full_mask, score>;
    backward::launch(imbrex::world::host, {});
}
