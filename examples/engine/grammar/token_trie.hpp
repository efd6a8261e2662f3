// The tokens of a vocabulary as a trie of their bytes, for token masks: a walk visits each prefix that tokens share once,
// and skips all tokens behind a byte that cannot come next.
//
// Normal tokens, added tokens and byte tokens (byte fallback) are in it with the bytes that they print; special tokens with
// their names between two marks (special_token_mark), which no UTF-8 has, so that only a grammar with marks allows them.
// Unused tokens and tokens without bytes are not in it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/token_set.hpp"

namespace imbrex::engine {

class tokenizer;

class token_trie {
  public:
    // Tokens as bytes; empty: never allowed. Names are those of special tokens, for constrain_after.
    explicit token_trie(std::vector<std::string> bytes, std::vector<std::string> names = {});
    // `vocab_size`: that of the model, which may be larger; its tokens without a name are never allowed.
    token_trie(const tokenizer& tokens, int vocab_size);

    // A node stands for the bytes on the path to it. Nodes are in depth-first order: the descendants of node i are i + 1 up
    // to, not including, end.
    struct node {
        std::int32_t end;
        std::int32_t first_token, num_tokens;  // tokens with exactly these bytes, in token_ids
        std::uint16_t depth;                   // bytes; 0: the root
        std::uint8_t byte;                     // the last one
    };
    const std::vector<node>& nodes() const { return nodes_; }  // the root first
    std::span<const int> tokens_at(const node& it) const {
        return std::span(token_ids_)
            .subspan(static_cast<std::size_t>(it.first_token), static_cast<std::size_t>(it.num_tokens));
    }
    int max_depth() const { return max_depth_; }
    // Of states that several grammars have in common.
    token_set_store& store() const { return *store_; }

    int size() const { return static_cast<int>(bytes_.size()); }
    // Empty for tokens that are not in the trie and for ids past the vocabulary; of special tokens with the marks.
    std::string_view bytes_of(int token) const;
    // The names of special tokens; empty for others.
    std::string_view name_of(int token) const;
    // The node of a first byte, if a token begins with it.
    std::optional<std::int32_t> child_of_root(std::uint8_t byte) const;

  private:
    void build();

    std::vector<std::string> bytes_, names_;
    std::vector<node> nodes_;
    std::vector<int> token_ids_;
    int max_depth_ = 0;
    std::unique_ptr<token_set_store> store_ = std::make_unique<token_set_store>();
};

}  // namespace imbrex::engine
