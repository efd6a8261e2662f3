#include "engine/loading/gguf_writer.hpp"

#include <cstring>
#include <imbrex/core/error.hpp>

namespace imbrex::engine {

namespace {

constexpr std::uint32_t version = 3;
constexpr std::int64_t alignment = 32;

template <class Number>
void append(std::string& to, Number value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    to.append(bytes, sizeof value);
}

void append_text(std::string& to, const std::string& text) {
    append(to, std::uint64_t{text.size()});
    to += text;
}

void append_whole(std::string& to, gguf_type type, std::int64_t value) {
    switch (type) {
        case gguf_type::uint8:
        case gguf_type::int8:
        case gguf_type::boolean:
            return append(to, static_cast<std::uint8_t>(value));
        case gguf_type::uint16:
        case gguf_type::int16:
            return append(to, static_cast<std::uint16_t>(value));
        case gguf_type::uint32:
        case gguf_type::int32:
            return append(to, static_cast<std::uint32_t>(value));
        default:
            return append(to, value);
    }
}

void append_one(std::string& to, gguf_type type, std::int64_t value) {
    append_whole(to, type, value);
}
void append_one(std::string& to, gguf_type type, double value) {
    if (type == gguf_type::float32) return append(to, static_cast<float>(value));
    append(to, value);
}
void append_one(std::string& to, gguf_type, const std::string& value) {
    append_text(to, value);
}
template <class Element>
void append_one(std::string& to, gguf_type element, const std::vector<Element>& values) {
    append(to, static_cast<std::uint32_t>(element));
    append(to, std::uint64_t{values.size()});
    for (const Element& value : values) append_one(to, element, value);
}

bool is_of_the_file(const std::string& key) {
    return key == "general.alignment" || key.starts_with("split.");
}

std::int64_t padding_after(std::int64_t bytes) {
    return (alignment - bytes % alignment) % alignment;
}

std::int64_t size_of(const gguf_tensor& tensor) {
    const auto bytes = byte_size(tensor.type, tensor.shape);
    require(bytes.has_value(), tensor.name, ": shape ", to_string(tensor.shape), " cannot be stored as ",
            name_of(tensor.type));
    return *bytes;
}

std::string header_of(const gguf_metadata& metadata, const std::vector<gguf_tensor>& tensors) {
    std::string keys;
    std::uint64_t count = 0;
    for (const auto& [key, value] : metadata.all()) {
        if (is_of_the_file(key)) continue;
        append_text(keys, key);
        append(keys, static_cast<std::uint32_t>(value.type));
        const gguf_type type = value.type == gguf_type::array ? value.element : value.type;
        std::visit([&](const auto& content) { append_one(keys, type, content); }, value.content);
        ++count;
    }
    std::string header = "GGUF";
    append(header, version);
    append(header, std::uint64_t{tensors.size()});
    append(header, count);
    header += keys;
    std::int64_t offset = 0;
    for (const gguf_tensor& tensor : tensors) {
        append_text(header, tensor.name);
        append(header, static_cast<std::uint32_t>(tensor.shape.size()));
        for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) append(header, *size);
        append(header, ggml_number_of(tensor.type));
        append(header, offset);
        const std::int64_t bytes = size_of(tensor);
        offset += bytes + padding_after(bytes);
    }
    header.append(static_cast<std::size_t>(padding_after(static_cast<std::int64_t>(header.size()))), '\0');
    return header;
}

}  // namespace

void write_gguf(std::ostream& to, const std::string& name, const gguf_metadata& metadata,
                const std::vector<gguf_tensor>& tensors,
                const std::function<void(std::size_t, const byte_sink&)>& write_data) {
    const auto write = [&](const char* bytes, std::int64_t count) {
        to.write(bytes, count);
        require(to.good(), name, ": cannot be written: ", std::strerror(errno));
    };
    const std::string header = header_of(metadata, tensors);
    write(header.data(), static_cast<std::int64_t>(header.size()));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::int64_t size = size_of(tensors[i]);
        std::int64_t done = 0;
        write_data(i, [&](std::span<const std::byte> bytes) {
            done += static_cast<std::int64_t>(bytes.size());
            require(done <= size, tensors[i].name, ": more than its ", size, " bytes are written");
            write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::int64_t>(bytes.size()));
        });
        require(done == size, tensors[i].name, ": ", done, " of its ", size, " bytes are written");
        const char zeros[alignment] = {};
        write(zeros, padding_after(size));
    }
    to.flush();
    require(to.good(), name, ": cannot be written: ", std::strerror(errno));
}

}  // namespace imbrex::engine
