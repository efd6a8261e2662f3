// One element of shared memory as kernels see it through `at()` of a shared tile or vector: reading and writing it is an
// access of the running scope, which the checker checks like that of an operation. Outside of a kernel it is an
// ordinary pointer. Operations of hw/ use `address()`, which is not checked.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/checker.hpp>
#include <imbrex/hw/host/machine.hpp>

#include <type_traits>

namespace imbrex::hw {

inline void touch_element(const void* address, int bytes, bool writes, source here) {
    machine* const on = machine::running();
    simulated_warp* const one = machine::running_simulated_warp();
    if (on == nullptr || one == nullptr || !on->checked || on->stopping()) return;
    const access made{one, one->actor, ++one->tick, false, false, -1, 0, "raw access to one element", here};
    touch(*on, *one, address, bytes, made, writes);
}

// Reports an element that is not inside its tile.
inline void check_element(bool inside, int row, int column, int rows, int columns, source here) {
    machine* const on = machine::running();
    simulated_warp* const one = machine::running_simulated_warp();
    if (inside || on == nullptr || one == nullptr || !on->checked || on->stopping()) return;
    on->report(hazard_kind::outside_tile, *one->block,
               str_cat("element (", row, ", ", column, ") of a tile of ", rows, " x ", columns),
               {{one->name(), "raw access to one element", here.file, here.line}});
}

template <class T>
class element_reference {
  public:
    using value_type = std::remove_const_t<T>;
    element_reference(T* address, source here) : address_(address), here_(here) {}

    operator value_type() const {
        touch_element(address_, sizeof(T), false, here_);
        return *address_;
    }
    const element_reference& operator=(const value_type& value) const {
        touch_element(address_, sizeof(T), true, here_);
        *address_ = value;
        return *this;
    }
    const element_reference& operator=(const element_reference& other) const {
        return *this = static_cast<value_type>(other);
    }
    const element_reference& operator+=(const value_type& value) const {
        return *this = static_cast<value_type>(static_cast<value_type>(*this) + value);
    }

  private:
    T* address_;
    source here_;
};

template <class T>
class element_pointer {
  public:
    element_pointer(T* address, source here) : address_(address), here_(here) {}
    element_reference<T> operator*() const { return {address_, here_}; }
    element_reference<T> operator[](std::ptrdiff_t index) const { return {address_ + index, here_}; }
    element_pointer operator+(std::ptrdiff_t count) const { return {address_ + count, here_}; }

  private:
    T* address_;
    source here_;
};

template <class Shared>
auto element_at(Shared& shared, int row, int column, source here) {
    const bool inside = row >= 0 && row < Shared::rows && column >= 0 && column < Shared::columns;
    check_element(inside, row, column, Shared::rows, Shared::columns, here);
    return element_pointer(shared.address(row, column), here);
}
template <class Shared>
auto element_at(Shared& shared, int index, source here) {
    check_element(index >= 0 && index < Shared::length, 0, index, 1, Shared::length, here);
    return element_pointer(shared.address(index), here);
}

}  // namespace imbrex::hw
