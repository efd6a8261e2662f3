// Atomic operations on global memory: counters, flags between blocks, and sums. The single-value forms are one
// operation of a warp: one lane executes it and all lanes get the result. With `release` it publishes all earlier
// accesses of the warp, with `acquire` it orders all later ones. To publish the work of a warpgroup or a block, sync it
// and let one warp do the atomic operation.
//
//   producer   store(group, out, tile);  group.sync();
//              if (first warp) atomic_store<memory_order::release>(self, flag, 1);
//   consumer   wait_for_value<memory_order::acquire>(self, flag, [](int value) { return value == 1; });
//
// A block may wait only for blocks that are certain to run: see `cooperative` in hw/kernel_traits.hpp.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/memory_order.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/tile/fragment_buffer.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class T>
concept atomic_value = std::is_arithmetic_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);

template <memory_order Order, memory_scope Among = memory_scope::device, atomic_value T>
IMBREX_KERNEL T atomic_load(const warp& scope, const T* address, source here = source::current()) {
    static_assert(!releases(Order), "imbrex: an atomic load is relaxed or acquire");
    return hw::atomic_load<Order, Among>(scope, address, here);
}

template <memory_order Order, memory_scope Among = memory_scope::device, atomic_value T>
IMBREX_KERNEL void atomic_store(const warp& scope, T* address, std::type_identity_t<T> value,
                                source here = source::current()) {
    static_assert(!acquires(Order), "imbrex: an atomic store is relaxed or release");
    hw::atomic_store<Order, Among>(scope, address, value, here);
}

// These return the old value.
template <memory_order Order, memory_scope Among = memory_scope::device, atomic_value T>
IMBREX_KERNEL T atomic_fetch_add(const warp& scope, T* address, std::type_identity_t<T> value,
                                 source here = source::current()) {
    return hw::atomic_fetch_add<Order, Among>(scope, address, value, here);
}
template <memory_order Order, memory_scope Among = memory_scope::device, atomic_value T>
IMBREX_KERNEL T atomic_fetch_max(const warp& scope, T* address, std::type_identity_t<T> value,
                                 source here = source::current()) {
    static_assert(std::is_integral_v<T>, "imbrex: atomic_fetch_max takes integers");
    return hw::atomic_fetch_max<Order, Among>(scope, address, value, here);
}
template <memory_order Order, memory_scope Among = memory_scope::device, atomic_value T>
IMBREX_KERNEL T atomic_exchange(const warp& scope, T* address, std::type_identity_t<T> value,
                                source here = source::current()) {
    return hw::atomic_exchange<Order, Among>(scope, address, value, here);
}
// Stores `value` if the old value equals `expected`.
template <memory_order Order, memory_scope Among = memory_scope::device, atomic_value T>
IMBREX_KERNEL T atomic_compare_exchange(const warp& scope, T* address, std::type_identity_t<T> expected,
                                        std::type_identity_t<T> value, source here = source::current()) {
    return hw::atomic_compare_exchange<Order, Among>(scope, address, expected, value, here);
}

// Spins until `ready(value at address)`, and returns that value.
template <memory_order Order, memory_scope Among = memory_scope::device, atomic_value T, class Ready>
IMBREX_KERNEL T wait_for_value(const warp& scope, const T* address, const Ready& ready,
                               source here = source::current()) {
    static_assert(!releases(Order), "imbrex: a wait for a value is relaxed or acquire");
    return hw::wait_for_value<Order, Among>(scope, address, ready, here);
}

// Adds every element of a register tile to the rectangle, each once, as relaxed atomic operations. The out-of-bounds
// part is skipped.
template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void atomic_add(const Scope& scope, global_tile<T> to, const hw::fragment<T, Rows, Columns, Warps>& from,
                              source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, int>, "imbrex: atomic_add takes tiles of float or int");
    hw::add_global(scope, to, from, here);
}

// The same for a fragment buffer in global memory, with vector instructions.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void atomic_add(const Scope& scope, fragment_buffer<float, Rows, Columns>& to,
                              const hw::fragment<float, Rows, Columns, Warps>& from, source here = source::current()) {
    require_scope<Scope, hw::fragment<float, Rows, Columns, Warps>>();
    hw::add_fragment(scope, to, from, here);
}

// Adds to one element, as a relaxed atomic operation, in a function without a scope that an operation calls for each
// element of a register tile: see read_element.hpp.
template <class T>
IMBREX_KERNEL void add_element(T* first, std::int64_t index, T value, source here = source::current()) {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, int>, "imbrex: add_element takes float or int");
    hw::add_global_element(first + index, value, here);
}

// One value of global memory by an ordinary access: one thread writes it, all lanes read it.
template <class Scope, class T>
IMBREX_KERNEL void put(const Scope& scope, T* to, std::type_identity_t<T> value, source here = source::current()) {
    hw::put_global(scope, to, value, here);
}
template <class T>
IMBREX_KERNEL T get(const warp& scope, const T* from, source here = source::current()) {
    return hw::get_global(scope, from, here);
}

}  // namespace imbrex
