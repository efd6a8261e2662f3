#include "engine/grammar/token_masks.hpp"

#include <algorithm>

#include "engine/grammar/state_kinds.hpp"
#include "engine/grammar/token_walk.hpp"

namespace imbrex::engine {

namespace {

constexpr std::size_t max_kept_texts = 64;  // masks of whole stacks

}  // namespace

token_masks::token_masks(const grammar& rules, const token_trie& tokens)
    : rules_(rules), tokens_(tokens), kinds_(kinds_of_states(rules, tokens.max_depth())) {}

void token_masks::write(const text_matcher& text, std::span<std::uint32_t> mask, bool drops_space) const {
    std::ranges::fill(mask, 0u);
    const std::scoped_lock lock(mutex_);
    if (drops_space) {
        for (const text_matcher::configuration& each : text.configurations()) add_dropping_space(each, mask);
        return;
    }
    std::vector<std::int32_t> key;
    for (const text_matcher::configuration& each : text.configurations()) {
        key.insert(key.end(), each.stack.begin(), each.stack.end());
        key.push_back(-1);
    }
    if (const auto known = of_text_.find(key); known != of_text_.end() && known->second.size() == mask.size()) {
        std::ranges::copy(known->second, mask.begin());
        return;
    }
    for (const text_matcher::configuration& each : text.configurations()) add(each, mask);
    if (of_text_.size() >= max_kept_texts) of_text_.clear();
    of_text_[std::move(key)].assign(mask.begin(), mask.end());
}

// Walks stop at this many calls above the stack, so that one walk is right for all stacks that have so much room.
std::int32_t token_masks::room_above(std::size_t depth) const {
    return std::min(rules_.max_depth() - static_cast<std::int32_t>(depth), usual_room());
}

void token_masks::add(const text_matcher::configuration& it, std::span<std::uint32_t> mask) const {
    const std::span<const std::int32_t> below = std::span(it.stack).first(it.stack.size() - 1);
    const std::int32_t room = room_above(below.size());
    const std::shared_ptr<const token_set> found =
        room == usual_room() ? kept_tokens_of(it.state()) : tokens_of(it.state(), room);
    found->add_to(mask);
    add_after_returns(below, found->leaves, mask);
}

void token_masks::add_after_returns(std::span<const std::int32_t> stack, std::vector<std::int32_t> nodes,
                                    std::span<std::uint32_t> mask) const {
    for (; !nodes.empty() && !stack.empty(); stack = stack.first(stack.size() - 1)) {
        token_walk walk(rules_, tokens_, room_above(stack.size() - 1));
        const std::int32_t start = walk.closed_set_of(stack.back());
        std::vector<std::int32_t> leaves;
        if (walk.returns(start)) leaves = nodes;
        for (const std::int32_t node : nodes) {
            if (start == token_walk::dead) break;
            walk.descend(
                node, start, [&](int token) { set_token(mask, token); },
                [&](std::int32_t leaf) { leaves.push_back(leaf); });
        }
        std::ranges::sort(leaves);
        leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
        nodes = std::move(leaves);
    }
}

// Tokens with a space count without it. The space alone would be no progress.
void token_masks::add_dropping_space(const text_matcher::configuration& it, std::span<std::uint32_t> mask) const {
    const std::span<const std::int32_t> below = std::span(it.stack).first(it.stack.size() - 1);
    token_walk walk(rules_, tokens_, room_above(below.size()));
    const std::int32_t start = walk.set_of(it.state());
    std::vector<std::int32_t> leaves;
    const auto accept = [&](int token) { set_token(mask, token); };
    const auto leave = [&](std::int32_t leaf) { leaves.push_back(leaf); };
    std::vector<std::uint32_t> with_space(mask.size());
    walk.descend(
        0, start, [&](int token) { set_token(tokens_.bytes_of(token).front() == ' ' ? with_space : mask, token); },
        [&](std::int32_t leaf) {
            if (!is_below_space(leaf)) leaves.push_back(leaf);
        });
    if (const auto space = tokens_.child_of_root(' ')) walk.descend(*space, start, accept, leave);
    add_after_returns(below, std::move(leaves), mask);
}

bool token_masks::is_below_space(std::int32_t node) const {
    const auto space = tokens_.child_of_root(' ');
    return space && node >= *space && node < tokens_.nodes()[static_cast<std::size_t>(*space)].end;
}

std::shared_ptr<const token_set> token_masks::tokens_of(std::int32_t state, std::int32_t room) const {
    auto made = std::make_shared<token_set>();
    token_walk walk(rules_, tokens_, room);
    walk.descend(
        0, walk.set_of(state), [&](int token) { made->list.push_back(token); },
        [&](std::int32_t leaf) { made->leaves.push_back(leaf); });
    const std::size_t words = (static_cast<std::size_t>(tokens_.size()) + 31) / 32;
    if (made->list.size() > words) {
        made->bits.resize(words);
        for (const std::int32_t token : made->list) set_token(made->bits, token);
        made->list = {};
    }
    return made;
}

std::shared_ptr<const token_set> token_masks::kept_tokens_of(std::int32_t state) const {
    const std::int32_t kind = kinds_[static_cast<std::size_t>(state)];
    if (const auto known = of_kind_.find(kind); known != of_kind_.end()) return known->second;
    const std::string description = description_of_state(rules_, state);
    std::shared_ptr<const token_set> found = description.empty() ? nullptr : tokens_.store().find(description);
    if (!found) {
        found = tokens_of(state, usual_room());
        if (!description.empty()) tokens_.store().keep(description, found);
    }
    if (kept_bytes_ + found->bytes() > max_kept_bytes) {
        of_kind_.clear();
        kept_bytes_ = 0;
    }
    kept_bytes_ += found->bytes();
    of_kind_.emplace(kind, found);
    return found;
}

}  // namespace imbrex::engine
