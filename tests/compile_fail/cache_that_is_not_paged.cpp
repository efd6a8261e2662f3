// An 8-bit KV cache is paged.
// expect: imbrex: the KV cache of attention_forward has the type of Q, or is e4m3 or int8 and paged
#include <imbrex/kernels/attention_forward.hpp>

int main() {
    using namespace imbrex;
    using attention =
        attention_forward<bf16, attention_options{.head_dims = {64}}, causal_mask, score_mod::identity, e4m3>;
    attention::launch(world::host, {});
}
