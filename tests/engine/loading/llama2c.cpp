#include "engine/loading/llama2c.hpp"

#include "engine/loading/mapped_file.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

std::string numbers(const std::vector<std::int32_t>& all) {
    std::string text;
    for (const std::int32_t number : all) text += raw(number);
    return text;
}

std::string floats(int first, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += raw(static_cast<float>(first + i));
    return text;
}

// Two layers, hidden 4, intermediate 3, two heads of head_dim 2, one KV head, 5 tokens, context 2.
constexpr int embedding = 20, norms = 8, queries = 32, keys = 16, outputs = 32, forward = 24, tables = 4;
constexpr int all = embedding + 2 * norms + queries + 2 * keys + outputs + 3 * forward + 4;
const std::vector<std::int32_t> sizes{4, 3, 2, 2, 1, 5, 2};

llama2c_file read(const std::string& text) {
    static std::string kept;  // weights point into it
    kept = text;
    return read_llama2c(bytes(kept), "file");
}

std::string version_1(std::int32_t version, char shared) {
    std::string header = raw(std::uint32_t{0x616b3432}) + raw(version) + numbers(sizes) + shared;
    header.resize(256);
    return header;
}

}  // namespace

TEST_CASE("Finds each weight of the legacy format") {
    const llama2c_file file = read(numbers(sizes) + floats(0, all + tables));
    CHECK(file.config.layers == 2);
    CHECK(file.config.head_dim == 2);
    CHECK(file.config.tie_word_embeddings);
    CHECK(file.config.rope.style == rope_style::interleaved);
    CHECK(file.weights.find("lm_head.weight") == nullptr);
    check_weights(file.config, file.weights, "file");
    const auto first = [&](const char* name) { return to_floats(file.weights.at(name))[0]; };
    CHECK(first("model.embed_tokens.weight") == 0);
    CHECK(first("model.layers.0.input_layernorm.weight") == 20);
    CHECK(first("model.layers.1.input_layernorm.weight") == 24);
    CHECK(first("model.layers.1.self_attn.q_proj.weight") == 44);
    CHECK(first("model.layers.0.self_attn.k_proj.weight") == 60);
    CHECK(first("model.layers.0.self_attn.v_proj.weight") == 76);
    CHECK(first("model.layers.0.self_attn.o_proj.weight") == 92);
    CHECK(first("model.layers.0.post_attention_layernorm.weight") == 124);
    CHECK(first("model.layers.0.mlp.gate_proj.weight") == 132);
    CHECK(first("model.layers.0.mlp.down_proj.weight") == 156);
    CHECK(first("model.layers.0.mlp.up_proj.weight") == 180);
    CHECK(first("model.norm.weight") == 204);

    auto untied = sizes;
    untied[5] = -5;
    const llama2c_file other = read(numbers(untied) + floats(0, all + tables + embedding));
    CHECK_FALSE(other.config.tie_word_embeddings);
    CHECK(other.config.vocab_size == 5);
    CHECK(to_floats(other.weights.at("lm_head.weight"))[0] == all + tables);
}

TEST_CASE("Finds each weight of version 1") {
    const llama2c_file file = read(version_1(1, 1) + floats(0, all));
    check_weights(file.config, file.weights, "file");
    const auto first = [&](const char* name) { return to_floats(file.weights.at(name))[0]; };
    CHECK(first("model.layers.0.input_layernorm.weight") == 0);
    CHECK(first("model.layers.0.post_attention_layernorm.weight") == 8);
    CHECK(first("model.norm.weight") == 16);
    CHECK(first("model.embed_tokens.weight") == 20);
    CHECK(first("model.layers.0.self_attn.q_proj.weight") == 40);
    CHECK(first("model.layers.1.mlp.up_proj.weight") == all - 12);
    CHECK_FALSE(read(version_1(1, 0) + floats(0, all + embedding)).config.tie_word_embeddings);
}

TEST_CASE("Rejects invalid llama2.c files") {
    check_error_message("file: has 27 bytes", [&] { read(std::string(27, '\0')); });
    check_error_message("0 elements for 0 heads", [&] { read(std::string(28, '\0')); });
    check_error_message("its header has 256", [&] { read(version_1(1, 1).substr(0, 255)); });
    check_error_message("version 2; the legacy form and version 1 can be read",
                        [&] { read(version_1(2, 1) + floats(0, all)); });
    check_error_message("the byte for tied embeddings is 2", [&] { read(version_1(1, 2) + floats(0, all)); });
    check_error_message("ends within the RoPE tables", [&] { read(numbers(sizes) + floats(0, all + tables - 1)); });
    check_error_message("has 4 bytes after its last weight",
                        [&] { read(numbers(sizes) + floats(0, all + tables + 1)); });
    check_error_message("has 1 bytes after its last weight", [&] { read(version_1(1, 1) + floats(0, all) + "x"); });
    check_error_message("ends within \"model.layers.1.mlp.up_proj.weight\" [3, 4]",
                        [&] { read(version_1(1, 1) + floats(0, all - 1)); });
    const auto with = [](std::size_t place, std::int32_t value) {
        auto changed = sizes;
        changed[place] = value;
        read(numbers(changed) + floats(0, all + tables));
    };
    check_error_message("5 elements for 2 heads", [&] { with(0, 5); });
    check_error_message("-4 elements for 2 heads", [&] { with(0, -4); });
    check_error_message("the intermediate size is 0", [&] { with(1, 0); });
    check_error_message("the number of layers is -1", [&] { with(2, -1); });
    check_error_message("the number of layers is 1000000", [&] { with(2, 1000000); });
    check_error_message("the head size is 1", [&] { with(3, 4); });
    check_error_message("2 heads share 3 KV heads", [&] { with(4, 3); });
    check_error_message("the number of KV heads is 0", [&] { with(4, 0); });
    check_error_message("the vocabulary size is 0", [&] { with(5, 0); });
    check_error_message("the vocabulary size is -2147483648", [&] { with(5, std::int32_t(0x80000000)); });
    check_error_message("the context length is 0", [&] { with(6, 0); });
    check_error_message("ends within \"model.embed_tokens.weight\"", [&] { with(5, 1 << 24); });
}

TEST_CASE("stories260K: both formats have the same weights") {
    const auto legacy_path = shared_file("stories260K/stories260K.bin");
    const auto newer_path = shared_file("stories260K/stories260K.v1.bin");
    if (!legacy_path || !newer_path) return;
    const mapped_file legacy_bytes(*legacy_path), newer_bytes(*newer_path);
    const llama2c_file legacy = read_llama2c(legacy_bytes.bytes(), "legacy");
    const llama2c_file newer = read_llama2c(newer_bytes.bytes(), "newer");
    CHECK(legacy.config.hidden_size == 64);
    CHECK(legacy.config.intermediate_size == 172);
    CHECK(legacy.config.layers == 5);
    CHECK(legacy.config.heads == 8);
    CHECK(legacy.config.kv_heads == 4);
    CHECK(legacy.config.vocab_size == 512);
    CHECK(legacy.config.context == 512);
    CHECK(legacy.config.tie_word_embeddings);
    CHECK(legacy.weights.all().size() == newer.weights.all().size());
    for (const weight& one : legacy.weights.all()) CHECK(to_floats(one) == to_floats(newer.weights.at(one.name)));
}

}  // namespace imbrex::engine::test
