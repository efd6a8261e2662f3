// The levels of the prefix cache below the KV cache: host memory and files.
//
//   KV cache   --- save: the block is about to be reallocated -->   slot   --- write, in the background -->   file
//              <-- load: a prompt begins with its tokens -------           |
//              <-- load ------------------------------------------------------------------------------------
//
// A block that was loaded keeps its slot and its file, so that its next eviction copies nothing. A slot is written as
// soon as it is filled and may be replaced at any time; a block that was not written by then is lost.
//
// This class decides and records moves; the runner makes them with the next batch (block_moves.hpp). Slots that take
// part in them are pinned until the batch has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/cache/disk_level.hpp"
#include "engine/cache/host_level.hpp"
#include "engine/cache/level_counts.hpp"
#include "engine/serving/block_moves.hpp"
#include "engine/serving/prefix_tree.hpp"

namespace imbrex::engine {

class lower_levels {
  public:
    struct options {
        std::vector<int> host_slots{};  // of each cache group
        cache_policy policy = cache_policy::lru;
        std::shared_ptr<disk_level> disk{};  // or null
        block_store* store = nullptr;        // for the disk: where the slots are
        content_key root_key{};              // for the disk: of the model
        // Host memory for blocks from files that wait for their sequence to start. One sequence may exceed it.
        std::int64_t most_read_bytes = std::int64_t{1} << 30;
    };

    // The bytes of a block of each cache group.
    lower_levels(const options& given, std::vector<std::int64_t> block_bytes);
    lower_levels(const lower_levels&) = delete;
    lower_levels& operator=(const lower_levels&) = delete;
    ~lower_levels();

    // The content of the node's block leaves the KV cache.
    void save(prefix_tree& tree, prefix_tree::node_id node, int group, int block);
    // The same at the end of a process, for a block that has no file yet: only if a slot can take it without a loss. Each
    // node is saved once.
    void save_for_disk(prefix_tree& tree, prefix_tree::node_id node, int group, int block);
    // The block gets the content of this slot, or the bytes of a file. The sources of all loads of a prefix are pinned
    // before the first save could evict one.
    void pin(int group, int slot) { host_.pin(group, slot); }
    void load(int group, int block, int slot, disk_content data);

    // The moves since the last call, for the next batch.
    block_moves take_moves();
    // The batch with these moves has ended. If it failed, its saves are forgotten.
    void finish(const prefix_tree& tree, const block_moves& done);
    void abandon(prefix_tree& tree, const block_moves& failed);

    // Begins to read files into host memory; null while others take too much of it.
    std::shared_ptr<disk_read> read(const std::vector<disk_block>& blocks);

    const host_level& host() const { return host_; }
    disk_level* disk() const { return options_.disk.get(); }
    level_counts host_counts() const;

  private:
    std::optional<int> free_slot(prefix_tree& tree, int group);
    void unpin(const block_moves& past);
    std::int64_t bytes(int group) const { return block_bytes_[static_cast<std::size_t>(group)]; }

    static disk_level::ticket ticket_of(int group, int slot) { return std::int64_t{group} << 32 | slot; }

    options options_;
    std::vector<std::int64_t> block_bytes_;
    host_level host_;
    block_moves pending_;
    level_counts counts_;  // of host memory
    std::set<std::pair<prefix_tree::node_id, int>> saved_at_end_;
    std::vector<std::weak_ptr<disk_read>> reads_;
};

}  // namespace imbrex::engine
