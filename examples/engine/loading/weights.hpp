// Weights of a file: name, type, shape and a view of the bytes, without a copy. All readers return the same weight_set,
// so the loading code is independent of the file format.
//
// The last dimension is contiguous. Quantised types are ggml's (ggml_blocks.hpp).
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
#include "engine/loading/weight_type.hpp"

namespace imbrex::engine {

struct weight {
    std::string name;
    weight_type type = weight_type::f32;
    std::vector<std::int64_t> shape;  // outermost first; empty for a scalar
    std::span<const std::byte> bytes;
    std::string name_in_file{};  // if it was renamed

    std::int64_t elements() const;
    std::int64_t row_elements() const { return shape.empty() ? 1 : shape.back(); }
    std::int64_t rows() const;
};

// Bytes of a tensor; nothing if they exceed 63 bits, if a dimension is negative, or if a row is not a multiple of the
// block.
std::optional<std::int64_t> byte_size(weight_type type, std::span<const std::int64_t> shape);

std::string to_string(std::span<const std::int64_t> shape);

// Rows of a weight as floats. The conversion is exact up to the rounding of a float (f64, i32 and i64; types with an
// offset).
void to_floats(const weight& source, std::int64_t first_row, std::int64_t rows, std::span<float> result);
std::vector<float> to_floats(const weight& source);

class weight_set {
  public:
    // Throws if the name exists; `file` is used in the message.
    void add(weight added, const std::string& file);
    // Keeps the owner of the bytes (a mapped file) alive as long as the set.
    void keep(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }
    const std::vector<std::shared_ptr<const void>>& owners() const { return owners_; }

    // These record that the weight was asked for.
    const weight* find(std::string_view name) const;
    const weight& at(std::string_view name) const;  // throws if missing
    std::vector<const weight*> unread() const;
    const std::vector<weight>& all() const { return weights_; }
    std::int64_t bytes() const;

    // Renames the weights. An empty name drops a weight.
    template <class NewName>
    weight_set renamed(const NewName& new_name, const std::string& file) const {
        weight_set result;
        result.owners_ = owners_;
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            weight copy = weights_[i];
            if (copy.name_in_file.empty()) copy.name_in_file = copy.name;
            copy.name = new_name(copy.name);
            if (copy.name.empty()) continue;
            result.add(std::move(copy), file);
            result.read_.back() = read_[i];
        }
        return result;
    }

    void merge(const weight_set& other, const std::string& file);

  private:
    std::vector<weight> weights_;
    std::map<std::string, std::size_t, std::less<>> index_;
    mutable std::vector<bool> read_;
    std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace imbrex::engine
