// Functions that the device has as single instructions, in the host world.
#pragma once

#include <cmath>

namespace imbrex::hw {

inline float exp2(float x) {
    return std::exp2(x);
}
inline float log2(float x) {
    return std::log2(x);
}
inline float reciprocal(float x) {
    return 1.0f / x;
}

}  // namespace imbrex::hw
