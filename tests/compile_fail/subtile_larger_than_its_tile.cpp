// A subtile must lie inside its tile.
// expect: a subtile must not be larger than its shared tile
#include <imbrex/imbrex.hpp>

using namespace imbrex;

void wrong(warp& self, warp_tile<bf16, 32, 64>& to, const shared_tile<bf16, 16, 64>& from) {
    load(self, to, from.subtile<32>(0));
}
