// The content of files: exact, quantised, compressed.
#include "engine/cache/block_codec.hpp"

#include "engine/support.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/element_types.hpp>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

namespace imbrex::engine::test {

namespace {

constexpr int columns = 64, rows = 32;

// Rows of very different magnitudes; the first is zero.
template <class Element>
std::vector<Element> numbers() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<Element> all;
    for (int row = 0; row < rows; ++row) {
        const float scale = row == 0 ? 0 : std::exp2(static_cast<float>(row % 16 - 8));
        for (int i = 0; i < columns; ++i) all.push_back(Element(normal(random) * scale));
    }
    return all;
}

template <class Element>
std::vector<std::byte> block_of(const std::vector<Element>& from) {
    const auto all = std::as_bytes(std::span(from));
    return {all.begin(), all.end()};
}

std::vector<cache_compression> available() {
    std::vector<cache_compression> all;
    for (const auto method : {cache_compression::none, cache_compression::zlib, cache_compression::zstd}) {
        if (is_available(method)) all.push_back(method);
    }
    return all;
}

template <class Element>
void check_quantised(cache_element element, float rounding) {
    const std::vector<Element> from = numbers<Element>();
    for (const cache_compression method : available()) {
        const block_codec codec{.compression = method, .quantised = true, .element = element, .columns = columns};
        const auto encoded = codec.encode(block_of(from));
        if (method == cache_compression::none) CHECK(encoded.size() == from.size() + rows * 4);
        const auto decoded = codec.decode(encoded, 2 * from.size());
        REQUIRE(decoded.size() == 2 * from.size());
        for (std::size_t row = 0; row < rows; ++row) {
            float most = 0, error = 0;
            for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
                Element back;
                std::memcpy(&back, decoded.data() + 2 * i, 2);
                most = std::max(most, std::fabs(static_cast<float>(from[i])));
                error = std::max(error, std::fabs(static_cast<float>(back) - static_cast<float>(from[i])));
            }
            CHECK(error <= most * (1 / 254.0f + rounding));
        }
    }
}

}  // namespace

TEST_CASE("Without quantisation a block keeps its bits, compressed or not") {
    std::vector<std::byte> block = block_of(numbers<bf16>());
    for (const cache_compression method : available()) {
        CAPTURE(std::string(name_of(method)));
        for (const cache_element element : {cache_element::bf16, cache_element::other}) {
            const block_codec codec{.compression = method, .element = element, .columns = columns};
            const auto encoded = codec.encode(block);
            CHECK(codec.decode(encoded, block.size()) == block);
            if (method != cache_compression::none && element == cache_element::bf16)
                CHECK(encoded.size() < block.size() * 9 / 10);
            check_error_message("", [&] { codec.decode(encoded, block.size() + 2); });
            check_error_message("", [&] { codec.decode(std::span(encoded).first(encoded.size() - 1), block.size()); });
        }
    }
}

TEST_CASE("8-bit numbers are within 1/254 of the largest of their row") {
    check_quantised<fp16>(cache_element::f16, 1 / 1024.0f);
    check_quantised<bf16>(cache_element::bf16, 1 / 128.0f);
}

TEST_CASE("What cannot be encoded is refused") {
    std::vector<bf16> all(columns, bf16(1.0f));
    all[3] = bf16(INFINITY);
    const block_codec codec{.quantised = true, .element = cache_element::bf16, .columns = columns};
    check_error_message("block: it has a NaN or an infinity", [&] { codec.encode(block_of(all)); });
    check_error_message("cache-8bit: the KV cache is not of 16-bit numbers",
                        [] { block_codec{.quantised = true}.check(); });
    for (const auto method : {cache_compression::zlib, cache_compression::zstd}) {
        if (is_available(method)) continue;
        check_error_message("this program was compiled without", [&] { block_codec{.compression = method}.check(); });
    }
}

}  // namespace imbrex::engine::test
