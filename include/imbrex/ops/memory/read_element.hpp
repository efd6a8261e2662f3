// One element of global memory, for functions that run inside a kernel without a scope: the lookup of a block table in
// `warp_gather`, the length of a sequence, the position of a row.
//
//     const auto pages = warp_gather<8>(self, [&](int number) { return read_element(table, first + number); });
//
// `write_element` stores one, in a function that an operation calls once for each of its elements (fill_indexed). On the
// device each calling thread loads or stores it. In the checked host world it is an access of the running scope, compared
// with the history of global memory; `table[first + number]` would not be. Outside of a kernel it is an ordinary load.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class T>
IMBREX_FN T read_element(const T* first, std::int64_t index, source here = source::current()) {
    return hw::global_element(first + index, here);
}

template <class T>
IMBREX_FN void write_element(T* first, std::int64_t index, std::type_identity_t<T> value,
                             source here = source::current()) {
    hw::set_global_element(first + index, value, here);
}

}  // namespace imbrex
