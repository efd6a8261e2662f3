// Tests of the RoPE parameters: inv_freq against the formulas in double, for every scaling; cos and sin of every pair
// against long double, up to position 2^31 - 1; invalid arguments.
#include <imbrex/kernels/rope_embedding.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr long double two_pi = 6.283185307179586476925286766559006L;

// cos and sin of 64 pairs at 16 positions.
struct ask_for_rotations {
    using tile = warp_tile<float, 16, 64>;
    static constexpr int warps = 1;
    struct arguments {
        rope_embedding rope;
        const int* positions;
        matrix_view<float> cosines, sines;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            tile cosines, sines;
            fill(self, cosines, 0.0f);
            fill(self, sines, 0.0f);
            const auto ask = [&](int row, int pair) { return args.rope.at(pair, args.positions[row]); };
            map_indexed(self, cosines, [&](int row, int pair, float) { return ask(row, pair).cosine; });
            map_indexed(self, sines, [&](int row, int pair, float) { return ask(row, pair).sine; });
            store(self, args.cosines.template tile<tile>(0, 0), cosines);
            store(self, args.sines.template tile<tile>(0, 0), sines);
        });
    }
};

// The largest error of cos and sin, over 64 pairs at 16 positions.
double worst_rotation(world where, const rope_frequencies& frequencies, const std::vector<double>& wanted,
                      const std::vector<int>& at) {
    REQUIRE(wanted.size() == 64);
    REQUIRE(at.size() == 16);
    buffer<std::uint64_t> inv_freq(where, 64);
    buffer<int> positions(where, 16);
    buffer<float> cosines(where, 16 * 64, NAN), sines(where, 16 * 64, NAN);
    inv_freq.values = frequencies.fixed_point_inv_freq();
    positions.values = at;
    run<ask_for_rotations>(where, {1},
                           {frequencies.embedding(inv_freq.upload(), rope_style::half_split), positions.upload(),
                            matrix(cosines.upload(), 16, 64), matrix(sines.upload(), 16, 64)});
    cosines.download();
    sines.download();
    const long double factor = frequencies.attention_factor();
    long double worst = 0;
    for (int row = 0; row < 16; ++row) {
        for (int pair = 0; pair < 64; ++pair) {
            const long double whole = static_cast<long double>(at[row]) * wanted[pair];
            const long double angle = std::fmod(whole, two_pi);
            const long double in_double = whole * 4e-16L;  // difference of two roundings of inv_freq to double
            worst = std::max(worst, std::fabs(factor * std::cos(angle) - cosines.values[row * 64 + pair]) - in_double);
            worst = std::max(worst, std::fabs(factor * std::sin(angle) - sines.values[row * 64 + pair]) - in_double);
        }
    }
    return static_cast<double>(worst);
}

const std::vector<int> some_positions{0,      1,      2,       3,       17,      1000,       4095,       131072,
                                      524287, 999999, 1000000, 1048576, 9999999, 1000000000, 2147483646, 2147483647};

std::vector<double> plain(double base, int columns) {
    std::vector<double> all;
    for (int i = 0; i < columns; i += 2) all.push_back(1 / std::pow(base, static_cast<double>(i) / columns));
    return all;
}

std::vector<double> llama3(double base, int columns, double factor, double low, double high, double context) {
    std::vector<double> all = plain(base, columns);
    for (double& one : all) {
        const double wavelength = 2 * M_PI / one;
        if (wavelength < context / high) continue;
        if (wavelength > context / low) {
            one /= factor;
        } else {
            const double smooth = (context / wavelength - low) / (high - low);
            one = (1 - smooth) * one / factor + smooth * one;
        }
    }
    return all;
}

std::vector<double> yarn(double base, int columns, double factor, double context, double fast, double slow,
                         bool truncate) {
    const auto dimension = [&](double rotations) {
        return columns * std::log(context / (rotations * 2 * M_PI)) / (2 * std::log(base));
    };
    double low = dimension(fast), high = dimension(slow);
    if (truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, columns - 1.0);
    if (low == high) high += 0.001;
    std::vector<double> all;
    for (int i = 0; i < columns / 2; ++i) {
        const double power = std::pow(base, 2.0 * i / columns);
        const double ramp = std::min(1.0, std::max(0.0, (i - low) / (high - low)));
        const double extrapolated = 1 - ramp;
        all.push_back(1 / (factor * power) * (1 - extrapolated) + 1 / power * extrapolated);
    }
    return all;
}

void check_frequencies(const rope_frequencies& given, const std::vector<double>& wanted) {
    const std::vector<double> found = given.inv_freq_double();
    const std::vector<float> rounded = given.inv_freq_float();
    const std::vector<std::uint64_t> inv_freq = given.fixed_point_inv_freq();
    REQUIRE(found.size() == wanted.size());
    REQUIRE(rounded.size() == wanted.size());
    REQUIRE(inv_freq.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        CHECK(std::fabs(found[i] - wanted[i]) <= 4e-15 * wanted[i]);
        CHECK(rounded[i] == static_cast<float>(found[i]));
        CHECK(std::fabs(std::ldexp(static_cast<long double>(inv_freq[i]), -64) * two_pi - wanted[i]) <=
              4e-15L * wanted[i] + 4e-19L);
    }
}

}  // namespace

TEST_CASE("inv_freq without scaling and with linear scaling") {
    check_frequencies({.rotary_dim = 128}, plain(10000, 128));
    check_frequencies({.theta = 500000, .rotary_dim = 64}, plain(500000, 64));
    check_frequencies({.theta = 1000000, .rotary_dim = 2}, plain(1000000, 2));
    auto quarter = plain(10000, 96);
    for (double& one : quarter) one /= 4;
    check_frequencies({.rotary_dim = 96, .scaling = rope_linear{4}}, quarter);
    CHECK(rope_frequencies{.rotary_dim = 96, .scaling = rope_linear{4}}.attention_factor() == 1);
    // As published for theta = 10000 and 8 columns.
    CHECK(rope_frequencies{.rotary_dim = 8}.inv_freq_float() == std::vector<float>{1, 0.1f, 0.01f, 0.001f});
}

TEST_CASE("inv_freq with Llama 3 scaling") {
    check_frequencies({.theta = 500000, .rotary_dim = 128, .scaling = rope_llama3{}},
                      llama3(500000, 128, 8, 1, 4, 8192));
    check_frequencies({.theta = 500000, .rotary_dim = 64, .scaling = rope_llama3{32, 1, 4, 8192}},
                      llama3(500000, 64, 32, 1, 4, 8192));
    check_frequencies({.rotary_dim = 40, .scaling = rope_llama3{3, 0.5, 7, 1000}}, llama3(10000, 40, 3, 0.5, 7, 1000));
    CHECK(rope_frequencies{.rotary_dim = 128, .scaling = rope_llama3{}}.attention_factor() == 1);
    // Pairs that are divided, kept and interpolated all occur.
    const auto scaled =
        rope_frequencies{.theta = 500000, .rotary_dim = 128, .scaling = rope_llama3{}}.inv_freq_double();
    const auto before = plain(500000, 128);
    int kept = 0, divided = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
        kept += std::fabs(scaled[i] / before[i] - 1) < 1e-12;
        divided += std::fabs(scaled[i] / before[i] - 0.125) < 1e-12;
    }
    CHECK(kept == 29);
    CHECK(divided == 29);
}

TEST_CASE("inv_freq with YaRN scaling") {
    check_frequencies({.rotary_dim = 128, .scaling = rope_yarn{.factor = 4, .original_max_position_embeddings = 32768}},
                      yarn(10000, 128, 4, 32768, 32, 1, true));
    check_frequencies(
        {.theta = 150000,
         .rotary_dim = 64,
         .scaling =
             rope_yarn{.factor = 32, .original_max_position_embeddings = 4096, .beta_fast = 32, .truncate = false}},
        yarn(150000, 64, 32, 4096, 32, 1, false));
    check_frequencies(
        {.rotary_dim = 64,
         .scaling = rope_yarn{.factor = 40, .original_max_position_embeddings = 4096, .beta_fast = 20, .beta_slow = 3}},
        yarn(10000, 64, 40, 4096, 20, 3, true));
    // A ramp of zero length, and one before the first pair.
    check_frequencies({.rotary_dim = 64,
                       .scaling = rope_yarn{.factor = 2,
                                            .original_max_position_embeddings = 4096,
                                            .beta_fast = 5,
                                            .beta_slow = 5,
                                            .truncate = false}},
                      yarn(10000, 64, 2, 4096, 5, 5, false));
    check_frequencies({.rotary_dim = 16, .scaling = rope_yarn{.factor = 2, .original_max_position_embeddings = 2}},
                      yarn(10000, 16, 2, 2, 32, 1, true));

    const auto factor = [](const rope_yarn& scaling) {
        return rope_frequencies{.rotary_dim = 64, .scaling = scaling}.attention_factor();
    };
    CHECK(factor({.factor = 4, .original_max_position_embeddings = 8}) == static_cast<float>(0.1 * std::log(4.0) + 1));
    CHECK(factor({.factor = 0.5, .original_max_position_embeddings = 8}) == 1);
    CHECK(factor({.factor = 4, .original_max_position_embeddings = 8, .attention_factor = 1.25}) == 1.25f);
    CHECK(factor({.factor = 40, .original_max_position_embeddings = 8, .mscale = 1.0}) ==
          static_cast<float>(0.1 * std::log(40.0) + 1));
    CHECK(factor({.factor = 40, .original_max_position_embeddings = 8, .mscale = 1.0, .mscale_all_dim = 1.0}) == 1);
    CHECK(factor({.factor = 40, .original_max_position_embeddings = 8, .mscale = 0.707, .mscale_all_dim = 0.5}) ==
          static_cast<float>((0.0707 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1)));
}

TEST_CASE("cos and sin are as accurate at any position as at the first") {
    const rope_frequencies llama{.theta = 500000, .rotary_dim = 128, .scaling = rope_llama3{}};
    const rope_frequencies long_context{.rotary_dim = 128,
                                        .scaling = rope_yarn{.factor = 4, .original_max_position_embeddings = 32768}};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CHECK(worst_rotation(where, {.rotary_dim = 128}, plain(10000, 128), some_positions) < 1.5e-7);
        CHECK(worst_rotation(where, llama, llama3(500000, 128, 8, 1, 4, 8192), some_positions) < 1.5e-7);
        CHECK(worst_rotation(where, long_context, yarn(10000, 128, 4, 32768, 32, 1, true), some_positions) < 2e-7);
    }
}

TEST_CASE("cos and sin over the full turn, and inv_freq from other sources") {
    for (int i = 0; i <= 4096; ++i) {
        const cos_sin found = rope_cos_sin_of(static_cast<std::uint64_t>(i) << 52);
        CHECK(std::fabs(found.cosine - std::cos(two_pi * i / 4096)) < 1.2e-7L);
        CHECK(std::fabs(found.sine - std::sin(two_pi * i / 4096)) < 1.2e-7L);
    }
    CHECK(rope_cos_sin_of(~std::uint64_t{0}).cosine == 1);
    CHECK(rope_cos_sin_of(0).sine == 0);
    const std::vector<float> inverse{1, 0.25f, 7.5f, 0};
    const auto inv_freq = rope_fixed_point_inv_freq(inverse);
    for (std::size_t i = 0; i < inverse.size(); ++i) {
        const cos_sin found = rope_embedding{inv_freq.data(), 8}.at(static_cast<int>(i), 12345);
        CHECK(std::fabs(found.cosine - std::cos(12345.0L * inverse[i])) < 1.2e-7L);
        CHECK(std::fabs(found.sine - std::sin(12345.0L * inverse[i])) < 1.2e-7L);
    }
    CHECK(error_message_of([] {
              rope_fixed_point_inv_freq({1, NAN});
          }) == "inv_freq[1]: nan; must be finite and not negative");
    CHECK(error_message_of([] { rope_fixed_point_inv_freq({-1}); }) ==
          "inv_freq[0]: -1; must be finite and not negative");
}

TEST_CASE("rejects invalid parameters") {
    const auto refused = [](const rope_frequencies& given) {
        return error_message_of([&] { given.fixed_point_inv_freq(); });
    };
    const auto scaled = [&](const rope_scaling& scaling) { return refused({.rotary_dim = 64, .scaling = scaling}); };
    const std::string even = "; must be even, from 2 to 256";
    CHECK(refused({.rotary_dim = 63}) == "rotary_dim: 63" + even);
    CHECK(refused({.rotary_dim = 0}) == "rotary_dim: 0" + even);
    CHECK(refused({.rotary_dim = 258}) == "rotary_dim: 258" + even);
    CHECK(refused({.theta = 1, .rotary_dim = 64}) == "theta: 1; must be greater than 1");
    CHECK(refused({.theta = INFINITY, .rotary_dim = 64}) == "theta: inf; must be greater than 1");
    CHECK(scaled(rope_linear{0}) == "scaling.factor: 0; must be positive");
    CHECK(scaled(rope_llama3{.factor = -8}) == "scaling.factor: -8; must be positive");
    CHECK(scaled(rope_llama3{.low_freq_factor = 0}) == "scaling.low_freq_factor: 0; must be positive");
    CHECK(scaled(rope_llama3{.low_freq_factor = 4}) ==
          "scaling.high_freq_factor: 4; must be greater than low_freq_factor, 4");
    CHECK(scaled(rope_llama3{.original_max_position_embeddings = 0}) ==
          "scaling.original_max_position_embeddings: 0; must be positive");
    CHECK(scaled(rope_yarn{.factor = 4}) == "scaling.original_max_position_embeddings: 0; must be positive");
    CHECK(scaled(rope_yarn{.factor = NAN, .original_max_position_embeddings = 1}) ==
          "scaling.factor: nan; must be positive");
    CHECK(scaled(rope_yarn{.factor = 4, .original_max_position_embeddings = 8, .beta_slow = 64}) ==
          "scaling.beta_fast: 32; must not be less than beta_slow, 64");
    CHECK(scaled(rope_yarn{.factor = 4, .original_max_position_embeddings = 8, .attention_factor = 0.0}) ==
          "scaling.attention_factor: 0; must be positive");
    CHECK(scaled(rope_yarn{.factor = 4, .original_max_position_embeddings = 8, .mscale = -1.0}) ==
          "scaling.mscale, scaling.mscale_all_dim: -1; neither may be negative");
    CHECK(error_message_of([] { rope_frequencies{.rotary_dim = 64}.embedding(nullptr, rope_style::interleaved); }) ==
          "inv_freq: null; 32 numbers are needed");
}
