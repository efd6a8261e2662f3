// The tokenizer of a GGUF file.
#include <imbrex/core/error.hpp>

#include "engine/loading/tokenizer_files.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using namespace vocabulary_files;

constexpr std::int64_t no_token = 0xffffffff;  // unsigned -1: "none" by some writers

enum class file_kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

token_kind kind_of(std::int64_t value, std::size_t id, const std::string& name) {
    switch (static_cast<file_kind>(value)) {
        case file_kind::normal:
            return token_kind::normal;
        case file_kind::unknown:
        case file_kind::control:
            return token_kind::special;
        case file_kind::user_defined:
            return token_kind::added;
        case file_kind::unused:
            return token_kind::unused;
        case file_kind::byte:
            return token_kind::byte;
    }
    require(false, name, ": token ", id, " has the type ", value, "; 1 to 6 are known");
    return {};
}

std::optional<int> token_id(const gguf_metadata& metadata, const char* key, std::size_t count) {
    const auto id = metadata.whole(key);
    if (!id || *id == no_token || *id == -1) return {};
    require(*id >= 0 && static_cast<std::uint64_t>(*id) < count, metadata.file(), ": ", key, " is ", *id,
            "; there are ", count, " tokens");
    return static_cast<int>(*id);
}

template <class Element>
void check_count(const std::vector<Element>* list, std::size_t count, const char* key, const std::string& name) {
    require(!list || list->size() == count, name, ": ", key, " has ", list ? list->size() : 0, " elements; there are ",
            count, " tokens");
}

std::string joined(const std::vector<std::string_view>& names) {
    std::string all;
    for (const std::string_view one : names) all.append(all.empty() ? "" : ", ").append(one);
    return all;
}

}  // namespace

tokenizer gguf_tokenizer(const gguf_metadata& metadata) {
    const std::string& name = metadata.file();
    const auto model = metadata.text("tokenizer.ggml.model");
    require(model.has_value(), name, ": tokenizer.ggml.model is missing");
    const bool is_byte_level = *model == "gpt2";
    require(is_byte_level || *model == "llama", name, ": tokenizer.ggml.model is ", printable(*model),
            "; \"gpt2\" and \"llama\" can be read");
    const auto* texts = metadata.texts("tokenizer.ggml.tokens");
    require(texts && !texts->empty(), name, ": tokenizer.ggml.tokens is missing");
    const std::size_t count = texts->size();
    const auto* kinds = metadata.wholes("tokenizer.ggml.token_type");
    const auto* scores = metadata.reals("tokenizer.ggml.scores");
    check_count(kinds, count, "tokenizer.ggml.token_type", name);
    check_count(scores, count, "tokenizer.ggml.scores", name);
    require(is_byte_level || scores, name, ": tokenizer.ggml.scores is missing");

    vocabulary words;
    words.name = name;
    merge_builder builder(words);
    for (std::size_t id = 0; id < count; ++id) {
        const std::string& text = (*texts)[id];
        token word{text, kinds ? kind_of((*kinds)[id], id, name) : token_kind::normal, 0};
        if (scores) word.score = static_cast<float>((*scores)[id]);
        if (word.kind == token_kind::byte) {
            const auto byte = byte_token(text);
            require(byte.has_value(), name, ": token ", id, " is ", printable(text),
                    "; a byte's token is written <0x0A>");
            word.bytes = std::string(1, *byte);
        } else if (word.kind == token_kind::normal && is_byte_level) {
            word.bytes = bytes_of_byte_level(text).value_or(text);
        } else if (word.kind != token_kind::special && !is_byte_level) {
            word.bytes = with_spaces(text);
        }
        words.tokens.push_back(std::move(word));
        if (is_byte_level) builder.name_token(text, static_cast<int>(id));
    }

    bool adds_beginning = !is_byte_level;
    if (is_byte_level) {
        const auto pattern_name = metadata.text("tokenizer.ggml.pre");
        require(pattern_name.has_value(), name,
                ": tokenizer.ggml.pre is missing; the split pattern of the pre-tokenizer is unknown");
        const auto rule = split_rule_named(*pattern_name);
        if (!rule) {
            require(false, name, ": tokenizer.ggml.pre is ", printable(*pattern_name),
                    "; these are known: ", joined(split_rule_names()));
        }
        words.splits = compiled(rule->expressions);
        words.ignore_merges = rule->ignore_merges;
        adds_beginning = rule->adds_bos;
        const auto* merges = metadata.texts("tokenizer.ggml.merges");
        require(merges != nullptr, name, ": tokenizer.ggml.merges is missing");
        for (const std::string& pair : *merges) builder.add_line(pair);
    } else {
        words.symbols = symbol_size::code_point;
        words.order = merge_order::scores;
        words.underscore_is_space = true;
        const bool adds_space = metadata.truth("tokenizer.ggml.add_space_prefix").value_or(true);
        words.prefix_space = adds_space ? prefix_space_mode::always : prefix_space_mode::none;
    }
    words.unknown = token_id(metadata, "tokenizer.ggml.unknown_token_id", count);
    const auto beginning = token_id(metadata, "tokenizer.ggml.bos_token_id", count);
    const auto end = token_id(metadata, "tokenizer.ggml.eos_token_id", count);
    for (const char* key : {"tokenizer.ggml.padding_token_id", "tokenizer.ggml.eot_token_id",
                            "tokenizer.ggml.eom_token_id", "tokenizer.ggml.seperator_token_id"}) {
        token_id(metadata, key, count);  // unused, but must be in range
    }
    if (beginning && metadata.truth("tokenizer.ggml.add_bos_token").value_or(adds_beginning))
        words.prefix_ids = {*beginning};
    if (end && metadata.truth("tokenizer.ggml.add_eos_token").value_or(false)) words.suffix_ids = {*end};
    return tokenizer(std::move(words));
}

}  // namespace imbrex::engine
