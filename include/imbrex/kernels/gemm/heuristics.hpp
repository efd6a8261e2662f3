// Kernel selection heuristic of gemm: the whole decision table in one place.
//
//   condition                                                     kernel
//   not Hopper, TMA cannot read an operand (row stride not a
//   multiple of 16 bytes), or K = 0                               ampere_class        192 or 128 x 256, any stride
//   at most 8 rows, B [n, k] with pdl_prefetch::weights           gemv                skinny GEMM (gemv_16bit.hpp)
//   at most 16 or 64 rows                                         small_m_16, _64     swap-AB, cluster split-K
//   at most 128 rows                                              cluster_split_k     128 x 128
//   otherwise, by the estimate below                              hopper_wide_tile    128 x 256
//                                                                 hopper_narrow_tile  128 x 128
//
// Wide tiles move fewer bytes per FLOP and are faster. Narrow tiles lose less to wave quantization in the last wave.
// The estimate multiplies the number of waves by the measured cost of a wave.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>

#include <cstdint>

namespace imbrex {

enum class gemm_kernel_kind {
    ampere_class,
    gemv,
    small_m_16,
    small_m_64,
    cluster_split_k,
    hopper_narrow_tile,
    hopper_wide_tile
};

struct gemm_heuristic_inputs {
    int m;
    int n;  // columns of B, 2 n with a GLU epilogue
    int k;
    int batches;
    int num_sms;
    bool hopper;                  // the device is one, and the program contains sm_90a code
    bool tma_can_read;            // A and B
    bool small_m_supported;       // 16-bit operands, A row-major
    bool narrow_tile_supported;   // no GLU epilogue
    bool gemv_supported = false;  // at most 8 rows, aligned K-major B, pdl_prefetch::weights
};

constexpr std::int64_t gemm_waves(const gemm_heuristic_inputs& s, int tile_columns, int tile_rows = 128) {
    const auto up = [](std::int64_t total, std::int64_t part) { return ceil_div(total, part); };
    return up(up(s.m, tile_rows) * up(s.n, tile_columns) * s.batches, s.num_sms);
}

// In the sm_80 kernel a tile of 192 rows takes 1.4 times as long as one of 128.
constexpr bool gemm_prefers_short_tiles(const gemm_heuristic_inputs& s) {
    return gemm_waves(s, 256, 192) * 14 > gemm_waves(s, 256, 128) * 10;
}

constexpr gemm_kernel_kind choose_gemm_kernel(const gemm_heuristic_inputs& s) {
    if (!s.hopper || !s.tma_can_read || s.k == 0) return gemm_kernel_kind::ampere_class;
    if (s.gemv_supported) return gemm_kernel_kind::gemv;
    if (s.small_m_supported && s.batches == 1 && s.m <= 128) {
        return s.m <= 16   ? gemm_kernel_kind::small_m_16
               : s.m <= 64 ? gemm_kernel_kind::small_m_64
                           : gemm_kernel_kind::cluster_split_k;
    }
    if (!s.narrow_tile_supported) return gemm_kernel_kind::hopper_wide_tile;
    // A wide tile is twice the work of a narrow one and takes 1.9 times as long.
    return gemm_waves(s, 256) * 19 <= gemm_waves(s, 128) * 10 ? gemm_kernel_kind::hopper_wide_tile
                                                              : gemm_kernel_kind::hopper_narrow_tile;
}

constexpr const char* name_of(gemm_kernel_kind one) {
    switch (one) {
        case gemm_kernel_kind::ampere_class:
            return "ampere_class";
        case gemm_kernel_kind::gemv:
            return "gemv";
        case gemm_kernel_kind::small_m_16:
            return "small_m_16";
        case gemm_kernel_kind::small_m_64:
            return "small_m_64";
        case gemm_kernel_kind::cluster_split_k:
            return "cluster_split_k";
        case gemm_kernel_kind::hopper_narrow_tile:
            return "hopper_narrow_tile";
        case gemm_kernel_kind::hopper_wide_tile:
            return "hopper_wide_tile";
    }
    return "";
}

}  // namespace imbrex
