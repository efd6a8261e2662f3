// The blocks of one cache group: reference counts, and a list of free blocks. A free block keeps its content, until it
// is reallocated; the least recently used block is reallocated first.
#pragma once

#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace imbrex::engine {

class block_pool {
  public:
    explicit block_pool(int count);
    block_pool(block_pool&&) = default;
    block_pool& operator=(block_pool&&) = default;

    int count() const { return static_cast<int>(blocks_.size()); }
    int num_free() const { return static_cast<int>(free_.size()); }  // reference count 0, with or without a content
    int num_used() const { return count() - num_free(); }
    const std::list<int>& free_blocks() const { return free_; }  // in the order of reallocation
    int ref_count(int block) const { return at(block).ref_count; }
    // Identifies the tokens of the block (prefix_tree.hpp); 0: none.
    std::int64_t content(int block) const { return at(block).content; }
    void set_content(int block, std::int64_t content) { at(block).content = content; }

    // The next free block, with reference count 1. Its content is the caller's to drop.
    int allocate();
    void add_reference(int block);
    void free(int block);

  private:
    struct block {
        int ref_count = 0;
        std::int64_t content = 0;
        std::list<int>::iterator free_position{};  // in free_, if the reference count is 0
    };

    const block& at(int block) const;
    block& at(int block) { return const_cast<struct block&>(std::as_const(*this).at(block)); }

    std::vector<block> blocks_;
    std::list<int> free_;  // in order of reallocation
};

}  // namespace imbrex::engine
