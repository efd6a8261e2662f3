// Upconverts rows of an 8-bit shared tile (e4m3 or int8) into a 16-bit one (bf16 or fp16), in the same order: for
// kernels that multiply 16-bit tiles and read an 8-bit KV cache.
//
//     upconvert(self, to.subtile<32>(row), from, valid_rows);            // exact
//     upconvert(self, to.subtile<16>(row), from, valid_rows, factor);    // value * factor, rounded once
//
// Rows from `valid_rows` on become zero, whatever they hold. NaN becomes NaN or 480. A consumer that reads `to` through
// the async proxy (wgmma) needs fence_async after it.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

namespace detail {

template <class From, class To>
constexpr bool check_upconversion() {
    static_assert(upconverts_to<std::remove_const_t<typename From::element>, std::remove_const_t<typename To::element>>,
                  "imbrex: e4m3 and int8 are upconverted to bf16 and fp16");
    return true;
}

}  // namespace detail

template <class To, class From>
IMBREX_KERNEL void upconvert(const warp& scope, const To& to, const From& from, int valid_rows,
                             source here = source::current()) {
    static_assert(detail::check_upconversion<From, To>());
    hw::upconvert_shared(scope, to, from, valid_rows, here);
}
template <class To, class From>
IMBREX_KERNEL void upconvert(const warp& scope, const To& to, const From& from, int valid_rows, float factor,
                             source here = source::current()) {
    static_assert(detail::check_upconversion<From, To>());
    hw::upconvert_shared(scope, to, from, valid_rows, factor, here);
}

}  // namespace imbrex
