#include "engine/loading/tokenizer_files.hpp"

#include <cstring>
#include <imbrex/core/error.hpp>
#include <set>

#include "engine/loading/json_text.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace vocabulary_files {

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
    static const auto bytes = [] {
        std::unordered_map<char32_t, char> result;
        char32_t next = 0x100;
        for (int byte = 0; byte < 256; ++byte) {
            const bool is_visible = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
            result[is_visible ? static_cast<char32_t>(byte) : next++] = static_cast<char>(byte);
        }
        return result;
    }();
    std::string result;
    while (!text.empty()) {
        const code_point next = first_code_point(text);
        const auto found = bytes.find(next.value);
        if (!next.valid || found == bytes.end()) return {};
        result += found->second;
        text.remove_prefix(static_cast<std::size_t>(next.length));
    }
    return result;
}

std::optional<char> byte_token(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return {};
    int value = 0;
    for (const char digit : text.substr(3, 2)) {
        const std::size_t place = std::string_view("0123456789ABCDEF").find(digit);
        if (place == std::string_view::npos) return {};
        value = value * 16 + static_cast<int>(place);
    }
    return static_cast<char>(value);
}

// Error messages are built only on failure: there are hundreds of thousands of merges.
int merge_builder::id_of(std::string_view text, std::string_view left, std::string_view right) const {
    const auto found = by_text_.find(text);
    if (found != by_text_.end()) return found->second;
    require(false, words_.name, ": merge ", rank_, " (", printable(left), ", ", printable(right), ") needs ",
            printable(text), ", which is not in the vocabulary");
    return -1;
}

void merge_builder::add(std::string_view left, std::string_view right) {
    const int first = id_of(left, left, right);
    const int second = id_of(right, left, right);
    const int result = id_of(std::string(left).append(right), left, right);
    words_.merges.push_back({first, second, result});
    ++rank_;
}

void merge_builder::add_line(std::string_view pair) {
    const std::size_t space = pair.find(' ');
    const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < pair.size() &&
                         pair.find(' ', space + 1) == std::string_view::npos;
    if (!is_pair) {
        require(false, words_.name, ": merge ", rank_, " is ", printable(pair),
                "; it must be two tokens with a space between");
    }
    add(pair.substr(0, space), pair.substr(space + 1));
}

std::string from_base64(std::string_view text, const std::string& where) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    while (text.ends_with('=')) text.remove_suffix(1);
    std::string result;
    unsigned bits = 0;
    int count = 0;
    for (const char letter : text) {
        const std::size_t digit = digits.find(letter);
        require(digit != std::string_view::npos, where, printable(text), " is not base 64");
        bits = (bits << 6 | static_cast<unsigned>(digit)) & 0xffffu;
        count += 6;
        if (count >= 8) {
            count -= 8;
            result += static_cast<char>(bits >> count & 0xffu);
        }
    }
    return result;
}

}  // namespace vocabulary_files

namespace {

using namespace vocabulary_files;

template <class Use>
void for_each_line(std::string_view text, const Use& use) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.empty()) use(line);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

}  // namespace

tokenizer read_gpt2_files(std::span<const std::byte> encoder, std::span<const std::byte> merges,
                          const std::string& name) {
    const json ids = parse_json(as_text(encoder), name);
    require(ids.is_object(), name, ": is ", shown(ids), "; it must be an object of tokens and their ids");
    vocabulary words;
    words.name = name;
    words.splits = {regular_expression(split_expressions::gpt2)};
    words.tokens.resize(ids.size());
    merge_builder builder(words);
    std::vector<bool> seen(ids.size());
    for (const auto& [text, id] : ids.items()) {
        require(id.is_number_unsigned() && id.get<std::uint64_t>() < ids.size(), name, ": token ", shown(text),
                " has the id ", shown(id), "; there are ", ids.size(), " tokens");
        const auto index = id.get<std::size_t>();
        require(!seen[index], name, ": two tokens have the id ", index);
        seen[index] = true;
        const auto bytes = bytes_of_byte_level(text);
        const bool is_special = text == "<|endoftext|>";
        words.tokens[index] = {bytes.value_or(text), is_special ? token_kind::special : token_kind::normal, 0};
        builder.name_token(text, static_cast<int>(index));
    }
    for_each_line(as_text(merges), [&](std::string_view line) {
        if (!line.starts_with("#version")) builder.add_line(line);
    });
    return tokenizer(std::move(words));
}

tokenizer read_tiktoken(std::span<const std::byte> bytes, const std::string& name, std::string_view pattern,
                        const std::map<std::string, int>& special) {
    vocabulary words;
    words.name = name;
    words.order = merge_order::ids;
    words.splits = {regular_expression(pattern)};
    for_each_line(as_text(bytes), [&](std::string_view line) {
        const std::string where = name + ": line " + std::to_string(words.tokens.size() + 1) + ": ";
        const std::size_t space = line.find(' ');
        require(space != std::string_view::npos, where, printable(line), " must be a token and its rank");
        const std::string rank(line.substr(space + 1));
        require(rank == std::to_string(words.tokens.size()), where, "the rank is ", printable(rank),
                "; ranks must follow one another from 0");
        words.tokens.push_back({from_base64(line.substr(0, space), where), token_kind::normal, 0});
    });
    const std::size_t plain = words.tokens.size();
    std::set<int> taken;
    for (const auto& [text, id] : special) {
        constexpr std::size_t most_special = 65536;
        require(id >= 0 && static_cast<std::size_t>(id) >= plain &&
                    static_cast<std::size_t>(id) < plain + most_special && taken.insert(id).second,
                name, ": special token ", printable(text), " has the id ", id, "; it must be its own, from ", plain,
                " to ", plain + most_special - 1);
        const auto index = static_cast<std::size_t>(id);
        if (index >= words.tokens.size()) words.tokens.resize(index + 1, {"", token_kind::unused, 0});
        words.tokens[index] = {text, token_kind::special, 0};
    }
    return tokenizer(std::move(words));
}

tokenizer read_llama2c_tokenizer(std::span<const std::byte> bytes, int vocabulary_size, const std::string& name) {
    constexpr int first_byte = 3;  // after the unknown token, BOS and EOS
    std::size_t place = 0;
    const auto number = [&]<class Number>(Number) {
        require(sizeof(Number) <= bytes.size() - place, name, ": ends at byte ", bytes.size(), ", within token ",
                "descriptions; the model has ", vocabulary_size, " tokens");
        Number value;
        std::memcpy(&value, bytes.data() + place, sizeof value);
        place += sizeof value;
        return value;
    };
    number(std::uint32_t{});  // length of the longest token, not used
    vocabulary words;
    words.name = name;
    words.symbols = symbol_size::code_point;
    words.order = merge_order::scores;
    words.prefix_space = prefix_space_mode::always;
    words.underscore_is_space = true;
    for (int id = 0; id < vocabulary_size; ++id) {
        token word;
        word.score = number(float{});
        const auto length = number(std::uint32_t{});
        require(length <= bytes.size() - place, name, ": token ", id, " has ", length, " bytes; only ",
                bytes.size() - place, " follow");
        word.bytes = as_text(bytes.subspan(place, length));
        place += length;
        if (id < first_byte) {
            word.kind = token_kind::special;
            while (word.bytes.starts_with('\n')) word.bytes.erase(0, 1);  // as in "\n<s>\n"
            while (word.bytes.ends_with('\n')) word.bytes.pop_back();
        } else if (const auto byte = byte_token(word.bytes)) {
            word = {std::string(1, *byte), token_kind::byte, word.score};
        }
        words.tokens.push_back(std::move(word));
    }
    require(place == bytes.size(), name, ": has ", bytes.size() - place, " bytes after the model's ", vocabulary_size,
            " tokens");
    require(vocabulary_size > 2, name, ": the model has ", vocabulary_size, " tokens; it must have at least 3");
    words.unknown = 0;
    words.prefix_ids = {1};
    return tokenizer(std::move(words));
}

}  // namespace imbrex::engine
