// Tests of apply_rope against a reference in double: both styles, full and partial rotary_dim, any number of heads and
// columns at any alignment, positions up to 2^31 - 1. Copied columns keep their bits, and gaps between rows are not
// written.
#include <imbrex/kernels/rope.hpp>

#include "kernels/elementwise.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr rope_style both_styles[] = {rope_style::half_split, rope_style::interleaved};

// One rotation problem. Without positions, tokens are numbered from first_position.
struct trial {
    int rotated = 0;
    rope_style style = rope_style::half_split;
    std::vector<int> positions = {};
    int first_position = 0;
    float factor = 1;

    int position(int token) const { return positions.empty() ? first_position + token : positions[token]; }
    int partner(int column) const {
        if (style == rope_style::interleaved) return column ^ 1;
        return column < rotated / 2 ? column + rotated / 2 : column - rotated / 2;
    }
    bool is_first(int column) const { return column < partner(column); }
    int pair(int column) const {
        return style == rope_style::interleaved ? column / 2 : std::min(column, partner(column));
    }
    std::vector<double> frequencies() const {
        std::vector<double> all;
        for (int i = 0; i < rotated; i += 2) all.push_back(std::pow(10000.0, -static_cast<double>(i) / rotated));
        return all;
    }
};

// Positions from the whole range.
std::vector<int> some_positions(int tokens) {
    const std::vector<int> all{1000000, 0, 999999, 4095, 1, 131072, 77, 2147483647, 524287, -1, 1000001, -4096};
    std::vector<int> found;
    for (int i = 0; i < tokens; ++i) found.push_back(all[i % all.size()] - (i < 12 ? 0 : i));
    return found;
}

template <class T>
bool same_bits(T a, T b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
int wrong_elements(const trial& t, const row_shape& in, const row_shape& out, const std::vector<T>& before,
                   const std::vector<T>& found) {
    const std::vector<double> frequencies = t.frequencies();
    int wrong = 0;
    for (int row = 0; row < in.rows(); ++row) {
        for (int i = 0; i < in.columns; ++i) {
            const T result = found[out.index(row, i)];
            if (i >= t.rotated) {
                wrong += !same_bits(result, before[in.index(row, i)]);
                continue;
            }
            const double x = convert<float>(before[in.index(row, i)]);
            const double y = convert<float>(before[in.index(row, t.partner(i))]);
            const double angle = t.position(row / in.heads) * frequencies[t.pair(i)];
            const double turned = x * std::cos(angle) + (t.is_first(i) ? -y : y) * std::sin(angle);
            // Error of sine and cosine: 10^-7, plus the difference of two roundings of inv_freq to double; then two
            // products and a sum, which may cancel.
            const double lost = (4e-7 + 4e-16 * std::fabs(angle)) * t.factor * (std::fabs(x) + std::fabs(y));
            const double off = tolerance<T>() * std::fabs(t.factor * turned) + lost + 3.1e-8;
            wrong += !(std::fabs(convert<float>(result) - t.factor * turned) <= off);
        }
    }
    return wrong;
}

template <class T>
void check_rotated(const trial& t, const row_shape& in, const row_shape& result, bool in_place) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(in.tokens);
        CAPTURE(in.heads);
        CAPTURE(in.columns);
        CAPTURE(t.rotated);
        CAPTURE(static_cast<int>(t.style));
        buffer<T> x(where, in.elements()), out(where, result.elements());
        buffer<std::uint64_t> inv_freq(where, t.rotated / 2);
        buffer<int> positions(where, t.positions.size());
        x.values = random_rows<T>(in, 1);
        out.values = poisoned<T>(result.elements());
        inv_freq.values = rope_fixed_point_inv_freq(t.frequencies());
        positions.values = t.positions;
        const std::vector<T> before = x.values;
        T* const from = x.upload();
        apply_rope<T>::launch(where, {.x = in.view<const T>(from),
                                      .positions = t.positions.empty() ? nullptr : positions.upload(),
                                      .first_position = t.first_position,
                                      .rope = {inv_freq.upload(), t.rotated, t.style, t.factor},
                                      .out = in_place ? in.view(from) : result.view(out.upload())});
        x.download();
        out.download();
        const row_shape& written = in_place ? in : result;
        const std::vector<T>& found = in_place ? x.values : out.values;
        CHECK(wrong_elements(t, in, written, before, found) == 0);
        CHECK(gaps_untouched(written, found));
    }
}

// In both styles, in place and out of place.
template <class T>
void check_all(trial t, const row_shape& in, const row_shape& result) {
    if (t.positions.empty() && t.first_position == 0) t.positions = some_positions(in.tokens);
    for (const rope_style style : both_styles) {
        t.style = style;
        check_rotated<T>(t, in, result, false);
        check_rotated<T>(t, in, {}, true);
    }
}
template <class T>
void check_packed(int tokens, int heads, int columns, int rotated) {
    const row_shape shape{tokens, heads, columns};
    check_all<T>({.rotated = rotated}, shape, shape);
}

}  // namespace

TEST_CASE("any number of heads, full rotary_dim") {
    for (const int heads : {1, 2, 7, 8, 9, 16, 17, 32, 33}) check_packed<bf16>(3, heads, 128, 128);
    for (const int columns : {16, 32, 64, 80, 96, 112, 192, 256, 320}) {
        check_packed<bf16>(2, 5, columns, columns);
        check_packed<fp16>(2, 17, columns, columns);
        check_packed<float>(2, 3, columns, columns);
    }
    for (const int tokens : {1, 5, 13, 70}) {
        check_packed<fp16>(tokens, 8, 64, 64);
        check_packed<float>(tokens, 12, 128, 128);
    }
}

TEST_CASE("partial rotary_dim copies the other columns") {
    for (const int rotated : {0, 16, 32, 48, 64, 112}) {
        check_packed<bf16>(3, 9, 128, rotated);
        check_packed<float>(2, 20, 128, rotated);
    }
    check_packed<fp16>(3, 32, 80, 32);
    check_packed<bf16>(2, 4, 576, 64);
    check_packed<fp16>(2, 4, 512, 256);
}

TEST_CASE("unaligned heads and rotary_dim") {
    for (const int columns : {2, 6, 10, 34, 66, 100, 130, 258}) {
        check_packed<bf16>(3, 9, columns, columns);
        check_packed<float>(2, 3, columns, columns);
    }
    check_packed<bf16>(3, 9, 7, 6);
    check_packed<fp16>(3, 2, 101, 20);
    check_packed<bf16>(3, 8, 64, 24);
    check_packed<bf16>(3, 8, 64, 2);
    check_packed<float>(3, 8, 24, 20);
    check_packed<fp16>(3, 8, 129, 0);
}

TEST_CASE("any strides and alignment") {
    check_all<bf16>({.rotated = 64}, {5, 3, 64, 8, 8}, {5, 3, 64});
    check_all<bf16>({.rotated = 128}, {5, 9, 128, 24, 16}, {5, 9, 128, 8, 8});
    check_all<bf16>({.rotated = 128}, {5, 3, 128, 1, 0}, {5, 3, 128, 3, 1});
    check_all<bf16>({.rotated = 32}, {5, 3, 48}, {5, 3, 48, 0, 1});
    check_all<float>({.rotated = 64}, {3, 10, 96, 4, 4}, {3, 10, 96, 12});
    check_all<fp16>({.rotated = 30}, {3, 10, 33, 5, 3}, {3, 10, 33, 2, 7});
}

TEST_CASE("rotates queries and keys inside a packed QKV array") {
    for (const world where : worlds()) {
        const int tokens = 6, heads = 4, kv_heads = 2, head_dim = 64, all = (heads + 2 * kv_heads) * head_dim;
        const row_shape whole{tokens, heads + 2 * kv_heads, head_dim};
        const trial t{.rotated = head_dim, .positions = some_positions(tokens)};
        buffer<bf16> qkv(where, whole.elements());
        buffer<std::uint64_t> inv_freq(where, head_dim / 2);
        buffer<int> positions(where, tokens);
        qkv.values = random_rows<bf16>(whole, 3);
        inv_freq.values = rope_fixed_point_inv_freq(t.frequencies());
        positions.values = t.positions;
        const std::vector<bf16> before = qkv.values;
        // Queries and keys are adjacent heads.
        const auto rotated = as_rows_of_heads(qkv.upload(), tokens, heads + kv_heads, head_dim, all);
        apply_rope<bf16>::launch(where, {.x = rotated,
                                         .positions = positions.upload(),
                                         .rope = {inv_freq.upload(), head_dim, t.style},
                                         .out = rotated});
        qkv.download();
        std::vector<bf16> turned = qkv.values;
        int changed = 0;
        for (int row = 0; row < whole.rows(); ++row) {
            if (row % whole.heads < heads + kv_heads) continue;
            for (int i = 0; i < head_dim; ++i) {
                const std::size_t at = whole.index(row, i);
                changed += !same_bits(turned[at], before[at]);
            }
        }
        CHECK(changed == 0);
        const row_shape part{tokens, heads + kv_heads, head_dim};
        std::vector<bf16> first(part.elements()), then(part.elements());
        for (int row = 0; row < part.rows(); ++row) {
            const int there = row / part.heads * whole.heads + row % part.heads;
            for (int i = 0; i < head_dim; ++i) {
                first[part.index(row, i)] = before[whole.index(there, i)];
                then[part.index(row, i)] = turned[whole.index(there, i)];
            }
        }
        CHECK(wrong_elements(t, part, part, first, then) == 0);
    }
}

TEST_CASE("numbers tokens from first_position and applies the attention factor") {
    const row_shape shape{11, 9, 128};
    for (const int first : {1, 1000000, -5, 2147483637}) {
        check_all<float>({.rotated = 128, .first_position = first}, shape, shape);
        check_all<bf16>({.rotated = 64, .first_position = first}, shape, shape);
    }
    for (const rope_style style : both_styles) {
        check_rotated<bf16>({.rotated = 128, .style = style}, shape, shape, false);
        check_rotated<fp16>({.rotated = 128, .style = style}, shape, shape, true);
    }
    check_all<float>({.rotated = 96, .factor = 1.25f}, shape, shape);
    check_all<bf16>({.rotated = 128, .factor = 0.5f}, shape, shape);
}

TEST_CASE("empty problems do nothing; rejects invalid arguments") {
    using rotating = apply_rope<bf16>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        rotating::launch(where, {});
        rotating::launch(where, {.x = as_rows_of_heads<const bf16>(nullptr, 0, 8, 64),
                                 .out = as_rows_of_heads<bf16>(nullptr, 0, 8, 64)});
        rotating::launch(where, {.x = as_rows_of_heads<const bf16>(nullptr, 3, 0, 64, 64),
                                 .out = as_rows_of_heads<bf16>(nullptr, 3, 0, 64, 64)});
        buffer<bf16> some(where, 6 * 64);
        buffer<std::uint64_t> inv_freq(where, 32);
        buffer<int> positions(where, 2);
        bf16* const memory = some.upload();
        // In place without RoPE there is nothing to do.
        rotating::launch(
            where, {.x = as_rows_of_heads<const bf16>(memory, 2, 3, 64), .out = as_rows_of_heads(memory, 2, 3, 64)});
        const apply_rope_problem<bf16> good{.x = as_rows_of_heads<const bf16>(memory, 2, 3, 64),
                                            .rope = {inv_freq.upload(), 64},
                                            .out = as_rows_of_heads(memory, 2, 3, 64)};
        const auto refused = [&](auto change) {
            apply_rope_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { rotating::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.x.pointer = nullptr; }) == "x.pointer: null; 2 x 3 x 64 elements are needed");
        CHECK(refused([](auto& p) { --p.out.extents.given[0]; }) ==
              "out.extents[0]: 1; x has 2 tokens, and it must have as many");
        CHECK(refused([](auto& p) { p.out.extents.given[1] = 4; }) ==
              "out.extents[1]: 4; x has 3 heads, and it must have as many");
        CHECK(refused([](auto& p) { p.out.strides.given[1] = 63; }) ==
              "out.strides[1]: 63; heads of results lie at least the 64 elements of a row apart");
        CHECK(refused([](auto& p) { p.out.strides.given[0] = 256; }) ==
              "out.strides[0]: 256; in place it must equal the stride of x, 192");
        const std::string even = "; must be even and at most the 64 columns of a head";
        CHECK(refused([](auto& p) { p.rope.rotary_dim = 66; }) == "rope.rotary_dim: 66" + even);
        CHECK(refused([](auto& p) { p.rope.rotary_dim = 31; }) == "rope.rotary_dim: 31" + even);
        CHECK(refused([](auto& p) { p.rope.rotary_dim = -2; }) == "rope.rotary_dim: -2" + even);
        CHECK(refused([](auto& p) { p.rope.inv_freq = nullptr; }) == "rope.inv_freq: null; 32 numbers are needed");
        CHECK(refused([&](auto& p) {
                  p.positions = positions.upload();
                  p.first_position = 7;
              }) == "first_position: 7; positions are given, it must be 0");
        CHECK(refused([](auto& p) { p.first_position = 2147483647; }) ==
              "first_position: 2147483647; with 2 tokens the last position is beyond 2147483647");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("no hazard in any schedule; has no synchronisation to mutate") {
    using rotating = apply_rope<bf16>;
    using kernel = rotating::kernel<64, row_alignment::aligned>;
    const trial t{.rotated = 128};
    const auto inv_freq = rope_fixed_point_inv_freq(t.frequencies());
    std::vector<bf16> x(3 * 9 * 192), out(x.size());
    fill_random(x, 1);
    for (const rope_style style : both_styles) {
        const auto args = rotating::arguments_of<kernel>({.x = as_rows_of_heads<const bf16>(x.data(), 3, 9, 192),
                                                          .rope = {inv_freq.data(), 128, style},
                                                          .out = as_rows_of_heads(out.data(), 3, 9, 192)});
        check_without_synchronisation<kernel>(kernel::grid_of(args), args);
    }
}
#endif
