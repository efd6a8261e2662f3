// A row of a shared tile must be a multiple of 16 bytes for the copies.
// expect: a shared tile's row must be a multiple of 16 bytes
#include <imbrex/imbrex.hpp>

imbrex::shared_tile<imbrex::bf16, 16, 12> tile;
