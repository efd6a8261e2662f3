// Builds GGUF files in memory, field by field, so that tests can corrupt any field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/support.hpp"

namespace imbrex::engine::test {

struct gguf_builder {
    std::uint32_t version = 3;
    std::string magic = "GGUF";
    std::vector<std::string> entries;
    std::vector<std::string> tensors;
    std::string data;
    std::size_t alignment = 32;

    static std::string text(std::string_view value) { return raw(std::uint64_t{value.size()}).append(value); }

    // GGUF type ids: 4 uint32, 5 int32, 6 float32, 7 bool, 8 string, 9 array.
    gguf_builder& value(std::string_view key, std::uint32_t type, const std::string& content) {
        entries.push_back(text(key) + raw(type) + content);
        return *this;
    }
    gguf_builder& whole(std::string_view key, std::uint32_t number) { return value(key, 4, raw(number)); }
    gguf_builder& real(std::string_view key, float number) { return value(key, 6, raw(number)); }
    gguf_builder& truth(std::string_view key, bool is) { return value(key, 7, raw(std::uint8_t{is})); }
    gguf_builder& string(std::string_view key, std::string_view content) { return value(key, 8, text(content)); }
    gguf_builder& strings(std::string_view key, const std::vector<std::string>& all) {
        std::string content = raw(std::uint32_t{8}) + raw(std::uint64_t{all.size()});
        for (const std::string& one : all) content += text(one);
        return value(key, 9, content);
    }
    template <class Number>
    gguf_builder& numbers(std::string_view key, std::uint32_t type, const std::vector<Number>& all) {
        std::string content = raw(type) + raw(std::uint64_t{all.size()});
        for (const Number one : all) content += raw(one);
        return value(key, 9, content);
    }

    // A tensor description without data; dimensions innermost first, as in the file.
    gguf_builder& tensor(std::string_view name, const std::vector<std::int64_t>& dimensions, std::uint32_t type,
                         std::uint64_t offset) {
        std::string description = text(name) + raw(static_cast<std::uint32_t>(dimensions.size()));
        for (const std::int64_t size : dimensions) description += raw(size);
        tensors.push_back(description + raw(type) + raw(offset));
        return *this;
    }

    // An f32 tensor with data start, start + 1, ...
    gguf_builder& floats(std::string_view name, const std::vector<std::int64_t>& dimensions, float start = 0) {
        data.resize((data.size() + alignment - 1) / alignment * alignment);
        tensor(name, dimensions, 0, data.size());
        std::int64_t count = 1;
        for (const std::int64_t size : dimensions) count *= size;
        for (std::int64_t i = 0; i < count; ++i) data += raw(start + static_cast<float>(i));
        return *this;
    }

    std::string build() const {
        std::string file =
            magic + raw(version) + raw(std::uint64_t{tensors.size()}) + raw(std::uint64_t{entries.size()});
        for (const std::string& entry : entries) file += entry;
        for (const std::string& tensor : tensors) file += tensor;
        if (!tensors.empty()) file.resize((file.size() + alignment - 1) / alignment * alignment);
        return file + data;
    }
};

}  // namespace imbrex::engine::test
