// ldmatrix and stmatrix: 8 x 8 matrices of 16-bit elements between shared memory and the registers of a warp. Each lane
// supplies the address of one 16-byte matrix row: lanes 0 to 7 for the first matrix, 8 to 15 for the second, and so on.
// Lane 4g + t gets row g, columns 2t and 2t + 1, or in the transposed form column g, rows 2t and 2t + 1. A row has
// sixteen 8-bit elements, and a lane gets four.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// The address of an element of a shared tile or subtile. The swizzle repeats every eight rows, so a subtile's offset is
// rounded to whole repetitions and added last, to an address that is opaque to the compiler. Otherwise it would combine
// the two by a logical or and keep an address register for each.
template <class Shared>
IMBREX_KERNEL auto* place_in_shared(Shared& shared, int row, int column) {
    using layout = layout_of<Shared>;
    if constexpr (requires { shared.tile; }) {
        const int within = shared.first_row % 8;
        int offset = layout::byte_offset(within + row, shared.first_column + column);
        asm("" : "+r"(offset));
        return shared.tile->storage + offset + (shared.first_row - within) * layout::panel_bytes_wide;
    } else {
        return shared.storage + layout::byte_offset(row, column);
    }
}

template <bool Transposed>
IMBREX_KERNEL void load_matrices(std::uint32_t (&words)[2], const void* row) {
    if constexpr (Transposed) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(shared_address(row))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(shared_address(row))
                     : "memory");
    }
}

template <bool Transposed>
IMBREX_KERNEL void load_matrices(std::uint32_t (&words)[4], const void* row) {
    if constexpr (Transposed) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(shared_address(row))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(shared_address(row))
                     : "memory");
    }
}

// sm_90 and later.
template <bool Transposed>
IMBREX_KERNEL void store_matrices(void* row, const std::uint32_t (&words)[2]) {
    static_assert(has_tma, "imbrex: stmatrix needs sm_90 or later");
    if constexpr (Transposed) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                     :
                     : "r"(shared_address(row)), "r"(words[0]), "r"(words[1])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                     :
                     : "r"(shared_address(row)), "r"(words[0]), "r"(words[1])
                     : "memory");
    }
}

template <bool Transposed>
IMBREX_KERNEL void store_matrices(void* row, const std::uint32_t (&words)[4]) {
    static_assert(has_tma, "imbrex: stmatrix needs sm_90 or later");
    if constexpr (Transposed) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(shared_address(row)), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(shared_address(row)), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    }
}

}  // namespace imbrex::hw
