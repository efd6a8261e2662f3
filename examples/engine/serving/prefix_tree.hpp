// The prefixes that are in the KV cache, as a tree: a node stands for the tokens of one full block after those of its
// parent, and names the block that holds them in each cache group, if there is one.
//
//   tokens    | a b c d | e f g h | i j
//   node      |    7    |    9    |           ids are never reused: 9 means "e f g h after node 7"
//   hash      | h(0,..) | h(h7,..)|           finds candidates; a hit needs equal parent and tokens
//
// A node lives as long as it has a block, a child or a sequence that ends in it: groups lose their blocks at different
// times, and a path from the root must remain.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/serving/block_table.hpp"

namespace imbrex::engine {

std::uint64_t chain_hash(std::uint64_t parent, std::span<const int> tokens);

class prefix_tree {
  public:
    using node_id = std::int64_t;
    using hash_function = std::uint64_t (*)(std::uint64_t parent, std::span<const int> tokens);
    static constexpr node_id root = 0, none = -1;

    prefix_tree(int groups, hash_function hash) : groups_(groups), hash_(hash) {}

    node_id find(node_id parent, std::span<const int> tokens) const;   // none if it does not exist
    node_id find_or_add(node_id parent, std::span<const int> tokens);  // hold it, or give it a block
    node_id parent(node_id node) const { return node == root ? root : nodes_.at(node).parent; }
    int block(node_id node, int group) const { return nodes_.at(node).blocks[static_cast<std::size_t>(group)]; }

    // The node has this block in the group, and had none; the node loses its block.
    void attach(node_id node, int group, int block);
    void detach(node_id node, int group);
    // A sequence ends in the node.
    void hold(node_id node);
    void release(node_id node);

  private:
    struct entry {
        node_id parent = root;
        std::uint64_t hash = 0;
        int uses = 0;  // blocks, children and sequences
        std::vector<int> tokens{};
        std::vector<int> blocks{};  // one per group
    };

    std::uint64_t hash_of(node_id parent, std::span<const int> tokens) const;
    node_id find(node_id parent, std::uint64_t hash, std::span<const int> tokens) const;

    int groups_;
    hash_function hash_;
    node_id last_ = root;
    std::unordered_map<node_id, entry> nodes_;
    std::unordered_multimap<std::uint64_t, node_id> by_hash_;
};

}  // namespace imbrex::engine
