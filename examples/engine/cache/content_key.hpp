// Names of cached blocks that hold beyond a process: the SHA-256 of everything that determines the keys and values of a
// block, which are the model with its settings and all tokens up to the end of the block.
//
//   key of no tokens   = SHA-256(description of the model)
//   key of a block     = SHA-256(key of the block before it, its tokens)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace imbrex::engine {

using content_key = std::array<std::uint8_t, 32>;

content_key sha256(std::span<const std::byte> bytes);

content_key first_key(std::string_view description);
content_key next_key(const content_key& parent, std::span<const int> tokens);

// 64 digits.
std::string hexadecimal(const content_key& key);

struct content_key_hash {
    std::size_t operator()(const content_key& key) const {
        std::size_t hash;
        std::memcpy(&hash, key.data(), sizeof hash);
        return hash;
    }
};

}  // namespace imbrex::engine
