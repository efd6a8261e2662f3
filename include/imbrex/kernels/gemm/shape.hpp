// Operand layouts (K-major, MN-major) and tile shapes of the GEMM kernels: block_m x block_n x block_k, pipeline
// stages, cluster size and rasterisation group (GROUP_M).
#pragma once

#include <imbrex/core/kernel_targets.hpp>

namespace imbrex {

// The layout of an operand in memory. A row-major A and a column-major B, stored as [n, k], are K-major; the other two
// are MN-major.
enum class matrix_layout { row_major, column_major };

// Whether B may be prefetched before the previous kernel in the stream has finished (PDL). `weights`: no kernel in the
// stream writes B.
enum class pdl_prefetch { none, weights };

// Compile-time options of `gemm`.
struct gemm_options {
    matrix_layout a = matrix_layout::row_major;
    matrix_layout b = matrix_layout::row_major;
    pdl_prefetch prefetch = pdl_prefetch::none;
    kernel_targets targets = kernel_targets::all;
};

// The Hopper kernel. block_m is 128.
struct gemm_shape {
    int block_n = 256;  // 128 or 256
    int block_k = 64;   // K per mainloop step
    int stages = 4;     // pipeline stages
    int cluster = 2;    // blocks that share B by TMA multicast
    int group_m = 8;    // rasterisation group (GROUP_M), in rows of cluster tiles
};

// The sm_80 kernel. Its warp tile is 96 x 64 if block_m is a multiple of 96, and otherwise 64 x 64.
struct gemm_ampere_shape {
    int block_m = 192;
    int block_n = 256;
    int block_k_bytes = 64;  // K per mainloop step: 32 16-bit or 64 8-bit elements
    int stages = 3;          // pipeline stages
    int group_m = 8;         // rasterisation group (GROUP_M), in rows of tiles
};

// Shorter tiles for small M and for grids whose last wave would leave SMs idle. Also for everything that needs more
// registers than an unfused 16-bit row-major product, the only case whose 96-row warp tile fits in registers.
inline constexpr gemm_ampere_shape short_tile_ampere_shape{.block_m = 128, .stages = 4};
constexpr gemm_ampere_shape default_ampere_shape(int element_bytes, matrix_layout a, matrix_layout b, bool is_plain) {
    const bool suffice =
        element_bytes == 2 && a == matrix_layout::row_major && b == matrix_layout::row_major && is_plain;
    return suffice ? gemm_ampere_shape{} : short_tile_ampere_shape;
}

}  // namespace imbrex
