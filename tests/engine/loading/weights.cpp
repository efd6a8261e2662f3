#include "engine/loading/weights.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

weight make(weight_type type, std::vector<std::int64_t> shape, std::string_view data) {
    return {"w", type, std::move(shape), bytes(data)};
}

// The value of fp16 bits, by definition.
double half_value(unsigned bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("Converts every fp16 value exactly") {
    for (unsigned bits = 0; bits < 65536; ++bits) {
        const std::string data = raw(static_cast<std::uint16_t>(bits));
        const float value = to_floats(make(weight_type::f16, {1}, data))[0];
        if ((bits & 0x7c00) != 0x7c00) {
            REQUIRE(static_cast<double>(value) == half_value(bits));
            REQUIRE(std::signbit(value) == ((bits & 0x8000) != 0));
        } else if ((bits & 1023) == 0) {
            REQUIRE(value == (bits & 0x8000 ? -1 : 1) * std::numeric_limits<float>::infinity());
        } else {
            REQUIRE(std::isnan(value));
        }
    }
}

TEST_CASE("bf16 is the upper half of a float") {
    const std::string data = raw(std::uint16_t{0x3f80}) + raw(std::uint16_t{0xc049}) + raw(std::uint16_t{0x0001});
    const auto values = to_floats(make(weight_type::bf16, {3}, data));
    CHECK(values[0] == 1.0f);
    CHECK(values[1] == -3.140625f);
    CHECK(values[2] == std::bit_cast<float>(0x00010000u));
}

TEST_CASE("Dequantises q8_0 and q4_0 blocks") {
    std::string eight = raw(std::uint16_t{0x3800});  // 0.5
    for (int i = 0; i < 32; ++i) eight += static_cast<char>(i * 8 - 128);
    const auto of_eight = to_floats(make(weight_type::q8_0, {32}, eight));
    for (int i = 0; i < 32; ++i) CHECK(of_eight[static_cast<std::size_t>(i)] == 0.5f * static_cast<float>(i * 8 - 128));

    std::string four = raw(std::uint16_t{0xc000});  // -2
    for (int i = 0; i < 16; ++i) four += static_cast<char>(i | (15 - i) << 4);
    const auto of_four = to_floats(make(weight_type::q4_0, {32}, four));
    for (int i = 0; i < 16; ++i) {
        CHECK(of_four[static_cast<std::size_t>(i)] == -2.0f * static_cast<float>(i - 8));
        CHECK(of_four[static_cast<std::size_t>(i + 16)] == -2.0f * static_cast<float>(15 - i - 8));
    }
}

TEST_CASE("Reads a range of rows from unaligned bytes") {
    std::string data = "x";
    for (int i = 0; i < 12; ++i) data += raw(static_cast<float>(i));
    const weight source{"w", weight_type::f32, {2, 2, 3}, bytes(data).subspan(1)};
    CHECK(source.rows() == 4);
    std::vector<float> rows(6);
    to_floats(source, 1, 2, rows);
    CHECK(rows == std::vector<float>{3, 4, 5, 6, 7, 8});
    check_error_message("rows 3 to 5", [&] { to_floats(source, 3, 2, rows); });
    check_error_message("there is room for 6", [&] { to_floats(source, 0, 1, rows); });
    CHECK(to_floats(make(weight_type::f32, {}, raw(7.0f))) == std::vector<float>{7});
    CHECK(to_floats(make(weight_type::f32, {0, 4}, "")).empty());
}

TEST_CASE("Returns no size on overflow and partial blocks") {
    const auto size = [](weight_type type, std::vector<std::int64_t> shape) { return byte_size(type, shape); };
    CHECK(size(weight_type::f32, {2, 3}) == 24);
    CHECK(size(weight_type::f16, {}) == 2);
    CHECK(size(weight_type::q8_0, {2, 64}) == 136);
    CHECK(size(weight_type::q4_0, {64}) == 36);
    CHECK_FALSE(size(weight_type::q4_0, {33}));
    CHECK_FALSE(size(weight_type::f32, {-1}));
    CHECK_FALSE(size(weight_type::f32, {std::int64_t{1} << 32, std::int64_t{1} << 31}));
    CHECK_FALSE(size(weight_type::f32, {std::int64_t{1} << 61}));
    CHECK_FALSE(size(weight_type::f32, {0, std::int64_t{1} << 32, std::int64_t{1} << 32}));
    CHECK(size(weight_type::f32, {std::int64_t{1} << 40, 0}) == 0);
}

TEST_CASE("Adds, finds and renames weights") {
    weight_set set;
    set.add(make(weight_type::f32, {1}, "1234"), "file");
    check_error_message("file: tensor \"w\" is there twice",
                        [&] { set.add(make(weight_type::f32, {1}, "1234"), "file"); });
    CHECK(set.find("w") == &set.all()[0]);
    CHECK(set.find("v") == nullptr);
    check_error_message("tensor \"v\" is not in the model", [&] { set.at("v"); });
    CHECK(set.bytes() == 4);
    const weight_set renamed = set.renamed([](const std::string& name) { return "x." + name; }, "file");
    CHECK(renamed.find("x.w") != nullptr);
    CHECK(renamed.find("w") == nullptr);
    weight_set both = renamed;
    both.merge(set, "other");
    CHECK(both.all().size() == 2);
    check_error_message("other: tensor \"w\" is there twice", [&] { both.merge(set, "other"); });
}

}  // namespace imbrex::engine::test
