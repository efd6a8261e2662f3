// The prefixes that are in the KV cache or in host memory, as a tree: a node stands for the tokens of one full block
// after those of its parent, and names the block and the slot of host memory that hold them in each cache group, if
// there are any.
//
//   tokens    | a b c d | e f g h | i j
//   node      |    7    |    9    |           ids are never reused: 9 means "e f g h after node 7"
//   hash      | h(0,..) | h(h7,..)|           finds candidates; a hit needs equal parent and tokens
//
// A node lives as long as it has a block, a slot, a child or a sequence that ends in it: groups lose their blocks at
// different times, and a path from the root must remain. With a root key, nodes have keys that hold beyond the process
// (cache/content_key.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/cache/content_key.hpp"
#include "engine/cache/disk_entry.hpp"
#include "engine/serving/block_table.hpp"

namespace imbrex::engine {

std::uint64_t chain_hash(std::uint64_t parent, std::span<const int> tokens);

class prefix_tree {
  public:
    using node_id = std::int64_t;
    using hash_function = std::uint64_t (*)(std::uint64_t parent, std::span<const int> tokens);
    static constexpr node_id root = 0, none = -1;

    prefix_tree(int groups, hash_function hash, std::optional<content_key> root_key = {})
        : groups_(groups), hash_(hash), root_key_(root_key) {}

    node_id find(node_id parent, std::span<const int> tokens) const;   // none if it does not exist
    node_id find_or_add(node_id parent, std::span<const int> tokens);  // hold it, or give it a block
    node_id parent(node_id node) const { return node == root ? root : nodes_.at(node).parent; }
    const std::vector<int>& tokens(node_id node) const { return nodes_.at(node).tokens; }
    // All zero without a root key.
    content_key key(node_id node) const {
        return node == root ? root_key_.value_or(content_key{}) : nodes_.at(node).key;
    }

    disk_block disk_block_of(node_id node, int group) const;

    // In the KV cache, and in host memory; no_block if it is not there.
    int block(node_id node, int group) const { return nodes_.at(node).blocks[static_cast<std::size_t>(group)]; }
    int slot(node_id node, int group) const { return nodes_.at(node).slots[static_cast<std::size_t>(group)]; }

    // The node has this block in the group, and had none; the node loses its block.
    void attach(node_id node, int group, int block);
    void detach(node_id node, int group);
    void attach_slot(node_id node, int group, int slot);
    void detach_slot(node_id node, int group);
    // A sequence ends in the node.
    void hold(node_id node);
    void release(node_id node);

  private:
    struct entry {
        node_id parent = root;
        std::uint64_t hash = 0;
        content_key key{};
        int uses = 0;  // blocks, slots, children and sequences
        std::vector<int> tokens{};
        std::vector<int> blocks{}, slots{};  // one per group
    };

    std::uint64_t hash_of(node_id parent, std::span<const int> tokens) const;
    node_id find(node_id parent, std::uint64_t hash, std::span<const int> tokens) const;

    int groups_;
    hash_function hash_;
    std::optional<content_key> root_key_;
    node_id last_ = root;
    std::unordered_map<node_id, entry> nodes_;
    std::unordered_multimap<std::uint64_t, node_id> by_hash_;
};

}  // namespace imbrex::engine
