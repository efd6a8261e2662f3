#include "engine/loading/chat_source.hpp"

#include <imbrex/core/error.hpp>

#include "engine/loading/json_text.hpp"
#include "engine/loading/mapped_file.hpp"

namespace imbrex::engine {

namespace {

// A token is a text, or an object with a "content".
std::string token_text(const json& config, const char* key, const std::string& name) {
    const json* found = find_member(config, key);
    if (found && found->is_object()) return string_member(*found, "content", name).value_or("");
    return string_member(config, key, name).value_or("");
}

std::string template_text(const json& config, const std::string& name) {
    const json* found = find_member(config, "chat_template");
    if (!found) return {};
    if (found->is_string()) return found->get<std::string>();
    require(found->is_array(), name, ": \"chat_template\" is ", shown(*found), "; it must be a string or an array");
    for (const json& each : *found) {
        if (string_member(each, "name", name) == "default") return string_member(each, "template", name).value_or("");
    }
    return {};
}

}  // namespace

chat_source read_chat_source(const std::filesystem::path& folder) {
    chat_source found;
    if (std::filesystem::exists(folder / "tokenizer_config.json")) {
        const mapped_file file(folder / "tokenizer_config.json");
        const json config = parse_json(as_text(file.bytes()), file.name());
        found = {template_text(config, file.name()), token_text(config, "bos_token", file.name()),
                 token_text(config, "eos_token", file.name())};
    }
    if (std::filesystem::exists(folder / "chat_template.jinja")) {
        const mapped_file file(folder / "chat_template.jinja");
        found.text = as_text(file.bytes());
    }
    return found;
}

chat_source gguf_chat_source(const gguf_metadata& metadata, const tokenizer& tokens) {
    const auto text_of = [&](const char* key) {
        const auto id = metadata.whole(key);
        return id && *id >= 0 && *id < tokens.size() ? tokens.at(static_cast<int>(*id)).bytes : std::string();
    };
    return {metadata.text("tokenizer.chat_template").value_or(""), text_of("tokenizer.ggml.bos_token_id"),
            text_of("tokenizer.ggml.eos_token_id")};
}

}  // namespace imbrex::engine
