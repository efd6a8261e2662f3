// The CPU GEMM of the host world compared with float64: every pair of types, ragged sizes, every operand stride. Memory
// that c must not depend on is poisoned.
#include <doctest/doctest.h>

#include <imbrex/hw/host/host_gemm.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace imbrex;

enum class lie { rows, padded_rows, columns, padded_columns, scattered, backwards };
constexpr lie all_lies[] = {lie::rows,           lie::padded_rows, lie::columns,
                            lie::padded_columns, lie::scattered,   lie::backwards};

std::mt19937& generator() {
    static std::mt19937 engine{20240611};
    return engine;
}

int random_size(int most) {
    return std::uniform_int_distribution<int>{1, most}(generator());
}

template <class T>
T random_value() {
    if constexpr (std::is_same_v<T, std::int8_t>) {
        return static_cast<std::int8_t>(std::uniform_int_distribution<int>{-128, 127}(generator()));
    } else {
        return convert<T>(std::uniform_real_distribution<float>{-2.0f, 2.0f}(generator()));
    }
}

// NaN, if the type has one: elements between those of the operand must not be read.
template <class T>
T poison() {
    if constexpr (std::is_same_v<T, std::int8_t>) {
        return 77;
    } else {
        return convert<T>(std::numeric_limits<float>::quiet_NaN());
    }
}

template <class T>
struct operand {
    std::vector<T> storage;
    std::ptrdiff_t outer = 0, inner = 0, first = 0;

    operand(int count, int k, lie how) {
        switch (how) {
            case lie::rows:
                outer = k, inner = 1;
                break;
            case lie::padded_rows:
                outer = k + 5, inner = 1;
                break;
            case lie::columns:
                outer = 1, inner = count;
                break;
            case lie::padded_columns:
                outer = 1, inner = count + 3;
                break;
            case lie::scattered:
                outer = 3, inner = 3 * count + 2;
                break;
            case lie::backwards:
                outer = -k, inner = -1, first = std::ptrdiff_t{count} * k - 1;
                break;
        }
        const std::ptrdiff_t last = std::abs((count - 1) * outer + (k - 1) * inner);
        storage.assign(static_cast<std::size_t>(k > 0 ? last + 1 : 0), poison<T>());
        for (int i = 0; i < count; ++i) {
            for (int j = 0; j < k; ++j) storage[index(i, j)] = random_value<T>();
        }
    }

    std::size_t index(int i, int k) const { return static_cast<std::size_t>(first + i * outer + k * inner); }

    // All elements in order, whatever the strides.
    std::vector<double> values(int count, int k) const {
        std::vector<double> result;
        for (int i = 0; i < count; ++i) {
            for (int j = 0; j < k; ++j) result.push_back(convert<double>(storage[index(i, j)]));
        }
        return result;
    }

    hw::operand_view<T> view() const { return {storage.data() + (storage.empty() ? 0 : first), outer, inner}; }
};

// c is wider than n by `gap` columns, which must stay untouched.
template <class C, class A, class B>
void check_operands(const operand<A>& a, const operand<B>& b, int m, int n, int k, bool accumulate, int gap) {
    constexpr bool exact = std::is_same_v<C, std::int32_t>;
    const C untouched = static_cast<C>(-1234.0f);
    const int stride = n + gap;
    std::vector<C> c(static_cast<std::size_t>(m) * stride, untouched);
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            C& value = c[i * stride + j];
            if constexpr (exact) {
                value = static_cast<C>(generator()()) / 4;
            } else {
                value = accumulate ? random_value<float>() : std::numeric_limits<float>::quiet_NaN();
            }
        }
    }
    const std::vector<C> before = c;
    hw::multiply(c.data(), stride, a.view(), b.view(), m, n, k, accumulate);

    const std::vector<double> left = a.values(m, k), right = b.values(n, k);
    int wrong = 0;
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < stride; ++j) {
            const C result = c[i * stride + j];
            if (j >= n) {
                wrong += result != untouched;
                continue;
            }
            double sum = accumulate ? static_cast<double>(before[i * stride + j]) : 0.0;
            double magnitude = std::abs(sum);
            for (int step = 0; step < k; ++step) {
                const double product = left[i * k + step] * right[j * k + step];
                sum += product;
                magnitude += std::abs(product);
            }
            // The bound for any order of k + 1 additions in float.
            const double allowed = exact ? 0.0 : (k + 2) * std::ldexp(1.0, -24) * magnitude;
            wrong += !(std::abs(static_cast<double>(result) - sum) <= allowed);
        }
    }
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    CAPTURE(accumulate);
    CHECK(wrong == 0);
}

template <class C, class A, class B>
void check_product(int m, int n, int k, lie a_lies, lie b_lies, bool accumulate) {
    CAPTURE(static_cast<int>(a_lies));
    CAPTURE(static_cast<int>(b_lies));
    check_operands<C>(operand<A>(m, k, a_lies), operand<B>(n, k, b_lies), m, n, k, accumulate, random_size(3) - 1);
}

template <class C, class A, class B>
void check_types() {
    CAPTURE(name_of<A>());
    CAPTURE(name_of<B>());
    for (const lie a_lies : all_lies) {
        for (const lie b_lies : all_lies) {
            for (const bool accumulate : {false, true}) {
                check_product<C, A, B>(random_size(40), random_size(40), random_size(40), a_lies, b_lies, accumulate);
                check_product<C, A, B>(48, 64, 32, a_lies, b_lies, accumulate);
            }
        }
    }
}

template <class A, class... B>
void check_with_each() {
    (check_types<float, A, B>(), ...);
}

template <class... T>
void check_pairs() {
    (check_with_each<T, T...>(), ...);
}

}  // namespace

TEST_CASE("host GEMM: every pair of types and every layout") {
    check_pairs<float, bf16, fp16, e4m3, e5m2>();
    check_types<std::int32_t, std::int8_t, std::int8_t>();
}

TEST_CASE("host GEMM: every size up to 40 in each dimension") {
    for (int size = 1; size <= 40; ++size) {
        for (const lie how : {lie::rows, lie::columns}) {
            check_product<float, float, float>(size, random_size(40), random_size(40), how, how, size % 2 == 0);
            check_product<float, float, float>(random_size(40), size, random_size(40), how, how, size % 2 == 0);
            check_product<float, float, float>(random_size(40), random_size(40), size, how, how, size % 2 == 0);
            check_product<float, float, float>(size, size, size, how, how, size % 2 == 1);
            check_product<float, bf16, bf16>(size, size, size, how, how, size % 2 == 1);
            check_product<std::int32_t, std::int8_t, std::int8_t>(size, size, size, how, how, size % 2 == 1);
        }
    }
}

TEST_CASE("host GEMM: several blocks in each dimension") {
    for (const bool accumulate : {false, true}) {
        check_product<float, float, float>(128, 256, 64, lie::rows, lie::columns, accumulate);
        check_product<float, float, float>(261, 71, 519, lie::rows, lie::columns, accumulate);
        check_product<float, float, float>(261, 71, 519, lie::padded_columns, lie::padded_rows, accumulate);
        check_product<float, bf16, bf16>(300, 50, 257, lie::columns, lie::rows, accumulate);
        check_product<float, bf16, e4m3>(70, 130, 300, lie::rows, lie::rows, accumulate);
        check_product<float, float, fp16>(17, 33, 1030, lie::scattered, lie::scattered, accumulate);
        check_product<std::int32_t, std::int8_t, std::int8_t>(270, 70, 600, lie::rows, lie::rows, accumulate);
    }
}

TEST_CASE("host GEMM: k = 0") {
    for (const bool accumulate : {false, true}) {
        check_product<float, float, float>(5, 7, 0, lie::rows, lie::rows, accumulate);
        check_product<float, bf16, e4m3>(33, 40, 0, lie::columns, lie::columns, accumulate);
        check_product<std::int32_t, std::int8_t, std::int8_t>(9, 18, 0, lie::rows, lie::rows, accumulate);
        check_product<float, float, float>(0, 7, 3, lie::rows, lie::rows, accumulate);
        check_product<float, float, float>(5, 0, 3, lie::rows, lie::rows, accumulate);
    }
}

TEST_CASE("host GEMM: a stride of 0 broadcasts a row of a") {
    const int m = 20, n = 37, k = 50;
    for (const bool accumulate : {false, true}) {
        operand<bf16> a(m, k, lie::rows), b(n, k, lie::rows);
        a.outer = 0;
        check_operands<float>(a, b, m, n, k, accumulate, 1);
        b.inner = 0;
        check_operands<float>(a, b, m, n, k, accumulate, 0);
    }
}

TEST_CASE("host GEMM: int8 is exact at the ends of its range, and wraps") {
    const int n = 35, k = 3001;
    const std::vector<std::int8_t> lowest(static_cast<std::size_t>(n) * k, -128);
    const hw::operand_view<std::int8_t> view{lowest.data(), k, 1};
    std::vector<std::int32_t> c(n * n);
    hw::multiply(c.data(), n, view, view, n, n, k, false);
    CHECK(c == std::vector<std::int32_t>(n * n, k * 128 * 128));

    c.assign(n * n, std::numeric_limits<std::int32_t>::max());
    hw::multiply(c.data(), n, view, view, n, n, 1, true);
    CHECK(c == std::vector<std::int32_t>(n * n, std::numeric_limits<std::int32_t>::min() + 128 * 128 - 1));
}

TEST_CASE("host GEMM: infinities and NaNs reach only their own row and column") {
    const int size = 19;
    std::vector<float> a(size * size, 1.0f), c(size * size);
    std::vector<bf16> b(size * size, bf16(0.5f));
    a[2 * size + 3] = std::numeric_limits<float>::infinity();
    b[4 * size + 5] = convert<bf16>(std::numeric_limits<float>::quiet_NaN());
    hw::multiply(c.data(), size, hw::operand_view<float>{a.data(), size, 1}, hw::operand_view<bf16>{b.data(), size, 1},
                 size, size, size, false);
    for (int i = 0; i < size; ++i) {
        for (int j = 0; j < size; ++j) {
            const float value = c[i * size + j];
            CHECK(std::isnan(value) == (j == 4));
            if (j != 4) CHECK(value == (i == 2 ? std::numeric_limits<float>::infinity() : 0.5f * size));
        }
    }
}
