// One element of global memory on the device, read or written by the calling thread.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>

namespace imbrex::hw {

template <class T>
IMBREX_FN T global_element(const T* address, source) {
    return *address;
}

template <class T>
IMBREX_FN void set_global_element(T* address, T value, source) {
    *address = value;
}

}  // namespace imbrex::hw
