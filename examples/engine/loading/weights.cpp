#include "engine/loading/weights.hpp"

#include <bit>
#include <cstring>
#include <imbrex/core/error.hpp>
#include <imbrex/core/fp8.hpp>

#include "engine/loading/ggml_blocks.hpp"

namespace imbrex::engine {

namespace {

using ggml::read;

// Converts elements of a type that has no blocks.
template <class Stored, class Convert>
void convert_each(const std::byte* from, std::span<float> result, const Convert& to_float) {
    for (float& value : result) {
        value = to_float(read<Stored>(from));
        from += sizeof(Stored);
    }
}

template <class Stored>
void convert_each(const std::byte* from, std::span<float> result) {
    convert_each<Stored>(from, result, [](Stored value) { return static_cast<float>(value); });
}

void convert_numbers(weight_type type, const std::byte* from, std::span<float> result) {
    switch (type) {
        case weight_type::f16:
            return convert_each<std::uint16_t>(from, result, [](std::uint16_t bits) { return ggml::from_half(bits); });
        case weight_type::bf16:
            return convert_each<std::uint16_t>(
                from, result, [](std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t(bits) << 16); });
        case weight_type::e4m3:
            return convert_each<std::uint8_t>(from, result, [](std::uint8_t bits) { return e4m3::decode(bits); });
        case weight_type::e5m2:
            return convert_each<std::uint8_t>(from, result, [](std::uint8_t bits) { return e5m2::decode(bits); });
        case weight_type::f64:
            return convert_each<double>(from, result);
        case weight_type::i8:
            return convert_each<std::int8_t>(from, result);
        case weight_type::u8:
            return convert_each<std::uint8_t>(from, result);
        case weight_type::i16:
            return convert_each<std::int16_t>(from, result);
        case weight_type::i32:
            return convert_each<std::int32_t>(from, result);
        case weight_type::i64:
            return convert_each<std::int64_t>(from, result);
        default:
            return convert_each<float>(from, result);
    }
}

template <class Block>
void convert_blocks(const std::byte* from, std::span<float> result) {
    for (; !result.empty(); result = result.subspan(Block::elements), from += Block::bytes) {
        std::uint8_t values[Block::elements];
        float scales[Block::elements / unpacked_group], offsets[Block::elements / unpacked_group];
        unpack_block<Block>(from, values, scales, offsets);
        for (int i = 0; i < Block::elements; ++i) {
            const int group = i / unpacked_group;
            // In double, since the product alone may exceed a float, and to round once.
            const double product = static_cast<double>(scales[group]) * values[i];
            result[static_cast<std::size_t>(i)] = static_cast<float>(product + static_cast<double>(offsets[group]));
        }
    }
}

}  // namespace

std::int64_t weight::elements() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
}

std::int64_t weight::rows() const {
    std::int64_t count = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
    return count;
}

std::optional<std::int64_t> byte_size(weight_type type, std::span<const std::int64_t> shape) {
    const block_format format = format_of(type);
    const std::int64_t row = shape.empty() ? 1 : shape.back();
    if (row < 0 || row % format.elements != 0) return {};
    std::int64_t elements = 1;
    bool empty = false;
    for (const std::int64_t size : shape) {
        if (size < 0) return {};
        if (size == 0) empty = true;
        // Overflow is an error even if a later dimension is zero.
        if (size != 0 && __builtin_mul_overflow(elements, size, &elements)) return {};
    }
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(elements / format.elements, format.bytes, &bytes)) return {};
    return empty ? 0 : bytes;
}

std::string to_string(std::span<const std::int64_t> shape) {
    std::string text = "[";
    for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + "]";
}

void to_floats(const weight& source, std::int64_t first_row, std::int64_t rows, std::span<float> result) {
    const std::int64_t row_elements = source.row_elements();
    require(first_row >= 0 && rows >= 0 && first_row <= source.rows() - rows, source.name, ": rows ", first_row, " to ",
            first_row + rows, " were asked for; there are ", source.rows());
    require(static_cast<std::int64_t>(result.size()) == rows * row_elements, source.name, ": ", rows, " rows have ",
            rows * row_elements, " elements; there is room for ", result.size());
    const block_format format = format_of(source.type);
    const std::int64_t blocks_before = first_row * (row_elements / format.elements);
    const std::byte* from = source.bytes.data() + blocks_before * format.bytes;
    if (!is_block(source.type)) return convert_numbers(source.type, from, result);
    with_ggml_block(source.type, [&](auto block) { convert_blocks<decltype(block)>(from, result); });
}

std::vector<float> to_floats(const weight& source) {
    std::vector<float> result(static_cast<std::size_t>(source.elements()));
    to_floats(source, 0, source.rows(), result);
    return result;
}

void weight_set::add(weight added, const std::string& file) {
    const auto [place, is_new] = index_.emplace(added.name, weights_.size());
    require(is_new, file, ": tensor \"", added.name, "\" is there twice; a name is used once");
    weights_.push_back(std::move(added));
    read_.push_back(false);
}

const weight* weight_set::find(std::string_view name) const {
    const auto place = index_.find(name);
    if (place == index_.end()) return nullptr;
    read_[place->second] = true;
    return &weights_[place->second];
}

const weight& weight_set::at(std::string_view name) const {
    const weight* found = find(name);
    require(found != nullptr, "tensor \"", std::string(name), "\" is not in the model");
    return *found;
}

std::vector<const weight*> weight_set::unread() const {
    std::vector<const weight*> result;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        if (!read_[i]) result.push_back(&weights_[i]);
    }
    return result;
}

std::int64_t weight_set::bytes() const {
    std::int64_t total = 0;
    for (const weight& one : weights_) total += static_cast<std::int64_t>(one.bytes.size());
    return total;
}

void weight_set::merge(const weight_set& other, const std::string& file) {
    for (const weight& one : other.weights_) add(one, file);
    owners_.insert(owners_.end(), other.owners_.begin(), other.owners_.end());
}

}  // namespace imbrex::engine
