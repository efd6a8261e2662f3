// Writes a small model as a folder: random weights and a tokenizer with one token per byte.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/loading/random_model.hpp"
#include "engine/support.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::test {

// Byte-level vocabularies map a byte to a printable character.
inline std::string visible_byte(int byte) {
    const auto is_visible = [](int value) {
        return (value >= 33 && value <= 126) || (value >= 161 && value <= 172) || value >= 174;
    };
    int invisible_before = 0;
    for (int other = 0; other < byte; ++other) invisible_before += is_visible(other) ? 0 : 1;
    std::string text;
    append_code_point(text, static_cast<char32_t>(is_visible(byte) ? byte : 256 + invisible_before));
    return text == "\"" || text == "\\" ? "\\" + text : text;
}

inline std::string byte_tokenizer_json(const std::vector<std::string>& special) {
    std::string words, added;
    for (int byte = 0; byte < 256; ++byte)
        words += (byte == 0 ? "\"" : ",\"") + visible_byte(byte) + "\":" + std::to_string(byte);
    for (std::size_t i = 0; i < special.size(); ++i)
        added += (i == 0 ? "" : ",") + (R"({"content":")" + special[i]) + R"(","special":true,"id":)" +
                 std::to_string(256 + i) + "}";
    return R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"added_tokens":[)" + added +
           R"(],"model":{"type":"BPE","vocab":{)" + words + R"(},"merges":[]}})";
}

inline std::string safetensors_of(const weight_set& weights) {
    std::string header, data;
    for (const weight& each : weights.all()) {
        header += (header.empty() ? "{\"" : ",\"") + each.name + R"(":{"dtype":"BF16","shape":)" +
                  to_string(each.shape) + ",\"data_offsets\":[" + std::to_string(data.size()) + ",";
        data.append(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size());
        header += std::to_string(data.size()) + "]}";
    }
    header += "}";
    return raw(std::uint64_t{header.size()}) + header + data;
}

// The known model "tiny", with these special tokens after the byte tokens.
inline void write_tiny_model(const temporary_folder& folder, const std::vector<std::string>& special = {}) {
    const model_config config = config_of_known_model("tiny");
    folder.write(
        "config.json",
        str_cat(R"({"model_type":"llama","tie_word_embeddings":true,"rms_norm_eps":1e-5,"num_hidden_layers":)",
                config.layers, R"(,"hidden_size":)", config.hidden_size, R"(,"intermediate_size":)",
                config.intermediate_size, R"(,"num_attention_heads":)", config.heads, R"(,"num_key_value_heads":)",
                config.kv_heads, R"(,"head_dim":)", config.head_dim, R"(,"vocab_size":)", config.vocab_size,
                R"(,"max_position_embeddings":)", config.context, "}"));
    folder.write("tokenizer.json", byte_tokenizer_json(special));
    folder.write("model.safetensors", safetensors_of(random_model(config, 1).weights));
}

}  // namespace imbrex::engine::test
