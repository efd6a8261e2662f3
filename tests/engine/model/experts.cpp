// Mixtures of experts on a CPU: scaled-down shapes of known models with the types of weights that they have. model.cpp
// compares them with the reference, batch_invariance.cpp their bits. cuda_experts.cpp has those of the GPU model.
#include <algorithm>
#include <cmath>

#include "engine/loading/random_model.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

const std::vector<int> chunks{20, 1, 1, 10};

// The known model with a layer of each kind and small sizes.
model_config scaled_down(const char* name) {
    model_config config = config_of_known_model(name);
    config.layers = 2;
    if (!config.attention_layers.empty()) config.attention_layers.resize(2);
    config.hidden_size = 96;
    config.intermediate_size = 64;
    config.heads /= 8;
    config.kv_heads = 2;
    config.experts.count = 6;
    config.experts.per_token = 4;
    config.vocab_size = 300;
    config.bos_token.reset();
    config.eos_tokens.clear();
    return config;
}

rows logits_of(const model_files& files, const std::vector<int>& tokens, weight_format format) {
    return logits_of_chunks(*runner_of(files, format), sequence_in(tokens, {3, 1, 2}), chunks, files.config.vocab_size);
}

}  // namespace

TEST_CASE("Scaled-down GPT-OSS-20B and Qwen3-30B-A3B: logits in f32 match the reference") {
    for (const char* name : {"gpt-oss-20b", "qwen3-30b-a3b"}) {
        for (const char* kind : {"bf16", "q4_0"}) {
            CAPTURE(std::string(name));
            CAPTURE(std::string(kind));
            const model_files files = random_model(scaled_down(name), 1, {}, kind);
            const std::vector<int> tokens = [] {
                std::vector<int> all(32);
                for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i * i * 7 % 300);
                return all;
            }();
            const rows expected = at_ends(reference_logits(files.config, files.weights, tokens), chunks);
            CHECK(largest_distance(logits_of(files, tokens, weight_format::f32), expected) < fp32_rounding);
        }
    }
}

TEST_CASE("Experts in MXFP4 cost the rounding of their inputs") {
    model_config config = scaled_down("gpt-oss-20b");
    config.experts.count = config.experts.per_token;  // rounding cannot choose another one
    const model_files files = random_model(config, 2);
    const weight& one = files.weights.at("model.layers.1.mlp.experts.3.down_proj.weight");
    CHECK(one.type == weight_type::mxfp4);
    CHECK(files.weights.at("model.layers.1.mlp.router.weight").type == weight_type::bf16);
    const std::vector<int> tokens(32, 5);
    const rows expected = at_ends(reference_logits(files.config, files.weights, tokens), chunks);
    for (const weight_format format : {weight_format::as_in_file, weight_format::int8}) {
        const double here = largest_distance(logits_of(files, tokens, format), expected);
        CHECK(here < input_rounding);
        CHECK(here > fp32_rounding);
    }
}

}  // namespace imbrex::engine::test
