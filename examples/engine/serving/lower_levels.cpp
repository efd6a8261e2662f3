#include "engine/serving/lower_levels.hpp"

#include <imbrex/core/error.hpp>

#include <cstddef>
#include <utility>

namespace imbrex::engine {

lower_levels::lower_levels(const options& given, std::vector<std::int64_t> block_bytes)
    : options_(given), block_bytes_(std::move(block_bytes)), host_(given.host_slots, given.policy) {
    require(!given.disk || given.store != nullptr, "store: null; the disk level reads the slots of one");
    for (std::size_t i = 0; i < given.host_slots.size(); ++i)
        counts_.capacity_bytes += given.host_slots[i] * block_bytes_[i];
}

// The thread of the disk level reads slots.
lower_levels::~lower_levels() {
    if (!options_.disk) return;
    for (int group = 0; group < static_cast<int>(block_bytes_.size()); ++group) {
        for (int slot = 0; slot < host_.slots(group); ++slot) {
            if (!options_.disk->cancel(ticket_of(group, slot))) options_.disk->flush();
        }
    }
}

std::optional<int> lower_levels::free_slot(prefix_tree& tree, int group) {
    const auto slot = host_.find_slot(
        group, [&](int each) { return !options_.disk || options_.disk->cancel(ticket_of(group, each)); });
    if (!slot) return slot;
    if (const prefix_tree::node_id old = host_.at(group, *slot).node; old != prefix_tree::root) {
        host_.clear(group, *slot, true);
        tree.detach_slot(old, group);
        ++counts_.evicted_blocks;
    }
    return slot;
}

void lower_levels::save(prefix_tree& tree, prefix_tree::node_id node, int group, int block) {
    if (const int there = tree.slot(node, group); there != no_block) return host_.use(group, there);
    const auto slot = free_slot(tree, group);
    if (!slot) {
        ++counts_.lost_blocks;
        return;
    }
    host_.fill(group, *slot, node);
    host_.pin(group, *slot);
    tree.attach_slot(node, group, *slot);
    pending_.saves.push_back({.group = group, .block = block, .slot = *slot});
    ++counts_.saved_blocks;
    counts_.saved_bytes += bytes(group);
}

void lower_levels::save_for_disk(prefix_tree& tree, prefix_tree::node_id node, int group, int block) {
    if (!options_.disk->writes() || tree.slot(node, group) != no_block) return;
    if (options_.disk->has(tree.key(node), group) || !host_.find_slot(group, [](int) { return true; })) return;
    if (saved_at_end_.emplace(node, group).second) save(tree, node, group, block);
}

void lower_levels::load(int group, int block, int slot, disk_content data) {
    pending_.loads.push_back({.group = group, .block = block, .slot = slot, .data = std::move(data)});
    if (slot == no_block) return;
    host_.use(group, slot);
    ++counts_.loaded_blocks;
    counts_.loaded_bytes += bytes(group);
}

block_moves lower_levels::take_moves() {
    return std::exchange(pending_, {});
}

void lower_levels::unpin(const block_moves& past) {
    for (const block_save& one : past.saves) host_.unpin(one.group, one.slot);
    for (const block_load& one : past.loads) {
        if (one.slot != no_block) host_.unpin(one.group, one.slot);
    }
}

void lower_levels::finish(const prefix_tree& tree, const block_moves& done) {
    unpin(done);
    if (!options_.disk) return;
    for (const block_save& one : done.saves) {
        const prefix_tree::node_id node = host_.at(one.group, one.slot).node;
        options_.disk->write_later(ticket_of(one.group, one.slot), tree.disk_block_of(node, one.group),
                                   options_.store->slot(one.group, one.slot));
    }
}

std::shared_ptr<disk_read> lower_levels::read(const std::vector<disk_block>& blocks) {
    std::int64_t held = 0;
    std::erase_if(reads_, [](const auto& each) { return each.expired(); });
    for (const auto& each : reads_) held += static_cast<std::int64_t>(each.lock()->bytes());
    std::vector<std::size_t> sizes;
    for (const disk_block& each : blocks) {
        sizes.push_back(static_cast<std::size_t>(bytes(each.group)));
        held += bytes(each.group);
    }
    if (!reads_.empty() && held > options_.most_read_bytes) return {};
    auto made = options_.disk->reader().read(blocks, sizes);
    reads_.push_back(made);
    return made;
}

void lower_levels::abandon(prefix_tree& tree, const block_moves& failed) {
    unpin(failed);
    for (const block_save& one : failed.saves) {
        const prefix_tree::node_id node = host_.at(one.group, one.slot).node;
        host_.clear(one.group, one.slot, false);
        tree.detach_slot(node, one.group);
    }
}

level_counts lower_levels::host_counts() const {
    level_counts now = counts_;
    for (std::size_t i = 0; i < block_bytes_.size(); ++i)
        now.held_bytes += host_.used(static_cast<int>(i)) * block_bytes_[i];
    return now;
}

}  // namespace imbrex::engine
