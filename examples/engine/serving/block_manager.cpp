#include "engine/serving/block_manager.hpp"

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

block_manager::block_manager(int count, int block_size, prefix_caching caching, hash_function hash)
    : block_size_(block_size), caching_(caching), hash_(hash) {
    require(count >= 1, "blocks: ", count, "; there must be at least one");
    require(block_size >= 1, "block_size: ", block_size, "; a block must hold at least one token");
    blocks_.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) at(i).free_position = free_.insert(free_.end(), i);
}

const block_manager::block& block_manager::at(int block) const {
    require(block >= 0 && block < count(), "block: ", block, "; there are ", count());
    return blocks_[static_cast<std::size_t>(block)];
}

std::vector<int> block_manager::find_cached_prefix(std::span<const int> tokens) const {
    std::vector<int> found;
    if (caching_ == prefix_caching::off || tokens.empty()) return found;
    const auto size = static_cast<std::size_t>(block_size_);
    std::int64_t parent = 0;
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < (tokens.size() - 1) / size; ++i) {
        const auto wanted = tokens.subspan(i * size, size);
        hash = hash_(hash, wanted);
        const int hit = find_content(parent, hash, wanted);
        if (hit < 0) break;
        found.push_back(hit);
        parent = at(hit).content;
    }
    return found;
}

int block_manager::find_content(std::int64_t parent, std::uint64_t hash, std::span<const int> tokens) const {
    const auto [begin, end] = by_hash_.equal_range(hash);
    const auto hit = std::find_if(begin, end, [&](const auto& candidate) {
        const block& it = at(candidate.second);
        return it.parent == parent && std::ranges::equal(it.tokens, tokens);
    });
    return hit == end ? -1 : hit->second;
}

int block_manager::allocate() {
    require(!free_.empty(), "blocks: all ", count(), " are held; release one before allocating another");
    const int taken = free_.front();
    evict(taken);
    add_reference(taken);
    return taken;
}

void block_manager::add_reference(int shared) {
    block& it = at(shared);
    if (it.ref_count++ == 0) free_.erase(it.free_position);
}

void block_manager::free(int released) {
    block& it = at(released);
    require(it.ref_count > 0, "block ", released, " is released more often than it was allocated");
    if (--it.ref_count > 0) return;
    it.free_position = free_.insert(it.content == 0 ? free_.begin() : free_.end(), released);
}

void block_manager::free(std::vector<int>& table) {
    // A cached block is useless without its prefix: the last block of a table is reallocated first.
    for (; !table.empty(); table.pop_back()) free(table.back());
}

std::optional<block_copy> block_manager::copy_on_write(int& written) {
    if (ref_count(written) == 1 && !is_cached(written)) return std::nullopt;
    const block_copy copy{.from = written, .to = allocate()};
    written = copy.to;
    return copy;
}

void block_manager::cache_full_blocks(std::vector<int>& table, std::span<const int> tokens, int first, int last) {
    if (caching_ == prefix_caching::off) return;
    const auto size = static_cast<std::size_t>(block_size_);
    for (auto i = static_cast<std::size_t>(first) / size; i < static_cast<std::size_t>(last) / size; ++i) {
        static const block nothing;
        const block& before = i == 0 ? nothing : at(table[i - 1]);
        if (i > 0 && before.content == 0) return;  // a block outside the prefix cache cannot be a parent
        const auto held = tokens.subspan(i * size, size);
        const std::uint64_t hash = hash_(before.hash, held);
        const int same = find_content(before.content, hash, held);
        if (same >= 0) {
            add_reference(same);
            free(table[i]);
            table[i] = same;
        } else {
            block& it = at(table[i]);
            require(it.content == 0, "block ", table[i],
                    " was written while in the prefix cache; copy_on_write gives a copy");
            it.content = ++contents_;
            it.parent = before.content;
            it.hash = hash;
            it.tokens.assign(held.begin(), held.end());
            by_hash_.emplace(hash, table[i]);
        }
    }
}

void block_manager::evict(int evicted) {
    block& it = at(evicted);
    if (it.content == 0) return;
    const auto [begin, end] = by_hash_.equal_range(it.hash);
    by_hash_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == evicted; }));
    it.content = 0;
}

}  // namespace imbrex::engine
