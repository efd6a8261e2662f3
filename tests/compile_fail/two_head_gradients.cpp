// Two score_mods with a gradient per head in one composition.
// first: imbrex: at most one of composed score_mods may have head_gradient
#include <imbrex/kernels/attention_backward.hpp>

int main() {
    using alibi = imbrex::score_mod::alibi_with_gradient;
    using score = imbrex::score_mod::composed<alibi, imbrex::score_mod::composed<imbrex::score_mod::softcap, alibi>>;
    using backward = imbrex::attention_backward<imbrex::bf16, imbrex::attention_backward_options{.head_dims = {64}},
                                                imbrex::full_mask, score>;
    backward::launch(imbrex::world::host, {});
}
