#include "engine/loading/random_model.hpp"

#include <algorithm>
#include <cmath>

#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

std::int64_t parameters_of(std::string_view name) {
    std::int64_t all = 0;
    for (const expected_weight& each : expected_weights(config_of_known_model(name))) {
        std::int64_t count = 1;
        for (const std::int64_t size : each.shape) count *= size;
        all += count;
    }
    return all;
}

}  // namespace

TEST_CASE("Known models have the parameter counts of the real ones") {
    CHECK(parameters_of("llama-3.1-8b") == 8'030'261'248);
    CHECK(parameters_of("qwen2.5-0.5b") == 494'032'768);
    CHECK(parameters_of("qwen3-0.6b") == 596'049'920);
    CHECK(parameters_of("gemma-3-1b") == 999'885'952);
    CHECK(parameters_of("smollm2-135m") == 134'515'008);
    CHECK(parameters_of("gpt-oss-20b") == 20'914'757'184);
    CHECK(parameters_of("qwen3-30b-a3b") == 30'532'122'624);
    for (const std::string_view name : known_models()) check_sizes(config_of_known_model(name), "known model");
    check_error_message(
        "random model: gpt-5; these are known: llama-3.1-8b, qwen2.5-0.5b, qwen3-0.6b, gemma-3-1b, "
        "smollm2-135m, gpt-oss-20b, qwen3-30b-a3b, tiny",
        [] { config_of_known_model("gpt-5"); });
}

TEST_CASE("Random weights are complete, of moderate size and determined by the seed") {
    const model_config config = config_of_known_model("tiny");
    const model_files first = random_model(config, 1), again = random_model(config, 1), other = random_model(config, 2);
    check_weights(config, first.weights, "random model");
    for (const weight& each : first.weights.all()) {
        INFO(each.name);
        const std::vector<float> values = to_floats(each);
        CHECK(values == to_floats(again.weights.at(each.name)));
        if (each.name.ends_with("norm.weight")) {
            CHECK(std::ranges::all_of(values, [](float value) { return value == 1; }));
            continue;
        }
        CHECK(values != to_floats(other.weights.at(each.name)));
        double mean = 0, variance = 0;
        const auto count = static_cast<double>(values.size());
        for (const float value : values) mean += static_cast<double>(value) / count;
        for (const float value : values) variance += static_cast<double>(value * value) / count;
        const double expected = 1.0 / static_cast<double>(each.shape.back());
        CHECK(std::abs(mean) < 0.05 * std::sqrt(expected));
        CHECK(variance == doctest::Approx(expected).epsilon(0.05));
    }
    const auto layer = [&](const char* number) {
        return to_floats(first.weights.at("model.layers." + std::string(number) + ".mlp.up_proj.weight"));
    };
    CHECK(layer("0") != layer("1"));
}

TEST_CASE("Random weights in blocks") {
    model_config config = config_of_known_model("tiny");
    config.hidden_size = config.intermediate_size = 256;
    config.layers = 8;
    for (const char* kind : {"q4_K_M", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K",
                             "iq4_nl", "iq4_xs", "mxfp4"}) {
        CAPTURE(kind);
        const model_files model = random_model(config, 1, {}, kind);
        const weight& query = model.weights.at("model.layers.0.self_attn.q_proj.weight");
        CHECK(std::string_view(kind).starts_with(name_of(query.type)));
        double mean = 0, variance = 0;
        const std::vector<float> values = to_floats(query);
        const auto count = static_cast<double>(values.size());
        for (const float value : values) mean += static_cast<double>(value) / count;
        for (const float value : values) variance += static_cast<double>(value * value) / count;
        CHECK(std::abs(mean) < 0.3 / 16);
        CHECK(std::sqrt(variance) * 16 == doctest::Approx(1).epsilon(0.5));  // the scale of mxfp4 is a power of two
    }
    const model_files mixed = random_model(config, 1, {}, "q4_K_M");
    const auto type_of = [&](const char* name) { return mixed.weights.at(name).type; };
    CHECK(type_of("model.layers.0.mlp.down_proj.weight") == weight_type::q6_k);
    CHECK(type_of("model.layers.1.self_attn.v_proj.weight") == weight_type::q4_k);
    CHECK(type_of("model.layers.3.self_attn.v_proj.weight") == weight_type::q6_k);
    CHECK(type_of("model.norm.weight") == weight_type::bf16);
    model_config mixture = config;
    mixture.experts = {.count = 3, .per_token = 2};
    const weight_set of_mixture = random_model(mixture, 1, {}, "mxfp4_moe").weights;
    CHECK(of_mixture.at("model.layers.0.mlp.experts.2.up_proj.weight").type == weight_type::mxfp4);
    CHECK(of_mixture.at("model.layers.0.self_attn.q_proj.weight").type == weight_type::q8_0);
    config.hidden_size = 96;
    CHECK(random_model(config, 1, {}, "q4_K_M").weights.at("model.layers.0.mlp.up_proj.weight").type ==
          weight_type::q8_0);
    check_error_message("type of random weights: q7_K; these are known: bf16, q4_K_M, mxfp4_moe, q4_0",
                        [&] { random_model(config, 1, {}, "q7_K"); });
}

TEST_CASE("Weights own their memory") {
    weight_set kept;
    {
        const model_files model = random_model(config_of_known_model("tiny"), 3);
        kept = model.weights.renamed([](const std::string& name) { return "my." + name; }, "test");
    }
    CHECK(to_floats(kept.at("my.model.norm.weight"))[0] == 1);
}

TEST_CASE("A shape with the vocabulary of another model") {
    const model_config target = config_of_known_model("tiny");
    for (const std::string_view name : known_models()) {
        CAPTURE(std::string(name));
        model_config draft = with_vocabulary_of(config_of_known_model(name), target);
        draft.layers = 1;
        draft.attention_layers.clear();
        draft.hidden_size = draft.intermediate_size = 64;
        draft.experts = {};
        const model_files model = random_model(draft, 1);
        CHECK(model.tokens.size() == target.vocab_size);
        CHECK(model.config.eos_tokens == target.eos_tokens);
        CHECK(model.config.bos_token == target.bos_token);
    }
}

TEST_CASE("The tokenizer of a random model") {
    const model_config config = config_of_known_model("tiny");
    const model_files model = random_model(config, 1, {"<|im_start|>", "<|im_end|>"});
    CHECK(model.tokens.size() == config.vocab_size);
    CHECK(model.tokens.special("<|im_end|>") == config.vocab_size - 1);
    const std::string text = "Any text, of any bytes: \xc3\xa4\xff.";
    CHECK(model.tokens.encode(text).size() == text.size());
    CHECK(model.tokens.decode(model.tokens.encode("Hello.")) == "Hello.");
    CHECK(model.tokens.decode(std::vector<int>{300, 301}) != model.tokens.decode(std::vector<int>{301, 300}));
    model_config small = config;
    small.vocab_size = 100;
    small.bos_token.reset();
    check_error_message("vocabulary: 100", [&] { random_model(small, 1); });
}

}  // namespace imbrex::engine::test
