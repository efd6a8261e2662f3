// One element of global memory in the host world, read or written by a function that an operation calls, or between
// operations: an access of the running scope that the checker sees. Outside of a kernel it is an ordinary access.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/machine.hpp>

namespace imbrex::hw {

template <class T>
void touch_global_element(const T* address, global_use how, const char* what, source here) {
    const machine* const on = machine::running();
    if (on == nullptr || !on->checked) return;
    const context c{machine::running(), machine::running_simulated_warp()};
    if (c.by == nullptr || c.on->stopping() || c.on->unwinding()) return;
    touch_global_values(c, address, 1, how, 0, what, here);
}

template <class T>
T global_element(const T* address, source here) {
    touch_global_element(address, global_use::read, "load of one element", here);
    return *address;
}

template <class T>
void set_global_element(T* address, T value, source here) {
    touch_global_element(address, global_use::write, "store of one element", here);
    *address = value;
}

}  // namespace imbrex::hw
