// A window mask needs the length of the prefix.
// expect: imbrex: paged_cascade needs a mask that shows the whole prefix
#include <imbrex/kernels/paged_cascade.hpp>

int main() {
    return static_cast<int>(
        imbrex::paged_cascade<imbrex::bf16, imbrex::all_decode_head_dims, imbrex::window_mask>::workspace_bytes(
            imbrex::world::host, {}, {}));
}
