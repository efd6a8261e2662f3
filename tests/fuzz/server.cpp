#include "fuzz/server.hpp"

#include <algorithm>

#include "engine/server/embedded_files.hpp"
#include "fuzz/json_mutation.hpp"

extern "C" std::size_t LLVMFuzzerMutate(unsigned char* data, std::size_t size, std::size_t most);

namespace imbrex::engine::fuzz {

// The names of all properties in the OpenAPI document.
void collect_names(const server::json& value, std::vector<std::string>& names) {
    if (!value.is_structured()) return;
    for (const auto& [key, member] : value.items()) {
        if (value.is_object()) names.push_back(key);
        collect_names(member, names);
    }
}

const std::vector<std::string>& field_names() {
    static const std::vector<std::string> all = [] {
        std::vector<std::string> names{"tool_calls", "function", "arguments",  "name",     "role", "content",
                                       "type",       "pattern",  "properties", "required", "enum", "anyOf",
                                       "$ref",       "$defs",    "items",      "minItems"};
        collect_names(server::json::parse(server::openapi_json()), names);
        std::ranges::sort(names);
        names.erase(std::unique(names.begin(), names.end()), names.end());
        return names;
    }();
    return all;
}

// Another endpoint or format with the same body.
std::string other_line(unsigned seed) {
    const auto routes = server::api_routes();
    const std::string_view format = tiny_server::formats[seed / 64 % std::size(tiny_server::formats)];
    if (seed % 8 == 0) return "answer " + std::string(format);
    return std::string(routes[seed % routes.size()].path) + " " + std::string(format);
}

std::size_t write(std::string_view text, unsigned char* data, std::size_t most) {
    const std::size_t size = std::min(text.size(), most);
    std::copy_n(text.begin(), size, data);
    return size;
}

}  // namespace imbrex::engine::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(unsigned char* data, std::size_t size, std::size_t most, unsigned seed) {
    using namespace imbrex::engine;
    const std::string_view input = as_text(std::as_bytes(std::span(data, size)));
    const std::size_t line = input.find('\n');
    const std::string first(input.substr(0, line));
    const std::string body(line == std::string_view::npos ? "" : input.substr(line + 1));
    if (line == std::string_view::npos || seed % 32 == 0)
        return fuzz::write(fuzz::other_line(seed / 32) + "\n" + body, data, most);
    auto document = server::json::parse(body, nullptr, false);
    if (document.is_discarded() || seed % 4 == 0) {
        const std::size_t head = first.size() + 1;
        return head + LLVMFuzzerMutate(data + head, size - head, most - head);
    }
    fuzz::json_mutation mutation(fuzz::field_names(), seed);
    for (unsigned i = 0; i <= seed / 4 % 3; ++i) mutation.apply(document);
    return fuzz::write(first + "\n" + server::dumped(document), data, most);
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    imbrex::engine::fuzz::api_request(std::as_bytes(std::span(data, size)));
    return 0;
}
