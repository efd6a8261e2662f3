// GEMV and GEMM on a CPU with ggml's blocks, straight from the mapped file: out[m, n] = sum x[m, k] W[n, k] + bias[n].
// x is quantised to int8 in groups of 16, half of llama.cpp's; a group is multiplied in integers.
//
//     for each chunk of 256 elements of a weight row
//         unpack    bytes, and scale and offset per 16 elements (loading/ggml_blocks.hpp)
//         for each row of x
//             sum         += scale * scale of x * integer dot product       a vector of sums, in the order of the chunks
//             offset sum  += offset * sum of x
//
// Up to four rows of x are multiplied with a chunk as it is unpacked; for more rows, four weight rows at a time are
// unpacked once. The bits of a result do not depend on the number of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/loading/weight_type.hpp"

namespace imbrex::engine {

struct block_weight_rows {
    weight_type type = weight_type::q4_0;  // a block type
    const std::byte* values = nullptr;     // rows of whole blocks
    std::int64_t rows = 0, columns = 0;
};

// The order of the 16 groups of 16 elements in a chunk: as in the row, or the first halves of groups of 32, then their
// second halves.
enum class chunk_order { natural, halves };
chunk_order order_of_chunks(weight_type type);

// Rows of x as int8, padded with zeros to chunks of 256, in the order of the weights.
class quantised_rows {
  public:
    quantised_rows(const float* x, int rows, std::int64_t columns, chunk_order order);

    int rows() const { return rows_; }
    std::int64_t chunks() const { return chunks_; }
    const std::int8_t* values(int row, std::int64_t chunk) const { return &values_[place(row, chunk) * 256]; }
    // Per 16 elements: the scale, and the sum of the rounded values.
    const float* scales(int row, std::int64_t chunk) const { return &scales_[place(row, chunk) * 16]; }
    const float* sums(int row, std::int64_t chunk) const { return &sums_[place(row, chunk) * 16]; }

  private:
    void quantise_group(const float* x, int row, std::int64_t group, chunk_order order);
    std::size_t place(int row, std::int64_t chunk) const { return static_cast<std::size_t>(row * chunks_ + chunk); }

    int rows_;
    std::int64_t chunks_;
    std::vector<std::int8_t> values_;
    std::vector<float> scales_, sums_;
};

// A product with some rows of x: those that `numbers` lists, or without it consecutive ones.
struct block_gemm_problem {
    block_weight_rows weights;
    const int* numbers = nullptr;
    int first = 0, rows = 0;
    const float* bias = nullptr;  // may be null
    float* out = nullptr;         // element (i, j) of the result is out[i * out_stride + j]
    std::int64_t out_stride = 0;

    int x_row(int i) const { return numbers != nullptr ? numbers[i] : first + i; }
};

// Grouped GEMM: all problems in one launch. Their types must have the order of x.
void block_gemm(std::span<const block_gemm_problem> problems, const quantised_rows& x);

}  // namespace imbrex::engine
