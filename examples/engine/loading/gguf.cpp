#include "engine/loading/gguf.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <imbrex/core/error.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

constexpr std::uint32_t newest_version = 3;
constexpr std::int64_t default_alignment = 32;
constexpr std::int64_t greatest_alignment = 65536;
constexpr std::uint32_t most_dimensions = 4;
constexpr std::uint64_t least_string = 8;                  // its length
constexpr std::uint64_t least_entry = 8 + 4 + 1;           // a key's length, its type, a value
constexpr std::uint64_t least_tensor = 8 + 4 + 8 + 4 + 8;  // a name's length, rank, one dimension, type, offset

std::uint64_t size_of(gguf_type type) {
    switch (type) {
        case gguf_type::uint8:
        case gguf_type::int8:
        case gguf_type::boolean:
            return 1;
        case gguf_type::uint16:
        case gguf_type::int16:
            return 2;
        case gguf_type::uint32:
        case gguf_type::int32:
        case gguf_type::float32:
            return 4;
        case gguf_type::string:
        case gguf_type::array:
            return least_string;
        case gguf_type::uint64:
        case gguf_type::int64:
        case gguf_type::float64:
            break;
    }
    return 8;
}

// Reads forward, with bounds checks.
class reader {
  public:
    reader(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

    std::uint64_t remaining() const { return bytes_.size() - place_; }
    std::uint64_t place() const { return place_; }

    template <class T>
    T number(const char* what) {
        require(sizeof(T) <= remaining(), file_, ": ends at byte ", bytes_.size(), ", within ", what);
        T value;
        std::memcpy(&value, bytes_.data() + place_, sizeof value);
        place_ += sizeof value;
        return value;
    }

    // A count of items of at least `least` bytes each; the file must have that many bytes left.
    std::uint64_t count(const char* what, std::uint64_t least) {
        const std::uint64_t place = place_;
        const auto value = number<std::uint64_t>(what);
        require(value <= remaining() / least, file_, ": ", what, " at byte ", place, " is ", value, "; only ",
                remaining(), " bytes follow");
        return value;
    }

    std::string string(const char* what) {
        const std::uint64_t length = count(what, 1);
        std::string text(as_text(bytes_.subspan(place_, length)));
        place_ += length;
        return text;
    }

  private:
    std::span<const std::byte> bytes_;
    const std::string& file_;
    std::uint64_t place_ = 0;
};

std::int64_t read_whole(reader& from, gguf_type type) {
    constexpr const char* what = "a value";
    switch (type) {
        case gguf_type::uint8:
        case gguf_type::boolean:
            return from.number<std::uint8_t>(what);
        case gguf_type::int8:
            return from.number<std::int8_t>(what);
        case gguf_type::uint16:
            return from.number<std::uint16_t>(what);
        case gguf_type::int16:
            return from.number<std::int16_t>(what);
        case gguf_type::uint32:
            return from.number<std::uint32_t>(what);
        case gguf_type::int32:
            return from.number<std::int32_t>(what);
        default:
            return from.number<std::int64_t>(what);  // also unsigned 64 bits: see gguf_metadata::whole
    }
}

double read_real(reader& from, gguf_type type) {
    return type == gguf_type::float32 ? from.number<float>("a value") : from.number<double>("a value");
}

bool is_real(gguf_type type) {
    return type == gguf_type::float32 || type == gguf_type::float64;
}

gguf_type read_type(reader& from, const std::string& where) {
    const auto type = from.number<std::uint32_t>("a value's type");
    require(type <= static_cast<std::uint32_t>(gguf_type::float64), where, "value type ", type, "; 0 to 12 are known");
    return static_cast<gguf_type>(type);
}

template <class Element, class Read>
std::vector<Element> read_many(std::uint64_t count, const Read& read) {
    std::vector<Element> result;
    result.reserve(count);  // the file has at least a byte for each
    for (std::uint64_t i = 0; i < count; ++i) result.push_back(read());
    return result;
}

gguf_value read_value(reader& from, const std::string& where) {
    gguf_value value;
    value.type = read_type(from, where);
    if (value.type == gguf_type::string) {
        value.content = from.string("a string's length");
    } else if (is_real(value.type)) {
        value.content = read_real(from, value.type);
    } else if (value.type != gguf_type::array) {
        const std::int64_t number = read_whole(from, value.type);
        require(value.type != gguf_type::boolean || number <= 1, where, "a truth is ", number, "; 0 and 1 are allowed");
        value.content = number;
    } else {
        value.element = read_type(from, where);
        require(value.element != gguf_type::array, where, "an array of arrays is not allowed");
        const std::uint64_t count = from.count("an array's length", size_of(value.element));
        if (value.element == gguf_type::string) {
            value.content = read_many<std::string>(count, [&] { return from.string("a string's length"); });
        } else if (is_real(value.element)) {
            value.content = read_many<double>(count, [&] { return read_real(from, value.element); });
        } else {
            value.content = read_many<std::int64_t>(count, [&] { return read_whole(from, value.element); });
        }
    }
    return value;
}

weight_type tensor_type(std::uint32_t number, const std::string& where) {
    const auto type = weight_type_of_ggml(number);
    require(
        type.has_value(), where, "its type is ", ggml_type_name(number),
        "; F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4 can be read. Convert "
        "the original model to one of them, for example Q4_K_M");
    return *type;
}

struct placed_weight {
    weight what;
    std::uint64_t offset;
    std::uint64_t size;
};

placed_weight read_tensor(reader& from, std::int64_t alignment, const std::string& file) {
    placed_weight placed{};
    placed.what.name = from.string("a tensor name's length");
    const std::string where = file + ": tensor " + printable(placed.what.name) + ": ";
    require(!placed.what.name.empty(), file, ": a tensor's name is empty");
    const auto rank = from.number<std::uint32_t>("a tensor's rank");
    require(rank >= 1 && rank <= most_dimensions, where, "it has ", rank, " dimensions; 1 to ", most_dimensions,
            " are allowed");
    for (std::uint32_t i = 0; i < rank; ++i) {
        const auto size = from.number<std::int64_t>("a tensor's dimensions");
        require(size >= 1, where, "dimension ", i, " is ", size, "; it must be positive");
        placed.what.shape.insert(placed.what.shape.begin(), size);  // the file lists the innermost dimension first
    }
    placed.what.type = tensor_type(from.number<std::uint32_t>("a tensor's type"), where);
    const block_format format = format_of(placed.what.type);
    require(placed.what.row_elements() % format.elements == 0, where, "its rows of ", placed.what.row_elements(),
            " elements are not whole blocks of ", format.elements);
    const auto size = byte_size(placed.what.type, placed.what.shape);
    require(size.has_value(), where, "shape ", to_string(placed.what.shape), " has more than 2^63 - 1 bytes");
    placed.size = static_cast<std::uint64_t>(*size);
    placed.offset = from.number<std::uint64_t>("a tensor's offset");
    require(placed.offset % static_cast<std::uint64_t>(alignment) == 0, where, "its offset is ", placed.offset,
            "; it must be a multiple of ", alignment);
    return placed;
}

std::int64_t alignment_of(const gguf_metadata& metadata, const std::string& name) {
    const std::int64_t alignment = metadata.whole("general.alignment").value_or(default_alignment);
    require(alignment > 0 && alignment <= greatest_alignment && std::has_single_bit(std::uint64_t(alignment)), name,
            ": general.alignment is ", alignment, "; a power of two up to ", greatest_alignment, " is allowed");
    return alignment;
}

}  // namespace

void gguf_metadata::add(const std::string& key, gguf_value value) {
    require(!key.empty(), file_, ": a key is empty");
    require(values_.emplace(key, std::move(value)).second, file_, ": key ", printable(key), " is there twice");
}

const gguf_value* gguf_metadata::find(std::string_view key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return nullptr;
    read_.insert(found->first);
    return &found->second;
}

std::vector<std::string> gguf_metadata::unread() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : values_) {
        if (!read_.contains(key)) keys.push_back(key);
    }
    return keys;
}

std::optional<std::int64_t> gguf_metadata::whole(std::string_view key) const {
    const gguf_value* value = find(key);
    if (!value) return {};
    const auto* number = std::get_if<std::int64_t>(&value->content);
    require(number && value->type != gguf_type::boolean, file_, ": ", std::string(key), " must be a whole number");
    require(value->type != gguf_type::uint64 || *number >= 0, file_, ": ", std::string(key), " is beyond 2^63 - 1");
    return *number;
}

std::optional<double> gguf_metadata::real(std::string_view key) const {
    const gguf_value* value = find(key);
    if (!value) return {};
    require(is_real(value->type), file_, ": ", std::string(key), " must be a floating-point number");
    return std::get<double>(value->content);
}

std::optional<bool> gguf_metadata::truth(std::string_view key) const {
    const gguf_value* value = find(key);
    if (!value) return {};
    require(value->type == gguf_type::boolean, file_, ": ", std::string(key), " must be true or false");
    return std::get<std::int64_t>(value->content) != 0;
}

std::optional<std::string> gguf_metadata::text(std::string_view key) const {
    const gguf_value* value = find(key);
    if (!value) return {};
    require(value->type == gguf_type::string, file_, ": ", std::string(key), " must be a string");
    return std::get<std::string>(value->content);
}

namespace {

template <class Element>
const std::vector<Element>* array_of(const gguf_metadata& metadata, std::string_view key, const char* what) {
    const gguf_value* value = metadata.find(key);
    if (!value) return nullptr;
    const auto* elements = std::get_if<std::vector<Element>>(&value->content);
    require(elements != nullptr, metadata.file(), ": ", std::string(key), " must be an array of ", what);
    return elements;
}

}  // namespace

const std::vector<std::int64_t>* gguf_metadata::wholes(std::string_view key) const {
    return array_of<std::int64_t>(*this, key, "whole numbers");
}

const std::vector<double>* gguf_metadata::reals(std::string_view key) const {
    return array_of<double>(*this, key, "floating-point numbers");
}

const std::vector<std::string>* gguf_metadata::texts(std::string_view key) const {
    return array_of<std::string>(*this, key, "strings");
}

gguf_file read_gguf(std::span<const std::byte> bytes, const std::string& name) {
    require(as_text(bytes).starts_with("GGUF"), name, ": does not begin with GGUF");
    reader from(bytes, name);
    from.number<std::uint32_t>("the magic number");
    gguf_file file{from.number<std::uint32_t>("the version"), gguf_metadata(name), {}};
    require((file.version & 0xffffu) != 0 || file.version == 0, name,
            ": is big-endian; little-endian files can be read");
    require(file.version >= 2 && file.version <= newest_version, name, ": version ", file.version,
            "; 2 and 3 can be read");
    const std::uint64_t tensors = from.count("the number of tensors", least_tensor);
    const std::uint64_t keys = from.count("the number of keys", least_entry);

    for (std::uint64_t i = 0; i < keys; ++i) {
        const std::string key = from.string("a key's length");
        file.metadata.add(key, read_value(from, name + ": key " + printable(key) + ": "));
    }
    const std::int64_t alignment = alignment_of(file.metadata, name);
    std::vector<placed_weight> placed;
    for (std::uint64_t i = 0; i < tensors; ++i) placed.push_back(read_tensor(from, alignment, name));

    // Tensor data begin at the next multiple of the alignment. A file without tensors may end before it.
    const auto step = static_cast<std::uint64_t>(alignment);
    const std::uint64_t start = std::min<std::uint64_t>((from.place() + step - 1) / step * step, bytes.size());
    const std::span<const std::byte> data = bytes.subspan(start);
    for (placed_weight& one : placed) {
        require(one.offset <= data.size() && one.size <= data.size() - one.offset, name, ": tensor ",
                printable(one.what.name), ": its ", one.size, " bytes at offset ", one.offset,
                " lie beyond the file's ", data.size(), " bytes of data");
        one.what.bytes = data.subspan(one.offset, one.size);
        file.weights.add(one.what, name);
    }
    std::ranges::sort(placed, {}, &placed_weight::offset);
    for (std::size_t i = 1; i < placed.size(); ++i) {
        require(placed[i - 1].offset + placed[i - 1].size <= placed[i].offset, name, ": tensors ",
                printable(placed[i - 1].what.name), " and ", printable(placed[i].what.name), " overlap");
    }
    return file;
}

}  // namespace imbrex::engine
