// SIMT GEMV by one warp: sums accumulate over blocks of k, out-of-bounds rows and columns stay untouched, and the
// checked world reports products of rows that were never staged.
#include <imbrex/ops/warp/simt_gemv.hpp>

#include "worlds.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Two blocks of k, three rows of x in a tile of four, six weight rows in one of eight. The epilogue doubles the sums
// and adds the column index.
template <class Weights, bool Staged>
struct product_kernel {
    static constexpr int warps = 1;
    static constexpr int rows = 3, columns = 6, block_k = 512;
    using shared_memory = staged_rows<Weights, 4, block_k>;
    struct arguments {
        const float* x;
        Weights weights;
        float* out;
        int k;
    };
    struct place_of_x {
        const float* first;
        int stride;
        IMBREX_FN const float* operator()(int row) const { return first + row * stride; }
    };
    struct place_of_result {
        float* first;
        IMBREX_FN float* operator()(int row) const { return first + row * columns; }
    };
    struct twice_and_number {
        IMBREX_FN float operator()(int column, float sum) const { return 2 * sum + static_cast<float>(column); }
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](const warp& self) {
            gemv_accumulator<4, 8> sums;
            fill(self, sums, 0.0f);
            for (int first = 0; first < args.k; first += block_k) {
                const int there = args.k - first < block_k ? args.k - first : block_k;
                self.sync();
                if constexpr (Staged) stage_rows(self, shared, place_of_x{args.x + first, args.k}, rows, there);
                self.sync();
                accumulate_products(self, sums, shared, rows, weight_block_at(args.weights, 1, first, columns, there),
                                    true);
            }
            reduce_lanes(self, sums);
            store_accumulator(self, place_of_result{args.out}, sums, rows, columns, twice_and_number{});
        });
    }
};

using float_kernel = product_kernel<unquantised_weight_rows<float>, true>;
using int8_kernel = product_kernel<int8_weight_rows<activation_quantisation::int8, float>, true>;

}  // namespace

TEST_CASE("simt_gemv: integers are exact, with float and int8 staging") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const int k = 640, n = 8;  // the first and the last weight row are not used
        buffer<float> x(where, 3 * k), w(where, n * k), out(where, 3 * 6 + 1, -7.0f), scales(where, n * k / 32, 1.0f);
        buffer<std::int8_t> bytes(where, n * k);
        for (int i = 0; i < 3 * k; ++i) x.values[i] = static_cast<float>(i % 32 == 0 ? 127 : (i * 7) % 23 - 11);
        for (int i = 0; i < n * k; ++i) {
            bytes.values[i] = static_cast<std::int8_t>((i * 5) % 17 - 8);
            w.values[i] = bytes.values[i];
        }
        const auto check = [&] {
            out.download();
            bool right = out.values[18] == -7.0f;
            for (int row = 0; row < 3; ++row) {
                for (int column = 0; column < 6; ++column) {
                    float sum = 0;
                    for (int i = 0; i < k; ++i) sum += x.values[row * k + i] * w.values[(column + 1) * k + i];
                    right = right && out.values[row * 6 + column] == 2 * sum + static_cast<float>(column);
                }
            }
            CHECK(right);
        };
        run<float_kernel>(where, {1},
                          {x.upload(), unquantised_weight_rows<float>{w.upload(), n, k, k}, out.upload(), k});
        check();
        run<int8_kernel>(where, {1}, {x.upload(), {bytes.upload(), scales.upload(), n, k}, out.upload(), k});
        check();
    }
}

#if !defined(__CUDACC__)
TEST_CASE("simt_gemv: reports rows that were never staged") {
    using kernel = product_kernel<unquantised_weight_rows<float>, false>;
    std::vector<float> x(3 * 32), w(8 * 32), out(18);
    const auto found =
        host::check<kernel>({1}, {x.data(), unquantised_weight_rows<float>{w.data(), 8, 32, 32}, out.data(), 32}, 1);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::uninitialised_read);
}

TEST_CASE("simt_gemv: the checker sees x, weights, scales and results in global memory") {
    const int k = 64;
    std::vector<float> x(3 * k), scales(8 * k / 32), out(18);
    std::vector<std::int8_t> w(8 * k);
    const int8_kernel::arguments arguments{x.data(), {w.data(), scales.data(), 8, k}, out.data(), k};
    const auto kind = [&](int blocks, std::vector<memory_range> uninitialised) -> std::optional<hazard_kind> {
        const auto found = host::check<int8_kernel>(
            {blocks}, arguments, host::check_options{.schedules = 2, .uninitialised = std::move(uninitialised)});
        if (!found) return std::nullopt;
        return found->kind;
    };
    // The first and the last weight row are not used.
    CHECK(!kind(1, {{out.data(), 18 * sizeof(float)}, {w.data(), std::size_t(k)}, {&w[7 * k], std::size_t(k)}}));
    CHECK(kind(1, {{&x[3 * k - 1], 4}}) == hazard_kind::uninitialised_read);
    CHECK(kind(1, {{&w[k], 1}}) == hazard_kind::uninitialised_read);
    CHECK(kind(1, {{&w[7 * k - 1], 1}}) == hazard_kind::uninitialised_read);
    CHECK(kind(1, {{&scales[7 * k / 32 - 1], 4}}) == hazard_kind::uninitialised_read);
    CHECK(kind(2, {}) == hazard_kind::race);  // both blocks store the same results
}
#endif
