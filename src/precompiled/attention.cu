#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/precompiled.hpp>

namespace imbrex::precompiled {

void attention(const attention_problem<bf16>& p, mask_kind mask, void* stream) {
    constexpr attention_options options{.head_dims = {64, 128}};
    if (mask == mask_kind::causal) {
        attention_forward<bf16, options, causal_mask>::launch(world::device, p, {}, {}, stream);
    } else {
        attention_forward<bf16, options, full_mask>::launch(world::device, p, {}, {}, stream);
    }
}

}  // namespace imbrex::precompiled
