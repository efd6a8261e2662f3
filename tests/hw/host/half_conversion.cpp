// Vectors of floats from fp16 and bf16 in memory against decode, for every bit pattern.
#include <imbrex/core/element_types.hpp>
#include <imbrex/hw/host/half_conversion.hpp>
#include <imbrex/hw/host/interleaved_weights.hpp>
#include <imbrex/hw/host/load_as_floats.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using namespace imbrex;
using vectors = hw::native_simd;
using words = hw::simd_types<vectors>::words;

}  // namespace

TEST_CASE("fp16 weights: every bit pattern converts exactly, in both halves of a word") {
    using rows = hw::interleaved_weights<vectors, unquantised_weight_rows<fp16>>;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const std::uint32_t other = bits ^ 0x55aaU;
        const words all = words{} + (bits | other << 16);
        const auto low = rows::deinterleave<0>(all), high = rows::deinterleave<1>(all);
        for (int half = 0; half < 2; ++half) {
            const float expected = fp16::decode(static_cast<std::uint16_t>(half == 0 ? bits : other));
            const float converted = half == 0 ? low[0] : high[0];
            const bool same =
                std::isnan(expected) ? std::isnan(converted) : std::memcmp(&converted, &expected, sizeof expected) == 0;
            if (!same) FAIL("fp16 ", half == 0 ? bits : other, ": ", converted, "; expected ", expected);
        }
    }
    CHECK(rows::interleave == 2);
}

template <class T>
void check_loads() {
    constexpr int lanes = sizeof(vectors::vector) / sizeof(float);
    constexpr std::uint32_t count = 1U << (8 * sizeof(T));
    std::vector<T> all(count + lanes);
    for (std::uint32_t bits = 0; bits < count; ++bits) std::memcpy(&all[bits], &bits, sizeof(T));
    for (std::uint32_t first = 0; first < count; first += lanes - 1) {  // at any alignment
        const auto values = hw::load_as_floats<vectors>(all.data() + first);
        for (std::uint32_t i = 0; i < lanes && first + i < count; ++i) {
            const float expected = convert<float>(all[first + i]), converted = values[i];
            const bool same =
                std::isnan(expected) ? std::isnan(converted) : std::memcmp(&converted, &expected, sizeof expected) == 0;
            if (!same) FAIL(name_of<T>(), " ", first + i, ": ", converted, "; expected ", expected);
        }
    }
}

TEST_CASE("load_as_floats: every bit pattern of fp16, bf16 and e4m3 converts exactly") {
    check_loads<fp16>();
    check_loads<bf16>();
    check_loads<e4m3>();
}
