#include "engine/loading/model_config.hpp"

#include <cmath>

#include "engine/loading/gguf_builder.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr const char* llama_3_1_8b = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,
    "bos_token_id":128000,"eos_token_id":[128001,128008,128009],"hidden_act":"silu","hidden_size":4096,
    "intermediate_size":14336,"max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama",
    "num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,
    "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
                    "original_max_position_embeddings":8192,"rope_type":"llama3"},
    "rope_theta":500000.0,"tie_word_embeddings":false,"vocab_size":128256})";

constexpr const char* qwen_2_5_half_b =
    R"({"bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu","hidden_size":896,
    "intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":21,"model_type":"qwen2",
    "num_attention_heads":14,"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
    "sliding_window":32768,"tie_word_embeddings":true,"use_sliding_window":false,"vocab_size":151936})";

constexpr const char* qwen_3 = R"({"attention_bias":false,"bos_token_id":151643,"eos_token_id":151645,"head_dim":128,
    "hidden_act":"silu","hidden_size":1024,"intermediate_size":3072,"max_position_embeddings":40960,"model_type":"qwen3",
    "num_attention_heads":16,"num_hidden_layers":28,"num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_scaling":null,
    "rope_theta":1000000,"tie_word_embeddings":true,"use_sliding_window":false,"vocab_size":151936})";

model_config read(std::string_view text, std::string_view generation = "") {
    return read_config(bytes(text), bytes(generation), "config.json");
}

// The smallest configuration, with one member added or replaced.
std::string small(const std::string& key = "", const std::string& value = "") {
    std::string text;
    for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{{"model_type", "\"llama\""},
                                                                                        {"num_hidden_layers", "1"},
                                                                                        {"hidden_size", "4"},
                                                                                        {"intermediate_size", "3"},
                                                                                        {"num_attention_heads", "2"},
                                                                                        {"vocab_size", "10"},
                                                                                        {"rms_norm_eps", "1e-5"}}) {
        if (name == key) continue;
        text += (text.empty() ? "\"" : ",\"") + name + "\":" + content;
    }
    if (!value.empty()) text += ",\"" + key + "\":" + value;
    return "{" + text + "}";
}

std::vector<int> windows_of(const model_config& config) {
    std::vector<int> all;
    for (int layer = 0; layer < config.layers; ++layer) all.push_back(config.attention_of(layer).window);
    return all;
}

bool expects(const model_config& config, const std::string& name, const std::vector<std::int64_t>& shape) {
    for (const expected_weight& expected : expected_weights(config)) {
        if (expected.name == name) return expected.shape == shape;
    }
    return false;
}

}  // namespace

TEST_CASE("Reads config.json of Llama 3.1 8B") {
    const model_config config = read(llama_3_1_8b);
    CHECK(config.family == model_family::llama);
    CHECK(config.layers == 32);
    CHECK(config.head_dim == 128);
    CHECK(config.kv_heads == 8);
    CHECK(config.context == 131072);
    CHECK(config.norm_eps == 1e-5);
    CHECK_FALSE(config.tie_word_embeddings);
    CHECK_FALSE(config.qkv_bias);
    CHECK(config.qk_norm == qk_norm_rows::none);
    CHECK(config.rope.theta == 500000);
    CHECK(config.rope.style == rope_style::half_split);
    CHECK(config.rope.scaling == rope_scaling::llama3);
    CHECK(config.rope.original_max_position_embeddings == 8192);
    CHECK(config.bos_token == 128000);
    CHECK(config.eos_tokens == std::vector<int>{128001, 128008, 128009});
    CHECK(expected_weights(config).size() == 3 + 32 * 9);
    CHECK(expects(config, "lm_head.weight", {128256, 4096}));
    CHECK(expects(config, "model.layers.31.self_attn.k_proj.weight", {1024, 4096}));
    CHECK(expects(config, "model.layers.0.mlp.down_proj.weight", {4096, 14336}));
}

TEST_CASE("Reads config.json of Qwen2.5 0.5B and Qwen3 0.6B") {
    const model_config second = read(qwen_2_5_half_b, R"({"eos_token_id":[151645,151643]})");
    CHECK(second.family == model_family::qwen2);
    CHECK(second.head_dim == 64);
    CHECK(second.tie_word_embeddings);
    CHECK(second.qkv_bias);
    CHECK(windows_of(second) == std::vector<int>(24, 0));
    CHECK(second.eos_tokens == std::vector<int>{151645, 151643});
    CHECK(expects(second, "model.layers.0.self_attn.k_proj.bias", {128}));
    CHECK_FALSE(expects(second, "lm_head.weight", {151936, 896}));

    const model_config third = read(qwen_3);
    CHECK(third.family == model_family::qwen3);
    CHECK(third.head_dim == 128);
    CHECK(third.qk_norm == qk_norm_rows::head);
    CHECK_FALSE(third.qkv_bias);
    CHECK(third.rope.scaling == rope_scaling::none);
    CHECK(expects(third, "model.layers.27.self_attn.q_proj.weight", {2048, 1024}));
    CHECK(expects(third, "model.layers.27.self_attn.o_proj.weight", {1024, 2048}));
    CHECK(expects(third, "model.layers.27.self_attn.q_norm.weight", {128}));
}

TEST_CASE("config.json: defaults and sliding window") {
    const model_config config = read(small());
    CHECK(config.kv_heads == 2);
    CHECK(config.head_dim == 2);
    CHECK(config.rope.theta == 10000);
    CHECK_FALSE(config.bos_token);
    CHECK(config.eos_tokens.empty());
    CHECK(read(small("rope_parameters", R"({"rope_type":"default","rope_theta":5000})")).rope.theta == 5000);
    CHECK(read(small("rope_scaling", R"({"type":"linear","factor":2})")).rope.scaling == rope_scaling::linear);
    const model_config windowed =
        read(R"({"model_type":"qwen2","num_hidden_layers":4,"hidden_size":4,"intermediate_size":3,
        "num_attention_heads":2,"vocab_size":10,"rms_norm_eps":1e-6,"use_sliding_window":true,"sliding_window":16,
        "max_window_layers":2})");
    CHECK(windows_of(windowed) == std::vector<int>{0, 0, 16, 16});
}

namespace {

std::string with_window(const std::string& more) {
    return R"({"model_type":"qwen2","num_hidden_layers":4,"hidden_size":4,"intermediate_size":3,"num_attention_heads":2,
        "vocab_size":10,"rms_norm_eps":1e-6,"use_sliding_window":true)" +
           more + "}";
}

}  // namespace

TEST_CASE("config.json: sliding window defaults and layer types") {
    const model_config unsaid = read(with_window(""));
    CHECK(windows_of(unsaid) == std::vector<int>(4, 0));  // from layer 28 on
    CHECK(windows_of(read(with_window(R"(,"max_window_layers":3)"))) == std::vector<int>{0, 0, 0, 4096});
    const model_config typed = read(with_window(
        R"(,"sliding_window":16,"max_window_layers":2,"layer_types":["full_attention","sliding_attention",
        "full_attention","sliding_attention"])"));
    CHECK(windows_of(typed) == std::vector<int>{0, 16, 0, 16});
    check_error_message("\"layer_types\" names sliding_attention; \"sliding_window\" is missing", [&] {
        read(with_window(R"(,"layer_types":["sliding_attention","full_attention","full_attention","full_attention"])"));
    });
    check_error_message("\"layer_types\" names \"linear\"; full_attention and sliding_attention are known",
                        [&] { read(with_window(R"(,"layer_types":["linear","linear","linear","linear"])")); });
    check_error_message("it must name a type for each of the 4 layers",
                        [&] { read(with_window(R"(,"layer_types":["full_attention"])")); });
    check_error_message("\"partial_rotary_factor\" is 1.5; it must be greater than 0 and at most 1", [&] {
        read(small("rope_parameters", R"({"rope_type":"default","partial_rotary_factor":1.5})"));
    });
    check_error_message("RoPE rotates 1 of the 2 columns of a head",
                        [&] { read(small("partial_rotary_factor", "0.5")); });
}

TEST_CASE("Rejects invalid config.json") {
    check_error_message("config.json: architecture \"mamba\" is not known; these are: llama, qwen2, qwen3, mistral, ",
                        [&] { read(small("model_type", "\"mamba\"")); });
    check_error_message("\"model_type\" is missing", [&] { read("{}"); });
    check_error_message("is an array; it must be an object", [&] { read("[]"); });
    for (const char* key : {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                            "vocab_size", "rms_norm_eps"}) {
        check_error_message(str_cat("\"", key, "\" is missing"), [&] { read(small(key)); });
        check_error_message(str_cat("\"", key, "\" is \"4\""), [&] { read(small(key, "\"4\"")); });
    }
    check_error_message("\"hidden_size\" is 4.5; it must be a whole number",
                        [&] { read(small("hidden_size", "4.5")); });
    check_error_message("\"hidden_size\" is -4", [&] { read(small("hidden_size", "-4")); });
    check_error_message("\"hidden_size\" is 4294967296", [&] { read(small("hidden_size", "4294967296")); });
    check_error_message("\"hidden_size\" is 18446744073709551615",
                        [&] { read(small("hidden_size", "18446744073709551615")); });
    check_error_message("\"hidden_size\" is 5 for 2 heads", [&] { read(small("hidden_size", "5")); });
    check_error_message("the hidden size is 0", [&] { read(small("hidden_size", "0")); });
    check_error_message("for 0 heads", [&] { read(small("num_attention_heads", "0")); });
    check_error_message("the number of layers is 0", [&] { read(small("num_hidden_layers", "0")); });
    check_error_message("the number of layers is 5000; 1 to 4096", [&] { read(small("num_hidden_layers", "5000")); });
    check_error_message("2 heads share 3 KV heads", [&] { read(small("num_key_value_heads", "3")); });
    check_error_message("the number of KV heads is 0", [&] { read(small("num_key_value_heads", "0")); });
    check_error_message("the head size is 3; it must be even", [&] { read(small("head_dim", "3")); });
    check_error_message("the epsilon of the norms is 0", [&] { read(small("rms_norm_eps", "0")); });
    check_error_message("the end token is 10; the vocabulary has 10", [&] { read(small("eos_token_id", "10")); });
    check_error_message("the end token is 99", [&] { read(small("eos_token_id", "[1,99]")); });
    check_error_message("\"eos_token_id\" is -1", [&] { read(small("eos_token_id", "-1")); });
    check_error_message("\"eos_token_id\" is \"x\"", [&] { read(small("eos_token_id", "[\"x\"]")); });
    check_error_message("the beginning token is 10", [&] { read(small("bos_token_id", "10")); });
    check_error_message("\"hidden_act\" is \"gelu\"", [&] { read(small("hidden_act", "\"gelu\"")); });
    check_error_message("\"mlp_bias\" is true", [&] { read(small("mlp_bias", "true")); });
    check_error_message("\"tie_word_embeddings\" is 1; it must be true or false",
                        [&] { read(small("tie_word_embeddings", "1")); });
    check_error_message("RoPE scaling \"mrope\" is not known; linear, dynamic, yarn, llama3 and longrope are",
                        [&] { read(small("rope_scaling", R"({"rope_type":"mrope","factor":2})")); });
    check_error_message("there are 2 short RoPE factors; a head has 1 pairs", [&] {
        read(small("rope_scaling", R"({"rope_type":"longrope","short_factor":[1,1],"long_factor":[1]})"));
    });
    check_error_message("\"long_factor\" has \"1\"; it must be a number", [&] {
        read(small("rope_scaling", R"({"rope_type":"longrope","short_factor":[1],"long_factor":["1"]})"));
    });
    check_error_message("beta_fast 1 and beta_slow 2", [&] {
        read(small("rope_scaling", R"({"rope_type":"yarn","factor":2,"beta_fast":1,"beta_slow":2})"));
    });
    check_error_message("has RoPE parameters for each type of layer",
                        [&] { read(small("rope_parameters", R"({"full_attention":{},"sliding_attention":{}})")); });
    check_error_message("RoPE scaling \"linear\": \"factor\" is missing",
                        [&] { read(small("rope_scaling", R"({"type":"linear"})")); });
    check_error_message("the RoPE scaling factor is 0",
                        [&] { read(small("rope_scaling", R"({"type":"linear","factor":0})")); });
    check_error_message("\"rope_scaling\" is 3; it must be an object", [&] { read(small("rope_scaling", "3")); });
    check_error_message("the RoPE theta is -1", [&] { read(small("rope_theta", "-1")); });
    check_error_message("low_freq_factor 4 and high_freq_factor 1", [&] {
        read(small("rope_scaling", R"({"type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1,
                      "original_max_position_embeddings":8192})"));
    });
}

TEST_CASE("Computes RoPE frequencies") {
    model_config config = read(llama_3_1_8b);
    const auto scaled = rope_inv_freq(config, config.rope);
    config.rope.scaling = rope_scaling::none;
    const auto plain = rope_inv_freq(config, config.rope);
    REQUIRE(plain.size() == 64);
    CHECK(plain[0] == 1);
    CHECK(plain[32] == doctest::Approx(1 / std::sqrt(500000.0)));
    for (std::size_t i = 0; i < 64; ++i) {
        // The definition, in wavelengths.
        const double length = 2 * 3.14159265358979323846 / plain[i];
        double expected = plain[i];
        if (length > 8192.0) {
            expected = plain[i] / 8;
        } else if (length >= 8192.0 / 4) {
            const double smooth = (8192.0 / length - 1) / 3;
            expected = (1 - smooth) * plain[i] / 8 + smooth * plain[i];
        }
        CHECK(scaled[i] == doctest::Approx(expected).epsilon(1e-12));
    }
    CHECK(scaled[0] == plain[0]);
    CHECK(scaled[63] == doctest::Approx(plain[63] / 8));
    config.rope.scaling = rope_scaling::linear;
    config.rope.factor = 4;
    CHECK(rope_inv_freq(config, config.rope)[5] == doctest::Approx(plain[5] / 4));
}

namespace {

gguf_builder small_gguf(const std::string& family) {
    gguf_builder builder;
    builder.string("general.architecture", family)
        .whole(family + ".block_count", 1)
        .whole(family + ".embedding_length", 4);
    builder.whole(family + ".feed_forward_length", 3).whole(family + ".attention.head_count", 2);
    builder.whole(family + ".context_length", 16).real(family + ".attention.layer_norm_rms_epsilon", 1e-5f);
    return builder.strings("tokenizer.ggml.tokens", {"a", "b", "c"});
}

model_config read_gguf_config(const gguf_builder& builder) {
    const std::string text = builder.build();
    const gguf_file file = read_gguf(bytes(text), "file");
    return gguf_config(file.metadata, file.weights);
}

}  // namespace

TEST_CASE("Reads the configuration from GGUF metadata") {
    const model_config llama = read_gguf_config(small_gguf("llama")
                                                    .whole("tokenizer.ggml.bos_token_id", 1)
                                                    .whole("tokenizer.ggml.eos_token_id", 2)
                                                    .whole("tokenizer.ggml.eot_token_id", 0)
                                                    .real("llama.rope.freq_base", 500.0f));
    CHECK(llama.rope.style == rope_style::interleaved);
    CHECK(llama.rope.theta == 500);
    CHECK(llama.tie_word_embeddings);
    CHECK(llama.vocab_size == 3);
    CHECK(llama.kv_heads == 2);
    CHECK(llama.bos_token == 1);
    CHECK(llama.eos_tokens == std::vector<int>{2, 0});
    const model_config second = read_gguf_config(small_gguf("qwen2").whole("tokenizer.ggml.bos_token_id", 0xffffffffu));
    CHECK(second.rope.style == rope_style::half_split);
    CHECK(second.qkv_bias);
    CHECK_FALSE(second.bos_token);
    const model_config third = read_gguf_config(small_gguf("qwen3").whole("qwen3.attention.key_length", 6));
    CHECK(third.head_dim == 6);
    CHECK(third.qk_norm == qk_norm_rows::head);
    const model_config scaled = read_gguf_config(small_gguf("llama").floats("rope_freqs.weight", {1}, 8));
    CHECK(scaled.rope.freq_factors == std::vector<float>{8});
    CHECK(rope_inv_freq(scaled, scaled.rope) == std::vector<double>{1.0 / 8});
    CHECK_FALSE(read_gguf_config(small_gguf("llama").floats("lm_head.weight", {4, 3})).tie_word_embeddings);
}

TEST_CASE("Rejects invalid GGUF metadata") {
    const auto llama = [] { return small_gguf("llama"); };
    check_error_message("general.architecture is missing", [&] { read_gguf_config(gguf_builder{}); });
    check_error_message("architecture \"mamba\" is not known; these are: llama, qwen2, qwen3, smollm3, gemma, ",
                        [&] { read_gguf_config(small_gguf("mamba")); });
    check_error_message("llama.block_count is missing",
                        [&] { read_gguf_config(gguf_builder{}.string("general.architecture", "llama")); });
    check_error_message("llama.vocab_size is 4; the token list has 3",
                        [&] { read_gguf_config(llama().whole("llama.vocab_size", 4)); });
    check_error_message("llama.expert_used_count is missing",
                        [&] { read_gguf_config(llama().whole("llama.expert_count", 8)); });
    check_error_message("has 8 experts; this family is known without experts",
                        [&] { read_gguf_config(small_gguf("qwen2").whole("qwen2.expert_count", 8)); });
    check_error_message("the end token is 3; the vocabulary has 3",
                        [&] { read_gguf_config(llama().whole("tokenizer.ggml.eos_token_id", 3)); });
    check_error_message("the beginning token is 7",
                        [&] { read_gguf_config(llama().whole("tokenizer.ggml.bos_token_id", 7)); });
    check_error_message("llama.rope.dimension_count is 1",
                        [&] { read_gguf_config(llama().whole("llama.rope.dimension_count", 1)); });
    check_error_message("RoPE scaling \"mrope\" is not known; none, linear, yarn and longrope are",
                        [&] { read_gguf_config(llama().string("llama.rope.scaling.type", "mrope")); });
    check_error_message("llama.rope.dimension_count is 4; heads have 2 elements",
                        [&] { read_gguf_config(llama().whole("llama.rope.dimension_count", 4)); });
    check_error_message("llama.attention.sliding_window is 8; this family is known without a window",
                        [&] { read_gguf_config(llama().whole("llama.attention.sliding_window", 8)); });
    check_error_message("llama.rope.scaling.yarn_ext_factor is 0.5; 1 is known",
                        [&] { read_gguf_config(llama().real("llama.rope.scaling.yarn_ext_factor", 0.5f)); });
    check_error_message("llama.attention.value_length is 8",
                        [&] { read_gguf_config(llama().whole("llama.attention.value_length", 8)); });
    check_error_message("there are 3 RoPE frequency factors",
                        [&] { read_gguf_config(llama().floats("rope_freqs.weight", {3}, 1)); });
    check_error_message("one of the RoPE frequency factors is 0",
                        [&] { read_gguf_config(llama().floats("rope_freqs.weight", {1}, 0)); });
    check_error_message("llama.attention.head_count_kv must be a whole number", [&] {
        read_gguf_config(llama().numbers<std::int32_t>("llama.attention.head_count_kv", 5, {1, 1}));
    });
}

TEST_CASE("Rejects weights that do not match the configuration") {
    const model_config config = read(small());
    weight_set weights;
    check_error_message("model: tensor \"model.embed_tokens.weight\" is missing",
                        [&] { check_weights(config, weights, "model"); });
    for (const expected_weight& expected : expected_weights(config)) {
        weights.add({expected.name, weight_type::f32, expected.shape, {}}, "model");
    }
    check_weights(config, weights, "model");
    weights.add({"model.layers.0.self_attn.rotary_emb.inv_freq", weight_type::f32, {1}, {}}, "model");
    check_weights(config, weights, "model");
    model_config other = config;
    other.vocab_size = 11;
    check_error_message(
        "tensor \"model.embed_tokens.weight\" has the shape [10, 4]; the configuration asks for [11, 4]",
        [&] { check_weights(other, weights, "model"); });
}

}  // namespace imbrex::engine::test
