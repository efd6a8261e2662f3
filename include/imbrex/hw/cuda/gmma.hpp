// The table of CuTe's wgmma instructions (cute/arch/mma_sm90_gmma.hpp) for 64 x k by k x N, by element types and N.
// CuTe has a struct for each instruction.
//
// 16-bit operands in shared memory may be K-major or MN-major; 8-bit operands only K-major.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#if !defined(CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED)
#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED
#endif
#include <cute/arch/mma_sm90_gmma.hpp>
#include <cute/arch/mma_sm90_gmma_ext.hpp>
#endif

namespace imbrex::hw {

// `exists`, `accumulator`, and the instruction with A in shared memory or in registers. The flags tell for each operand
// whether it is MN-major: k runs down the rows of its tile.
template <class A, class B, int N>
struct gmma {
    static constexpr bool exists = false;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

namespace cute_gmma = cute::SM90::GMMA;

template <bool AcrossK>
inline constexpr auto gmma_major = AcrossK ? cute_gmma::Major::MN : cute_gmma::Major::K;

// CuTe's names for one N. 32 values of N exist for floats, 18 for integers.
template <int N>
struct gmma_floats {};
template <int N>
struct gmma_integers {};

#define IMBREX_GMMA_FLOATS(N)                                                       \
    template <>                                                                     \
    struct gmma_floats<N> {                                                         \
        template <auto A, auto B>                                                   \
        using bf16_shared = cute_gmma::MMA_64x##N##x16_F32BF16BF16_SS<A, B>;        \
        template <auto A, auto B>                                                   \
        using bf16_registers = cute_gmma::MMA_64x##N##x16_F32BF16BF16_RS<A, B>;     \
        template <auto A, auto B>                                                   \
        using fp16_shared = cute_gmma::MMA_64x##N##x16_F32F16F16_SS<A, B>;          \
        template <auto A, auto B>                                                   \
        using fp16_registers = cute_gmma::MMA_64x##N##x16_F32F16F16_RS<A, B>;       \
        using e4m3_e4m3_shared = cute_gmma::MMA_64x##N##x32_F32E4M3E4M3_SS_TN<>;    \
        using e4m3_e4m3_registers = cute_gmma::MMA_64x##N##x32_F32E4M3E4M3_RS_TN<>; \
        using e4m3_e5m2_shared = cute_gmma::MMA_64x##N##x32_F32E4M3E5M2_SS_TN<>;    \
        using e4m3_e5m2_registers = cute_gmma::MMA_64x##N##x32_F32E4M3E5M2_RS_TN<>; \
        using e5m2_e4m3_shared = cute_gmma::MMA_64x##N##x32_F32E5M2E4M3_SS_TN<>;    \
        using e5m2_e4m3_registers = cute_gmma::MMA_64x##N##x32_F32E5M2E4M3_RS_TN<>; \
        using e5m2_e5m2_shared = cute_gmma::MMA_64x##N##x32_F32E5M2E5M2_SS_TN<>;    \
        using e5m2_e5m2_registers = cute_gmma::MMA_64x##N##x32_F32E5M2E5M2_RS_TN<>; \
    };
#define IMBREX_GMMA_INTEGERS(N)                                          \
    template <>                                                          \
    struct gmma_integers<N> {                                            \
        using int8_shared = cute_gmma::MMA_64x##N##x32_S32S8S8_SS_TN;    \
        using int8_registers = cute_gmma::MMA_64x##N##x32_S32S8S8_RS_TN; \
    };

// clang-format off
IMBREX_GMMA_FLOATS(8)   IMBREX_GMMA_FLOATS(16)  IMBREX_GMMA_FLOATS(24)  IMBREX_GMMA_FLOATS(32)
IMBREX_GMMA_FLOATS(40)  IMBREX_GMMA_FLOATS(48)  IMBREX_GMMA_FLOATS(56)  IMBREX_GMMA_FLOATS(64)
IMBREX_GMMA_FLOATS(72)  IMBREX_GMMA_FLOATS(80)  IMBREX_GMMA_FLOATS(88)  IMBREX_GMMA_FLOATS(96)
IMBREX_GMMA_FLOATS(104) IMBREX_GMMA_FLOATS(112) IMBREX_GMMA_FLOATS(120) IMBREX_GMMA_FLOATS(128)
IMBREX_GMMA_FLOATS(136) IMBREX_GMMA_FLOATS(144) IMBREX_GMMA_FLOATS(152) IMBREX_GMMA_FLOATS(160)
IMBREX_GMMA_FLOATS(168) IMBREX_GMMA_FLOATS(176) IMBREX_GMMA_FLOATS(184) IMBREX_GMMA_FLOATS(192)
IMBREX_GMMA_FLOATS(200) IMBREX_GMMA_FLOATS(208) IMBREX_GMMA_FLOATS(216) IMBREX_GMMA_FLOATS(224)
IMBREX_GMMA_FLOATS(232) IMBREX_GMMA_FLOATS(240) IMBREX_GMMA_FLOATS(248) IMBREX_GMMA_FLOATS(256)

IMBREX_GMMA_INTEGERS(8)   IMBREX_GMMA_INTEGERS(16)  IMBREX_GMMA_INTEGERS(24)  IMBREX_GMMA_INTEGERS(32)
IMBREX_GMMA_INTEGERS(48)  IMBREX_GMMA_INTEGERS(64)  IMBREX_GMMA_INTEGERS(80)  IMBREX_GMMA_INTEGERS(96)
IMBREX_GMMA_INTEGERS(112) IMBREX_GMMA_INTEGERS(128) IMBREX_GMMA_INTEGERS(144) IMBREX_GMMA_INTEGERS(160)
IMBREX_GMMA_INTEGERS(176) IMBREX_GMMA_INTEGERS(192) IMBREX_GMMA_INTEGERS(208) IMBREX_GMMA_INTEGERS(224)
IMBREX_GMMA_INTEGERS(240) IMBREX_GMMA_INTEGERS(256)
#undef IMBREX_GMMA_FLOATS
#undef IMBREX_GMMA_INTEGERS

template <int N>
concept gmma_float_columns = N % 8 == 0 && N >= 8 && N <= 256;
template <int N>
concept gmma_integer_columns = (N % 16 == 0 && N >= 16 && N <= 256) || N == 8 || N == 24;

// clang-format on

template <class Accumulator>
struct gmma_entry {
    static constexpr bool exists = true;
    using accumulator = Accumulator;
};

template <int N>
requires gmma_float_columns<N>
struct gmma<bf16, bf16, N> : gmma_entry<float> {
    template <bool A, bool B>
    using shared = typename gmma_floats<N>::template bf16_shared<gmma_major<A>, gmma_major<B>>;
    template <bool A, bool B>
    using registers = typename gmma_floats<N>::template bf16_registers<gmma_major<A>, gmma_major<B>>;
};
template <int N>
requires gmma_float_columns<N>
struct gmma<fp16, fp16, N> : gmma_entry<float> {
    template <bool A, bool B>
    using shared = typename gmma_floats<N>::template fp16_shared<gmma_major<A>, gmma_major<B>>;
    template <bool A, bool B>
    using registers = typename gmma_floats<N>::template fp16_registers<gmma_major<A>, gmma_major<B>>;
};
template <int N>
requires gmma_float_columns<N>
struct gmma<e4m3, e4m3, N> : gmma_entry<float> {
    template <bool, bool>
    using shared = typename gmma_floats<N>::e4m3_e4m3_shared;
    template <bool, bool>
    using registers = typename gmma_floats<N>::e4m3_e4m3_registers;
};
template <int N>
requires gmma_float_columns<N>
struct gmma<e4m3, e5m2, N> : gmma_entry<float> {
    template <bool, bool>
    using shared = typename gmma_floats<N>::e4m3_e5m2_shared;
    template <bool, bool>
    using registers = typename gmma_floats<N>::e4m3_e5m2_registers;
};
template <int N>
requires gmma_float_columns<N>
struct gmma<e5m2, e4m3, N> : gmma_entry<float> {
    template <bool, bool>
    using shared = typename gmma_floats<N>::e5m2_e4m3_shared;
    template <bool, bool>
    using registers = typename gmma_floats<N>::e5m2_e4m3_registers;
};
template <int N>
requires gmma_float_columns<N>
struct gmma<e5m2, e5m2, N> : gmma_entry<float> {
    template <bool, bool>
    using shared = typename gmma_floats<N>::e5m2_e5m2_shared;
    template <bool, bool>
    using registers = typename gmma_floats<N>::e5m2_e5m2_registers;
};
template <int N>
requires gmma_integer_columns<N>
struct gmma<std::int8_t, std::int8_t, N> : gmma_entry<std::int32_t> {
    template <bool, bool>
    using shared = typename gmma_integers<N>::int8_shared;
    template <bool, bool>
    using registers = typename gmma_integers<N>::int8_registers;
};

#endif

}  // namespace imbrex::hw
