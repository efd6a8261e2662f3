#include "engine/serving/block_manager.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace imbrex::engine {

block_manager::block_manager(std::vector<cache_group> groups, int block_size, prefix_caching caching,
                             prefix_tree::hash_function hash)
    : groups_(std::move(groups)), block_size_(block_size), caching_(caching), hash_(hash), tree_(num_groups(), hash) {
    require(!groups_.empty(), "cache groups: none; there must be at least one");
    require(block_size >= 1, "block_size: ", block_size, "; a block must hold at least one token");
    for (const cache_group& each : groups_) {
        require(each.window >= 0, "window: ", each.window, "; it must be 0 (all tokens) or more");
        pools_.emplace_back(each.blocks);
    }
}

void block_manager::add_lower_levels(const lower_levels::options& given) {
    require(given.host_slots.size() == groups_.size(), "host slots: of ", given.host_slots.size(),
            " cache groups; the cache has ", groups_.size());
    std::vector<std::int64_t> block_bytes;
    for (const cache_group& each : groups_) block_bytes.push_back(each.block_bytes);
    lower_ = std::make_unique<lower_levels>(given, std::move(block_bytes));
    if (given.disk) tree_ = prefix_tree(num_groups(), hash_, given.root_key);
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

cached_prefix block_manager::find_cached_prefix(std::span<const int> tokens, const disk_read* files) const {
    return prefix_of(find_path(tokens, files), tokens, files);
}

std::vector<disk_block> block_manager::files_of_prefix(std::span<const int> tokens) const {
    const disk_level* const disk = lower_ ? lower_->disk() : nullptr;
    if (disk == nullptr) return {};
    const auto size = static_cast<std::size_t>(block_size_);
    const auto [path, blocks] = find_path(tokens, disk);
    std::vector<disk_block> found;
    for (int i = 0; i < num_groups(); ++i) {
        for (auto at = static_cast<std::size_t>(first_block(i, static_cast<int>(blocks * size))); at < blocks; ++at) {
            if (place_of(path[at + 1], i, disk) != cache_place::disk) continue;
            const auto own = tokens.subspan(at * size, size);
            found.push_back(
                {.key = path[at + 1].key, .parent = path[at].key, .group = i, .tokens = {own.begin(), own.end()}});
        }
    }
    return found;
}

template <class Files>
block_manager::prefix_path block_manager::find_path(std::span<const int> tokens, const Files* files) const {
    const auto size = static_cast<std::size_t>(block_size_);
    prefix_path found{.points = {{.key = tree_.key(prefix_tree::root)}}};
    if (caching_ == prefix_caching::off) return found;
    std::vector<int> unbroken(groups_.size());  // blocks without a gap up to the last point of the path
    while (found.points.size() * size < tokens.size()) {
        const auto next =
            next_point(found.points.back(), tokens.subspan((found.points.size() - 1) * size, size), files);
        if (!next) break;
        const int blocks = static_cast<int>(found.points.size());
        found.points.push_back(*next);
        bool is_hit = true;
        for (int i = 0; i < num_groups(); ++i) {
            int& own = unbroken[static_cast<std::size_t>(i)];
            own = place_of(*next, i, files) == cache_place::nowhere ? 0 : own + 1;
            is_hit = is_hit && own >= blocks - first_block(i, blocks * block_size_);
        }
        if (is_hit) found.blocks = static_cast<std::size_t>(blocks);
    }
    return found;
}

template <class Files>
std::optional<block_manager::prefix_point> block_manager::next_point(const prefix_point& from,
                                                                     std::span<const int> tokens,
                                                                     const Files* files) const {
    const auto node = from.node == prefix_tree::none ? prefix_tree::none : tree_.find(from.node, tokens);
    if (node != prefix_tree::none) return prefix_point{.node = node, .key = tree_.key(node)};
    if (files == nullptr) return {};
    const prefix_point below{.node = prefix_tree::none, .key = next_key(from.key, tokens)};
    return files->has_any(below.key) ? std::optional(below) : std::nullopt;
}

template <class Files>
block_manager::cache_place block_manager::place_of(const prefix_point& at, int group, const Files* files) const {
    if (at.node != prefix_tree::none) {
        if (tree_.block(at.node, group) != no_block) return cache_place::kv_cache;
        if (tree_.slot(at.node, group) != no_block) return cache_place::host;
    }
    return files != nullptr && files->has(at.key, group) ? cache_place::disk : cache_place::nowhere;
}

cached_prefix block_manager::prefix_of(const prefix_path& path, std::span<const int> tokens,
                                       const disk_read* files) const {
    const auto& [points, blocks] = path;
    const int length = static_cast<int>(blocks) * block_size_;
    cached_prefix found{.tokens = length};
    std::vector<cache_place> lowest(blocks, cache_place::kv_cache);
    found.table.groups.assign(groups_.size(), std::vector<int>(blocks, no_block));
    for (int i = 0; i < num_groups(); ++i) {
        std::vector<int>& table = found.table.groups[static_cast<std::size_t>(i)];
        for (auto at = static_cast<std::size_t>(first_block(i, length)); at < blocks; ++at) {
            const prefix_point& point = points[at + 1];
            const cache_place place = place_of(point, i, files);
            lowest[at] = std::max(lowest[at], place);
            if (place == cache_place::kv_cache) {
                table[at] = tree_.block(point.node, i);
            } else if (place == cache_place::host) {
                found.loads.push_back({.group = i, .index = static_cast<int>(at), .slot = tree_.slot(point.node, i)});
            } else {
                found.loads.push_back(
                    {.group = i, .index = static_cast<int>(at), .data = files->content(point.key, i)});
            }
        }
    }
    found.table.cached = static_cast<int>(blocks);
    found.host_tokens = static_cast<int>(std::ranges::count(lowest, cache_place::host)) * block_size_;
    found.disk_tokens = static_cast<int>(std::ranges::count(lowest, cache_place::disk)) * block_size_;
    std::size_t known = blocks;
    while (points[known].node == prefix_tree::none) --known;
    found.table.node = points[known].node;
    const auto size = static_cast<std::size_t>(block_size_);
    const auto unknown = tokens.subspan(known * size, (blocks - known) * size);
    found.unknown_tokens.assign(unknown.begin(), unknown.end());
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
        const auto loaded = std::ranges::count(known.loads, i, &prefix_load::group);
        const int all = blocks_for(length);
        const int held = group(i).window == 0 ? all : std::min(all, first_block(i, known.tokens) + blocks_of_window(i));
        if (held - known.tokens / block_size_ + static_cast<int>(idle + loaded) + spare > pool(i).num_free())
            return false;
    }
    return true;
}

block_table block_manager::start(const cached_prefix& known, std::vector<block_copy>& copies) {
    block_table made = known.table;
    for (std::span<const int> left = known.unknown_tokens; !left.empty();) {
        const auto size = static_cast<std::size_t>(block_size_);
        made.node = tree_.find_or_add(made.node, left.first(size));
        left = left.subspan(size);
    }
    tree_.hold(made.node);
    for (int i = 0; i < num_groups(); ++i) {
        for (const int block : made.groups[static_cast<std::size_t>(i)]) {
            if (block != no_block) pool_of(i).add_reference(block);
        }
    }
    load(known, made);
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

// Each block may take the place of one that is saved, and the saves must leave the sources of the loads alone.
void block_manager::load(const cached_prefix& known, block_table& made) {
    for (const prefix_load& each : known.loads) {
        if (each.slot != no_block) lower_->pin(each.group, each.slot);
    }
    std::vector<prefix_tree::node_id> nodes(static_cast<std::size_t>(made.cached));
    prefix_tree::node_id node = made.node;
    for (std::size_t i = nodes.size(); i-- > 0; node = tree_.parent(node)) nodes[i] = node;
    for (const prefix_load& each : known.loads) {
        node = nodes[static_cast<std::size_t>(each.index)];
        const int block = allocate(each.group);
        made.groups[static_cast<std::size_t>(each.group)][static_cast<std::size_t>(each.index)] = block;
        pool_of(each.group).set_content(block, node);
        tree_.attach(node, each.group, block);
        lower_->load(each.group, block, each.slot, each.data);
    }
}

void block_manager::finish(const block_moves& done) {
    if (lower_) lower_->finish(tree_, done);
}

void block_manager::abandon(const block_moves& failed) {
    if (!lower_) return;
    for (const block_load& one : failed.loads) {
        tree_.detach(pool(one.group).content(one.block), one.group);
        pool_of(one.group).set_content(one.block, prefix_tree::root);
    }
    lower_->abandon(tree_, failed);
}

void block_manager::save_cached() {
    if (!lower_ || lower_->disk() == nullptr) return;
    for (int group = 0; group < num_groups(); ++group) {
        for (const int block : pool(group).free_blocks()) {
            const prefix_tree::node_id node = pool(group).content(block);
            if (node != prefix_tree::root) lower_->save_for_disk(tree_, node, group, block);
        }
    }
}

int block_manager::capacity(const block_table& table) const {
    if (table.groups.empty()) return 0;
    std::size_t blocks = table.groups.front().size();
    for (const std::vector<int>& each : table.groups) blocks = std::min(blocks, each.size());
    return static_cast<int>(blocks) * block_size_;
}

int block_manager::allocate(int group) {
    const int taken = pool_of(group).allocate();
    if (is_cached(group, taken)) {
        const prefix_tree::node_id node = pool(group).content(taken);
        if (lower_) lower_->save(tree_, node, group, taken);
        tree_.detach(node, group);
    }
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
