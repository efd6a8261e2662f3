// The CPU's GEMM with ggml's blocks against a sum in double over dequantised weights.
#include "engine/model/cpu_block_gemm.hpp"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/loading/weights.hpp"
#include "engine/support.hpp"
#include "imbrex/core/fp16.hpp"

namespace imbrex::engine::test {

namespace {

constexpr weight_type block_types[] = {weight_type::q4_0,  weight_type::q4_1, weight_type::q5_0,  weight_type::q5_1,
                                       weight_type::q8_0,  weight_type::q2_k, weight_type::q3_k,  weight_type::q4_k,
                                       weight_type::q5_k,  weight_type::q6_k, weight_type::mxfp4, weight_type::iq4_nl,
                                       weight_type::iq4_xs};

// Where a block has fp16 numbers; -1: none.
std::pair<int, int> places_of_scales(weight_type type) {
    switch (type) {
        case weight_type::q4_1:
        case weight_type::q5_1:
        case weight_type::q4_k:
        case weight_type::q5_k:
            return {0, 2};
        case weight_type::q2_k:
            return {80, 82};
        case weight_type::q3_k:
            return {108, -1};
        case weight_type::q6_k:
            return {208, -1};
        case weight_type::mxfp4:
            return {-1, -1};
        default:
            return {0, -1};
    }
}

std::string random_blocks(weight_type type, std::int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    const auto size = static_cast<std::size_t>(format_of(type).bytes);
    std::string bytes(static_cast<std::size_t>(count) * size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const auto [first, second] = places_of_scales(type);
    for (std::size_t block = 0; block < bytes.size(); block += size) {
        for (const int place : {first, second}) {
            const auto scale = fp16::encode(static_cast<float>(random() % 2000) / 1000.0f - 1);
            if (place >= 0) bytes.replace(block + static_cast<std::size_t>(place), 2, raw(scale));
        }
        if (type == weight_type::mxfp4) bytes[block] = static_cast<char>(120 + random() % 10);
    }
    return bytes;
}

struct problem {
    std::string blocks;
    weight weights;
    std::vector<float> x, bias;
    int count;

    problem(weight_type type, std::int64_t rows, std::int64_t columns, int rows_of_x)
        : blocks(random_blocks(type, rows * columns / format_of(type).elements, 1)),
          weights{"w", type, {rows, columns}, bytes(blocks)},
          count(rows_of_x) {
        std::mt19937 random(2);
        // Integers up to 127 times a power of two in each group: exact in int8.
        for (std::int64_t group = 0; group < count * columns / 32; ++group) {
            const float scale = group == 0 ? 0 : std::ldexp(1.0f, static_cast<int>(random() % 6) - 8);
            for (int i = 0; i < 32; ++i) {
                x.push_back(scale * static_cast<float>(i % 16 == 0 ? 127 : static_cast<int>(random() % 255) - 127));
            }
        }
        for (std::int64_t i = 0; i < rows; ++i) bias.push_back(static_cast<float>(random() % 20001) / 10000.0f - 1);
    }

    std::vector<float> run(int first, int rows_of_x, bool has_bias = true) const {
        const std::int64_t columns = weights.row_elements(), stride = weights.rows() + 3;
        std::vector<float> out(static_cast<std::size_t>(rows_of_x * stride), -7.0f);
        const quantised_rows rounded(x.data() + first * columns, rows_of_x, columns, order_of_chunks(weights.type));
        const block_gemm_problem all{.weights = {weights.type, weights.bytes.data(), weights.rows(), columns},
                                     .rows = rows_of_x,
                                     .bias = has_bias ? bias.data() : nullptr,
                                     .out = out.data(),
                                     .out_stride = stride};
        block_gemm({&all, 1}, rounded);
        return out;
    }
};

}  // namespace

TEST_CASE("Products with blocks are those of the dequantised weights") {
    for (const weight_type type : block_types) {
        CAPTURE(std::string(name_of(type)));
        const bool is_long = format_of(type).elements == 256;
        // Less than a chunk, not a multiple of one, more chunks than are unpacked ahead.
        for (const std::int64_t columns : {is_long ? 256 : 32, is_long ? 512 : 576, is_long ? 2560 : 2336}) {
            CAPTURE(columns);
            for (const auto& [rows, count] : {std::pair{1, 1}, {37, 3}, {70, 7}}) {
                const problem p(type, rows, columns, count);
                const std::vector<float> out = p.run(0, count), w = to_floats(p.weights);
                const auto width = static_cast<std::size_t>(columns), stride = static_cast<std::size_t>(rows + 3);
                double largest = 0;
                for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
                    for (std::size_t j = 0; j < static_cast<std::size_t>(rows); ++j) {
                        double sum = double{p.bias[j]}, magnitude = 1;
                        for (std::size_t k = 0; k < width; ++k) {
                            const double product = double{p.x[i * width + k]} * double{w[j * width + k]};
                            sum += product;
                            magnitude += std::abs(product);
                        }
                        largest = std::max(largest, std::abs(sum - double{out[i * stride + j]}) / magnitude);
                    }
                    for (std::size_t j = static_cast<std::size_t>(rows); j < stride; ++j)
                        REQUIRE(out[i * stride + j] == -7);
                }
                CHECK(largest < 2e-6);
            }
        }
    }
}

TEST_CASE("Products with blocks have the same bits for any number of rows") {
    for (const weight_type type : block_types) {
        CAPTURE(std::string(name_of(type)));
        const problem p(type, 45, format_of(type).elements == 256 ? 768 : 608, 9);
        const std::vector<float> all = p.run(0, 9, false);
        for (const auto& [first, count] : {std::pair{0, 1}, {3, 2}, {5, 3}, {2, 4}, {4, 5}}) {
            const std::vector<float> some = p.run(first, count, false);
            CHECK(std::equal(some.begin(), some.end(), all.begin() + first * 48));
        }
    }
}

TEST_CASE("Products with MXFP4 of the smallest and largest scales, and of NaN") {
    for (const std::int64_t columns : {32, 256, 288}) {
        for (const int exponent : {0, 1, 2, 3, 127, 150, 255}) {
            CAPTURE(columns);
            CAPTURE(exponent);
            problem p(weight_type::mxfp4, 1, columns, 1);
            for (std::size_t block = 0; block < p.blocks.size(); block += 17)
                p.blocks[block] = static_cast<char>(block == 0 || exponent < 255 ? exponent : 127);
            p.weights.bytes = bytes(p.blocks);
            double sum = 0;
            const std::vector<float> w = to_floats(p.weights);
            for (std::size_t k = 0; k < w.size(); ++k) {
                p.x[k] = std::ldexp(static_cast<float>(k % 16 == 0 ? 127 : static_cast<int>(k % 255) - 127), 60);
                sum += double{w[k]} * double{p.x[k]};
            }
            const double got = double{p.run(0, 1, false)[0]};
            CHECK(std::isnan(got) == (exponent == 255));
            if (exponent < 255) CHECK(got == doctest::Approx(sum).epsilon(1e-5));
        }
    }
}

TEST_CASE("Activations are rounded to the nearest of 255 values in groups of 16") {
    std::mt19937 random(3);
    std::vector<float> x(2 * 96);
    for (float& value : x) value = static_cast<float>(random() % 20001) / 10000.0f - 1;
    for (const chunk_order order : {chunk_order::natural, chunk_order::halves}) {
        const quantised_rows rounded(x.data(), 2, 96, order);
        for (int row = 0; row < 2; ++row) {
            for (int i = 0; i < 96; ++i) {
                const int group = order == chunk_order::natural ? i / 16 : i / 32 + (i % 32 < 16 ? 0 : 8);
                const float scale = rounded.scales(row, 0)[group];
                const int value = rounded.values(row, 0)[group * 16 + i % 16];
                REQUIRE(std::abs(x[static_cast<std::size_t>(row * 96 + i)] - scale * static_cast<float>(value)) <
                        0.501f * scale);
            }
            for (int i = 96; i < 256 && order == chunk_order::natural; ++i) REQUIRE(rounded.values(row, 0)[i] == 0);
        }
    }
}

TEST_CASE("Products with blocks of no rows") {
    const problem p(weight_type::q4_0, 2, 32, 1);
    CHECK(p.run(0, 0).empty());
    const quantised_rows x(p.x.data(), 1, 32, chunk_order::halves);
    const block_gemm_problem no_weights{.weights = {weight_type::q4_0, nullptr, 0, 32}, .rows = 1};
    block_gemm({&no_weights, 1}, x);
    block_gemm({}, x);
}

TEST_CASE("A group of products with chosen rows has the bits of single ones") {
    const problem a(weight_type::mxfp4, 50, 608, 9), b(weight_type::q8_0, 21, 608, 9);
    const quantised_rows x(a.x.data(), 9, 608, chunk_order::halves);
    const std::vector<int> numbers{7, 2, 2, 8, 0, 5};
    std::vector<float> of_a(numbers.size() * 50), of_b(3 * 21), unused(50);
    const auto blocks_of = [](const problem& one) {
        return block_weight_rows{one.weights.type, one.weights.bytes.data(), one.weights.rows(), 608};
    };
    const block_gemm_problem group[] = {
        {.weights = blocks_of(a),
         .numbers = numbers.data(),
         .rows = 6,
         .bias = a.bias.data(),
         .out = of_a.data(),
         .out_stride = 50},
        {.weights = blocks_of(a), .rows = 0, .out = unused.data(), .out_stride = 50},
        {.weights = blocks_of(b), .first = 4, .rows = 3, .out = of_b.data(), .out_stride = 21}};
    block_gemm(group, x);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::vector<float> one = a.run(numbers[i], 1);
        CHECK(std::equal(one.begin(), one.begin() + 50, of_a.begin() + static_cast<std::ptrdiff_t>(i * 50)));
    }
    problem same_x = b;
    same_x.x = a.x;
    const std::vector<float> rest = same_x.run(4, 3, false);
    for (std::size_t i = 0; i < 3; ++i)
        CHECK(std::equal(of_b.begin() + static_cast<std::ptrdiff_t>(i * 21),
                         of_b.begin() + static_cast<std::ptrdiff_t>(i * 21 + 21),
                         rest.begin() + static_cast<std::ptrdiff_t>(i * 24)));
    CHECK(unused == std::vector<float>(50));
}

}  // namespace imbrex::engine::test
