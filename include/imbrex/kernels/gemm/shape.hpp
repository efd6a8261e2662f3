// How a GEMM's operands lie, and the shapes in which its kernels work: what a block makes at a time, in which steps.
#pragma once

namespace imbrex {

// How an operand lies: rows of A (or of B) one after the other, or its transpose.
enum class stored { normal, transposed };

// The Hopper kernel. A block makes 128 rows at a time.
struct gemm_shape {
    int columns = 256;  // 128 or 256
    int depth = 64;     // of a step of K
    int stages = 4;     // steps under way
    int cluster = 2;    // blocks that share B
    int band = 8;       // rows of clusters' tiles that are walked together
};

}  // namespace imbrex
