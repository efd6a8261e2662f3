// An operation of a warp with the tile of a warpgroup.
// expect: this register tile belongs to another scope than the one passed first
#include <imbrex/imbrex.hpp>

void wrong(imbrex::warp& self, imbrex::warpgroup_tile<float, 64, 64>& tile) {
    imbrex::fill(self, tile, 0.0f);
}
