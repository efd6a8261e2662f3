#include "engine/serving/block_pool.hpp"

#include <imbrex/core/error.hpp>

namespace imbrex::engine {

block_pool::block_pool(int count) {
    require(count >= 1, "blocks: ", count, "; there must be at least one");
    blocks_.resize(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) at(i).free_position = free_.insert(free_.end(), i);
}

const block_pool::block& block_pool::at(int block) const {
    require(block >= 0 && block < count(), "block: ", block, "; there are ", count());
    return blocks_[static_cast<std::size_t>(block)];
}

int block_pool::allocate() {
    require(!free_.empty(), "blocks: all ", count(), " are held; release one before allocating another");
    const int taken = free_.front();
    add_reference(taken);
    return taken;
}

void block_pool::add_reference(int shared) {
    block& it = at(shared);
    if (it.ref_count++ == 0) free_.erase(it.free_position);
}

void block_pool::free(int released) {
    block& it = at(released);
    require(it.ref_count > 0, "block ", released, " is released more often than it was allocated");
    if (--it.ref_count > 0) return;
    it.free_position = free_.insert(it.content == 0 ? free_.begin() : free_.end(), released);
}

}  // namespace imbrex::engine
