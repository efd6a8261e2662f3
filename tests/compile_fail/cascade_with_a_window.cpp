// A window would have to know how long the prefix is.
// expect: imbrex: a cascade's mask shows the whole prefix
#include <imbrex/kernels/paged_cascade.hpp>

int main() {
    return static_cast<int>(
        imbrex::paged_cascade<imbrex::bf16, imbrex::window_mask>::workspace_bytes(imbrex::world::host, {}, {}));
}
