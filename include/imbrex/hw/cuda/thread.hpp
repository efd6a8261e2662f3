// Who a thread is, what its architecture can do, and the two or three things every other header of this folder needs.
// A block is one-dimensional here: warps are counted by threadIdx.x.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

// The architecture of this pass, as 900 for sm_90. Code that an architecture lacks is left out by `if constexpr` or
// refused with a sentence where it is used, so that every header compiles for all of them.
inline constexpr int architecture = __CUDA_ARCH__;
inline constexpr bool has_fp8_mma = architecture >= 890;
// Bulk tensor copies, transaction barriers, stmatrix and elect.
inline constexpr bool has_tma = architecture >= 900;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool has_wgmma = true;
#else
inline constexpr bool has_wgmma = false;
#endif

// setmaxnreg belongs to the "a" and "f" targets from sm_90 on.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
inline constexpr bool has_register_reallocation = true;
#else
inline constexpr bool has_register_reallocation = false;
#endif

// Multicast is quick on the "a" targets of sm_90 and sm_100, and not to be had elsewhere from the library we use.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)
inline constexpr bool has_multicast = true;
#else
inline constexpr bool has_multicast = false;
#endif

inline constexpr unsigned all_lanes = 0xffffffffU;

IMBREX_KERNEL int lane() {
    return static_cast<int>(threadIdx.x % 32);
}

// Of this warp in its block.
IMBREX_KERNEL int warp_number() {
    return static_cast<int>(threadIdx.x / 32);
}

// The same, in a form from which the compiler can tell that it is one value for the whole warp: branches on it need no
// reconvergence. It costs a shuffle, so it is for choosing a role, not for inner loops.
IMBREX_KERNEL int uniform_warp_number() {
    return __shfl_sync(all_lanes, static_cast<int>(threadIdx.x / 32), 0);
}

// A number from 0 on that all lanes of a warp have alike, in such a form: what is counted from it, as the descriptors of tiles,
// has uniform registers.
IMBREX_KERNEL int uniform(int number) {
    const int same = __shfl_sync(all_lanes, number, 0);
    __builtin_assume(same >= 0);
    return same;
}

// Of this lane in the pattern that matrix instructions share: eight groups of four lanes, a group to each row.
IMBREX_KERNEL int lane_row() {
    return lane() / 4;
}
IMBREX_KERNEL int lane_in_quad() {
    return lane() % 4;
}

// Number of this thread among the threads of a scope.
template <class Scope>
IMBREX_KERNEL int thread_in(const Scope& scope) {
    return scope.rank() * 32 + lane();
}

// True in one lane of a converged warp, the same lane every time: bulk copies are grouped by the thread that issued
// them. The instruction tells the compiler that a single thread goes on, which `lane() == 0` does not.
IMBREX_KERNEL bool elected_lane() {
    if constexpr (has_tma) {
        std::uint32_t chosen;
        asm volatile(
            "{\n\t.reg .pred leader;\n\t"
            "elect.sync _|leader, 0xffffffff;\n\t"
            "selp.u32 %0, 1, 0, leader;\n\t}"
            : "=r"(chosen));
        return chosen != 0;
    } else {
        return lane() == 0;
    }
}

// True in one lane of a scope's first warp. All lanes of the scope must come here.
template <class Scope>
IMBREX_KERNEL bool elected(const Scope& scope) {
    if constexpr (Scope::warps == 1) {
        return elected_lane();
    } else {
        return scope.rank() == 0 && elected_lane();
    }
}

IMBREX_KERNEL std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Any other type's bits, as a register; and back. Arrays of small elements are read and written through these, so that
// they stay in registers as whole words.
template <class To>
IMBREX_KERNEL To read_as(const void* from) {
    To to;
    __builtin_memcpy(&to, from, sizeof(To));
    return to;
}
template <class From>
IMBREX_KERNEL void write_as(void* to, From from) {
    __builtin_memcpy(to, &from, sizeof(From));
}

// An unsigned integer of as many bytes.
template <int Bytes>
struct word_of;
template <>
struct word_of<1> {
    using type = std::uint8_t;
};
template <>
struct word_of<2> {
    using type = std::uint16_t;
};
template <>
struct word_of<4> {
    using type = std::uint32_t;
};
template <>
struct word_of<8> {
    using type = uint2;
};
template <>
struct word_of<16> {
    using type = uint4;
};
template <int Bytes>
using word = typename word_of<Bytes>::type;

// The layout of a shared tile, or of the tile that a part is of.
template <class Shared>
struct layout_of_shared {
    using type = typename std::remove_pointer_t<decltype(Shared::tile)>::layout;
};
template <class Shared>
requires requires {
    typename Shared::layout;
}
struct layout_of_shared<Shared> {
    using type = typename Shared::layout;
};
template <class Shared>
using layout_of = typename layout_of_shared<std::remove_cv_t<Shared>>::type;

}  // namespace imbrex::hw
