#include "engine/model/weight_mixture.hpp"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/model/random_weights.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/model/weight_conversion.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

using enum weight_type;

model_config config_with_groups() {
    model_config config = small_config(model_family::llama);
    config.hidden_size = 96;
    config.intermediate_size = 160;
    config.tie_word_embeddings = false;
    return config;
}

// Values between -1 and 1, in steps that q4_0 has exactly, or any.
std::vector<float> numbers(std::size_t count, bool are_exact) {
    std::vector<float> values(count);
    std::mt19937 random(1);
    for (float& value : values) {
        value = are_exact ? static_cast<float>(static_cast<int>(random() % 16) - 8) / 8
                          : static_cast<float>(random()) / 2147483648.0f - 1;
    }
    for (std::size_t i = 0; i < count; i += 32) values[i] = -1;
    return values;
}

double relative_error(const weight& found, const weight& exact) {
    const std::vector<float> now = to_floats(found), before = to_floats(exact);
    double errors = 0, squares = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
        errors += std::pow(double{now[i]} - double{before[i]}, 2);
        squares += std::pow(double{before[i]}, 2);
    }
    return std::sqrt(errors / squares);
}

}  // namespace

TEST_CASE("Weights converted to a type have its error") {
    weight_set weights;
    add_weight(weights, {"a.weight", {5, 64}}, f32, numbers(320, false));
    for (const auto& [type, least, most] :
         {std::tuple{q4_0, 0.03, 0.08}, {q5_0, 0.015, 0.04}, {q8_0, 0.001, 0.006}, {bf16, 0.0, 0.004}}) {
        CAPTURE(std::string(name_of(type)));
        const weight_set made = converted(weights, {{"a.weight", type}});
        CHECK(made.at("a.weight").type == type);
        const double error = relative_error(made.at("a.weight"), weights.at("a.weight"));
        CHECK(error >= least);
        CHECK(error <= most);
    }
    std::vector<std::byte> to(1000);
    check_error_message("a.weight: type q6_K; weights can be converted to f32, f16, bf16, q4_0, q5_0 and q8_0",
                        [&] { convert_rows(weights.at("a.weight"), 0, 1, q6_k, to.data()); });
    weight_set infinite;
    add_weight(infinite, {"b.weight", {1, 32}}, f32, std::vector<float>(32, INFINITY));
    check_error_message("b.weight: row 0: weights[0, 0]: inf",
                        [&] { convert_rows(infinite.at("b.weight"), 0, 1, q5_0, to.data()); });
}

TEST_CASE("A mixture gives more bits to the matrix with the larger error") {
    weight_set weights;
    add_weight(weights, {"exact.weight", {64, 64}}, f32, numbers(4096, true));
    add_weight(weights, {"rough.weight", {64, 64}}, f32, numbers(4096, false));
    add_weight(weights, {"norm.weight", {64}}, f32, numbers(64, false));
    // 4.5 bits are q4_0, 5.5 q5_0, 8.5 q8_0, 16 bf16.
    const auto types = [&](double bits) {
        const weight_types all = mixture_of(weights, bits, world::host);
        CHECK(all.size() == 2);
        return std::pair(all.at("exact.weight"), all.at("rough.weight"));
    };
    CHECK(types(4.5) == std::pair(q4_0, q4_0));
    CHECK(types(5) == std::pair(q4_0, q5_0));
    CHECK(types(6.5) == std::pair(q4_0, q8_0));
    CHECK(types(10.25) == std::pair(q4_0, bf16));
    CHECK(types(32) == std::pair(q4_0, f32));  // as in the file: no error is left
    check_error_message("weights-budget: 4.4 bits per weight; the smallest types take 4.5", [&] { types(4.4); });
}

TEST_CASE("A mixture keeps to the size, and one GEMM has one type") {
    const model_files files = random_model(config_with_groups());
    double error_before = 1e9;
    for (const double bits : {4.6, 5.0, 6.0, 8.0, 12.0}) {
        CAPTURE(bits);
        const weight_types types = mixture_of(files.weights, bits, world::host);
        const weight_set made = converted(files.weights, types);
        CHECK(bits_per_weight(made) <= bits);
        CHECK(bits_per_weight(made) > bits - 1);
        double error = 0;
        for (const weight& one : files.weights.all()) {
            if (one.shape.size() < 2) {
                CHECK(made.at(one.name).bytes.data() == one.bytes.data());
            } else {
                error += std::pow(relative_error(made.at(one.name), one), 2);
            }
        }
        CHECK(error < error_before);
        error_before = error;
        for (const auto& [name, type] : types) {
            const std::size_t at = name.find("k_proj");
            if (at != std::string::npos) {
                CHECK(types.at(name.substr(0, at) + "q_proj.weight") == type);
                CHECK(types.at(name.substr(0, at) + "v_proj.weight") == type);
            }
        }
    }
    for (const auto& [name, type] : mixture_of(files.weights, 7, world::device)) {
        const bool is_packed = type == q4_0 || type == q8_0 || type == bf16;
        CHECK_MESSAGE(is_packed, name);
    }
}

TEST_CASE("A runner computes with a mixture") {
    model_files files = random_model(config_with_groups());
    const std::vector<int> tokens = random_tokens(12, files.config.vocab_size, 3);
    runner_options options{.weights = weight_format::mixed,
                           .bits_per_weight = 6,
                           .num_kv_blocks = 24,
                           .max_num_batched_tokens = 128,
                           .max_num_seqs = 8};
    check_error_message("weights: mixed", [&] { make_runner(files, options); });
    mix_weights(files, options);
    CHECK(options.weights == weight_format::as_in_file);
    CHECK(bits_per_weight(files.weights) <= 6);
    const rows expected =
        reference_logits(files.config, files.weights, tokens, [](const weight& one) { return is_block(one.type); });
    const auto with = make_runner(files, options);
    const std::vector<int> chunks{12};
    const rows logits = logits_of_chunks(*with, sequence_in(tokens, {2}), chunks, files.config.vocab_size);
    CHECK(largest_distance(logits, at_ends(expected, chunks)) < input_rounding);
}

}  // namespace imbrex::engine::test
