// Reads GGUF, the model files of ggml and llama.cpp (versions 2 and 3): typed key-value metadata, tensor descriptions,
// then tensor data at multiples of the alignment. Counts of untrusted GGUF files have led to memory-safety bugs in
// other readers, so each count is checked against the remaining bytes before use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/loading/weights.hpp"

namespace imbrex::engine {

enum class gguf_type : std::uint32_t {
    uint8 = 0,
    int8 = 1,
    uint16 = 2,
    int16 = 3,
    uint32 = 4,
    int32 = 5,
    float32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    uint64 = 10,
    int64 = 11,
    float64 = 12,
};

// A value with its type in the file; `element` is the element type of arrays. Booleans are integers 0 and 1.
struct gguf_value {
    gguf_type type = gguf_type::uint8;
    gguf_type element = gguf_type::uint8;
    std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                 std::vector<std::string>>
        content;
};

// The metadata. Getters throw on a wrong type and return nothing for a missing key. The keys that were asked for are
// recorded, for unread_content.hpp.
class gguf_metadata {
  public:
    explicit gguf_metadata(std::string file = {}) : file_(std::move(file)) {}
    void add(const std::string& key, gguf_value value);

    bool has(std::string_view key) const { return find(key) != nullptr; }
    const gguf_value* find(std::string_view key) const;
    std::vector<std::string> unread() const;
    std::optional<std::int64_t> whole(std::string_view key) const;
    std::optional<double> real(std::string_view key) const;
    std::optional<bool> truth(std::string_view key) const;
    std::optional<std::string> text(std::string_view key) const;
    const std::vector<std::int64_t>* wholes(std::string_view key) const;
    const std::vector<double>* reals(std::string_view key) const;
    const std::vector<std::string>* texts(std::string_view key) const;

    const std::map<std::string, gguf_value, std::less<>>& all() const { return values_; }
    const std::string& file() const { return file_; }

  private:
    std::string file_;
    std::map<std::string, gguf_value, std::less<>> values_;
    mutable std::set<std::string, std::less<>> read_;
};

struct gguf_file {
    std::uint32_t version = 0;
    gguf_metadata metadata;
    weight_set weights;  // with the names of the file; shapes are outermost first
};

// The weights point into the bytes.
gguf_file read_gguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace imbrex::engine
