// Eight rows are one repetition of the swizzle.
// expect: a shared tile's rows must be a positive multiple of 8
#include <imbrex/imbrex.hpp>

imbrex::shared_tile<float, 12, 32> tile;
