#include "engine/cache/block_codec.hpp"

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(IMBREX_HAS_ZLIB)
#include <zlib.h>
#endif
#if defined(IMBREX_HAS_ZSTD)
#include <zstd.h>
#endif

namespace imbrex::engine {

namespace {

using bytes = std::vector<std::byte>;

template <class Element>
Element element_at(std::span<const std::byte> from, std::size_t i) {
    Element value;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    return value;
}

template <class Element>
bytes quantise(std::span<const std::byte> block, std::size_t columns) {
    const std::size_t count = block.size() / sizeof(Element), rows = count / columns;
    bytes result(rows * sizeof(float) + count);
    for (std::size_t row = 0; row < rows; ++row) {
        float most = 0;
        for (std::size_t i = 0; i < columns; ++i)
            most = std::max(most, std::fabs(static_cast<float>(element_at<Element>(block, row * columns + i))));
        require(std::isfinite(most), "block: it has a NaN or an infinity, which 8 bits cannot hold");
        const float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
        std::memcpy(result.data() + row * sizeof scale, &scale, sizeof scale);
        for (std::size_t i = 0; i < columns; ++i) {
            const float value = static_cast<float>(element_at<Element>(block, row * columns + i)) * inverse;
            const auto q = static_cast<std::int8_t>(std::lrint(std::clamp(value, -127.0f, 127.0f)));
            result[rows * sizeof scale + row * columns + i] = static_cast<std::byte>(q);
        }
    }
    return result;
}

template <class Element>
bytes dequantise(std::span<const std::byte> from, std::size_t block_bytes, std::size_t columns) {
    const std::size_t count = block_bytes / sizeof(Element), rows = count / columns;
    bytes result(block_bytes);
    for (std::size_t i = 0; i < count; ++i) {
        const auto scale = element_at<float>(from, i / columns);
        const auto q = static_cast<std::int8_t>(from[rows * sizeof scale + i]);
        const Element value(scale * static_cast<float>(q));
        std::memcpy(result.data() + i * sizeof value, &value, sizeof value);
    }
    return result;
}

// The low bytes of all 16-bit numbers, then the high bytes.
bytes divided(std::span<const std::byte> block) {
    bytes result(block.size());
    const std::size_t half = block.size() / 2;
    for (std::size_t i = 0; i < half; ++i) result[i] = block[2 * i], result[half + i] = block[2 * i + 1];
    return result;
}
bytes joined(std::span<const std::byte> halves) {
    bytes result(halves.size());
    const std::size_t half = halves.size() / 2;
    for (std::size_t i = 0; i < half; ++i) result[2 * i] = halves[i], result[2 * i + 1] = halves[half + i];
    return result;
}

bytes compress([[maybe_unused]] cache_compression method, [[maybe_unused]] std::span<const std::byte> from) {
#if defined(IMBREX_HAS_ZLIB)
    if (method == cache_compression::zlib) {
        uLongf size = compressBound(static_cast<uLong>(from.size()));
        bytes result(size);
        const int status = compress2(reinterpret_cast<Bytef*>(result.data()), &size,
                                     reinterpret_cast<const Bytef*>(from.data()), static_cast<uLong>(from.size()), 1);
        require(status == Z_OK, "zlib: error ", status);
        result.resize(size);
        return result;
    }
#endif
#if defined(IMBREX_HAS_ZSTD)
    if (method == cache_compression::zstd) {
        bytes result(ZSTD_compressBound(from.size()));
        const std::size_t size = ZSTD_compress(result.data(), result.size(), from.data(), from.size(), 1);
        require(!ZSTD_isError(size), "zstd: ", ZSTD_getErrorName(size));
        result.resize(size);
        return result;
    }
#endif
    throw error("cache-compress: this program was compiled without the library");
}

bytes decompress([[maybe_unused]] cache_compression method, [[maybe_unused]] std::span<const std::byte> from,
                 [[maybe_unused]] std::size_t wanted) {
#if defined(IMBREX_HAS_ZLIB)
    if (method == cache_compression::zlib) {
        bytes result(wanted);
        uLongf size = static_cast<uLongf>(wanted);
        const int status = uncompress(reinterpret_cast<Bytef*>(result.data()), &size,
                                      reinterpret_cast<const Bytef*>(from.data()), static_cast<uLong>(from.size()));
        require(status == Z_OK && size == wanted, "zlib: it does not give the ", wanted, " bytes of a block");
        return result;
    }
#endif
#if defined(IMBREX_HAS_ZSTD)
    if (method == cache_compression::zstd) {
        bytes result(wanted);
        const std::size_t size = ZSTD_decompress(result.data(), wanted, from.data(), from.size());
        require(!ZSTD_isError(size) && size == wanted, "zstd: it does not give the ", wanted, " bytes of a block");
        return result;
    }
#endif
    throw error("cache-compress: this program was compiled without the library");
}

}  // namespace

const char* name_of(cache_compression method) {
    return method == cache_compression::zlib ? "zlib" : method == cache_compression::zstd ? "zstd" : "none";
}

bool is_available(cache_compression method) {
#if defined(IMBREX_HAS_ZLIB)
    if (method == cache_compression::zlib) return true;
#endif
#if defined(IMBREX_HAS_ZSTD)
    if (method == cache_compression::zstd) return true;
#endif
    return method == cache_compression::none;
}

void block_codec::check() const {
    require(is_available(compression), "cache-compress: ", name_of(compression), "; this program was compiled without ",
            name_of(compression), "; none works");
    require(!quantised || element != cache_element::other,
            "cache-8bit: the KV cache is not of 16-bit numbers; with --kv-cache f16 or bf16 it is");
    require(columns >= 1, "columns: ", columns, "; a row must have at least one");
}

void block_codec::check_rows(std::size_t block_bytes) const {
    const std::size_t row = element == cache_element::other ? 1 : 2 * static_cast<std::size_t>(columns);
    require(block_bytes % row == 0, "block: it has ", block_bytes, " bytes; its rows have ", row);
}

std::vector<std::byte> block_codec::encode(std::span<const std::byte> block) const {
    check_rows(block.size());
    bytes result;
    if (quantised) {
        const auto width = static_cast<std::size_t>(columns);
        result = element == cache_element::f16 ? quantise<fp16>(block, width) : quantise<bf16>(block, width);
    } else if (compression != cache_compression::none && element != cache_element::other) {
        result = divided(block);
    } else {
        result.assign(block.begin(), block.end());
    }
    return compression == cache_compression::none ? result : compress(compression, result);
}

std::vector<std::byte> block_codec::decode(std::span<const std::byte> from, std::size_t block_bytes) const {
    check_rows(block_bytes);
    const auto width = static_cast<std::size_t>(columns);
    const std::size_t size = quantised ? block_bytes / 2 + block_bytes / 2 / width * sizeof(float) : block_bytes;
    bytes opened;
    if (compression != cache_compression::none) from = opened = decompress(compression, from, size);
    require(from.size() == size, "block: it has ", from.size(), " bytes; it must have ", size);
    if (quantised)
        return element == cache_element::f16 ? dequantise<fp16>(from, block_bytes, width)
                                             : dequantise<bf16>(from, block_bytes, width);
    if (compression != cache_compression::none && element != cache_element::other) return joined(from);
    return {from.begin(), from.end()};
}

}  // namespace imbrex::engine
