// SentencePiece's normalization map ("precompiled_charsmap"): what to put for strings such as a ligature or a full-width
// letter. It is a number of bytes, a double-array trie of that size, and the replacements, each ended by a zero byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex::engine {

class character_map {
  public:
    character_map() = default;  // changes nothing
    character_map(std::string_view bytes, const std::string& name);

    std::string apply(std::string_view text) const;
    bool empty() const { return units_.empty(); }

  private:
    struct replacement {
        std::size_t length;  // of what is replaced
        std::string_view text;
    };
    std::optional<replacement> find(std::string_view text) const;  // the longest at the beginning of the text

    std::vector<std::uint32_t> units_;
    std::string texts_;
};

}  // namespace imbrex::engine
