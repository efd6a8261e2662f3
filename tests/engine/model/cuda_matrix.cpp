// GPU matrices of every weight format in the host world, against float64 with weights rounded in the same way: without
// an epilogue, with bias, residual and SwiGLU. A wrong format shows in the rounding error.
//
// The model of cuda_kernels_on_host.hpp is instantiated here too. The products and the attention are compiled in files of
// their own (tests/CMakeLists.txt, cuda_attention.cpp).
#include "engine/model/cuda_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/loading/random_blocks.hpp"
#include "engine/model/cuda_kernels.hpp"
#include "engine/model/cuda_kernels_on_host.hpp"
#include "engine/model/model_runner.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/rounded_weights.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

// One weight, or gate and up of the same shape.
struct random_matrix {
    std::vector<std::string> names;
    weight_set weights;
    std::int64_t rows = 0, columns;
    std::vector<double> expected;

    random_matrix(int count, std::int64_t rows_of_each, std::int64_t columns, weight_type type = weight_type::f32)
        : columns(columns) {
        std::mt19937 random(7);
        for (int i = 0; i < count; ++i, rows += rows_of_each) {
            std::vector<float> values(static_cast<std::size_t>(rows_of_each * columns));
            for (float& value : values) value = static_cast<float>(random() / 4294967296.0 * 2 - 1);
            names.push_back("part" + std::to_string(i));
            add_weight(weights, {names.back(), {rows_of_each, columns}}, type, values);
        }
    }
    // Parts in these blocks.
    random_matrix(const std::vector<weight_type>& types, std::int64_t rows_of_each, std::int64_t columns)
        : columns(columns) {
        for (const weight_type type : types) {
            const std::vector<std::int64_t> shape{rows_of_each, columns};
            const auto bytes =
                std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(*byte_size(type, shape)));
            fill_with_random_blocks(type, *bytes, 1, names.size());
            names.push_back("part" + std::to_string(names.size()));
            weights.add({.name = names.back(), .type = type, .shape = shape, .bytes = *bytes}, "random");
            weights.keep(bytes);
            rows += rows_of_each;
        }
        std::vector<float> values(static_cast<std::size_t>(rows * columns));
        stacked().read(0, rows, values);
        expected.assign(values.begin(), values.end());
    }
    stacked_weights stacked() const { return {weights, names}; }
    cuda_matrix loaded(weight_format format) const { return {stacked(), {.weights = format}}; }

    void expect_rounded_to(weight_format format) {
        std::vector<float> values(static_cast<std::size_t>(rows * columns));
        stacked().read(0, rows, values);
        round_matrix(format, rows, columns, values);
        expected.assign(values.begin(), values.end());
    }
    // An element of the product and the sum of the absolute values of its terms.
    std::pair<double, double> at(std::span<const bf16> x, std::int64_t row) const {
        double sum = 0, magnitude = 0;
        for (std::int64_t i = 0; i < columns; ++i) {
            const double product = static_cast<double>(convert<float>(x[static_cast<std::size_t>(i)])) *
                                   expected[static_cast<std::size_t>(row * columns + i)];
            sum += product;
            magnitude += std::abs(product);
        }
        return {sum, magnitude};
    }
};

std::vector<bf16> random_inputs(std::size_t count) {
    std::mt19937 random(11);
    std::vector<bf16> x(count);
    for (bf16& value : x) value = bf16(static_cast<float>(random() / 4294967296.0 * 2 - 1));
    return x;
}

// The largest error beyond the rounding of the result, relative to the magnitude. wanted(inputs, column) returns value
// and magnitude.
template <class Out, class Wanted>
double worst_error(const std::vector<Out>& out, const std::vector<bf16>& x, std::size_t rows, std::size_t columns,
                   const Wanted& wanted) {
    double worst = 0;
    for (std::size_t i = 0; i < rows * columns; ++i) {
        const std::size_t length = x.size() / rows;
        const auto [value, magnitude] =
            wanted(std::span(x).subspan(i / columns * length, length), static_cast<std::int64_t>(i % columns));
        const double rounding = std::is_same_v<Out, bf16> ? std::abs(value) * 0x1p-8 : 0;
        const double error = (std::abs(convert<float>(out[i]) - value) - rounding) / magnitude;
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    return worst;
}

constexpr double fp32_sums = 1e-6, of_activation = 1e-5;

std::pair<double, double> sum_of(const std::pair<double, double>& product, double more) {
    return {product.first + more, product.second + std::abs(more)};
}

void check_products(const random_matrix& one, const cuda_matrix& with) {
    REQUIRE(with.rows() == one.rows);
    REQUIRE(with.columns() == one.columns);
    const auto rows = static_cast<std::size_t>(one.rows);
    std::vector<float> bias(rows);
    for (std::size_t i = 0; i < rows; ++i) bias[i] = static_cast<float>(i % 7) - 3;
    for (const int count : {1, 5, 17, 40}) {
        CAPTURE(count);
        const auto inputs = static_cast<std::size_t>(count);
        const std::vector<bf16> x = random_inputs(inputs * static_cast<std::size_t>(one.columns));
        const auto plain = [&](std::span<const bf16> of, std::int64_t row) { return one.at(of, row); };
        std::vector<float> exact(inputs * rows, NAN);
        with.matmul(world::host, x.data(), count, exact.data(), epilogue::identity{}, nullptr);
        CHECK(worst_error(exact, x, inputs, rows, plain) < fp32_sums);
        std::vector<bf16> out(inputs * rows, bf16(NAN));
        with.matmul(world::host, x.data(), count, out.data(), epilogue::bias<float>{{bias.data(), with.rows()}},
                    nullptr);
        CHECK(worst_error(out, x, inputs, rows, [&](std::span<const bf16> of, std::int64_t row) {
                  return sum_of(one.at(of, row), bias[static_cast<std::size_t>(row)]);
              }) < fp32_sums);
        // With a residual.
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16(bias[i % rows]);
        const epilogue::residual<bf16> before{gemm_matrix_view<const bf16>(out.data(), count, with.rows())};
        with.matmul(world::host, x.data(), count, out.data(), before, nullptr);
        CHECK(worst_error(out, x, inputs, rows, [&](std::span<const bf16> of, std::int64_t row) {
                  return sum_of(one.at(of, row), bias[static_cast<std::size_t>(row)]);
              }) < fp32_sums);
    }
}

void check_gated(const random_matrix& one, const cuda_matrix& with) {
    const std::int64_t half = one.rows / 2;
    for (const int count : {1, 5, 17, 40}) {
        CAPTURE(count);
        const auto inputs = static_cast<std::size_t>(count);
        const std::vector<bf16> x = random_inputs(inputs * static_cast<std::size_t>(one.columns));
        std::vector<bf16> out(inputs * static_cast<std::size_t>(half), bf16(NAN));
        with.matmul(world::host, x.data(), count, out.data(), epilogue::swiglu{}, nullptr);
        CHECK(worst_error(out, x, inputs, static_cast<std::size_t>(half),
                          [&](std::span<const bf16> of, std::int64_t row) {
                              const auto [gate, gate_magnitude] = one.at(of, row);
                              const auto [up, up_magnitude] = one.at(of, half + row);
                              return std::pair(gate / (1 + std::exp(-gate)) * up, gate_magnitude * up_magnitude);
                          }) < of_activation);
    }
}

constexpr weight_format formats[] = {weight_format::bf16, weight_format::e4m3, weight_format::int8,
                                     weight_format::int4};

}  // namespace

TEST_CASE("GEMMs of every GPU weight format match the rounded weights") {
    for (const weight_format format : formats) {
        CAPTURE(std::string(name_of(format)));
        for (const auto& [rows, columns] : {std::pair{300, 288}, {40, 32}}) {
            random_matrix one(1, rows, columns);
            one.expect_rounded_to(format);
            check_products(one, one.loaded(format));
        }
        random_matrix two(2, 128, 288);
        two.expect_rounded_to(format);
        check_gated(two, two.loaded(format));
    }
}

TEST_CASE("With a workspace packed weights are rounded, for many rows if it is large enough") {
    constexpr int fused = fused_dequantisation_max_m, many = fused + 8;
    const std::vector<bf16> x = random_inputs(many * 288);
    for (const weight_format format : {weight_format::e4m3, weight_format::int8, weight_format::int4}) {
        CAPTURE(std::string(name_of(format)));
        random_matrix one(2, 128, 288);
        one.expect_rounded_to(format);
        const cuda_matrix with = one.loaded(format);
        REQUIRE(with.is_packed());
        std::vector<bf16> room(256 * 288);
        const auto product = [&](int count, const gemm_workspace& workspace) {
            std::vector<float> out(count * 256, NAN);
            with.matmul(world::host, x.data(), count, out.data(), epilogue::identity{}, nullptr, workspace);
            return out;
        };
        const auto error = [&](const std::vector<float>& out, int count) {
            const std::vector<bf16> inputs(x.begin(), x.begin() + std::ptrdiff_t{count} * 288);
            return worst_error(out, inputs, count, 256, [&](auto of, std::int64_t row) { return one.at(of, row); });
        };
        // int8 and int4 are rounded to bf16 with their scales; e4m3 is exact in bf16, and its scales stay separate.
        const bool rounded = format != weight_format::e4m3;
        for (const int count : {cuda_matrix::min_dequantised_m + 2, many}) {
            CAPTURE(count);
            const gemm_workspace enough{room.data(), room.size() * sizeof(bf16)};
            const gemm_workspace too_small{room.data(), enough.bytes - 1};
            const std::vector<float> with_room = product(count, enough), packed = product(count, {});
            CHECK(error(packed, count) < fp32_sums);
            CHECK(error(with_room, count) < (rounded ? 0.004 : fp32_sums));
            if (rounded) CHECK(with_room != packed);
            CHECK(product(count, too_small) == (count <= fused ? with_room : packed));
        }
    }
}

TEST_CASE("Loads weights as bf16") {
    for (const weight_type type : {weight_type::f32, weight_type::bf16}) {
        CAPTURE(std::string(name_of(type)));
        random_matrix one(1, 100, 96, type), two(2, 64, 96, type);
        for (random_matrix* each : {&one, &two}) each->expect_rounded_to(weight_format::bf16);
        check_products(one, one.loaded(weight_format::as_in_file));
        check_gated(two, two.loaded(weight_format::as_in_file));
    }
}

TEST_CASE("Keeps the numbers of ggml's blocks") {
    using enum weight_type;
    for (const weight_type type : {q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4}) {
        CAPTURE(std::string(name_of(type)));
        const random_matrix one({type}, 100, 256), two({type, type}, 64, 256);
        const cuda_matrix loaded = one.loaded(weight_format::as_in_file);
        CHECK(loaded.is_packed());
        check_products(one, loaded);
        check_gated(two, two.loaded(weight_format::as_in_file));
    }
}

TEST_CASE("Rounds only the scales of IQ4_XS") {
    const random_matrix one({weight_type::iq4_xs}, 100, 256);
    const cuda_matrix loaded = one.loaded(weight_format::as_in_file);
    CHECK(loaded.is_packed());
    const std::vector<bf16> x = random_inputs(256);
    std::vector<float> out(100, NAN);
    loaded.matmul(world::host, x.data(), 1, out.data(), epilogue::identity{}, nullptr);
    const double error = worst_error(out, x, 1, out.size(), [&](auto of, std::int64_t row) { return one.at(of, row); });
    CHECK(error < 0x1p-12);
}

TEST_CASE("Stacked weights keep their own types; gate and up of different types become bf16") {
    using enum weight_type;
    const random_matrix mixed({q4_k, q4_k, q6_k}, 40, 512);
    const cuda_matrix loaded = mixed.loaded(weight_format::as_in_file);
    CHECK(loaded.is_packed());
    check_products(mixed, loaded);
    random_matrix gated({q4_k, q6_k}, 64, 256);
    gated.expect_rounded_to(weight_format::bf16);
    CHECK_FALSE(gated.loaded(weight_format::as_in_file).is_packed());
    check_gated(gated, gated.loaded(weight_format::as_in_file));
}

TEST_CASE("Keeps a matrix that cannot be prepacked as bf16") {
    for (const weight_format format : formats) {
        CAPTURE(std::string(name_of(format)));
        random_matrix no_groups(1, 100, 72), no_blocks(2, 40, 96);
        no_groups.expect_rounded_to(weight_format::bf16);
        no_blocks.expect_rounded_to(weight_format::bf16);
        check_products(no_groups, no_groups.loaded(format));
        check_gated(no_blocks, no_blocks.loaded(format));
    }
}

TEST_CASE("Uploads a matrix in several parts") {
    for (const weight_format format : formats) {
        CAPTURE(std::string(name_of(format)));
        random_matrix one(1, 16500, 32);
        one.expect_rounded_to(format);
        const std::vector<bf16> x = random_inputs(32);
        std::vector<float> out(16500, NAN);
        one.loaded(format).matmul(world::host, x.data(), 1, out.data(), epilogue::identity{}, nullptr);
        CHECK(worst_error(out, x, 1, out.size(),
                          [&](std::span<const bf16> of, std::int64_t row) { return one.at(of, row); }) < fp32_sums);
    }
}

TEST_CASE("The embedding table is always bf16") {
    random_matrix one(1, 100, 96);
    one.expect_rounded_to(weight_format::bf16);
    const cuda_embedding_table table(one.stacked(), {.weights = weight_format::int4});
    REQUIRE(table.rows() == 100);
    REQUIRE(table.columns() == 96);
    for (std::size_t i = 0; i < one.expected.size(); ++i) {
        REQUIRE(convert<float>(table.values()[i]) == one.expected[i]);
    }
}

TEST_CASE("Rejects weight formats that a GPU does not support") {
    const random_matrix one(1, 64, 64);
    check_error_message("weights: f32; on a GPU they are bf16, e4m3, int8 or int4",
                        [&] { one.loaded(weight_format::f32); });
    random_matrix infinite(0, 0, 64);
    infinite.names = {"part"};
    add_weight(infinite.weights, {"part", {64, 64}}, weight_type::f32, std::vector<float>(64 * 64, INFINITY));
    for (const weight_format format : {weight_format::e4m3, weight_format::int8, weight_format::int4}) {
        check_error_message("weights are finite", [&] { infinite.loaded(format); });
    }
}

std::unique_ptr<runner> make_cuda_kernels_runner_on_host(const model_files& files, const runner_options& options) {
    return std::make_unique<model_runner<cuda_kernels<64>>>(files, options, loading_progress{});
}

}  // namespace imbrex::engine::test
