// How quantised weights are packed: every bit of a word used once, every element in a place of its own, and every number of
// each format found again.
#include <doctest/doctest.h>

#include <imbrex/core/packed_weights.hpp>

#include <set>
#include <tuple>
#include <type_traits>

using namespace imbrex;

namespace {

template <class Format, class Float>
void check_pieces() {
    std::uint32_t all = 0;
    for (int pair = 0; pair < packed_unit<Format>::pairs_of_word; ++pair) {
        const packed_pieces pieces = packed_pieces_of<Format, Float>(pair);
        const std::uint32_t both = pieces.first.mask | pieces.second.mask;
        CHECK((pieces.first.mask & pieces.second.mask) == 0);
        const std::uint32_t bits = pack_fields<Format, Float>(both, pair);
        CHECK((all & bits) == 0);
        all |= bits;
        CHECK(packed_fields<Format, Float>(bits, pair) == both);
        CHECK(packed_fields<Format, Float>(~bits, pair) == 0);
        // A field is as wide as the number's bits say.
        std::uint32_t widest = 0;
        for (std::uint32_t code = 0; code < (1U << packed_unit<Format>::bits); ++code) {
            widest |= packed_field_of<Format, Float>(code);
        }
        CHECK(both == widest * 0x00010001U);
    }
    CHECK(all == 0xffffffffU);
}

template <class Format>
void check_places() {
    using unit = packed_unit<Format>;
    std::set<std::tuple<int, int, int>> found;
    for (int row = 0; row < packed_rows; ++row) {
        for (int column = 0; column < unit::columns; ++column) {
            const packed_place place = packed_place_of<Format>(row, column);
            CHECK((place.word >= 0 && place.word < unit::words));
            CHECK((place.pair >= 0 && place.pair < unit::pairs_of_word));
            CHECK((place.second == 0 || place.second == 1));
            found.emplace(place.word, place.pair, place.second);
        }
    }
    CHECK(static_cast<int>(found.size()) == packed_rows * unit::columns);
}

}  // namespace

TEST_CASE("the pairs of a word are all of its bits once") {
    check_pieces<std::int8_t, bf16>();
    check_pieces<std::int8_t, fp16>();
    check_pieces<e4m3, bf16>();
    check_pieces<e4m3, fp16>();
    check_pieces<int4x2, bf16>();
    check_pieces<int4x2, fp16>();
    check_pieces<e2m1x2, bf16>();
    check_pieces<e2m1x2, fp16>();
}

TEST_CASE("every element of a unit has a place of its own") {
    check_places<std::int8_t>();
    check_places<e4m3>();
    check_places<int4x2>();
    check_places<e2m1x2>();
}

TEST_CASE("every row's scale has a place of its own, beside those that a lane has with it") {
    std::set<int> found;
    for (int row = 0; row < packed_rows; ++row) {
        const int place = packed_row_place_of(row);
        CHECK((place >= 0 && place < packed_rows));
        CHECK(place / packed_scales_of_lane == row % 8);
        found.insert(place);
    }
    CHECK(static_cast<int>(found.size()) == packed_rows);
}

TEST_CASE("every scale has a place of its own, and is a power of two") {
    std::set<std::pair<int, int>> found;
    for (int row = 0; row < packed_rows; ++row) {
        for (int column = 0; column < packed_columns; column += packed_scale_columns) {
            const packed_place place = packed_scale_place_of(row, column);
            CHECK((place.word >= 0 && place.word < packed_scale_words));
            CHECK((place.pair >= 0 && place.pair < 4));
            found.emplace(place.word, place.pair);
        }
    }
    CHECK(static_cast<int>(found.size()) == 2 * packed_rows);
    for (int bits = 0; bits <= packed_scale_highest; ++bits) {
        const ue8m0 scale = ue8m0::from_bits(static_cast<std::uint8_t>(bits));
        const std::uint32_t exponent = packed_scale_of<bf16>(scale);
        CHECK((exponent > 0 && exponent < 0xff));
        const float_pair pair = unpack2<bf16>(packed_scale_pair<bf16>(exponent << 16, 2));
        CHECK(pair.low == pair.high);
        CHECK(pair.low == static_cast<float>(static_cast<double>(static_cast<float>(scale)) * 0x1p126));
        const std::uint32_t half = packed_scale_of<fp16>(scale);
        CHECK(half < 0x1f);
        if (half > 0) {
            CHECK(unpack2<fp16>(packed_scale_pair<fp16>(half, 0)).high == static_cast<float>(scale) * 0x1p14F);
        }
    }
}
