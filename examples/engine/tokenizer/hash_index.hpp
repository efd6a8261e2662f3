// A hash index over the elements of an array. It holds their numbers, four bytes each; the caller compares elements. A
// vocabulary has hundreds of thousands of tokens and merges, for which maps with nodes take ten times the memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex::engine {

class hash_index {
  public:
    static constexpr int none = -1;

    explicit hash_index(std::size_t elements = 0) : slots_(std::bit_ceil(elements + elements / 2 + 1), none) {}

    // The number of the element with this hash for which is_wanted(number) holds, or `none` in the place for it.
    template <class IsWanted>
    int& slot(std::uint64_t hash, const IsWanted& is_wanted) {
        return slots_[place(hash, is_wanted)];
    }
    template <class IsWanted>
    int find(std::uint64_t hash, const IsWanted& is_wanted) const {
        return slots_[place(hash, is_wanted)];
    }

  private:
    template <class IsWanted>
    std::size_t place(std::uint64_t hash, const IsWanted& is_wanted) const {
        hash *= 0x9e3779b97f4a7c15u;
        std::size_t at = (hash ^ hash >> 32) & (slots_.size() - 1);
        while (slots_[at] != none && !is_wanted(slots_[at])) at = (at + 1) & (slots_.size() - 1);
        return at;
    }

    std::vector<int> slots_;  // at most two thirds have a number
};

}  // namespace imbrex::engine
