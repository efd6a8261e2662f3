// Experts of the layouts that files have become the same weights.
#include "engine/loading/expert_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/loading/ggml_blocks.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr std::int64_t experts = 3, rows = 4, columns = 64;
const std::string base = "model.layers.0.mlp.experts.";

weight_set with(std::initializer_list<weight> weights) {
    weight_set made;
    for (const weight& one : weights) made.add(one, "test");
    return made;
}

// A value of e2m1 for each element of each expert's matrix: its index in {0, .5, 1, 1.5, 2, 3, 4, 6} and their negatives.
int code_of(std::int64_t expert, std::int64_t row, std::int64_t column) {
    return static_cast<int>((7 * expert + 5 * row + 3 * column + column / 16) % 16);
}
int exponent_of(std::int64_t expert, std::int64_t row, std::int64_t group) {
    return static_cast<int>(120 + (expert + 2 * row + 3 * group) % 9);
}
float value_of(std::int64_t expert, std::int64_t row, std::int64_t column) {
    constexpr float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const int code = code_of(expert, row, column);
    const float scale = std::ldexp(1.0f, exponent_of(expert, row, column / 32) - 127);
    return (code < 8 ? 1.0f : -1.0f) * magnitudes[code % 8] * scale;
}

std::byte pair_of(int low, int high) {
    return static_cast<std::byte>(low | high << 4);
}

// GPT-OSS's safetensors: neighbours share a byte.
struct mxfp4_tensors {
    std::vector<std::byte> blocks, scales;

    mxfp4_tensors() {
        for (std::int64_t expert = 0; expert < experts; ++expert) {
            for (std::int64_t row = 0; row < rows; ++row) {
                for (std::int64_t group = 0; group < columns / 32; ++group) {
                    scales.push_back(static_cast<std::byte>(exponent_of(expert, row, group)));
                    for (std::int64_t i = group * 32; i < group * 32 + 32; i += 2)
                        blocks.push_back(pair_of(code_of(expert, row, i), code_of(expert, row, i + 1)));
                }
            }
        }
    }
    weight blocks_named(const std::string& name) const {
        return {base + name, weight_type::u8, {experts, rows, columns / 32, 16}, blocks};
    }
    weight scales_named(const std::string& name) const {
        return {base + name, weight_type::u8, {experts, rows, columns / 32}, scales};
    }
};

// ggml's blocks of some rows of each expert: elements i and i + 16 share a byte.
std::vector<std::byte> ggml_blocks(std::int64_t first, std::int64_t step) {
    std::vector<std::byte> bytes;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
        for (std::int64_t row = first; row < rows; row += step) {
            for (std::int64_t group = 0; group < columns / 32; ++group) {
                bytes.push_back(static_cast<std::byte>(exponent_of(expert, row, group)));
                for (std::int64_t i = group * 32; i < group * 32 + 16; ++i)
                    bytes.push_back(pair_of(code_of(expert, row, i), code_of(expert, row, i + 16)));
            }
        }
    }
    return bytes;
}

// Each expert's matrix has the rows first, first + step, ... of the numbers.
void check_numbers(const weight_set& weights, const std::string& projection, std::int64_t first, std::int64_t step) {
    for (std::int64_t expert = 0; expert < experts; ++expert) {
        CAPTURE(expert);
        const weight& one = weights.at(base + std::to_string(expert) + "." + projection + ".weight");
        REQUIRE(one.shape == std::vector<std::int64_t>{rows / step, columns});
        const std::vector<float> values = to_floats(one);
        for (std::int64_t row = 0; row < rows / step; ++row) {
            for (std::int64_t column = 0; column < columns; ++column)
                CHECK(values[static_cast<std::size_t>(row * columns + column)] ==
                      value_of(expert, first + row * step, column));
        }
    }
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

}  // namespace

TEST_CASE("Both layouts of MXFP4 give the same blocks and the same numbers") {
    const mxfp4_tensors down;
    const weight_set from_safetensors = with_separate_experts(
        with({down.blocks_named("down_proj_blocks"), down.scales_named("down_proj_scales")}), "file");
    const std::vector<std::byte> blocks = ggml_blocks(0, 1);
    const weight_set from_gguf = with_separate_experts(
        with({{base + "down_proj.weight", weight_type::mxfp4, {experts, rows, columns}, blocks}}), "file");
    for (const weight_set* weights : {&from_safetensors, &from_gguf}) {
        CHECK(weights->all().size() == experts);
        check_numbers(*weights, "down_proj", 0, 1);
    }
    for (std::size_t i = 0; i < experts; ++i)
        CHECK(std::ranges::equal(from_safetensors.all()[i].bytes, from_gguf.all()[i].bytes));
}

TEST_CASE("A scale that is NaN is refused; without contents it is not read") {
    mxfp4_tensors both;
    both.scales[(1 * rows + 3) * (columns / 32) + 1] = std::byte{255};
    const weight_set file = with({both.blocks_named("gate_up_proj_blocks"), both.scales_named("gate_up_proj_scales")});
    check_error_message(
        "file: tensor \"" + base + "gate_up_proj_scales\" has the scale 255 (NaN) at [1, 3, 1]; 0 to 254",
        [&] { with_separate_experts(file, "file"); });
    const weight_set described = with_separate_experts(file, "file", weight_contents::none);
    CHECK(described.at(base + "2.up_proj.weight").type == weight_type::mxfp4);
    CHECK(described.at(base + "2.up_proj.weight").bytes.size() == rows / 2 * columns / 32 * 17);
    // In ggml's blocks too.
    std::vector<std::byte> block(17, std::byte{1});
    block[0] = std::byte{255};
    CHECK(std::isnan(to_floats({"block", weight_type::mxfp4, {1, 32}, block})[0]));
}

TEST_CASE("Gate and up alternate in the rows of GPT-OSS") {
    const mxfp4_tensors both;
    const weight_set weights = with_separate_experts(
        with({both.scales_named("gate_up_proj_scales"), both.blocks_named("gate_up_proj_blocks")}), "file");
    CHECK(weights.all().size() == 2 * experts);
    check_numbers(weights, "gate_proj", 0, 2);
    check_numbers(weights, "up_proj", 1, 2);
    for (const std::int64_t first : {0, 1}) {
        const std::vector<std::byte> expected = ggml_blocks(first, 2);
        const weight& one = weights.at(base + (first == 0 ? "1.gate_proj.weight" : "1.up_proj.weight"));
        CHECK(std::ranges::equal(one.bytes, std::span(expected).subspan(one.bytes.size(), one.bytes.size())));
    }
}

TEST_CASE("Unquantised experts of GPT-OSS are transposed, and their biases divided") {
    std::vector<float> values(experts * rows * columns), biases;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
        for (std::int64_t row = 0; row < rows; ++row) {
            biases.push_back(static_cast<float>(10 * expert + row));
            for (std::int64_t column = 0; column < columns; ++column)
                values[static_cast<std::size_t>((expert * columns + column) * rows + row)] =
                    value_of(expert, row, column);
        }
    }
    const std::vector<std::byte> matrices = bytes_of(values), vectors = bytes_of(biases);
    const auto tensors = [&](const std::string& name) {
        return with({{base + name, weight_type::f32, {experts, columns, rows}, matrices},
                     {base + name + "_bias", weight_type::f32, {experts, rows}, vectors}});
    };
    const weight_set both = with_separate_experts(tensors("gate_up_proj"), "file");
    check_numbers(both, "gate_proj", 0, 2);
    check_numbers(both, "up_proj", 1, 2);
    CHECK(to_floats(both.at(base + "2.gate_proj.bias")) == std::vector<float>{20, 22});
    CHECK(to_floats(both.at(base + "2.up_proj.bias")) == std::vector<float>{21, 23});
    const weight_set down = with_separate_experts(tensors("down_proj"), "file");
    check_numbers(down, "down_proj", 0, 1);
    CHECK(to_floats(down.at(base + "1.down_proj.bias")) == std::vector<float>{10, 11, 12, 13});
}

TEST_CASE("Experts of GGUF files are views; those of Mixtral and Qwen3-MoE get names") {
    const std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7};
    const std::vector<std::byte> bytes = bytes_of(values);
    const weight_set stacked =
        with_separate_experts(with({{base + "up_proj.weight", weight_type::f32, {2, 2, 2}, bytes},
                                    {base + "up_proj.bias", weight_type::f32, {4, 2}, bytes}}),
                              "file");
    CHECK(stacked.at(base + "1.up_proj.weight").bytes.data() == bytes.data() + 16);
    CHECK(to_floats(stacked.at(base + "1.up_proj.weight")) == std::vector<float>{4, 5, 6, 7});
    CHECK(to_floats(stacked.at(base + "3.up_proj.bias")) == std::vector<float>{6, 7});

    const auto name_of = [&](const std::string& name) {
        return with_separate_experts(with({{name, weight_type::f32, {2, 4}, bytes}}), "file").all().front().name;
    };
    CHECK(name_of("model.layers.3.block_sparse_moe.gate.weight") == "model.layers.3.mlp.router.weight");
    CHECK(name_of("model.layers.3.mlp.gate.weight") == "model.layers.3.mlp.router.weight");
    CHECK(name_of("model.layers.3.block_sparse_moe.experts.11.w1.weight") ==
          "model.layers.3.mlp.experts.11.gate_proj.weight");
    CHECK(name_of("model.layers.3.block_sparse_moe.experts.11.w2.weight") ==
          "model.layers.3.mlp.experts.11.down_proj.weight");
    CHECK(name_of("model.layers.3.block_sparse_moe.experts.11.w3.weight") ==
          "model.layers.3.mlp.experts.11.up_proj.weight");
    CHECK(name_of("model.layers.3.mlp.experts.11.w1.weight") == "model.layers.3.mlp.experts.11.w1.weight");
    CHECK(name_of("model.layers.3.mlp.gate_proj.weight") == "model.layers.3.mlp.gate_proj.weight");
}

TEST_CASE("Expert tensors of other shapes are refused") {
    const mxfp4_tensors tensors;
    const auto refuses = [](const std::string& message, const weight_set& weights) {
        check_error_message(message, [&] { with_separate_experts(weights, "file"); });
    };
    refuses("tensor \"" + base + "down_proj_scales\" is not in the model",
            with({tensors.blocks_named("down_proj_blocks")}));
    weight scales = tensors.scales_named("down_proj_scales");
    scales.shape = {experts, rows / 2, columns / 16};
    refuses("file: tensor \"" + base +
                "down_proj_blocks\" is u8 of shape [3, 4, 2, 16] and its scales are u8 of shape "
                "[3, 2, 4]; MXFP4 has u8 of",
            with({tensors.blocks_named("down_proj_blocks"), scales}));
    weight odd = tensors.blocks_named("gate_up_proj_blocks"), odd_scales = tensors.scales_named("gate_up_proj_scales");
    odd.shape = {4, 3, 2, 16};
    odd_scales.shape = {4, 3, 2};
    refuses("has 3 rows; those of gate and up alternate", with({odd, odd_scales}));
    refuses("\"" + base + "up_proj.weight\" has the shape [3, 4]; experts have 3 dimensions here",
            with({{base + "up_proj.weight", weight_type::u8, {3, 4}, tensors.blocks}}));
    // Without a bias it is another family's, whose order is not known: it keeps its name, and is refused later.
    const weight_set kept = with_separate_experts(
        with({{base + "gate_up_proj", weight_type::u8, {3, 4, 4}, std::span(tensors.blocks).first(48)}}), "file");
    CHECK(kept.all().front().name == base + "gate_up_proj");
}

}  // namespace imbrex::engine::test
