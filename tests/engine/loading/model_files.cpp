#include "engine/loading/model_files.hpp"

#include "engine/loading/gguf_builder.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr const char* config_text =
    R"({"model_type":"llama","num_hidden_layers":1,"hidden_size":4,"intermediate_size":3,
    "num_attention_heads":2,"vocab_size":4,"rms_norm_eps":1e-5,"tie_word_embeddings":true})";
constexpr const char* tokenizer_text = R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
    "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";

// Every weight of a configuration, all 1.
std::string safetensors_of(const model_config& config) {
    std::string header, data;
    for (const expected_weight& expected : expected_weights(config)) {
        std::int64_t count = 1;
        for (const std::int64_t size : expected.shape) count *= size;
        header += (header.empty() ? "{\"" : ",\"") + expected.name + R"(":{"dtype":"F32","shape":)" +
                  to_string(expected.shape) + ",\"data_offsets\":[" + std::to_string(data.size()) + ",";
        for (std::int64_t i = 0; i < count; ++i) data += raw(1.0f);
        header += std::to_string(data.size()) + "]}";
    }
    header += "}";
    return raw(std::uint64_t{header.size()}) + header + data;
}

}  // namespace

TEST_CASE("Opens a Hugging Face folder") {
    const temporary_folder folder;
    check_error_message("none: does not exist", [&] { open_model(folder.path() / "none"); });
    check_error_message("has no config.json, so it is no model's folder", [&] { open_model(folder.path()); });
    folder.write("config.json", config_text);
    model_config config = read_config(bytes(config_text), {}, "config");
    check_error_message("has neither model.safetensors nor", [&] { open_model(folder.path()); });
    folder.write("model.safetensors", safetensors_of(config));
    check_error_message("has none of tokenizer.json, tokenizer.model, and vocab.json with merges.txt",
                        [&] { open_model(folder.path()); });
    folder.write("tokenizer.json", tokenizer_text);
    const model_files model = open_model(folder.path());
    CHECK(model.tokens.encode("abba") == std::vector<int>{2, 1, 0});
    CHECK(model.weights.all().size() == expected_weights(config).size());
    CHECK(to_floats(model.weights.at("model.norm.weight")) == std::vector<float>{1, 1, 1, 1});
    check_error_message("holds weights alone; give the folder",
                        [&] { open_model(folder.path() / "model.safetensors"); });
    check_error_message("is no model; a folder with config.json", [&] { open_model(folder.path() / "config.json"); });

    config.vocab_size = 5;
    folder.write("model.safetensors", safetensors_of(config));
    check_error_message("has the shape [5, 4]; the configuration asks for [4, 4]", [&] { open_model(folder.path()); });
    folder.write("tokenizer.json", R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
        "model":{"vocab":{"a":0,"b":9},"merges":[]}})");
    check_error_message("the tokenizer has 10 tokens, the model 4", [&] { open_model(folder.path()); });
    std::filesystem::remove(folder.path() / "tokenizer.json");
    config.vocab_size = 4;
    folder.write("model.safetensors", safetensors_of(config));
    folder.write("vocab.json", R"({"a":0,"b":1,"ab":2})");
    folder.write("merges.txt", "#version: 0.2\na b\n");
    CHECK(open_model(folder.path()).tokens.encode("ab") == std::vector<int>{2});
}

TEST_CASE("Maps the names of GGUF tensors") {
    CHECK(name_of_gguf_tensor("token_embd.weight") == "model.embed_tokens.weight");
    CHECK(name_of_gguf_tensor("output.weight") == "lm_head.weight");
    CHECK(name_of_gguf_tensor("output_norm.weight") == "model.norm.weight");
    CHECK(name_of_gguf_tensor("blk.12.attn_q.bias") == "model.layers.12.self_attn.q_proj.bias");
    CHECK(name_of_gguf_tensor("blk.0.attn_k_norm.weight") == "model.layers.0.self_attn.k_norm.weight");
    CHECK(name_of_gguf_tensor("blk.0.attn_output.weight") == "model.layers.0.self_attn.o_proj.weight");
    CHECK(name_of_gguf_tensor("blk.3.ffn_down.weight") == "model.layers.3.mlp.down_proj.weight");
    CHECK(name_of_gguf_tensor("blk.3.ffn_down.12.weight") == "model.layers.3.mlp.experts.12.down_proj.weight");
    CHECK(name_of_gguf_tensor("blk.3.ffn_gate_exps.weight") == "model.layers.3.mlp.experts.gate_proj.weight");
    CHECK(name_of_gguf_tensor("rope_freqs.weight") == "rope_freqs.weight");
    CHECK(name_of_gguf_tensor("blk.3") == "blk.3");
}

TEST_CASE("Rejects a GGUF file whose embedding does not match the token list") {
    gguf_builder builder;
    builder.string("general.architecture", "llama").whole("llama.block_count", 1).whole("llama.embedding_length", 4);
    builder.whole("llama.feed_forward_length", 3)
        .whole("llama.attention.head_count", 2)
        .whole("llama.context_length", 8);
    builder.real("llama.attention.layer_norm_rms_epsilon", 1e-5f).string("tokenizer.ggml.model", "llama");
    builder.strings("tokenizer.ggml.tokens", {"a", "b", "c"}).numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0});
    builder.floats("token_embd.weight", {4, 4});
    const std::string text = builder.build();
    check_error_message("has the shape [4, 4]; the configuration asks for [3, 4]",
                        [&] { read_gguf_model(bytes(text), "file"); });
}

TEST_CASE("stories260K: all file formats give the same model") {
    const auto legacy = shared_file("stories260K/stories260K.bin");
    if (!legacy) return;
    const model_files first = open_model(*legacy);
    for (const char* name : {"stories260K/stories260K.v1.bin", "stories260K/stories260K.gguf"}) {
        const auto path = shared_file(name);
        REQUIRE(path.has_value());
        const model_files other = open_model(*path);
        CHECK(other.config.layers == first.config.layers);
        CHECK(other.config.head_dim == 8);
        CHECK(other.config.rope.style == rope_style::interleaved);
        CHECK(other.config.norm_eps == doctest::Approx(1e-5));
        for (const weight& one : first.weights.all()) CHECK(to_floats(one) == to_floats(other.weights.at(one.name)));
        const std::string story = content(*shared_file("stories260K/golden-greedy-200.txt"));
        CHECK(other.tokens.encode(story) == first.tokens.encode(story));
        CHECK(other.tokens.decode(other.tokens.encode(story)) == story);
    }
}

}  // namespace imbrex::engine::test
