// How a GEMM's operands lie, and the shapes in which its kernels work: what a block makes at a time, in which steps.
#pragma once

namespace imbrex {

// How an operand lies: rows of A (or of B) one after the other, or its transpose.
enum class matrix_layout { row_major, column_major };

// What B is: anything, or weights that no kernel of the stream writes, so that they may be read while the kernel before is still
// at work.
enum class pdl_prefetch { none, weights };

// The Hopper kernel. A block makes 128 rows at a time.
struct gemm_shape {
    int block_n = 256;  // 128 or 256
    int block_k = 64;   // of a step of K
    int stages = 4;     // steps under way
    int cluster = 2;    // blocks that share B
    int group_m = 8;    // rows of clusters' tiles that are walked together
};

// The kernel for every GPU from sm_80 on. Its warps make 96 x 64 each if its rows are a multiple of 96, and otherwise 64 x 64.
struct gemm_ampere_shape {
    int block_m = 192;
    int block_n = 256;
    int block_k_bytes = 64;  // of a step of K: 32 elements of 16 bits, 64 of 8
    int stages = 3;          // steps under way
    int group_m = 8;         // rows of tiles that are walked together
};

// Lower tiles, for what has few rows or leaves multiprocessors without work at the end. And for all that takes more registers than a
// plain product of 16-bit operands by rows, the one for which these suffice with warps of 96 rows.
inline constexpr gemm_ampere_shape short_tile_ampere_shape{.block_m = 128, .stages = 4};
constexpr gemm_ampere_shape default_ampere_shape(int element_bytes, matrix_layout a, matrix_layout b, bool is_plain) {
    const bool suffice =
        element_bytes == 2 && a == matrix_layout::row_major && b == matrix_layout::row_major && is_plain;
    return suffice ? gemm_ampere_shape{} : short_tile_ampere_shape;
}

}  // namespace imbrex
