// A warpgroup's register tile has 16 rows for each of its four warps.
// expect: imbrex: a register tile needs 16 rows for each warp of its scope
#include <imbrex/imbrex.hpp>

imbrex::warpgroup_tile<float, 32, 64> tile;
