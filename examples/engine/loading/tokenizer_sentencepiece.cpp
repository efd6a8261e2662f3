// SentencePiece's tokenizer.model: a protocol buffer with the pieces, and the specifications of the trainer and of the
// normalizer. Field numbers are those of sentencepiece_model.proto.
#include <imbrex/core/error.hpp>

#include "engine/loading/json_text.hpp"
#include "engine/loading/mapped_file.hpp"
#include "engine/loading/protobuf.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using namespace vocabulary_files;
using wire_type = protobuf_field::wire_type;

constexpr std::size_t most_added_tokens = 65536;

enum class model_type { unigram = 1, bpe = 2 };

// What the two specifications say, with the defaults of the format.
struct specification {
    std::uint64_t type = 1;
    bool space_is_suffix = false;
    std::int32_t beginning = 1, end = 2;  // ids; -1: none
    std::string_view characters;
    bool adds_prefix_space = true, collapses_spaces = true, escapes_spaces = true;
};

class sentencepiece_reader {
  public:
    sentencepiece_reader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {
        words_.name = name;
        words_.symbols = symbol_size::code_point;
        words_.underscore_is_space = true;
    }

    vocabulary read() {
        for (protobuf_reader fields(bytes_, name_); const auto field = fields.next();) {
            if (field->number > 3) continue;  // self-tests, denormalizer
            require(field->type == wire_type::length_delimited, name_, ": field ", field->number, " must be a message");
            if (field->number == 1) read_piece(field->text);
            if (field->number == 2) read_trainer(field->text);
            if (field->number == 3) read_normalizer(field->text);
        }
        require(!words_.tokens.empty(), name_, ": has no pieces; it is no model of SentencePiece");
        require(said_.type == static_cast<std::uint64_t>(model_type::unigram) ||
                    said_.type == static_cast<std::uint64_t>(model_type::bpe),
                name_, ": the model type is ", said_.type, "; 1 (unigram) and 2 (BPE) are known");
        require(!said_.space_is_suffix, name_, ": treat_whitespace_as_suffix is not supported");
        require(said_.escapes_spaces, name_, ": escape_whitespaces must be set");
        const bool is_unigram = said_.type == static_cast<std::uint64_t>(model_type::unigram);
        words_.order = is_unigram ? merge_order::unigram : merge_order::scores;
        words_.characters = character_map(said_.characters, name_);
        words_.collapses_spaces = said_.collapses_spaces;
        if (said_.adds_prefix_space) words_.prefix_space = prefix_space_mode::always_at_start;
        return std::move(words_);
    }

    // The id of BOS or EOS; the tokenizer checks its range.
    static std::vector<int> ids_of(std::int32_t id) { return id < 0 ? std::vector<int>() : std::vector<int>{id}; }
    const specification& said() const { return said_; }

  private:
    void read_piece(std::string_view bytes) {
        std::string_view text;
        float score = 0;
        std::uint64_t type = 1;
        for (protobuf_reader fields(bytes, name_); const auto field = fields.next();) {
            if (field->number == 1) text = field->text;
            if (field->number == 2) score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
            if (field->number == 3) type = field->value;
        }
        const std::size_t id = words_.tokens.size();
        if (type == 2) words_.unknown = static_cast<int>(id);
        words_.tokens.push_back(
            sentencepiece_token(text, static_cast<std::int64_t>(type), score, str_cat(name_, ": token ", id)));
    }

    void read_trainer(std::string_view bytes) {
        for (protobuf_reader fields(bytes, name_); const auto field = fields.next();) {
            if (field->number == 3) said_.type = field->value;
            if (field->number == 24) said_.space_is_suffix = field->value != 0;
            if (field->number == 41) said_.beginning = static_cast<std::int32_t>(field->value);
            if (field->number == 42) said_.end = static_cast<std::int32_t>(field->value);
        }
    }

    void read_normalizer(std::string_view bytes) {
        for (protobuf_reader fields(bytes, name_); const auto field = fields.next();) {
            if (field->number == 2) said_.characters = field->text;
            if (field->number == 3) said_.adds_prefix_space = field->value != 0;
            if (field->number == 4) said_.collapses_spaces = field->value != 0;
            if (field->number == 5) said_.escapes_spaces = field->value != 0;
        }
    }

    std::string_view bytes_;
    const std::string& name_;
    vocabulary words_;
    specification said_;
};

// added_tokens_decoder: {"32000": {"content": "<|im_end|>", "special": true}}.
void add_tokens(const json& config, const std::string& name, vocabulary& words) {
    const json* added = find_member(config, "added_tokens_decoder");
    if (!added) return;
    require(added->is_object(), name, ": added_tokens_decoder must be an object");
    const std::size_t most = words.tokens.size() + most_added_tokens;
    for (const auto& [key, entry] : added->items()) {
        const bool is_id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
        const auto text = string_member(entry, "content", name);
        require(is_id && std::stoul(key) < most && text, name, ": added_tokens_decoder has ", printable(key),
                "; ids below ", most, ", each with a \"content\", are allowed");
        const std::size_t id = std::stoul(key);
        if (id >= words.tokens.size()) words.tokens.resize(id + 1, {"", token_kind::unused, 0});
        const bool is_special = bool_member(entry, "special", name).value_or(false);
        words.tokens[id] = {*text, is_special ? token_kind::special : token_kind::added, 0,
                            bool_member(entry, "lstrip", name).value_or(false),
                            bool_member(entry, "rstrip", name).value_or(false)};
    }
}

}  // namespace

token vocabulary_files::sentencepiece_token(std::string_view text, std::int64_t type, float score,
                                            const std::string& where) {
    switch (type) {
        case 1:
            return {with_spaces(text), token_kind::normal, score};
        case 2:
        case 3:
            return {std::string(text), token_kind::special, score};
        case 4:
            return {with_spaces(text), token_kind::added, score};
        case 5:
            return {with_spaces(text), token_kind::unused, score};
        case 6: {
            const auto byte = byte_token(text);
            require(byte.has_value(), where, " is ", printable(text), "; a byte's token is written <0x0A>");
            return {std::string(1, *byte), token_kind::byte, score};
        }
        default:
            require(false, where, " has the type ", type, "; 1 to 6 are known");
            return {};
    }
}

tokenizer read_sentencepiece(std::span<const std::byte> bytes, std::span<const std::byte> config,
                             const std::string& name) {
    sentencepiece_reader reader(as_text(bytes), name);
    vocabulary words = reader.read();
    bool adds_beginning = true, adds_end = words.order == merge_order::unigram;
    if (!config.empty()) {
        const std::string config_name = name + ": tokenizer_config.json";
        const json root = parse_json(as_text(config), config_name);
        add_tokens(root, config_name, words);
        adds_beginning = bool_member(root, "add_bos_token", config_name).value_or(adds_beginning);
        adds_end = bool_member(root, "add_eos_token", config_name).value_or(adds_end);
        const bool is_legacy = bool_member(root, "legacy", config_name).value_or(true);
        if (is_legacy && words.prefix_space == prefix_space_mode::always_at_start)
            words.prefix_space = prefix_space_mode::always;
    }
    if (adds_beginning) words.prefix_ids = sentencepiece_reader::ids_of(reader.said().beginning);
    if (adds_end) words.suffix_ids = sentencepiece_reader::ids_of(reader.said().end);
    return tokenizer(std::move(words));
}

}  // namespace imbrex::engine
