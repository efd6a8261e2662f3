// A walk over the trie of a vocabulary with the configurations of one rule, whatever is below it on the stack. Sets of
// configurations are numbered, and their successors for each byte are found once.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.hpp"
#include "engine/grammar/text_matcher.hpp"
#include "engine/grammar/token_trie.hpp"

namespace imbrex::engine {

class token_walk {
  public:
    // `room`: the depth that the stack may have above the rule's caller.
    token_walk(const grammar& rules, const token_trie& tokens, std::int32_t room);

    static constexpr std::int32_t dead = -1;
    // The set of a state before its next byte, and of a state with all that calls and returns make of it.
    std::int32_t set_of(std::int32_t state);
    std::int32_t closed_set_of(std::int32_t state);
    // Whether the rule can end before the next byte.
    bool returns(std::int32_t set) const { return set != dead && sets_[static_cast<std::size_t>(set)].returns; }

    // The tokens below a node of the trie that the grammar allows behind the set. `accept` takes token ids; `leave` the
    // nodes at which the rule can end and below which there are tokens.
    template <class Accept, class Leave>
    void descend(std::int32_t node, std::int32_t set, Accept&& accept, Leave&& leave) {
        const std::vector<token_trie::node>& nodes = tokens_.nodes();
        const token_trie::node& top = nodes[static_cast<std::size_t>(node)];
        at_depth_[top.depth] = set;
        for (std::int32_t i = node + 1; i < top.end;) {
            const token_trie::node& each = nodes[static_cast<std::size_t>(i)];
            const std::int32_t next = step(at_depth_[each.depth - 1u], each.byte);
            if (next == dead) {
                i = each.end;
                continue;
            }
            at_depth_[each.depth] = next;
            for (const int token : tokens_.tokens_at(each)) accept(token);
            if (++i < each.end && returns(next)) leave(i - 1);
        }
    }

    std::int32_t step(std::int32_t set, std::uint8_t byte) {
        const std::int32_t known = next_[static_cast<std::size_t>(set) * 256 + byte];
        return known == unknown ? find_step(set, byte) : known;
    }

  private:
    static constexpr std::int32_t unknown = -2, base = -1;

    struct item {
        std::int32_t state, frame;  // the frame to return to; base: the caller's
        auto operator<=>(const item&) const = default;
    };
    struct frame {
        std::int32_t state, below, depth;
    };
    struct configuration_set {
        std::vector<item> items;
        bool returns;
    };
    void add(const item& it, std::vector<item>& items, bool& returns);
    std::int32_t numbered(std::vector<item> items, bool returns);
    std::int32_t frame_of(std::int32_t state, std::int32_t below);
    std::int32_t depth_of(std::int32_t frame) const {
        return frame == base ? 0 : frames_[static_cast<std::size_t>(frame)].depth;
    }
    std::int32_t find_step(std::int32_t set, std::uint8_t byte);

    const grammar& rules_;
    const token_trie& tokens_;
    std::int32_t room_;
    std::vector<frame> frames_;
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> frame_ids_;
    std::vector<configuration_set> sets_;
    std::vector<std::int32_t> next_;  // of each set, for each byte
    std::map<std::pair<std::vector<item>, bool>, std::int32_t> set_ids_;
    std::vector<std::int32_t> at_depth_;
};

}  // namespace imbrex::engine
