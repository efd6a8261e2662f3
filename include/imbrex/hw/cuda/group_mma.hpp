// The product of a warpgroup's register tile and a shared tile by mma.sync: each warp multiplies its own rows, and loads the
// shared tile for itself. Accumulator and left operand lie as wgmma has them.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>
#include <imbrex/hw/cuda/mma.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>

namespace imbrex::hw {

// c += a * transpose of b.
template <class T, int M, int N, int K, class Shared>
IMBREX_KERNEL void group_mma(const warpgroup&, fragment<float, M, N, 4>& c, const fragment<T, M, K, 4>& a,
                             const Shared& b, source = source::current()) {
    static_assert(has_mma<T, T> && sizeof(T) == 2, "imbrex: a warpgroup's own product is of bf16 or fp16");
    __syncwarp();
    // Four matrices of 8 rows of b and 8 of k at a time: 32 of k, or 16 of k and 16 rows.
    constexpr int rows = N % 16 == 0 ? 16 : 8, depth = 256 / rows;
    static_assert(K % depth == 0,
                  "imbrex: the inner dimension must be a multiple of 16, of 32 for an odd number of "
                  "eights of columns");
    const int matrix = lane() / 8, line = lane() % 8;
#pragma unroll
    for (int k = 0; k < K; k += depth) {
#pragma unroll
        for (int first = 0; first < N; first += rows) {
            std::uint32_t words[4];
            load_matrices<false>(words, rows == 16 ? b.at(first + matrix / 2 * 8 + line, k + matrix % 2 * 8)
                                                   : b.at(first + line, k + matrix * 8));
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const std::uint32_t right[2] = {words[2 * half], words[2 * half + 1]};
                const int strip = k / 8 + (rows == 16 ? 0 : 2 * half), column = first / 8 + (rows == 16 ? half : 0);
#pragma unroll
                for (int block = 0; block < M / 64; ++block) {
                    const std::uint32_t left[4] = {a.word_at(block, strip, 0), a.word_at(block, strip, 1),
                                                   a.word_at(block, strip + 1, 0), a.word_at(block, strip + 1, 1)};
                    mma_step<T, T>(c.values[block][column], left, right);
                }
            }
        }
    }
}

}  // namespace imbrex::hw
