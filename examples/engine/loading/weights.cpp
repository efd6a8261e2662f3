#include "engine/loading/weights.hpp"

#include <bit>
#include <cstring>
#include <imbrex/core/error.hpp>

namespace imbrex::engine {

namespace {

constexpr std::int64_t block_elements = 32;

template <class T>
T read(const std::byte* from) {  // data in files may be unaligned
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

float from_half(std::uint16_t bits) {
    const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 31u;
    const std::uint32_t mantissa = bits & 1023u;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {  // subnormal or zero: multiples of 2^-24
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

float from_bfloat(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t(bits) << 16);
}

void expand_q8_0(const std::byte* block, float* result) {
    const float scale = from_half(read<std::uint16_t>(block));
    for (int i = 0; i < block_elements; ++i) {
        result[i] = scale * static_cast<float>(read<std::int8_t>(block + 2 + i));
    }
}

void expand_q4_0(const std::byte* block, float* result) {
    const float scale = from_half(read<std::uint16_t>(block));
    for (int i = 0; i < block_elements / 2; ++i) {
        const int both = read<std::uint8_t>(block + 2 + i);
        result[i] = scale * static_cast<float>((both & 15) - 8);
        result[i + block_elements / 2] = scale * static_cast<float>((both >> 4) - 8);
    }
}

}  // namespace

const char* name_of(weight_type type) {
    switch (type) {
        case weight_type::f32:
            return "f32";
        case weight_type::f16:
            return "f16";
        case weight_type::bf16:
            return "bf16";
        case weight_type::q8_0:
            return "q8_0";
        case weight_type::q4_0:
            break;
    }
    return "q4_0";
}

block_format format_of(weight_type type) {
    switch (type) {
        case weight_type::f32:
            return {1, 4};
        case weight_type::f16:
        case weight_type::bf16:
            return {1, 2};
        case weight_type::q8_0:
            return {block_elements, 34};
        case weight_type::q4_0:
            break;
    }
    return {block_elements, 18};
}

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
    for (std::size_t i = 0; i < result.size(); i += static_cast<std::size_t>(format.elements), from += format.bytes) {
        switch (source.type) {
            case weight_type::f32:
                result[i] = read<float>(from);
                break;
            case weight_type::f16:
                result[i] = from_half(read<std::uint16_t>(from));
                break;
            case weight_type::bf16:
                result[i] = from_bfloat(read<std::uint16_t>(from));
                break;
            case weight_type::q8_0:
                expand_q8_0(from, &result[i]);
                break;
            case weight_type::q4_0:
                expand_q4_0(from, &result[i]);
                break;
        }
    }
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
}

const weight* weight_set::find(std::string_view name) const {
    const auto place = index_.find(name);
    return place == index_.end() ? nullptr : &weights_[place->second];
}

const weight& weight_set::at(std::string_view name) const {
    const weight* found = find(name);
    require(found != nullptr, "tensor \"", std::string(name), "\" is not in the model");
    return *found;
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
