#include "engine/tokenizer/character_map.hpp"

#include <imbrex/core/error.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

std::uint32_t little_endian(std::string_view bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
}

// A unit of a double array (as darts-clone writes it): an offset to its children, a label and whether a value follows.
std::uint32_t offset_of(std::uint32_t unit) {
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}
bool has_value(std::uint32_t unit) {
    return (unit >> 8 & 1) != 0;
}
std::uint32_t label_of(std::uint32_t unit) {
    return unit & (1u << 31 | 0xffu);
}
std::uint32_t value_of(std::uint32_t unit) {
    return unit & 0x7fffffffu;
}

}  // namespace

character_map::character_map(std::string_view bytes, const std::string& name) {
    if (bytes.empty()) return;
    require(bytes.size() >= 4, name, ": the map of characters has ", bytes.size(), " bytes; it must have at least 4");
    const std::uint32_t size = little_endian(bytes);
    bytes.remove_prefix(4);
    require(size % 4 == 0 && size > 0 && size <= bytes.size(), name, ": the map of characters has a trie of ", size,
            " bytes; ", bytes.size(), " follow");
    for (std::size_t i = 0; i < size; i += 4) units_.push_back(little_endian(bytes.substr(i, 4)));
    texts_ = bytes.substr(size);
    require(texts_.empty() || texts_.back() == '\0', name, ": the texts of the map of characters must end with a zero");
}

std::optional<character_map::replacement> character_map::find(std::string_view text) const {
    std::optional<replacement> found;
    std::size_t at = offset_of(units_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        at ^= byte;
        if (at >= units_.size() || label_of(units_[at]) != byte) break;
        const std::uint32_t unit = units_[at];
        at ^= offset_of(unit);
        if (at >= units_.size()) break;
        if (!has_value(unit)) continue;
        const std::uint32_t place = value_of(units_[at]);
        if (place < texts_.size()) found = {i + 1, std::string_view(texts_.c_str() + place)};
    }
    return found;
}

std::string character_map::apply(std::string_view text) const {
    if (empty()) return std::string(text);
    std::string result;
    while (!text.empty()) {
        if (const auto found = find(text)) {
            result += found->text;
            text.remove_prefix(found->length);
            continue;
        }
        const auto length = static_cast<std::size_t>(first_code_point(text).length);
        result += text.substr(0, length);
        text.remove_prefix(length);
    }
    return result;
}

}  // namespace imbrex::engine
