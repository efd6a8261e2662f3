// The packed layout of quantised weights: words and fields determine each other, every element has its own position,
// and every value of each format round-trips.
#include <doctest/doctest.h>

#include <imbrex/core/packed_weights.hpp>

#include <set>
#include <tuple>
#include <type_traits>

using namespace imbrex;

namespace {

// Each bit of each pair of fields is set by one word, and every word is an XOR of such words.
template <class Format, class Float>
void check_pairs() {
    constexpr int pairs = packed_unit<Format>::pairs_per_word;
    // A field is as wide as the bits of the format.
    std::uint32_t widest = 0;
    for (std::uint32_t code = 0; code < (1U << packed_unit<Format>::bits); ++code) {
        widest |= packed_field_of<Format, Float>(code);
    }
    int bits = 0;
    for (int pair = 0; pair < pairs; ++pair) {
        const std::uint32_t mask = packed_pair_of<Format, Float>(pair).mask;
        CHECK(mask == widest * 0x00010001U);
        for (std::uint32_t bit = 1; bit != 0; bit <<= 1) {
            if ((mask & bit) == 0) continue;
            ++bits;
            const std::uint32_t word = pack_fields<Format, Float>(bit, pair);
            for (int other = 0; other < pairs; ++other) {
                CHECK(packed_fields<Format, Float>(word, other) == (other == pair ? bit : 0U));
            }
        }
    }
    CHECK(bits == 32);
    std::uint32_t word = 0x12345678U;
    for (int i = 0; i < 1000; ++i) {
        word = word * 1664525U + 1013904223U;
        std::uint32_t again = 0;
        for (int pair = 0; pair < pairs; ++pair) {
            again ^= pack_fields<Format, Float>(packed_fields<Format, Float>(word, pair), pair);
        }
        CHECK(again == word);
    }
}

template <class Format>
void check_places() {
    using unit = packed_unit<Format>;
    std::set<std::tuple<int, int, int>> found;
    for (int row = 0; row < packed_rows; ++row) {
        for (int column = 0; column < unit::columns; ++column) {
            const packed_coord place = packed_coord_of<Format>(row, column);
            CHECK((place.word >= 0 && place.word < unit::words));
            CHECK((place.pair >= 0 && place.pair < unit::pairs_per_word));
            CHECK((place.second == 0 || place.second == 1));
            found.emplace(place.word, place.pair, place.second);
        }
    }
    CHECK(static_cast<int>(found.size()) == packed_rows * unit::columns);
}

}  // namespace

TEST_CASE("a word and its pairs of fields determine each other") {
    check_pairs<std::int8_t, bf16>();
    check_pairs<std::int8_t, fp16>();
    check_pairs<e4m3, bf16>();
    check_pairs<e4m3, fp16>();
    check_pairs<int4x2, bf16>();
    check_pairs<int4x2, fp16>();
    check_pairs<e2m1x2, bf16>();
    check_pairs<e2m1x2, fp16>();
}

TEST_CASE("every element of a unit has its own position") {
    check_places<std::int8_t>();
    check_places<e4m3>();
    check_places<int4x2>();
    check_places<e2m1x2>();
    check_places<packed_integer<6, 32>>();
}

TEST_CASE("the high bits of a thread's pairs are independent") {
    const auto check = [](auto format, int words_per_thread, int highest) {
        using tested = decltype(format);
        for (int pair = 0; pair < 16; ++pair) {
            for (int second = 0; second < 2; ++second) {
                std::uint32_t words[2] = {};
                pack_high_bits<tested>(words, pair, second, static_cast<std::uint32_t>(highest));
                for (int other = 0; other < 16; ++other) {
                    const std::uint32_t found = packed_high_fields<tested>(words, other) & packed_high_mask<tested>;
                    CHECK(found == (other == pair ? (highest & 0x30U) << (16 * second) : 0U));
                }
            }
        }
        CHECK(packed_unit<tested>::high_words_per_thread == words_per_thread);
    };
    check(packed_integer<5, 0>{}, 1, 31);
    check(packed_integer<6, 32>{}, 2, 63);
}

TEST_CASE("every row scale has its own position, next to those of the same lane") {
    std::set<int> found;
    for (int row = 0; row < packed_rows; ++row) {
        const int place = packed_row_offset(row);
        CHECK((place >= 0 && place < packed_rows));
        CHECK(place / packed_scales_per_lane == row % 8);
        found.insert(place);
    }
    CHECK(static_cast<int>(found.size()) == packed_rows);
}

TEST_CASE("every MXFP4 scale has its own position and is a power of two") {
    std::set<std::pair<int, int>> found;
    for (int row = 0; row < packed_rows; ++row) {
        for (int column = 0; column < packed_columns; column += packed_scale_columns) {
            const packed_coord place = packed_scale_coord_of(row, column);
            CHECK((place.word >= 0 && place.word < packed_scale_words));
            CHECK((place.pair >= 0 && place.pair < 4));
            found.emplace(place.word, place.pair);
        }
    }
    CHECK(static_cast<int>(found.size()) == 2 * packed_rows);
    for (int bits = 0; bits <= packed_scale_max; ++bits) {
        const ue8m0 scale = ue8m0::from_bits(static_cast<std::uint8_t>(bits));
        const std::uint32_t exponent = packed_scale_of<bf16>(scale), half = packed_scale_of<fp16>(scale);
        CHECK((exponent > 0 && exponent < 0xff));
        CHECK(half < 0x1f);
        for (int which = 0; which < 4; ++which) {
            const float_pair pair = unpack2<bf16>(packed_scale_pair<bf16>(pack_scale<bf16>(exponent, which), which));
            CHECK(pair.low == pair.high);
            CHECK(pair.low == static_cast<float>(static_cast<double>(static_cast<float>(scale)) * 0x1p126));
            const float_pair halves = unpack2<fp16>(packed_scale_pair<fp16>(pack_scale<fp16>(half, which), which));
            CHECK(halves.low == halves.high);
            if (half > 0) CHECK(halves.high == static_cast<float>(scale) * 0x1p14F);
        }
    }
}

template <class Float>
void check_four_scales() {
    constexpr std::uint32_t exponents[4] = {5, 30, 1, 17};
    std::uint32_t word = 0;
    for (int which = 0; which < 4; ++which) word |= pack_scale<Float>(exponents[which], which);
    for (int which = 0; which < 4; ++which) {
        const std::uint32_t one = exponents[which] << Float::format.mantissa_bits;
        CHECK(packed_scale_pair<Float>(word, which) == (one | one << 16));
    }
}

TEST_CASE("the four scales of a word are independent") {
    check_four_scales<bf16>();
    check_four_scales<fp16>();
}
