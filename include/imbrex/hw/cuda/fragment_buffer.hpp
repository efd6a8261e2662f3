// Copies between registers and fragment buffers (tile/fragment_buffer.hpp): each thread moves 16 bytes at a time, and
// neighbouring threads are neighbours in memory.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

template <class Scope, class T, int Rows, int Columns, int Warps, class Buffer>
IMBREX_KERNEL void store_fragment(const Scope& scope, Buffer& to, const fragment<T, Rows, Columns, Warps>& from,
                                  source) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    static_assert(fragment_type::each * sizeof(T) == 16, "imbrex: a fragment buffer holds 32-bit elements");
#pragma unroll
    for (int i = 0; i < fragment_type::blocks * fragment_type::strips; ++i) {
        reinterpret_cast<uint4*>(to.values)[i * Scope::threads + thread_in(scope)] =
            read_as<uint4>(from.values[i / fragment_type::strips][i % fragment_type::strips]);
    }
}

template <class Scope, class T, int Rows, int Columns, int Warps, class Buffer>
IMBREX_KERNEL void load_fragment(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, const Buffer& from,
                                 source) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    static_assert(fragment_type::each * sizeof(T) == 16, "imbrex: a fragment buffer holds 32-bit elements");
#pragma unroll
    for (int i = 0; i < fragment_type::blocks * fragment_type::strips; ++i) {
        write_as(to.values[i / fragment_type::strips][i % fragment_type::strips],
                 reinterpret_cast<const uint4*>(from.values)[i * Scope::threads + thread_in(scope)]);
    }
}

// Vector reductions: four elements each.
template <class Scope, int Rows, int Columns, int Warps, class Buffer>
IMBREX_KERNEL void add_fragment(const Scope& scope, Buffer& to, const fragment<float, Rows, Columns, Warps>& from,
                                source) {
    static_assert(has_tma, "imbrex: an atomic add to a fragment buffer needs sm_90 or later");
    using fragment_type = fragment<float, Rows, Columns, Warps>;
#pragma unroll
    for (int i = 0; i < fragment_type::blocks * fragment_type::strips; ++i) {
        const float(&four)[4] = from.values[i / fragment_type::strips][i % fragment_type::strips];
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                         to.values + 4 * (i * Scope::threads + thread_in(scope))),
                     "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
                     : "memory");
    }
}

}  // namespace imbrex::hw
