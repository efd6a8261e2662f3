#include "engine/loading/model_files.hpp"

#include <algorithm>
#include <array>
#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/loading/checkpoint_quantisation.hpp"
#include "engine/loading/families.hpp"
#include "engine/loading/gguf_split.hpp"
#include "engine/loading/json_text.hpp"
#include "engine/loading/llama2c.hpp"
#include "engine/loading/safetensors.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/loading/unread_content.hpp"
#include "engine/tokenizer/end_of_generation.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using name_pair = std::pair<std::string_view, std::string_view>;

constexpr std::array outer_names{
    name_pair{"token_embd.", "model.embed_tokens."},
    name_pair{"output_norm.", "model.norm."},
    name_pair{"output.", "lm_head."},
};

constexpr std::array layer_names{
    name_pair{"attn_norm.", "input_layernorm."},
    name_pair{"ffn_norm.", "post_attention_layernorm."},
    name_pair{"attn_q.", "self_attn.q_proj."},
    name_pair{"attn_k.", "self_attn.k_proj."},
    name_pair{"attn_v.", "self_attn.v_proj."},
    name_pair{"attn_output.", "self_attn.o_proj."},
    name_pair{"attn_q_norm.", "self_attn.q_norm."},
    name_pair{"attn_k_norm.", "self_attn.k_norm."},
    name_pair{"ffn_gate.", "mlp.gate_proj."},
    name_pair{"ffn_up.", "mlp.up_proj."},
    name_pair{"ffn_down.", "mlp.down_proj."},
    name_pair{"ffn_gate_inp.", "mlp.router."},
    name_pair{"ffn_gate_exps.", "mlp.experts.gate_proj."},
    name_pair{"ffn_up_exps.", "mlp.experts.up_proj."},
    name_pair{"ffn_down_exps.", "mlp.experts.down_proj."},
    name_pair{"attn_sinks.weight", "self_attn.sinks"},
};

// The matrices of an expert, in early files of Mixtral: ffn_gate.3.weight.
constexpr std::array expert_names{
    name_pair{"ffn_gate.", ".gate_proj"},
    name_pair{"ffn_up.", ".up_proj"},
    name_pair{"ffn_down.", ".down_proj"},
};

std::string name_of_expert(std::string_view within_layer) {
    for (const auto& [from, to] : expert_names) {
        if (!within_layer.starts_with(from)) continue;
        const std::string_view rest = within_layer.substr(from.size());
        const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
        if (digits > 0) return std::string("mlp.experts.").append(rest, 0, digits).append(to).append(rest, digits);
    }
    return {};
}

// Replaces a known prefix.
template <class Pairs>
std::string exchanged(std::string_view name, const Pairs& pairs) {
    for (const auto& [from, to] : pairs) {
        if (name.starts_with(from)) return std::string(to).append(name.substr(from.size()));
    }
    return {};
}

void complete(model_files& model) {
    require(model.tokens.size() <= model.config.vocab_size, model.name, ": the tokenizer has ", model.tokens.size(),
            " tokens, the model ", model.config.vocab_size);
    model.weights = with_separate_projections(model.config, model.weights, model.name);
    check_weights(model.config, model.weights, model.name);
    for (const expected_weight& expected : expected_weights(model.config)) {
        const weight& found = model.weights.at(expected.name);
        require(!is_integer(found.type), model.name, ": tensor ", printable(expected.name), " has integers of type ",
                name_of(found.type), " without a quantization_config that explains them");
    }
    check_unread_weights(model.weights, model.config.tie_word_embeddings, model.name);
    model.config.eos_tokens = end_of_generation_tokens(model.tokens, model.config.eos_tokens);
}

tokenizer read_folder_tokenizer(const std::filesystem::path& path) {
    const auto exists = [&](const char* name) { return std::filesystem::exists(path / name); };
    if (exists("tokenizer.json")) {
        const mapped_file file(path / "tokenizer.json");
        return read_tokenizer_json(file.bytes(), file.name());
    }
    if (exists("tokenizer.model")) {
        const mapped_file file(path / "tokenizer.model");
        std::optional<mapped_file> config;
        if (exists("tokenizer_config.json")) config.emplace(path / "tokenizer_config.json");
        return read_sentencepiece(file.bytes(), config ? config->bytes() : std::span<const std::byte>(), file.name());
    }
    require(exists("vocab.json") && exists("merges.txt"), path.string(),
            ": has none of tokenizer.json, tokenizer.model, and vocab.json with merges.txt");
    const mapped_file vocabulary_file(path / "vocab.json"), merges(path / "merges.txt");
    return read_gpt2_files(vocabulary_file.bytes(), merges.bytes(), vocabulary_file.name());
}

model_files open_folder(const std::filesystem::path& path, weight_contents contents) {
    const auto config_path = path / "config.json", generation_path = path / "generation_config.json";
    require(std::filesystem::exists(config_path), path.string(), ": has no config.json, so it is no model's folder");
    const mapped_file config(config_path);
    std::optional<mapped_file> generation;
    if (std::filesystem::exists(generation_path)) generation.emplace(generation_path);
    model_config sizes =
        read_config(config.bytes(), generation ? generation->bytes() : std::span<const std::byte>(), config.name());

    return {path.string(), std::move(sizes), open_folder_weights(path, contents), read_folder_tokenizer(path),
            read_chat_source(path)};
}

model_files open_llama2c(const std::shared_ptr<const mapped_file>& file, const std::filesystem::path& path) {
    llama2c_file content = read_llama2c(file->bytes(), file->name());
    content.weights.keep(file);
    const std::string own_name = "tok" + std::to_string(content.config.vocab_size) + ".bin";
    auto tokens_path = path.parent_path() / own_name;
    if (!std::filesystem::exists(tokens_path)) tokens_path = path.parent_path() / "tokenizer.bin";
    require(std::filesystem::exists(tokens_path), path.string(), ": its tokenizer is missing: neither ", own_name,
            " nor tokenizer.bin lies beside it");
    const mapped_file tokens(tokens_path);
    return {path.string(),
            content.config,
            std::move(content.weights),
            read_llama2c_tokenizer(tokens.bytes(), content.config.vocab_size, tokens.name()),
            {}};
}

}  // namespace

weight_set open_folder_weights(const std::filesystem::path& path, weight_contents contents) {
    const auto quantised = path / "model.gguf";
    if (std::filesystem::exists(quantised)) return open_gguf(quantised).weights;
    weight_set weights = open_safetensors(path);
    const mapped_file config_file(path / "config.json");
    const json config = parse_json(as_text(config_file.bytes()), config_file.name());
    const json* quantisation = find_member(config, "quantization_config");
    if (quantisation) weights = read_quantised_checkpoint(weights, *quantisation, config_file.name());
    return with_separate_experts(weights, path.string(), contents);
}

std::string name_of_gguf_tensor(const std::string& name, model_family family) {
    if (!name.starts_with("blk.")) {
        const std::string outer = exchanged(name, outer_names);
        return outer.empty() ? name : outer;
    }
    const std::size_t dot = name.find('.', 4);
    if (dot == std::string::npos) return name;
    const std::string_view within_layer = std::string_view(name).substr(dot + 1);
    std::string inner = name_of_expert(within_layer);
    if (inner.empty()) inner = exchanged(within_layer, description_of(family).gguf_tensors);
    if (inner.empty()) inner = exchanged(within_layer, layer_names);
    return inner.empty() ? name : "model.layers." + name.substr(4, dot - 4) + "." + inner;
}

model_files gguf_model(const gguf_file& file) {
    const std::string& name = file.metadata.file();
    const auto architecture = file.metadata.text("general.architecture");
    require(architecture.has_value(), name, ": general.architecture is missing");
    const model_family family = family_of_architecture(*architecture, name).family;
    weight_set weights =
        file.weights.renamed([&](const std::string& tensor) { return name_of_gguf_tensor(tensor, family); }, name);
    weights = with_separate_experts(weights, name);
    model_config config = gguf_config(file.metadata, weights);
    model_files model{name, std::move(config), std::move(weights), gguf_tokenizer(file.metadata), {}};
    model.chat = gguf_chat_source(file.metadata, model.tokens);
    complete(model);
    check_unread_keys(file.metadata);
    return model;
}

model_files read_gguf_model(std::span<const std::byte> bytes, const std::string& name) {
    return gguf_model(read_gguf(bytes, name));
}

tokenizer_files open_tokenizer(const std::filesystem::path& path) {
    require(std::filesystem::exists(path), path.string(), ": does not exist");
    if (std::filesystem::is_directory(path)) return {read_folder_tokenizer(path), read_chat_source(path)};
    const mapped_file file(path);
    if (as_text(file.bytes()).starts_with("GGUF")) {
        const gguf_metadata metadata = read_gguf(file.bytes(), file.name()).metadata;
        tokenizer tokens = gguf_tokenizer(metadata);
        chat_source chat = gguf_chat_source(metadata, tokens);
        return {std::move(tokens), std::move(chat)};
    }
    model_files model = open_model(path);
    return {std::move(model.tokens), std::move(model.chat)};
}

model_files open_model(const std::filesystem::path& path, weight_contents contents) {
    require(std::filesystem::exists(path), path.string(), ": does not exist");
    if (std::filesystem::is_directory(path)) {
        model_files model = open_folder(path, contents);
        complete(model);
        return model;
    }
    require(path.extension() != ".safetensors", path.string(),
            ": holds weights alone; give the folder, which has config.json and the tokenizer too");
    const auto file = std::make_shared<const mapped_file>(path);
    if (as_text(file->bytes()).starts_with("GGUF")) return gguf_model(open_gguf(path));
    require(path.extension() == ".bin", path.string(),
            ": is no model; a folder with config.json, a .gguf file or a .bin file of llama2.c can be opened");
    model_files model = open_llama2c(file, path);
    complete(model);
    return model;
}

}  // namespace imbrex::engine
