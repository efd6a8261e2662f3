// The block manager of the paged KV cache: reference counts, prefix caching and copy-on-write. A block whose reference
// count drops to 0 keeps its content. A sequence that starts with the same tokens finds it again, until the block is
// reallocated; the least recently used block is reallocated first.
//
//   tokens    | a b c d | e f g h | i j
//   content   |    7    |    9    |           unique ids: 9 means "e f g h after content 7"
//   hash      | h(0,..) | h(h7,..)|           finds candidates; a hit needs equal parent and tokens
//
// A block gets a content id when it is full and computed, so allocated but uncomputed blocks are never hits. Blocks
// with a content id, and blocks with several holders, are never written; copy_on_write replaces them by a copy.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace imbrex::engine {

struct block_copy {
    int from, to;
};

std::uint64_t chain_hash(std::uint64_t parent, std::span<const int> tokens);

enum class prefix_caching { off, on };

class block_manager {
  public:
    using hash_function = std::uint64_t (*)(std::uint64_t parent, std::span<const int> tokens);

    explicit block_manager(int count, int block_size = 16, prefix_caching caching = prefix_caching::on,
                           hash_function hash = chain_hash);
    block_manager(block_manager&&) = default;
    block_manager& operator=(block_manager&&) = default;

    int count() const { return static_cast<int>(blocks_.size()); }
    int block_size() const { return block_size_; }
    int num_free_blocks() const {
        return static_cast<int>(free_.size());
    }  // reference count 0, with or without a content
    int num_used_blocks() const { return count() - num_free_blocks(); }
    int blocks_for(int tokens) const { return (tokens + block_size_ - 1) / block_size_; }
    int ref_count(int block) const { return at(block).ref_count; }
    bool is_cached(int block) const { return at(block).content != 0; }

    // The cached blocks of the longest prefix of these tokens. The last token is never included: it must be computed to
    // get logits.
    std::vector<int> find_cached_prefix(std::span<const int> tokens) const;

    int allocate();  // a block with reference count 1; its old content is dropped
    void add_reference(int block);
    void free(int block);
    void free(std::vector<int>& table);  // releases all blocks and clears the table

    // Replaces a block that must not be written by a new one. The copy holds the reference to the old block: release it
    // after the copy is made.
    std::optional<block_copy> copy_on_write(int& block);

    // Tokens [first, last) of a sequence are computed. Full blocks enter the prefix cache; a duplicate of a cached
    // block is replaced by that block.
    void cache_full_blocks(std::vector<int>& table, std::span<const int> tokens, int first, int last);

  private:
    struct block {
        int ref_count = 0;
        std::int64_t content = 0;  // 0: none
        std::int64_t parent = 0;   // content of the preceding block
        std::uint64_t hash = 0;
        std::vector<int> tokens;
        std::list<int>::iterator free_position;  // in free_, if the reference count is 0
    };

    const block& at(int block) const;
    block& at(int block) { return const_cast<struct block&>(std::as_const(*this).at(block)); }
    int find_content(std::int64_t parent, std::uint64_t hash, std::span<const int> tokens) const;
    void evict(int block);

    int block_size_;
    prefix_caching caching_;
    hash_function hash_;
    std::int64_t contents_ = 0;
    std::vector<block> blocks_;
    std::list<int> free_;  // in order of reallocation
    std::unordered_multimap<std::uint64_t, int> by_hash_;
};

}  // namespace imbrex::engine
