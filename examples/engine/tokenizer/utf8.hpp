// UTF-8 decoding, one code point at a time. Input may hold any bytes: a byte that does not begin a complete code point
// is returned alone, and no function fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace imbrex::engine {

struct code_point {
    char32_t value;  // for an invalid byte: the byte, with `valid` false
    int length;      // bytes
    bool valid;
};

// Length of a code point by its first byte; 0 if invalid.
inline int code_point_length(char first) {
    const auto byte = static_cast<unsigned char>(first);
    if (byte < 0x80) return 1;
    if (byte >= 0xc2 && byte < 0xe0) return 2;
    if (byte >= 0xe0 && byte < 0xf0) return 3;
    if (byte >= 0xf0 && byte < 0xf5) return 4;
    return 0;
}

// Whether the bytes are a code point or a prefix of one. Overlong forms, surrogates and values above U+10FFFF are not.
inline bool may_begin_code_point(std::string_view bytes) {
    const int length = bytes.empty() ? 0 : code_point_length(bytes[0]);
    if (length == 0 || bytes.size() > static_cast<std::size_t>(length)) return false;
    const auto first = static_cast<unsigned char>(bytes[0]);
    for (std::size_t i = 1; i < bytes.size(); ++i) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        unsigned least = 0x80, most = 0xbf;
        if (i == 1 && first == 0xe0) least = 0xa0;
        if (i == 1 && first == 0xed) most = 0x9f;
        if (i == 1 && first == 0xf0) least = 0x90;
        if (i == 1 && first == 0xf4) most = 0x8f;
        if (byte < least || byte > most) return false;
    }
    return true;
}

// The first code point of a non-empty text.
inline code_point first_code_point(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x80) return {first, 1, true};
    const auto length = static_cast<std::size_t>(code_point_length(text[0]));
    if (length == 0 || text.size() < length || !may_begin_code_point(text.substr(0, length))) return {first, 1, false};
    char32_t value = first & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
    return {value, static_cast<int>(length), true};
}

inline void append_code_point(std::string& text, char32_t value) {
    const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
    if (value < 0x80) {
        add(value);
    } else if (value < 0x800) {
        add(0xc0 | value >> 6);
        add(0x80 | (value & 0x3f));
    } else if (value < 0x10000) {
        add(0xe0 | value >> 12);
        add(0x80 | (value >> 6 & 0x3f));
        add(0x80 | (value & 0x3f));
    } else {
        add(0xf0 | value >> 18);
        add(0x80 | (value >> 12 & 0x3f));
        add(0x80 | (value >> 6 & 0x3f));
        add(0x80 | (value & 0x3f));
    }
}

// SentencePiece writes a space as U+2581.
inline std::string with_spaces(std::string_view text) {
    constexpr std::string_view underscore = "\u2581";
    std::string result;
    result.reserve(text.size());
    while (!text.empty()) {
        const bool is_space = text.starts_with(underscore);
        result += is_space ? ' ' : text[0];
        text.remove_prefix(is_space ? underscore.size() : 1);
    }
    return result;
}

// A quoted name for error messages: shortened, without control characters.
inline std::string printable(std::string_view text) {
    constexpr std::size_t longest = 60;
    std::string result = "\"";
    for (const char letter : text.substr(0, longest)) result += letter >= 32 && letter < 127 ? letter : '?';
    return result + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace imbrex::engine
