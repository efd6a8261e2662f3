// Fuzz targets of the readers. imbrex_engine_tests runs the same functions over the corpus. A reader may throw
// imbrex::error and nothing else; results that it returns must be usable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <imbrex/core/error.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/checksum.hpp"
#include "engine/cache/disk_entry.hpp"
#include "engine/chat/jinja_template.hpp"
#include "engine/loading/checkpoint_quantisation.hpp"
#include "engine/loading/gguf.hpp"
#include "engine/loading/llama2c.hpp"
#include "engine/loading/mapped_file.hpp"
#include "engine/loading/model_config.hpp"
#include "engine/loading/model_files.hpp"
#include "engine/loading/safetensors.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/tokenizer/pre_tokenizer.hpp"
#include "engine/tokenizer/tokenizer.hpp"
#include "engine/tokenizer/unicode.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::fuzz {

// Reports a finding: libFuzzer treats an abort as a crash.
inline void must(bool holds) {
    if (!holds) std::abort();
}

template <class Action>
void unless_refused(const Action& action) {
    try {
        action();
    } catch (const imbrex::error& failure) {
        must(*failure.what() != '\0');
    }
}

inline bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const code_point next = first_code_point(text);
        if (!next.valid) return false;
        text.remove_prefix(static_cast<std::size_t>(next.length));
    }
    return true;
}

inline void use(const weight_set& weights) {
    constexpr std::int64_t most = 1 << 16;  // limit for large tensors
    for (const weight& one : weights.all()) {
        must(weights.find(one.name) == &one);
        if (one.elements() <= most) must(static_cast<std::int64_t>(to_floats(one).size()) == one.elements());
    }
}

inline void use(const tokenizer& tokens) {
    for (const std::string_view text :
         {"Hello, w\u00f6rld! It's 1234\r\n  \u2581<s></s><|x|>", "\xff\xc3", "aaaabbbab ab"}) {
        for (const bool parse_special : {false, true}) {
            unless_refused([&] {
                const auto ids = tokens.encode(text, {.add_special_tokens = true, .parse_special = parse_special});
                must(is_utf8(tokens.decode(ids)) || parse_special);  // a special token may print anything
            });
        }
    }
}

inline void safetensors(std::span<const std::byte> bytes) {
    unless_refused([&] {
        const safetensors_file file = read_safetensors(bytes, "input");
        use(file.weights);
        const auto quantisation = file.metadata.find("quantization_config");
        if (quantisation == file.metadata.end()) return;
        use(read_quantised_checkpoint(file.weights, parse_json(quantisation->second, "input"), "input"));
    });
    unless_refused([&] { read_shard_index(bytes, "input"); });
}

inline void gguf(std::span<const std::byte> bytes) {
    unless_refused([&] {
        const gguf_file file = read_gguf(bytes, "input");
        use(file.weights);
        unless_refused([&] { use(gguf_tokenizer(file.metadata)); });
        unless_refused([&] { use(read_gguf_model(bytes, "input").weights); });
    });
}

inline void tokenizer_json(std::span<const std::byte> bytes) {
    unless_refused([&] { use(read_tokenizer_json(bytes, "input")); });
    unless_refused([&] {
        const model_config config = read_config(bytes, {}, "input");
        rope_inv_freq(config, config.rope);
    });
    unless_refused([&] { use(read_tiktoken(bytes, "input", split_expressions::o200k, {{"<|x|>", 70000}})); });
    const std::string_view text = as_text(bytes);
    if (const std::size_t cut = text.find('\0'); cut != std::string_view::npos) {
        unless_refused([&] { use(read_gpt2_files(bytes.first(cut), bytes.subspan(cut + 1), "input")); });
    }
}

inline void sentencepiece(std::span<const std::byte> bytes) {
    unless_refused([&] { use(read_sentencepiece(bytes, {}, "input")); });
}

inline void llama2c(std::span<const std::byte> bytes) {
    unless_refused([&] { use(read_llama2c(bytes, "input").weights); });
    if (bytes.empty()) return;
    const int count = static_cast<int>(bytes[0]);
    unless_refused([&] { use(read_llama2c_tokenizer(bytes.subspan(1), count, "input")); });
}

// A chat template, rendered for a conversation.
inline void chat_template(std::span<const std::byte> bytes) {
    static const auto variables = nlohmann::ordered_json::parse(
        R"({"bos_token":"<s>","eos_token":"</s>","add_generation_prompt":true,"messages":[{"role":"user","content":"Hi \u00e4"},)"
        R"({"role":"assistant","content":"<think>a</think>b","tool_calls":[{"function":{"name":"f","arguments":{"x":1.5}}}]}],)"
        R"("tools":[{"function":{"name":"f","parameters":{"properties":{"x":{"type":"number"}}}}}]})");
    unless_refused([&] {
        const jinja::jinja_template made(as_text(bytes), "input");
        const jinja::render_options options{.max_work = 200'000, .max_output = 100'000};
        must(made.render(variables, options).size() <= options.max_output);
    });
}

// Arbitrary bytes as text, with a vocabulary of 256 bytes and a few merges.
inline const tokenizer& small_tokenizer() {
    static const tokenizer tokens = [] {
        vocabulary words;
        words.name = "small";
        words.splits = {regular_expression(split_expressions::qwen2)};
        for (int byte = 0; byte < 256; ++byte) words.tokens.push_back({std::string(1, static_cast<char>(byte)), {}, 0});
        const auto add = [&](int left, int right) {
            const int id = static_cast<int>(words.tokens.size());
            words.merges.push_back({left, right, id});
            words.tokens.push_back({words.tokens[static_cast<std::size_t>(left)].bytes +
                                        words.tokens[static_cast<std::size_t>(right)].bytes,
                                    token_kind::normal, 0});
        };
        add('a', 'b');
        add('a', 'a');
        add(256, 'a');
        add(257, 257);
        add(' ', 'a');
        add(0xc3, 0xa4);
        words.tokens.push_back({"<|end|>", token_kind::special, 0});
        return tokenizer(std::move(words));
    }();
    return tokens;
}

inline void text(std::span<const std::byte> bytes) {
    const std::string_view text = as_text(bytes);
    for (const std::string_view name : {"gpt-2", "llama-bpe", "gpt-4o", "default", "deepseek-llm", "superbpe"}) {
        std::string joined;
        for (const std::string_view word : split_words(text, compiled(split_rule_named(name)->expressions))) {
            must(!word.empty());
            joined += word;
        }
        must(joined == text);
    }
    const std::string once = nfc(text);
    must(nfc(once) == once);
    must(!is_utf8(text) || is_utf8(once));

    const tokenizer& tokens = small_tokenizer();
    std::string raw, streamed;
    incremental_detokenizer decoder(tokens);
    for (const int id : tokens.encode(text)) {
        must(tokens.at(id).kind != token_kind::special);
        raw += tokens.at(id).bytes;
        const std::string part = decoder.push(id);
        must(is_utf8(part));
        streamed += part;
    }
    streamed += decoder.finish();
    must(raw == text);
    must(!is_utf8(text) || streamed == text);
}

inline void correct_checksum(std::vector<std::byte>& file) {
    constexpr std::size_t at = 16, from = at + sizeof(std::uint64_t);
    if (file.size() < from) return;
    const std::uint64_t sum = checksum::of(std::span(file).subspan(from));
    std::memcpy(file.data() + at, &sum, sizeof sum);
}

// A file of the prefix cache, as it is and with the right checksum, so that what follows is reached.
inline void disk_entry(std::span<const std::byte> bytes) {
    std::vector<std::byte> file(bytes.begin(), bytes.end());
    for (const bool corrected : {false, true}) {
        if (corrected) correct_checksum(file);
        unless_refused([&] {
            const imbrex::engine::disk_entry found = read_disk_entry(file);
            must(found.content.size() <= file.size() && found.block.tokens.size() <= file.size());
            if (found.block_bytes > 1 << 16) return;
            const auto size = static_cast<std::size_t>(found.block_bytes);
            const block_codec codec{.quantised = found.quantised, .element = cache_element::bf16, .columns = 8};
            must(decode_disk_entry(file, found.block, codec, size).size() == size);
        });
    }
}

}  // namespace imbrex::engine::fuzz
