// The tokens that a state of a grammar allows, and a store for those that many grammars have in common, such as the inside of
// a string.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace imbrex::engine {

inline void set_token(std::span<std::uint32_t> mask, int token) {
    const auto place = static_cast<std::size_t>(token);
    if (place / 32 < mask.size()) mask[place / 32] |= std::uint32_t{1} << (place % 32);
}

// Few tokens as a list, many as bits.
struct token_set {
    std::vector<std::int32_t> list;
    std::vector<std::uint32_t> bits;
    std::vector<std::int32_t> leaves;  // nodes of the trie at which the rule of the state can end

    std::size_t bytes() const { return (list.size() + leaves.size() + bits.size()) * 4 + 128; }
    void add_to(std::span<std::uint32_t> mask) const {
        for (std::size_t i = 0; i < std::min(bits.size(), mask.size()); ++i) mask[i] |= bits[i];
        for (const std::int32_t token : list) set_token(mask, token);
    }
};

// Thread-safe. The first sets are kept, as far as they have room.
class token_set_store {
  public:
    static constexpr std::size_t max_bytes = std::size_t{16} << 20;

    std::shared_ptr<const token_set> find(const std::string& key) const {
        const std::scoped_lock lock(mutex_);
        const auto found = sets_.find(key);
        return found == sets_.end() ? nullptr : found->second;
    }
    void keep(const std::string& key, std::shared_ptr<const token_set> set) {
        const std::scoped_lock lock(mutex_);
        bytes_ += set->bytes() + key.size();
        if (bytes_ <= max_bytes) sets_.emplace(key, std::move(set));
    }

  private:
    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<const token_set>> sets_;
    std::size_t bytes_ = 0;
};

}  // namespace imbrex::engine
