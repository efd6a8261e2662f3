#include "engine/cache/disk_reader.hpp"

#include <algorithm>

namespace imbrex::engine {

bool disk_read::ended() const {
    return std::ranges::all_of(blocks_, [](const auto& groups) {
        return std::ranges::all_of(groups.second, [](const auto& each) { return each.second->done.load(); });
    });
}

bool disk_read::has_any(const content_key& key) const {
    const auto found = blocks_.find(key);
    return found != blocks_.end() &&
           std::ranges::any_of(found->second, [](const auto& each) { return each.second->content != nullptr; });
}

disk_content disk_read::content(const content_key& key, int group) const {
    const auto found = blocks_.find(key);
    if (found == blocks_.end()) return {};
    const auto block = found->second.find(group);
    return block == found->second.end() ? disk_content() : block->second->content;
}

double disk_read::seconds() const {
    clock::time_point last = began_;
    for (const auto& groups : blocks_) {
        for (const auto& [group, each] : groups.second) last = std::max(last, each->done_at);
    }
    return std::chrono::duration<double>(last - began_).count();
}

disk_reader::disk_reader(read_function read_block, int threads) : read_block_(std::move(read_block)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { read_blocks(); });
}

disk_reader::~disk_reader() {
    {
        const std::lock_guard guard(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& each : threads_) each.join();
}

std::shared_ptr<disk_read> disk_reader::read(const std::vector<disk_block>& blocks,
                                             const std::vector<std::size_t>& bytes) {
    auto made = std::make_shared<disk_read>();
    {
        const std::lock_guard guard(mutex_);
        std::erase_if(known_, [](const auto& each) { return each.second.expired(); });
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            std::weak_ptr<block_read>& known = known_[{blocks[i].key, blocks[i].group}];
            std::shared_ptr<block_read> one = known.lock();
            if (!one) {
                one = std::make_shared<block_read>();
                one->block = blocks[i];
                one->bytes = bytes[i];
                known = one;
                queue_.push_back(known);
            }
            made->blocks_[blocks[i].key][blocks[i].group] = std::move(one);
            made->bytes_ += bytes[i];
        }
    }
    changed_.notify_all();
    return made;
}

void disk_reader::read_blocks() {
    std::unique_lock guard(mutex_);
    for (;;) {
        changed_.wait(guard, [&] { return ends_ || !queue_.empty(); });
        if (ends_) return;
        const std::shared_ptr<block_read> next = queue_.front().lock();
        queue_.pop_front();
        if (!next) continue;  // all its reads were cancelled
        guard.unlock();
        next->content = read_block_(next->block, next->bytes);
        next->done_at = disk_read::clock::now();
        guard.lock();
        next->done = true;
        block_is_read_.notify_all();
    }
}

}  // namespace imbrex::engine
