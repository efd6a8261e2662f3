// One element of global memory in the host world, read by a function that an operation calls, or between operations: an
// access of the running scope that the checker sees. Outside of a kernel it is an ordinary load.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/machine.hpp>

namespace imbrex::hw {

template <class T>
void touch_global_element(const T* address, source here) {
    const context c{machine::running(), machine::running_simulated_warp()};
    if (c.by == nullptr || c.on->stopping() || c.on->unwinding()) return;
    touch_global_values(c, address, 1, global_use::read, 0, "load of one element", here);
}

template <class T>
T global_element(const T* address, source here) {
    const machine* const on = machine::running();
    if (on != nullptr && on->checked) touch_global_element(address, here);
    return *address;
}

}  // namespace imbrex::hw
