// The element types against an independent reference: values by formula in double precision, rounding by search among
// all values of the format.
#include "imbrex/core/element_types.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace imbrex;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

// Counts mismatches and keeps a message for the first: a doctest assertion for each of millions of values is slow.
class tally {
  public:
    template <class... Words>
    void expect(bool agrees, const Words&... words) {
        ++count_;
        if (agrees) return;
        if (wrong_++ == 0) {
            std::ostringstream text;
            text.precision(17);
            ((text << words << ' '), ...);
            first_ = text.str();
        }
    }
    ~tally() {
        CHECK(count_ > 0);
        CHECK_MESSAGE(wrong_ == 0, wrong_, " of ", count_, " disagree; the first: ", first_);
    }

  private:
    long count_ = 0, wrong_ = 0;
    std::string first_;
};

std::uint32_t float_bits(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float bits_float(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The constants of each format, restated from its definition: the result of overflow is a value here, not bits.
template <class T>
struct known;
template <>
struct known<bf16> {
    static constexpr int exponent = 8, mantissa = 7, bias = 127;
    static constexpr std::uint32_t top = 0x7f7f, overflow = 0x7f80, nan = 0x7fff;
};
template <>
struct known<fp16> {
    static constexpr int exponent = 5, mantissa = 10, bias = 15;
    static constexpr std::uint32_t top = 0x7bff, overflow = 0x7c00, nan = 0x7fff;
};
template <>
struct known<e4m3> {
    static constexpr int exponent = 4, mantissa = 3, bias = 7;
    static constexpr std::uint32_t top = 0x7e, overflow = 0x7e, nan = 0x7f;
};
template <>
struct known<e5m2> {
    static constexpr int exponent = 5, mantissa = 2, bias = 15;
    static constexpr std::uint32_t top = 0x7b, overflow = 0x7b, nan = 0x7f;
};
template <>
struct known<e2m1> {
    static constexpr int exponent = 2, mantissa = 1, bias = 1;
    static constexpr std::uint32_t top = 0x7, overflow = 0x7, nan = 0x7;
};

template <class T>
constexpr std::uint32_t sign_of = 1U << (known<T>::exponent + known<T>::mantissa);

// The value of a magnitude by formula; past `top` the format is extrapolated.
template <class T>
double formula(std::uint32_t magnitude) {
    const std::uint32_t exponent = magnitude >> known<T>::mantissa;
    const std::uint32_t hidden = exponent == 0 ? 0 : 1U << known<T>::mantissa;
    const std::uint32_t fraction = hidden + (magnitude & ((1U << known<T>::mantissa) - 1));
    return std::ldexp(fraction, static_cast<int>(std::max(exponent, 1U)) - known<T>::bias - known<T>::mantissa);
}

// The bits nearest to `value`, by search.
template <class T>
std::uint32_t nearest(double value) {
    if (std::isnan(value)) return known<T>::nan;
    static const std::vector<double> values = [] {
        std::vector<double> all;
        for (std::uint32_t magnitude = 0; magnitude <= known<T>::top + 1; ++magnitude)
            all.push_back(formula<T>(magnitude));
        return all;
    }();
    const double wanted = std::fabs(value);
    const auto above = std::upper_bound(values.begin(), values.end(), wanted);
    std::uint32_t magnitude = known<T>::top + 1;
    if (above != values.end()) {
        magnitude = static_cast<std::uint32_t>(above - values.begin()) - 1;
        const double middle = (values[magnitude] + *above) / 2;
        if (wanted > middle || (wanted == middle && magnitude % 2 == 1)) ++magnitude;
    }
    return (magnitude > known<T>::top ? known<T>::overflow : magnitude) | (std::signbit(value) ? sign_of<T> : 0);
}

template <class To>
bool same_value(To left, To right) {
    return std::memcmp(&left, &right, sizeof left) == 0;
}

std::vector<float> random_floats(int count, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = bits_float(static_cast<std::uint32_t>(generator()));
    return values;
}

template <class T>
constexpr bool kernel_storage =
    std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<T>&& std::is_trivially_default_constructible_v<T>;

static_assert(kernel_storage<bf16> && kernel_storage<fp16> && kernel_storage<e4m3> && kernel_storage<e5m2>);
static_assert(kernel_storage<e2m1> && kernel_storage<e2m1x2> && kernel_storage<ue8m0> && kernel_storage<int4x2>);
static_assert(!std::is_convertible_v<float, bf16> && !std::is_convertible_v<bf16, float>);
static_assert(std::is_constructible_v<bf16, float> && std::is_constructible_v<float, bf16>);

// The same at compile time, including NaN and infinity.
static_assert(bf16(1.0F).bits == 0x3f80 && fp16(1.0F).bits == 0x3c00 && e4m3(1.0F).bits == 0x38);
static_assert(e5m2(1.0F).bits == 0x3c && e2m1(1.0F).bits == 0x2 && ue8m0(1.0F).bits == 127);
static_assert(bf16(quiet_nan).bits == 0x7fff && fp16(quiet_nan).bits == 0x7fff && e4m3(quiet_nan).bits == 0x7f);
static_assert(e5m2(-infinity).bits == 0xfb && e2m1(quiet_nan).bits == 0x7 && ue8m0(quiet_nan).bits == 0xff);
static_assert(static_cast<float>(fp16::from_bits(1)) == 0x1p-24F && static_cast<float>(e4m3::from_bits(1)) == 0x1p-9F);
static_assert(to_int8(quiet_nan) == 0 && to_int4(infinity) == 7 && to_int32(quiet_nan) == 0 && to_int8(-1e30F) == -128);
static_assert(pack2<bf16>(1.0F, 2.0F) == 0x40003f80 && unpack2<fp16>(0x40003c00).high == 2.0F);
static_assert(convert<int4x2>(1.5F, -9.0F).bits == 0x82 && convert<bf16>(3) == bf16(3.0F));

}  // namespace

TYPE_TO_STRING(imbrex::bf16);
TYPE_TO_STRING(imbrex::fp16);
TYPE_TO_STRING(imbrex::e4m3);
TYPE_TO_STRING(imbrex::e5m2);
TYPE_TO_STRING(imbrex::e2m1);

TEST_CASE_TEMPLATE("every bit pattern decodes by its formula and encodes back", T, bf16, fp16, e4m3, e5m2, e2m1) {
    tally decoded, encoded, negated;
    for (std::uint32_t bits = 0; bits < 2 * sign_of<T>; ++bits) {
        const T value = T::from_bits(static_cast<decltype(T::bits)>(bits));
        const float found = static_cast<float>(value);
        const std::uint32_t magnitude = bits & (sign_of<T> - 1);
        const bool is_infinity = magnitude == known<T>::top + 1 && (std::is_same_v<T, e5m2> || sizeof(T) == 2);
        const bool is_nan = magnitude > known<T>::top && !is_infinity;
        const double size = is_infinity ? infinity : formula<T>(magnitude);
        const double expected = bits == magnitude ? size : -size;
        const bool right = found == expected && std::signbit(found) == std::signbit(expected);
        decoded.expect(is_nan ? std::isnan(found) : right, bits, "decodes to", found, "not", expected);
        decoded.expect(value.is_nan() == is_nan, bits, "is NaN?");
        // Only bf16, whose decode is a shift, keeps the payload of a NaN.
        if (is_nan && !std::is_same_v<T, bf16>) decoded.expect(float_bits(found) == 0x7fffffff, bits, "NaN");

        std::uint32_t back = is_nan ? known<T>::nan : bits;
        if (is_infinity) back = known<T>::overflow | (bits & sign_of<T>);
        encoded.expect(T(found).bits == back, found, "encodes to", +T(found).bits, "not", back);

        negated.expect((-value).bits == (bits ^ sign_of<T>), bits, "negated");
        negated.expect((value == value) == !is_nan, bits, "equals itself");
        negated.expect((value == -value) == (magnitude == 0), bits, "equals its negative");
        negated.expect(!(value == T::from_bits(static_cast<decltype(T::bits)>(bits ^ 1U))), bits, "equals a neighbour");
    }
}

TEST_CASE_TEMPLATE("rounds to the nearest value, ties to even", T, bf16, fp16, e4m3, e5m2, e2m1) {
    tally middles;
    // Past the top is the value that would follow it: beyond the midpoint below that value lies overflow.
    for (std::uint32_t low = 0; low <= known<T>::top; ++low) {
        const std::uint32_t high = low == known<T>::top ? known<T>::overflow : low + 1;
        const float middle = static_cast<float>((formula<T>(low) + formula<T>(low + 1)) / 2);
        const auto expect = [&](float value, std::uint32_t bits) {
            middles.expect(T(value).bits == bits, value, "to", +T(value).bits, "not", bits);
            middles.expect(T(-value).bits == (bits | sign_of<T>), -value, "to", +T(-value).bits, "not", bits,
                           "negative");
        };
        expect(middle, low % 2 == 0 ? low : high);
        expect(std::nextafter(middle, infinity), high);
        expect(std::nextafter(middle, 0.0F), low);
        const float exact = static_cast<float>(formula<T>(low));
        expect(exact, low);
        expect(std::nextafter(exact, infinity), low);
        if (low > 0) expect(std::nextafter(exact, 0.0F), low);
    }
}

TEST_CASE("overflow, underflow and NaN") {
    CHECK(bf16(bits_float(0x7f7f7fff)).bits == 0x7f7f);
    CHECK(bf16(bits_float(0x7f7f8000)).bits == 0x7f80);
    CHECK(fp16(65519.996F).bits == 0x7bff);
    CHECK(fp16(65520.0F).bits == 0x7c00);
    CHECK(fp16(-1e30F).bits == 0xfc00);
    CHECK(e4m3(464.0F).bits == 0x7e);
    CHECK(e4m3(-1e9F).bits == 0xfe);
    CHECK(e5m2(61440.0F).bits == 0x7b);
    CHECK(e2m1(5.0F).bits == 0x6);
    CHECK(e2m1(-7.0F).bits == 0xf);
    CHECK(bf16(-infinity).bits == 0xff80);
    CHECK(fp16(infinity).bits == 0x7c00);
    CHECK(e4m3(infinity).bits == 0x7e);
    CHECK(e5m2(-infinity).bits == 0xfb);
    CHECK(e2m1(infinity).bits == 0x7);
    CHECK(fp16(0x1p-25F).bits == 0);
    CHECK(fp16(0x1.000002p-25F).bits == 1);
    CHECK(e4m3(-1e-30F).bits == 0x80);
    CHECK(bf16(bits_float(1)).bits == 0);
    // Signalling, quiet, negative, with and without payload: each becomes the one NaN.
    for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0xff800001U, 0xffffffffU, 0x7fa5a5a5U}) {
        const float nan = bits_float(bits);
        CHECK(bf16(nan).bits == 0x7fff);
        CHECK(fp16(nan).bits == 0x7fff);
        CHECK(e4m3(nan).bits == 0x7f);
        CHECK(e5m2(nan).bits == 0x7f);
        CHECK(e2m1(nan).bits == 0x7);
        CHECK(ue8m0(nan).bits == 0xff);
        CHECK(to_int8(nan) == 0);
        CHECK(to_int4(nan) == 0);
        CHECK(to_int32(nan) == 0);
    }
}

TEST_CASE_TEMPLATE("random floats round as a search does", T, bf16, fp16, e4m3, e5m2, e2m1) {
    tally encoded;
    const auto expect = [&](float value) {
        encoded.expect(T(value).bits == nearest<T>(value), value, "to", +T(value).bits, "not", nearest<T>(value));
    };
    for (const float value : random_floats(300000, 1)) expect(value);
    // Random bit patterns are seldom in the range of the narrow formats, so also uniform exponents within it.
    std::mt19937 generator(2);
    std::uniform_real_distribution<double> exponent(-known<T>::bias - known<T>::mantissa - 2, known<T>::bias + 3);
    for (int i = 0; i < 300000; ++i) {
        expect(static_cast<float>(std::exp2(exponent(generator)) * (i % 2 == 0 ? 1 : -1)));
    }
}

TEST_CASE("pairs and quads pack their values in order") {
    tally packed;
    const std::vector<float> values = random_floats(40000, 3);
    for (std::size_t i = 0; i + 4 <= values.size(); i += 4) {
        const float a = values[i], b = values[i + 1], c = values[i + 2] * 0x1p-64F, d = values[i + 3] * 0x1p-64F;
        const auto word16 = [&](auto low, auto high) { return low.bits | std::uint32_t{high.bits} << 16; };
        packed.expect(pack2<bf16>(a, b) == word16(bf16(a), bf16(b)), "pack2<bf16>", a, b);
        packed.expect(pack2<fp16>(c, d) == word16(fp16(c), fp16(d)), "pack2<fp16>", c, d);
        const auto word8 = [&](auto first, auto second, auto third, auto fourth) {
            return first.bits | second.bits << 8 | third.bits << 16 | std::uint32_t{fourth.bits} << 24;
        };
        packed.expect(pack4<e4m3>(a, b, c, d) == word8(e4m3(a), e4m3(b), e4m3(c), e4m3(d)), "pack4<e4m3>", a, b, c, d);
        packed.expect(pack4<e5m2>(a, b, c, d) == word8(e5m2(a), e5m2(b), e5m2(c), e5m2(d)), "pack4<e5m2>", a, b, c, d);
    }
    CHECK(unpack2<bf16>(0xc0003f80).low == 1.0F);
    CHECK(unpack2<bf16>(0xc0003f80).high == -2.0F);
    CHECK(unpack2<fp16>(0xc0003c00).low == 1.0F);
    CHECK(unpack2<fp16>(0xc0003c00).high == -2.0F);
    const float_quad quad = unpack4<e4m3>(0x7e01c038), other = unpack4<e5m2>(0x7b01c03c);
    CHECK(quad.values[0] == 1.0F);
    CHECK(quad.values[1] == -2.0F);
    CHECK(quad.values[2] == 0x1p-9F);
    CHECK(quad.values[3] == 448.0F);
    CHECK(other.values[0] == 1.0F);
    CHECK(other.values[1] == -2.0F);
    CHECK(other.values[2] == 0x1p-16F);
    CHECK(other.values[3] == 57344.0F);
}

TEST_CASE("a byte holds two 4-bit values, the low one first") {
    const float e2m1_values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    tally packed;
    for (int bits = 0; bits < 256; ++bits) {
        const int nibbles[] = {bits & 15, bits >> 4};
        const auto number = [&](int nibble) { return nibble < 8 ? e2m1_values[nibble] : -e2m1_values[nibble - 8]; };
        const e2m1x2 floats = e2m1x2::from_bits(static_cast<std::uint8_t>(bits));
        const float_pair pair = static_cast<float_pair>(floats);
        packed.expect(pair.low == number(nibbles[0]) && pair.high == number(nibbles[1]), "e2m1x2", bits);
        packed.expect(e2m1x2(pair.low, pair.high).bits == bits, "e2m1x2 from floats", bits);
        packed.expect(e2m1x2(floats.low(), floats.high()).bits == bits, "e2m1x2 from parts", bits);
        packed.expect((-floats).bits == (bits ^ 0x88), "e2m1x2 negated", bits);
        packed.expect(floats == floats && !(floats == e2m1x2::from_bits(static_cast<std::uint8_t>(bits ^ 1))),
                      "==", bits);

        const auto integer = [](int nibble) { return nibble < 8 ? nibble : nibble - 16; };
        const int4x2 integers = int4x2::from_bits(static_cast<std::uint8_t>(bits));
        const int low = integer(nibbles[0]), high = integer(nibbles[1]);
        packed.expect(integers.low() == low && integers.high() == high, "int4x2", bits);
        packed.expect(int4x2::from_values(low, high).bits == bits, "int4x2 from values", bits);
        packed.expect(int4x2(static_cast<float>(low), static_cast<float>(high)).bits == bits, "int4x2 from floats",
                      bits);
        packed.expect((-integers).low() == std::min(-low, 7) && (-integers).high() == std::min(-high, 7), "negated",
                      bits);
        packed.expect(static_cast<float_pair>(integers).high == static_cast<float>(high), "int4x2 to floats", bits);
    }
    CHECK(int4x2::from_values(100, -100).bits == 0x87);
    CHECK(e2m1::from_bits(0xf2).bits == 0x2);
    CHECK(e2m1x2::from_bits(0x08) == e2m1x2::from_bits(0x80));
}

TEST_CASE("ue8m0 is a power of two, rounded up or toward zero") {
    tally scales;
    for (int bits = 0; bits < 255; ++bits) {
        const ue8m0 scale = ue8m0::from_bits(static_cast<std::uint8_t>(bits));
        const float value = static_cast<float>(scale);
        scales.expect(value == std::ldexp(1.0, bits - 127), bits, "decodes to", value);
        scales.expect(ue8m0(value).bits == bits && ue8m0::round_to_zero(value).bits == bits, bits, "encodes back");
        scales.expect(scale == scale && !(scale == ue8m0::from_bits(255)), bits, "equality");
    }
    CHECK(float_bits(static_cast<float>(ue8m0::from_bits(255))) == 0x7fffffff);
    CHECK(!(ue8m0::from_bits(255) == ue8m0::from_bits(255)));
    std::vector<float> values = random_floats(300000, 4);
    for (int bits = 0; bits < 255; ++bits) {
        const float exact = static_cast<float>(std::ldexp(1.0, bits - 127));
        for (const float value : {std::nextafter(exact, infinity), std::nextafter(exact, 0.0F), -exact}) {
            values.push_back(value);
        }
    }
    for (const float value : {0.0F, -0.0F, infinity, -infinity, bits_float(1)}) values.push_back(value);
    for (const float value : values) {
        if (std::isnan(value)) continue;
        const double size = std::fabs(static_cast<double>(value));
        int up = 0, down = 254;
        while (up < 254 && std::ldexp(1.0, up - 127) < size) ++up;
        while (down > 0 && std::ldexp(1.0, down - 127) > size) --down;
        scales.expect(ue8m0::round_up(value).bits == up, value, "up to", +ue8m0::round_up(value).bits, "not", up);
        scales.expect(ue8m0::round_to_zero(value).bits == down, value, "down, not", down);
    }
}

TEST_CASE("integers round to nearest even and saturate") {
    tally rounded;
    const auto expect = [&](double value) {
        const double whole = std::isnan(value) ? 0 : std::nearbyint(value);
        const auto within = [&](double low, double high) { return static_cast<int>(std::clamp(whole, low, high)); };
        rounded.expect(to_int32(value) == within(-2147483648.0, 2147483647.0), value, "to int32", to_int32(value));
        const float single = static_cast<float>(value);
        if (!std::isnan(value) && single != value) return;
        rounded.expect(to_int32(single) == to_int32(value), value, "to int32 from float", to_int32(single));
        rounded.expect(to_int8(single) == within(-128, 127), value, "to int8", +to_int8(single));
        rounded.expect(to_int4(single) == within(-8, 7), value, "to int4", +to_int4(single));
    };
    for (int quarters = -2000; quarters <= 2000; ++quarters) expect(quarters / 4.0);
    for (const float value : random_floats(300000, 5)) expect(value);
    for (double edge : {127.5, 2147483647.0, 2147483647.5, 2147483648.0, 4194303.5, 4194304.0, 8388607.5, 1e300}) {
        expect(edge);
        expect(-edge);
        expect(std::nextafter(edge, 0));
    }
    expect(infinity);
    expect(-infinity);
}

namespace {

template <class To>
To expected_conversion(double value) {
    if constexpr (small_float_element<To>) {
        return To::from_bits(static_cast<decltype(To::bits)>(nearest<To>(value)));
    } else if constexpr (std::is_integral_v<To>) {
        const double low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
        return static_cast<To>(std::isnan(value) ? 0 : std::clamp(std::nearbyint(value), low, high));
    } else {
        return static_cast<To>(value);
    }
}

template <class To, class From>
void check_conversion(tally& results, From from, double exact) {
    const To found = convert<To>(from);
    const double value = convert<double>(found);
    if constexpr (std::is_same_v<To, From>) {
        results.expect(same_value(found, from), name_of<From>(), exact, "to itself gives", value);
    } else {
        const bool nan = std::isnan(exact) && std::is_floating_point_v<To> && std::isnan(value);
        const bool right = same_value(found, expected_conversion<To>(exact));
        results.expect(nan || right, name_of<From>(), exact, "to", name_of<To>(), "gives", value);
    }
}

template <class From>
void check_conversions(tally& results, From from, double exact) {
    check_conversion<double>(results, from, exact);
    check_conversion<float>(results, from, exact);
    check_conversion<bf16>(results, from, exact);
    check_conversion<fp16>(results, from, exact);
    check_conversion<e4m3>(results, from, exact);
    check_conversion<e5m2>(results, from, exact);
    check_conversion<e2m1>(results, from, exact);
    check_conversion<std::int32_t>(results, from, exact);
    check_conversion<std::int8_t>(results, from, exact);
}

}  // namespace

TEST_CASE("convert rounds once between any two types") {
    tally results;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const bf16 brain = bf16::from_bits(static_cast<std::uint16_t>(bits));
        const fp16 half = fp16::from_bits(static_cast<std::uint16_t>(bits));
        check_conversions(results, brain, static_cast<float>(brain));
        check_conversions(results, half, static_cast<float>(half));
    }
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
        const std::uint8_t byte = static_cast<std::uint8_t>(bits);
        check_conversions(results, e4m3::from_bits(byte), static_cast<float>(e4m3::from_bits(byte)));
        check_conversions(results, e5m2::from_bits(byte), static_cast<float>(e5m2::from_bits(byte)));
        check_conversions(results, e2m1::from_bits(byte), static_cast<float>(e2m1::from_bits(byte)));
        check_conversions(results, ue8m0::from_bits(byte), static_cast<float>(ue8m0::from_bits(byte)));
        check_conversions(results, static_cast<std::int8_t>(byte), static_cast<std::int8_t>(byte));
    }
    std::mt19937 generator(6);
    for (const float value : random_floats(30000, 7)) {
        check_conversions(results, value, value);
        const std::int32_t integer = static_cast<std::int32_t>(generator()) >> (generator() % 31);
        check_conversions(results, integer, integer);
        // Next to a tie of bf16, fp16 and fp8, closer than float resolution.
        const double lengths[] = {0x1p-8, 0x1p-11, 0x1p-4, 0x1p-3};
        const double tie = 1 + lengths[generator() % 4] * (1 + 2 * static_cast<double>(generator() % 4));
        const double scaled = std::ldexp(tie, static_cast<int>(generator() % 40) - 24);
        for (const double beside : {scaled, scaled * (1 + 0x1p-40), scaled * (1 - 0x1p-40)}) {
            check_conversions(results, beside, beside);
            check_conversions(results, -beside, -beside);
        }
    }
    for (const double edge :
         {1e300, -1e300, 1e-300, -1e-300, 0.0, -0.0, 0x1p-150, 0x1.8p-149, 2147483646.5, 0.5 + 1e-12}) {
        check_conversions(results, edge, edge);
    }
    for (const std::int32_t edge : {0x01008001, -0x01008001, 0x7fffffff, -0x7fffffff - 1, 0x01018000, 0x7f7fffff}) {
        check_conversions(results, edge, edge);
    }
    check_conversions(results, static_cast<double>(quiet_nan), quiet_nan);

    // Through float these would be ties and round down.
    CHECK(convert<bf16>(1 + 0x1p-8 + 0x1p-40).bits == 0x3f81);
    CHECK(convert<bf16>(0x01010001).bits == 0x4b81);
    CHECK(convert<ue8m0>(1 + 0x1p-40).bits == 128);
    CHECK(convert<ue8m0>(bf16(3.0F)).bits == 129);
    CHECK(convert<ue8m0>(std::int8_t{-4}).bits == 129);
}

TEST_CASE("convert to and from packed types") {
    CHECK(convert<e2m1x2>(1.0F, -100.0F).bits == 0xf2);
    CHECK(convert<e2m1x2>(bf16(1.0F), bf16(-3.0F)).bits == 0xd2);
    CHECK(convert<e2m1x2>(2.5 + 1e-12, 2.5).bits == 0x45);
    CHECK(convert<e2m1x2>(std::int8_t{4}, std::int8_t{-128}).bits == 0xf6);
    CHECK(convert<int4x2>(2.5F, -99.0F).bits == 0x82);
    CHECK(convert<int4x2>(fp16(3.5F), fp16(-1.0F)).bits == 0xf4);
    CHECK(convert<int4x2>(300, -7).bits == 0x97);
    CHECK(convert<int4x2>(e2m1x2(6.0F, -1.5F)).bits == 0xe6);
    CHECK(convert<e2m1x2>(int4x2::from_values(-8, 3)).bits == 0x5f);
    CHECK(convert<int4x2>(int4x2::from_bits(0x5a)).bits == 0x5a);
    CHECK(convert<bf16>(int4x2::from_bits(0x5a).low()) == bf16(-6.0F));
}

TEST_CASE("traits of each type") {
    static_assert(element<float> && element<double> && element<bf16> && element<e2m1x2> && element<std::int8_t>);
    static_assert(!element<bool> && !element<char> && !element<float*> && !element<const bf16>);
    static_assert(scalar_element<ue8m0> && packed_element<int4x2> && !packed_element<e2m1> && !scalar_element<e2m1x2>);
    static_assert(small_float_element<e2m1> && !small_float_element<ue8m0> && !small_float_element<float>);
    static_assert(bits_of<double> == 64 && bits_of<fp16> == 16 && bits_of<e5m2> == 8 && bits_of<e2m1> == 4);
    static_assert(bits_of<int4x2> == 4 && values_in<int4x2> == 2 && values_in<bf16> == 1);
    static_assert(values_per_byte<e2m1x2> == 2 && values_per_byte<e4m3> == 1 && values_per_byte<e2m1> == 1 &&
                  values_per_byte<bf16> == 0);
    static_assert(std::is_same_v<value_of<e2m1x2>, e2m1> && std::is_same_v<value_of<int4x2>, std::int8_t>);
    CHECK(std::string_view(name_of<float>()) == "float");
    CHECK(std::string_view(name_of<bf16>()) == "bf16");
    CHECK(std::string_view(name_of<e4m3>()) == "e4m3");
    CHECK(std::string_view(name_of<e2m1x2>()) == "e2m1x2");
    CHECK(std::string_view(name_of<std::int8_t>()) == "int8");

    CHECK(highest_of<double>() == std::numeric_limits<double>::max());
    CHECK(highest_of<float>() == std::numeric_limits<float>::max());
    CHECK(lowest_of<float>() == std::numeric_limits<float>::lowest());
    CHECK(convert<double>(highest_of<bf16>()) == std::ldexp(255.0, 120));
    CHECK(convert<double>(lowest_of<bf16>()) == -std::ldexp(255.0, 120));
    CHECK(convert<float>(highest_of<fp16>()) == 65504.0F);
    CHECK(convert<float>(lowest_of<e4m3>()) == -448.0F);
    CHECK(convert<float>(highest_of<e5m2>()) == 57344.0F);
    CHECK(convert<float>(lowest_of<e2m1>()) == -6.0F);
    CHECK(convert<float>(highest_of<ue8m0>()) == 0x1p127F);
    CHECK(convert<float>(lowest_of<ue8m0>()) == 0x1p-127F);
    CHECK(highest_of<std::int8_t>() == 127);
    CHECK(lowest_of<std::int32_t>() == std::numeric_limits<std::int32_t>::min());
    CHECK(highest_of<int4x2>().bits == 0x77);
    CHECK(lowest_of<int4x2>().bits == 0x88);
    CHECK(lowest_of<e2m1x2>().bits == 0xff);
}
