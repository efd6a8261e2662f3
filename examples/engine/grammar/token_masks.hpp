// The tokens that a grammar allows next. The bytes of a token lead from the state of a configuration either to states of the
// same rule and of rules that it calls, whatever the stack is, or out of the rule. So one walk over the trie of the
// vocabulary per state finds the tokens of the first kind, and the nodes of the trie at which the rule ends; it is kept, also
// for other grammars with the same rule. The subtrees of those nodes, few and small, are walked for each stack.
//
//     token_masks masks(rules, tokens);
//     masks.write(matcher, mask);          // bit t % 32 of word t / 32: whether token t may follow
//
// Thread-safe. The memory is bounded (max_kept_bytes): when it is used up, everything kept is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/grammar/grammar.hpp"
#include "engine/grammar/text_matcher.hpp"
#include "engine/grammar/token_set.hpp"
#include "engine/grammar/token_trie.hpp"

namespace imbrex::engine {

class token_masks {
  public:
    static constexpr std::size_t max_kept_bytes = std::size_t{64} << 20;

    // Both must outlive this.
    token_masks(const grammar& rules, const token_trie& tokens);

    // `drops_space`: the leading space of the next token is not part of the text.
    void write(const text_matcher& text, std::span<std::uint32_t> mask, bool drops_space = false) const;

  private:
    void add(const text_matcher::configuration& it, std::span<std::uint32_t> mask) const;
    void add_dropping_space(const text_matcher::configuration& it, std::span<std::uint32_t> mask) const;
    void add_after_returns(std::span<const std::int32_t> stack, std::vector<std::int32_t> nodes,
                           std::span<std::uint32_t> mask) const;
    bool is_below_space(std::int32_t node) const;
    std::shared_ptr<const token_set> tokens_of(std::int32_t state, std::int32_t room) const;
    std::shared_ptr<const token_set> kept_tokens_of(std::int32_t state) const;
    std::int32_t usual_room() const { return 64 + rules_.max_height(); }
    std::int32_t room_above(std::size_t depth) const;

    const grammar& rules_;
    const token_trie& tokens_;
    std::vector<std::int32_t> kinds_;  // of states: those of a kind allow the same tokens
    mutable std::mutex mutex_;
    mutable std::unordered_map<std::int32_t, std::shared_ptr<const token_set>> of_kind_;
    mutable std::map<std::vector<std::int32_t>, std::vector<std::uint32_t>> of_text_;
    mutable std::size_t kept_bytes_ = 0;
};

}  // namespace imbrex::engine
