// Who holds which block of the paged cache, and what is in it. Blocks are counted references; one that nobody holds keeps what was
// computed in it, and is found again by whoever has the same tokens from the beginning on, until it is taken for something else, the one
// longest unused first.
//
//   tokens    | a b c d | e f g h | i j
//   content   |    7    |    9    |           numbers given once: 9 is "e f g h after 7", and can be nothing else
//   hash      | h(0,..) | h(h7,..)|           only leads to candidates: parent and tokens are compared before a block is a hit
//
// A block gets a content only when it is full and computed, so what is allocated but not computed yet is never a hit. A block with a content is
// never written again, nor is one that others hold: copy_on_write gives a copy.
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
    int num_free_blocks() const { return static_cast<int>(free_.size()); }  // held by nobody, with or without a content
    int num_used_blocks() const { return count() - num_free_blocks(); }
    int blocks_for(int tokens) const { return (tokens + block_size_ - 1) / block_size_; }
    int ref_count(int block) const { return at(block).ref_count; }
    bool is_cached(int block) const { return at(block).content != 0; }

    // The blocks that hold the first of these tokens. The last token is never among them: it has to be computed, to have logits.
    std::vector<int> find_cached_prefix(std::span<const int> tokens) const;

    int allocate();  // a block for a single holder, whose content is forgotten
    void add_reference(int block);
    void free(int block);
    void free(std::vector<int>& table);  // all of them, and the table is empty

    // Puts another block in the place of one that must not be written. The reference to the old one is the copy's from now on: whoever
    // makes the copy releases it afterwards.
    std::optional<block_copy> copy_on_write(int& block);

    // Tokens [first, last) of a sequence are in its blocks now. Blocks that are full become findable; where another has the same content
    // already, it is shared instead.
    void cache_full_blocks(std::vector<int>& table, std::span<const int> tokens, int first, int last);

  private:
    struct block {
        int ref_count = 0;
        std::int64_t content = 0;  // 0: none
        std::int64_t parent = 0;   // the content before it
        std::uint64_t hash = 0;
        std::vector<int> tokens;
        std::list<int>::iterator free_position;  // in free_, if nobody holds it
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
    std::list<int> free_;  // the next to be taken first
    std::unordered_multimap<std::uint64_t, int> by_hash_;
};

}  // namespace imbrex::engine
