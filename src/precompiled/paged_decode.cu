#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/precompiled.hpp>

namespace imbrex::precompiled {

using decode = imbrex::paged_decode<bf16, decode_config{.head_dims = {64, 128}}, causal_mask>;

std::size_t paged_decode_workspace_bytes(const attention_problem<bf16>& p) {
    return decode::workspace_bytes(world::device, p);
}
void paged_decode(const attention_problem<bf16>& p, void* workspace, void* stream) {
    decode::launch(world::device, p, {.workspace = workspace}, {}, {}, stream);
}

}  // namespace imbrex::precompiled
