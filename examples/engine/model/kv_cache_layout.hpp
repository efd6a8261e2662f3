// The cache groups of a model: layers that see the same tokens share block tables, and a group with a window keeps only
// the blocks of the window (serving/block_manager.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/model/runner.hpp"
#include "engine/serving/cache_group.hpp"

namespace imbrex::engine {

struct kv_cache_layout {
    std::vector<int> windows{};  // of each group; 0: all tokens
    std::vector<int> group_of_layer{};

    int groups() const { return static_cast<int>(windows.size()); }
    int layers_of(int group) const;
};

// A window of at least the context is none.
kv_cache_layout kv_cache_layout_of(const model_config& config, int context);

// Bytes of keys and values of a token in one layer.
std::int64_t kv_token_bytes(const model_config& config, const runner_options& options);

// The groups of a runner with these options: its block manager needs them.
std::vector<cache_group> kv_cache_groups(const model_config& config, const runner_options& options);

// Entries of the block table of a sequence.
int max_blocks_per_seq(const model_config& config, const runner_options& options);

// The options with as many blocks as max_num_seqs sequences can use, in at most this many bytes; 0: no limit. A group
// with a window gets what the running sequences need, twice, so that the ends of prefixes stay cached.
runner_options with_kv_blocks(const model_config& config, runner_options options, std::int64_t bytes);

// The options with as many slots of host memory as fit in these bytes (0: none), divided between the groups as the KV
// cache is.
runner_options with_host_slots(const model_config& config, runner_options options, std::int64_t bytes);

}  // namespace imbrex::engine
