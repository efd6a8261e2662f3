#include "engine/grammar/token_walk.hpp"

#include <algorithm>

namespace imbrex::engine {

token_walk::token_walk(const grammar& rules, const token_trie& tokens, std::int32_t room)
    : rules_(rules), tokens_(tokens), room_(room), at_depth_(static_cast<std::size_t>(tokens.max_depth()) + 1, dead) {}

std::int32_t token_walk::set_of(std::int32_t state) {
    return numbered({{state, base}}, false);
}

std::int32_t token_walk::closed_set_of(std::int32_t state) {
    std::vector<item> items;
    bool returns = false;
    add({state, base}, items, returns);
    return numbered(std::move(items), returns);
}

// As text_matcher::add.
void token_walk::add(const item& it, std::vector<item>& items, bool& returns) {
    if (items.size() >= text_matcher::max_configurations) return;
    const std::int32_t room = room_ - depth_of(it.frame) - 1;
    const grammar::state& state = rules_.at(it.state);
    if (state.height > room) return;
    for (const call_edge& edge : rules_.calls_of(it.state)) {
        const grammar::state& after = rules_.at(edge.to);
        if (after.only_accepts) {
            add({edge.rule, it.frame}, items, returns);
        } else if (after.height <= room) {
            add({edge.rule, frame_of(edge.to, it.frame)}, items, returns);
        }
    }
    if (state.accepts) {
        if (it.frame == base) {
            returns = true;
        } else {
            const frame to = frames_[static_cast<std::size_t>(it.frame)];
            add({to.state, to.below}, items, returns);
        }
    }
    if (state.num_edges > 0) items.push_back(it);
}

std::int32_t token_walk::numbered(std::vector<item> items, bool returns) {
    if (items.empty() && !returns) return dead;
    std::ranges::sort(items);
    items.erase(std::unique(items.begin(), items.end()), items.end());
    const auto [found, is_new] =
        set_ids_.try_emplace({std::move(items), returns}, static_cast<std::int32_t>(sets_.size()));
    if (is_new) {
        sets_.push_back({found->first.first, returns});
        next_.resize(next_.size() + 256, unknown);
    }
    return found->second;
}

std::int32_t token_walk::frame_of(std::int32_t state, std::int32_t below) {
    const auto [found, is_new] = frame_ids_.try_emplace({state, below}, static_cast<std::int32_t>(frames_.size()));
    if (is_new) frames_.push_back({state, below, depth_of(below) + 1});
    return found->second;
}

std::int32_t token_walk::find_step(std::int32_t set, std::uint8_t byte) {
    std::vector<item> items;
    bool returns = false;
    for (const item& each : sets_[static_cast<std::size_t>(set)].items) {
        const std::int32_t to = rules_.next(each.state, byte);
        if (to >= 0) add({to, each.frame}, items, returns);
    }
    const std::int32_t next = numbered(std::move(items), returns);
    next_[static_cast<std::size_t>(set) * 256 + byte] = next;
    return next;
}

}  // namespace imbrex::engine
