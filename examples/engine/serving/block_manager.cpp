#include "engine/serving/block_manager.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace imbrex::engine {

block_manager::block_manager(std::vector<cache_group> groups, int block_size, prefix_caching caching,
                             prefix_tree::hash_function hash)
    : groups_(std::move(groups)), block_size_(block_size), caching_(caching), tree_(num_groups(), hash) {
    require(!groups_.empty(), "cache groups: none; there must be at least one");
    require(block_size >= 1, "block_size: ", block_size, "; a block must hold at least one token");
    for (const cache_group& each : groups_) {
        require(each.window >= 0, "window: ", each.window, "; it must be 0 (all tokens) or more");
        pools_.emplace_back(each.blocks);
    }
}

std::int64_t block_manager::bytes() const {
    std::int64_t all = 0;
    for (const cache_group& each : groups_) all += each.blocks * each.block_bytes;
    return all;
}

std::int64_t block_manager::used_bytes() const {
    std::int64_t all = 0;
    for (int i = 0; i < num_groups(); ++i) all += pool(i).num_used() * group(i).block_bytes;
    return all;
}

int block_manager::min_free() const {
    return std::ranges::min_element(pools_, {}, &block_pool::num_free)->num_free();
}

std::int64_t block_manager::max_sequence_tokens() const {
    std::int64_t most = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < num_groups(); ++i) {
        if (group(i).window > 0 && group(i).blocks >= blocks_of_window(i)) continue;
        // The last token is returned, but never computed.
        most = std::min(most, std::int64_t{group(i).blocks} * block_size_ + 1);
    }
    return most;
}

// The window of one token more: a fork recomputes the last token of its parent.
int block_manager::first_block(int group, int computed) const {
    const int window = this->group(group).window;
    return window == 0 ? 0 : std::max(computed - window, 0) / block_size_;
}

int block_manager::blocks_of_window(int group) const {
    return blocks_for(this->group(group).window) + 1;
}

cached_prefix block_manager::find_cached_prefix(std::span<const int> tokens) const {
    cached_prefix found;
    found.table.groups.resize(groups_.size());
    if (caching_ == prefix_caching::off || tokens.empty()) return found;
    const auto size = static_cast<std::size_t>(block_size_);
    std::vector<prefix_tree::node_id> path;
    std::vector<int> unbroken(groups_.size());  // blocks without a gap up to the last node of the path
    while ((path.size() + 1) * size < tokens.size()) {
        const auto node =
            tree_.find(path.empty() ? prefix_tree::root : path.back(), tokens.subspan(path.size() * size, size));
        if (node == prefix_tree::none) break;
        path.push_back(node);
        const int blocks = static_cast<int>(path.size());
        bool is_hit = true;
        for (int i = 0; i < num_groups(); ++i) {
            int& own = unbroken[static_cast<std::size_t>(i)];
            own = tree_.block(node, i) == no_block ? 0 : own + 1;
            is_hit = is_hit && own >= blocks - first_block(i, blocks * block_size_);
        }
        if (!is_hit) continue;
        found.tokens = blocks * block_size_;
        found.table.node = node;
        found.table.cached = blocks;
    }
    for (int i = 0; i < num_groups(); ++i) {
        std::vector<int>& table = found.table.groups[static_cast<std::size_t>(i)];
        table.resize(static_cast<std::size_t>(found.table.cached), no_block);
        for (auto at = static_cast<std::size_t>(first_block(i, found.tokens)); at < table.size(); ++at)
            table[at] = tree_.block(path[at], i);
    }
    return found;
}

std::optional<cached_prefix> block_manager::shared_prefix(const block_table& of, int tokens) const {
    cached_prefix found{.tokens = tokens, .table = of};
    found.table.groups.resize(groups_.size());
    for (int i = 0; i < num_groups(); ++i) {
        std::vector<int>& table = found.table.groups[static_cast<std::size_t>(i)];
        if (static_cast<int>(table.size()) < blocks_for(tokens)) return std::nullopt;
        table.resize(static_cast<std::size_t>(blocks_for(tokens)));
        const auto needed = table.begin() + std::min(first_block(i, tokens), blocks_for(tokens));
        if (std::find(needed, table.end(), no_block) != table.end()) return std::nullopt;
        std::fill(table.begin(), needed, no_block);
    }
    for (; found.table.cached > tokens / block_size_; --found.table.cached)
        found.table.node = tree_.parent(found.table.node);
    return found;
}

bool block_manager::can_start(const cached_prefix& known, int length, int spare) const {
    for (int i = 0; i < num_groups(); ++i) {
        const auto idle = std::ranges::count_if(known.table.groups[static_cast<std::size_t>(i)], [&](int block) {
            return block != no_block && pool(i).ref_count(block) == 0;
        });
        const int all = blocks_for(length);
        const int held = group(i).window == 0 ? all : std::min(all, first_block(i, known.tokens) + blocks_of_window(i));
        if (held - known.tokens / block_size_ + static_cast<int>(idle) + spare > pool(i).num_free()) return false;
    }
    return true;
}

block_table block_manager::start(const cached_prefix& known, std::vector<block_copy>& copies) {
    block_table made = known.table;
    tree_.hold(made.node);
    for (int i = 0; i < num_groups(); ++i) {
        for (const int block : made.groups[static_cast<std::size_t>(i)]) {
            if (block != no_block) pool_of(i).add_reference(block);
        }
    }
    if (known.tokens % block_size_ != 0) {
        for (int i = 0; i < num_groups(); ++i) {
            int& written = made.groups[static_cast<std::size_t>(i)].back();
            if (pool(i).ref_count(written) == 1 && !is_cached(i, written)) continue;
            copies.push_back({.from = written, .to = allocate(i), .group = i});
            written = copies.back().to;
        }
    }
    return made;
}

int block_manager::capacity(const block_table& table) const {
    if (table.groups.empty()) return 0;
    std::size_t blocks = table.groups.front().size();
    for (const std::vector<int>& each : table.groups) blocks = std::min(blocks, each.size());
    return static_cast<int>(blocks) * block_size_;
}

int block_manager::allocate(int group) {
    const int taken = pool_of(group).allocate();
    if (is_cached(group, taken)) tree_.detach(pool(group).content(taken), group);
    pool_of(group).set_content(taken, prefix_tree::root);
    return taken;
}

bool block_manager::extend_group(int group, block_table& table, int tokens) {
    table.groups.resize(groups_.size());
    std::vector<int>& own = table.groups[static_cast<std::size_t>(group)];
    while (static_cast<int>(own.size()) < blocks_for(tokens)) {
        if (pool(group).num_free() == 0) return false;
        own.push_back(allocate(group));
    }
    return true;
}

bool block_manager::extend(block_table& table, int tokens) {
    bool enough = true;
    for (int i = 0; i < num_groups(); ++i) enough = extend_group(i, table, tokens) && enough;
    return enough;
}

bool block_manager::extend_full(block_table& table, int tokens) {
    bool enough = true;
    for (int i = 0; i < num_groups(); ++i) enough = (group(i).window > 0 || extend_group(i, table, tokens)) && enough;
    return enough;
}

void block_manager::cache_full_blocks(block_table& table, std::span<const int> tokens, int computed) {
    if (caching_ == prefix_caching::off) return;
    for (; table.cached < computed / block_size_; ++table.cached) {
        const auto node =
            tree_.find_or_add(table.node, tokens.subspan(static_cast<std::size_t>(table.cached * block_size_),
                                                         static_cast<std::size_t>(block_size_)));
        tree_.hold(node);
        tree_.release(std::exchange(table.node, node));
        for (int i = 0; i < num_groups(); ++i)
            cache_block(i, table.groups[static_cast<std::size_t>(i)][static_cast<std::size_t>(table.cached)], node);
    }
}

void block_manager::cache_block(int group, int& block, prefix_tree::node_id node) {
    if (block == no_block) return;
    const int same = tree_.block(node, group);
    if (same == no_block) {
        require(!is_cached(group, block), "block ", block, " was written while in the prefix cache; a copy was needed");
        pool_of(group).set_content(block, node);
        tree_.attach(node, group, block);
    } else if (same != block) {
        pool_of(group).add_reference(same);
        pool_of(group).free(std::exchange(block, same));
    }
}

void block_manager::free_behind_windows(block_table& table, int computed) {
    for (int i = 0; i < num_groups(); ++i) {
        std::vector<int>& own = table.groups[static_cast<std::size_t>(i)];
        const auto end = own.begin() + first_block(i, computed);
        auto first = end;
        while (first != own.begin() && *(first - 1) != no_block) --first;
        for (; first != end; ++first) pool_of(i).free(std::exchange(*first, no_block));  // the oldest is reused first
    }
}

void block_manager::free(block_table& table) {
    for (std::size_t i = 0; i < table.groups.size(); ++i) {
        // A cached block is useless without its prefix: the last block of a table is reallocated first.
        for (std::vector<int>& own = table.groups[i]; !own.empty(); own.pop_back()) {
            if (own.back() != no_block) pool_of(static_cast<int>(i)).free(own.back());
        }
    }
    tree_.release(table.node);
    table = {};
}

}  // namespace imbrex::engine
