// The tokenizer of a GGUF file.
#include <imbrex/core/error.hpp>

#include "engine/loading/tokenizer_files.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using namespace vocabulary_files;

constexpr std::int64_t no_token = 0xffffffff;  // unsigned -1: "none" by some writers

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

character_map read_character_map(const gguf_metadata& metadata) {
    const auto* bytes = metadata.wholes("tokenizer.ggml.precompiled_charsmap");
    if (!bytes) return {};
    std::string text;
    for (const std::int64_t byte : *bytes) text += static_cast<char>(byte);
    return {text, metadata.file()};
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
    const bool is_byte_level = *model == "gpt2", is_unigram = *model == "t5";
    require(is_byte_level || is_unigram || *model == "llama", name, ": tokenizer.ggml.model is ", printable(*model),
            "; \"gpt2\", \"llama\" and \"t5\" can be read");
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
        const float score = scores ? static_cast<float>((*scores)[id]) : 0;
        token word = sentencepiece_token(text, kinds ? (*kinds)[id] : 1, score, str_cat(name, ": token ", id));
        if (is_byte_level && word.kind == token_kind::normal) word.bytes = bytes_of_byte_level(text).value_or(text);
        if (is_byte_level && word.kind == token_kind::added) word.bytes = text;
        words.tokens.push_back(std::move(word));
        if (is_byte_level) builder.name_token(text, static_cast<int>(id));
    }

    bool adds_beginning = *model == "llama";
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
        words.order = is_unigram ? merge_order::unigram : merge_order::scores;
        words.underscore_is_space = true;
        words.collapses_spaces = metadata.truth("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
        words.characters = read_character_map(metadata);
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
    if (end && metadata.truth("tokenizer.ggml.add_eos_token").value_or(is_unigram)) words.suffix_ids = {*end};
    return tokenizer(std::move(words));
}

}  // namespace imbrex::engine
