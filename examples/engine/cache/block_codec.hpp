// How a block of the KV cache lies in a file: as it is, with 8-bit numbers instead of 16-bit ones, compressed, or both.
//
//   quantised   a float scale and int8 values for each row of head_dim columns (a token's key or value in one head of
//               one layer): value = scale * q, scale = largest magnitude / 127. The error is at most 1/254 of the
//               largest magnitude of the row, plus the rounding to 16 bits.
//   compressed  by zlib or zstd, if the program has them. 16-bit numbers are divided into low and high bytes first:
//               exponents compress, mantissas hardly do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace imbrex::engine {

enum class cache_compression { none, zlib, zstd };

const char* name_of(cache_compression method);
bool is_available(cache_compression method);

// The numbers of a block.
enum class cache_element { f16, bf16, other };

struct block_codec {
    cache_compression compression = cache_compression::none;
    bool quantised = false;  // of f16 and bf16
    cache_element element = cache_element::other;
    int columns = 1;  // of a row of 16-bit numbers

    // Throws if the program lacks the library, or if the numbers cannot be quantised.
    void check() const;

    // Blocks of 16-bit numbers have whole rows.
    std::vector<std::byte> encode(std::span<const std::byte> block) const;
    // Throws imbrex::error unless the bytes are a block of this size.
    std::vector<std::byte> decode(std::span<const std::byte> bytes, std::size_t block_bytes) const;
    void check_rows(std::size_t block_bytes) const;
};

}  // namespace imbrex::engine
