#include "engine/grammar/token_trie.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

namespace {

constexpr std::size_t max_token_bytes = 4096;  // longer tokens are never allowed

}  // namespace

token_trie::token_trie(std::vector<std::string> bytes, std::vector<std::string> names)
    : bytes_(std::move(bytes)), names_(std::move(names)) {
    build();
}

token_trie::token_trie(const tokenizer& tokens, int vocab_size) {
    bytes_.resize(static_cast<std::size_t>(vocab_size));
    names_.resize(bytes_.size());
    for (int id = 0; id < std::min(tokens.size(), vocab_size); ++id) {
        const token& each = tokens.at(id);
        const auto place = static_cast<std::size_t>(id);
        if (each.kind == token_kind::special) {
            names_[place] = each.bytes;
            bytes_[place] = special_token_mark + each.bytes + special_token_mark;
        } else if (each.kind != token_kind::unused && each.bytes.size() <= max_token_bytes &&
                   each.bytes.find(special_token_mark) == std::string::npos) {
            bytes_[place] = each.bytes;
        }
    }
    build();
}

std::string_view token_trie::bytes_of(int token) const {
    return token >= 0 && token < size() ? std::string_view(bytes_[static_cast<std::size_t>(token)])
                                        : std::string_view();
}

std::string_view token_trie::name_of(int token) const {
    return token >= 0 && static_cast<std::size_t>(token) < names_.size()
               ? std::string_view(names_[static_cast<std::size_t>(token)])
               : std::string_view();
}

std::optional<std::int32_t> token_trie::child_of_root(std::uint8_t byte) const {
    for (std::int32_t i = 1; i < nodes_.front().end; i = nodes_[static_cast<std::size_t>(i)].end)
        if (nodes_[static_cast<std::size_t>(i)].byte == byte) return i;
    return std::nullopt;
}

// Tokens in the order of their bytes are the leaves of the trie in depth-first order: each adds the nodes behind the prefix
// that it shares with the token before it.
void token_trie::build() {
    token_ids_.resize(bytes_.size());
    std::iota(token_ids_.begin(), token_ids_.end(), 0);
    std::erase_if(token_ids_, [&](int id) { return bytes_of(id).empty(); });
    std::ranges::sort(token_ids_, [&](int a, int b) { return std::pair(bytes_of(a), a) < std::pair(bytes_of(b), b); });

    nodes_.push_back({.end = 0, .first_token = 0, .num_tokens = 0, .depth = 0, .byte = 0});
    std::vector<std::int32_t> path{0};  // the nodes of the last token
    std::string_view last;
    const auto close = [&](std::size_t depth) {
        for (; path.size() > depth + 1; path.pop_back())
            nodes_[static_cast<std::size_t>(path.back())].end = static_cast<std::int32_t>(nodes_.size());
    };
    for (std::size_t i = 0; i < token_ids_.size(); ++i) {
        const std::string_view bytes = bytes_of(token_ids_[i]);
        const auto [left, right] = std::ranges::mismatch(last, bytes);
        close(static_cast<std::size_t>(left - last.begin()));
        while (path.size() <= bytes.size()) {
            const std::size_t depth = path.size();
            path.push_back(static_cast<std::int32_t>(nodes_.size()));
            nodes_.push_back({.end = 0,
                              .first_token = static_cast<std::int32_t>(i),
                              .num_tokens = 0,
                              .depth = static_cast<std::uint16_t>(depth),
                              .byte = static_cast<std::uint8_t>(bytes[depth - 1])});
        }
        ++nodes_[static_cast<std::size_t>(path.back())].num_tokens;
        max_depth_ = std::max(max_depth_, static_cast<int>(bytes.size()));
        last = bytes;
    }
    close(0);
    nodes_.front().end = static_cast<std::int32_t>(nodes_.size());
}

}  // namespace imbrex::engine
