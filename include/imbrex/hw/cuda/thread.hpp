// Thread and warp indices, the features of the architecture, and small helpers for the other headers of this folder.
// Blocks are one-dimensional: warps are counted by threadIdx.x.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

// The architecture of this pass, 900 for sm_90. Code that an architecture lacks is excluded by `if constexpr` or
// rejected by a static_assert where it is used, so every header compiles for all architectures.
inline constexpr int architecture = __CUDA_ARCH__;
inline constexpr bool has_fp8_mma = architecture >= 890;
// TMA, transaction barriers (mbarrier), stmatrix and elect.
inline constexpr bool has_tma = architecture >= 900;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool has_wgmma = true;
#else
inline constexpr bool has_wgmma = false;
#endif

// Whether this device pass has the instructions of the architecture.
constexpr bool compiled_for(gpu_architecture one) {
    switch (one) {
        case gpu_architecture::sm_80:
            return true;
        case gpu_architecture::sm_89:
            return has_fp8_mma;
        case gpu_architecture::sm_90a:
            return has_wgmma;
        case gpu_architecture::sm_100a:
#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
            return true;
#else
            return false;
#endif
        case gpu_architecture::sm_120a:
#if defined(__CUDA_ARCH_FEAT_SM120_ALL)
            return true;
#else
            return false;
#endif
    }
    return false;
}

// setmaxnreg needs an "a" or "f" target from sm_90 on.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
inline constexpr bool has_register_reallocation = true;
#else
inline constexpr bool has_register_reallocation = false;
#endif

// TMA multicast is fast on the "a" targets of sm_90 and sm_100; the library we use does not offer it elsewhere.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)
inline constexpr bool has_multicast = true;
#else
inline constexpr bool has_multicast = false;
#endif

inline constexpr unsigned all_lanes = 0xffffffffU;

IMBREX_KERNEL int lane() {
    return static_cast<int>(threadIdx.x % 32);
}

// The index of this warp in its block.
IMBREX_KERNEL int warp_number() {
    return static_cast<int>(threadIdx.x / 32);
}

// The same as a warp-uniform value for the compiler: branches on it need no reconvergence. It costs a shuffle, so it is
// for role selection, not for inner loops.
IMBREX_KERNEL int uniform_warp_number() {
    return __shfl_sync(all_lanes, static_cast<int>(threadIdx.x / 32), 0);
}

// Makes a non-negative, warp-uniform number uniform for the compiler: values derived from it, such as descriptors, go
// to uniform registers.
IMBREX_KERNEL int uniform(int number) {
    const int same = __shfl_sync(all_lanes, number, 0);
    __builtin_assume(same >= 0);
    return same;
}

// The row of this lane in the layout of matrix instructions: eight groups of four lanes, one group per row.
IMBREX_KERNEL int lane_row() {
    return lane() / 4;
}
IMBREX_KERNEL int lane_in_quad() {
    return lane() % 4;
}

// The index of this thread within a scope.
template <class Scope>
IMBREX_KERNEL int thread_in(const Scope& scope) {
    return scope.rank() * 32 + lane();
}

// True in one lane of a converged warp, always the same: bulk copies are grouped by the issuing thread. The elect
// instruction tells the compiler that a single thread continues, which `lane() == 0` does not.
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

// True in one lane of a scope's first warp. All lanes of the scope must call it.
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

// Reads and writes the bits of another type as a register. Arrays of small elements are accessed through these, so that
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

// The unsigned integer type of this size.
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

// The layout of a shared tile, or of the parent tile of a subtile.
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
