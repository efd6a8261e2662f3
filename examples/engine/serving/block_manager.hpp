// The block manager of the paged KV cache: block tables, reference counts, prefix caching and copy-on-write.
//
// Layers that see the same tokens form a cache group, with its own pool of blocks and its own block table. In a group
// with a window of W tokens a sequence holds the blocks of its last W tokens only; the others are reused.
//
//   tokens                | a b c d | e f g h | i j k l | m n            block_size 4, window 5
//   table, all tokens     |    3    |    8    |    5    |  1
//   table, window         |    -    |    2    |    7    |  4             the next query sees k l m n and itself
//
// A block whose reference count drops to 0 keeps its content. A sequence that starts with the same tokens finds it
// again, until the block is reallocated (prefix_tree.hpp). A prefix is a hit if each group has the blocks that the next
// token needs. Blocks that are full and computed enter the prefix cache, so allocated but uncomputed blocks are never
// hits. Blocks of the prefix cache, and blocks with several holders, are never written: a sequence gets a copy.
//
// With lower levels, a cached block that is reallocated is saved first, and a prefix may have blocks there: start loads
// them (lower_levels.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/serving/block_moves.hpp"
#include "engine/serving/block_pool.hpp"
#include "engine/serving/block_table.hpp"
#include "engine/serving/cache_group.hpp"
#include "engine/serving/lower_levels.hpp"
#include "engine/serving/prefix_tree.hpp"

namespace imbrex::engine {

enum class prefix_caching { off, on };

// A block that has to be loaded from a lower level: from its slot, or from what was read of its file.
struct prefix_load {
    int group = 0, index = 0;  // in the table
    int slot = no_block;
    disk_content data{};
};

// Leading tokens of a sequence that are in the cache. Nothing holds the blocks yet.
struct cached_prefix {
    int tokens = 0;
    int host_tokens = 0, disk_tokens = 0;  // of these, in blocks that have to be loaded from there
    block_table table{};                   // its node is the last one that the prefix tree knows
    std::vector<int> unknown_tokens{};     // of the blocks after that node: they are in files
    std::vector<prefix_load> loads{};
};

class block_manager {
  public:
    explicit block_manager(std::vector<cache_group> groups, int block_size = 16,
                           prefix_caching caching = prefix_caching::on, prefix_tree::hash_function hash = chain_hash);
    // Evicted blocks of the prefix cache move to lower levels. Call it before anything is cached.
    void add_lower_levels(const lower_levels::options& given);
    // One group without a window.
    explicit block_manager(int count, int block_size = 16, prefix_caching caching = prefix_caching::on,
                           prefix_tree::hash_function hash = chain_hash)
        : block_manager(std::vector{cache_group{.blocks = count}}, block_size, caching, hash) {}
    block_manager(block_manager&&) = default;
    block_manager& operator=(block_manager&&) = default;

    int num_groups() const { return static_cast<int>(groups_.size()); }
    const cache_group& group(int number) const { return groups_[static_cast<std::size_t>(number)]; }
    const block_pool& pool(int group) const { return pools_[static_cast<std::size_t>(group)]; }
    int block_size() const { return block_size_; }
    int min_free() const;  // free blocks of the group that has the fewest
    int blocks_for(int tokens) const { return (tokens + block_size_ - 1) / block_size_; }
    std::int64_t bytes() const;
    std::int64_t used_bytes() const;
    // The longest sequence that fits when it is alone. Tokens behind a window need no block.
    std::int64_t max_sequence_tokens() const;

    // The longest prefix of these tokens that is cached. The last token is never included: it must be computed to get
    // logits. Of the blocks in files, those count that were read.
    cached_prefix find_cached_prefix(std::span<const int> tokens, const disk_read* files = nullptr) const;
    // Files with blocks of the longest prefix that there is with them.
    std::vector<disk_block> files_of_prefix(std::span<const int> tokens) const;
    // Begins to read them in the background; null while other reads take too much memory. A damaged file is then no hit.
    std::shared_ptr<disk_read> read_files(const std::vector<disk_block>& files) { return lower_->read(files); }
    // The first tokens of another sequence, which has computed them; nothing if it no longer has the blocks of a window.
    std::optional<cached_prefix> shared_prefix(const block_table& of, int tokens) const;

    // Whether a sequence of this length can start after the prefix and leave `spare` blocks free.
    bool can_start(const cached_prefix& known, int length, int spare) const;
    // The table of a sequence that starts after the prefix, with blocks for its next token. Loads blocks from lower
    // levels. Copies a block that the sequence would write; the copy holds the reference to the old block: release it after the copy is made.
    block_table start(const cached_prefix& known, std::vector<block_copy>& copies);
    void release(const block_copy& copy) { pool_of(copy.group).free(copy.from); }

    // Tokens for which the table has blocks: a sequence can compute up to these.
    int capacity(const block_table& table) const;
    // Allocates blocks for this many tokens, as far as there are free ones. Returns whether there were enough.
    bool extend(block_table& table, int tokens);
    // The same in groups without a window, which reserve blocks for a prompt at once, and in the others.
    bool extend_full(block_table& table, int tokens);

    // `computed` tokens are computed. Full blocks enter the prefix cache; a duplicate of a cached block is replaced by
    // that block.
    void cache_full_blocks(block_table& table, std::span<const int> tokens, int computed);
    // Frees blocks behind the windows.
    void free_behind_windows(block_table& table, int computed);
    void free(block_table& table);  // releases all blocks and clears the table

    // Moves to and from lower levels since the last call: pass them to the runner with the next batch, and back when it
    // has ended. Loaded blocks of a failed batch leave the prefix cache; its sequences must be freed.
    block_moves take_moves() { return lower_ ? lower_->take_moves() : block_moves{}; }
    void finish(const block_moves& done);
    void abandon(const block_moves& failed);
    // Saves blocks of the prefix cache that have no file, the oldest first, as many as there are slots.
    void save_cached();
    const lower_levels* lower() const { return lower_.get(); }

    bool is_cached(int group, int block) const { return pool(group).content(block) != prefix_tree::root; }

  private:
    block_pool& pool_of(int group) { return pools_[static_cast<std::size_t>(group)]; }
    // The first block that a sequence with this many computed tokens keeps.
    int first_block(int group, int computed) const;
    // Blocks that a sequence needs at once in a group with a window.
    int blocks_of_window(int group) const;
    int allocate(int group);

    // A place in the prefix tree, or below it: blocks that are known from files alone.
    struct prefix_point {
        prefix_tree::node_id node = prefix_tree::root;  // or none
        content_key key{};
    };
    enum class cache_place { nowhere, kv_cache, host, disk };
    // The prefix in blocks, and the path to it. Files is a disk_level or a disk_read: what it has counts; or null.
    struct prefix_path {
        std::vector<prefix_point> points{};  // points[i + 1] is where block i ends
        std::size_t blocks = 0;              // of the prefix
    };
    template <class Files>
    prefix_path find_path(std::span<const int> tokens, const Files* files) const;
    template <class Files>
    std::optional<prefix_point> next_point(const prefix_point& from, std::span<const int> tokens,
                                           const Files* files) const;
    template <class Files>
    cache_place place_of(const prefix_point& at, int group, const Files* files) const;
    cached_prefix prefix_of(const prefix_path& path, std::span<const int> tokens, const disk_read* files) const;
    void load(const cached_prefix& known, block_table& made);
    bool extend_group(int group, block_table& table, int tokens);
    void cache_block(int group, int& block, prefix_tree::node_id node);

    std::vector<cache_group> groups_;
    std::vector<block_pool> pools_;
    int block_size_;
    prefix_caching caching_;
    prefix_tree::hash_function hash_;
    prefix_tree tree_;
    std::unique_ptr<lower_levels> lower_;
};

}  // namespace imbrex::engine
