// Weights of a file: name, type, shape and a view of the bytes, without a copy. All readers return the same weight_set,
// so the loading code is independent of the file format.
//
// The last dimension is contiguous. q8_0 and q4_0 are ggml's: a row is divided into blocks of 32 elements, each with an
// fp16 scale d:
//   q8_0, 34 bytes:  d, then 32 signed bytes q             element i = d * q[i]
//   q4_0, 18 bytes:  d, then 16 bytes of two nibbles each  element i = d * (low nibble of byte i - 8)
//                                                          element i + 16 = d * (high nibble of byte i - 8)
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loading/mapped_file.hpp"

namespace imbrex::engine {

enum class weight_type { f32, f16, bf16, q8_0, q4_0 };

const char* name_of(weight_type type);

// Elements and bytes of a block.
struct block_format {
    std::int64_t elements;
    std::int64_t bytes;
};
block_format format_of(weight_type type);

struct weight {
    std::string name;
    weight_type type = weight_type::f32;
    std::vector<std::int64_t> shape;  // outermost first; empty for a scalar
    std::span<const std::byte> bytes;

    std::int64_t elements() const;
    std::int64_t row_elements() const { return shape.empty() ? 1 : shape.back(); }
    std::int64_t rows() const;
};

// Bytes of a tensor; nothing if they exceed 63 bits, if a dimension is negative, or if a row is not a multiple of the
// block.
std::optional<std::int64_t> byte_size(weight_type type, std::span<const std::int64_t> shape);

std::string to_string(std::span<const std::int64_t> shape);

// Rows of a weight as floats. The conversion is exact for all types.
void to_floats(const weight& source, std::int64_t first_row, std::int64_t rows, std::span<float> result);
std::vector<float> to_floats(const weight& source);

class weight_set {
  public:
    // Throws if the name exists; `file` is used in the message.
    void add(weight added, const std::string& file);
    // Keeps the owner of the bytes (a mapped file) alive as long as the set.
    void keep(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }

    const weight* find(std::string_view name) const;
    const weight& at(std::string_view name) const;  // throws if missing
    const std::vector<weight>& all() const { return weights_; }
    std::int64_t bytes() const;

    // Renames the weights. An empty name drops a weight.
    template <class NewName>
    weight_set renamed(const NewName& new_name, const std::string& file) const {
        weight_set result;
        result.owners_ = owners_;
        for (weight copy : weights_) {
            copy.name = new_name(copy.name);
            if (!copy.name.empty()) result.add(std::move(copy), file);
        }
        return result;
    }

    void merge(const weight_set& other, const std::string& file);

  private:
    std::vector<weight> weights_;
    std::map<std::string, std::size_t, std::less<>> index_;
    std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace imbrex::engine
