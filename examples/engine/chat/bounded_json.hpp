// JSON that a client or a model has written within a text. Its depth is bounded, since JSON is copied and written by
// recursion: 200 kB of brackets would overflow the stack.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace imbrex::engine {

inline constexpr int deepest_json = 64;

// Nothing if the text is not JSON, or nests deeper.
inline std::optional<nlohmann::ordered_json> parse_bounded_json(std::string_view text) {
    using json = nlohmann::ordered_json;
    bool is_too_deep = false;
    const auto check = [&](int depth, json::parse_event_t, json&) {
        is_too_deep = is_too_deep || depth > deepest_json;
        return !is_too_deep;
    };
    json value = json::parse(text, check, false);
    if (is_too_deep || value.is_discarded()) return {};
    return value;
}

}  // namespace imbrex::engine
