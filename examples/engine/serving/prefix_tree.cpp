#include "engine/serving/prefix_tree.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>

namespace imbrex::engine {

std::uint64_t chain_hash(std::uint64_t parent, std::span<const int> tokens) {
    std::uint64_t hash = parent + 0x9e3779b97f4a7c15u;
    for (const int token : tokens) {
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

std::uint64_t prefix_tree::hash_of(node_id parent, std::span<const int> tokens) const {
    return hash_(parent == root ? 0 : nodes_.at(parent).hash, tokens);
}

prefix_tree::node_id prefix_tree::find(node_id parent, std::uint64_t hash, std::span<const int> tokens) const {
    const auto [begin, end] = by_hash_.equal_range(hash);
    const auto hit = std::find_if(begin, end, [&](const auto& candidate) {
        const entry& it = nodes_.at(candidate.second);
        return it.parent == parent && std::ranges::equal(it.tokens, tokens);
    });
    return hit == end ? none : hit->second;
}

prefix_tree::node_id prefix_tree::find(node_id parent, std::span<const int> tokens) const {
    return find(parent, hash_of(parent, tokens), tokens);
}

prefix_tree::node_id prefix_tree::find_or_add(node_id parent, std::span<const int> tokens) {
    const std::uint64_t hash = hash_of(parent, tokens);
    const node_id there = find(parent, hash, tokens);
    if (there != none) return there;
    const std::vector<int> nowhere(static_cast<std::size_t>(groups_), no_block);
    nodes_.emplace(++last_, entry{.parent = parent,
                                  .hash = hash,
                                  .key = root_key_ ? next_key(key(parent), tokens) : content_key{},
                                  .tokens = {tokens.begin(), tokens.end()},
                                  .blocks = nowhere,
                                  .slots = nowhere});
    by_hash_.emplace(hash, last_);
    hold(parent);
    return last_;
}

disk_block prefix_tree::disk_block_of(node_id node, int group) const {
    return {.key = key(node), .parent = key(parent(node)), .group = group, .tokens = tokens(node)};
}

void prefix_tree::attach(node_id node, int group, int block) {
    int& own = nodes_.at(node).blocks[static_cast<std::size_t>(group)];
    require(own == no_block, "prefix: block ", block, " of group ", group, " has the content of block ", own);
    own = block;
    hold(node);
}

void prefix_tree::detach(node_id node, int group) {
    nodes_.at(node).blocks[static_cast<std::size_t>(group)] = no_block;
    release(node);
}

void prefix_tree::attach_slot(node_id node, int group, int slot) {
    int& own = nodes_.at(node).slots[static_cast<std::size_t>(group)];
    require(own == no_block, "prefix: slot ", slot, " of group ", group, " has the content of slot ", own);
    own = slot;
    hold(node);
}

void prefix_tree::detach_slot(node_id node, int group) {
    nodes_.at(node).slots[static_cast<std::size_t>(group)] = no_block;
    release(node);
}

void prefix_tree::hold(node_id node) {
    if (node != root) ++nodes_.at(node).uses;
}

void prefix_tree::release(node_id node) {
    while (node != root) {
        const auto found = nodes_.find(node);
        if (--found->second.uses > 0) return;
        const auto [begin, end] = by_hash_.equal_range(found->second.hash);
        by_hash_.erase(std::find_if(begin, end, [&](const auto& each) { return each.second == node; }));
        node = found->second.parent;
        nodes_.erase(found);
    }
}

}  // namespace imbrex::engine
