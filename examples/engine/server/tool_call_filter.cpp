#include "engine/server/tool_call_filter.hpp"

#include <algorithm>
#include <utility>

namespace imbrex::engine::server {

namespace {

constexpr std::string_view opening = "<tool_call>", closing = "</tool_call>";
constexpr std::string_view white_space = " \t\r\n";

// The length of the longest suffix of the text that is a prefix of the mark.
std::size_t begun(std::string_view text, std::string_view mark) {
    for (std::size_t length = std::min(mark.size() - 1, text.size()); length > 0; --length) {
        if (text.ends_with(mark.substr(0, length))) return length;
    }
    return 0;
}

}  // namespace

chat_output tool_call_filter::push(std::string_view content) {
    held_ += content;
    chat_output found;
    while (advance(found)) {}
    return found;
}

// True if the state has changed.
bool tool_call_filter::advance(chat_output& found) {
    if (state_ == state::beginning) {
        const std::size_t first = held_.find_first_not_of(white_space);
        if (first == std::string::npos) return false;
        const std::string_view written = std::string_view(held_).substr(first);
        if (written.size() < opening.size() && opening.starts_with(written)) return false;
        state_ = written.front() == '{' ? state::json : state::text;
        if (written.starts_with(opening)) held_.erase(0, first);
        return true;
    }
    if (state_ == state::json) return false;  // until the end
    if (state_ == state::after_call) {
        held_.erase(0, std::min(held_.find_first_not_of(white_space), held_.size()));
        if (held_.empty()) return false;
        state_ = state::text;
    }
    if (state_ == state::text) {
        const std::size_t at = held_.find(opening);
        const std::size_t end = at == std::string::npos ? held_.size() - begun(held_, opening) : at;
        found.content += held_.substr(0, end);
        held_.erase(0, end);
        if (at == std::string::npos) return false;
        state_ = state::call;
        return true;
    }
    const std::size_t end = held_.find(closing);
    if (end == std::string::npos) return false;
    if (auto call = parse_tool_call(std::string_view(held_).substr(opening.size(), end - opening.size()))) {
        found.tool_calls.push_back(std::move(*call));
    } else {
        found.content += held_.substr(0, end + closing.size());
    }
    held_.erase(0, end + closing.size());
    state_ = state::after_call;
    return true;
}

chat_output tool_call_filter::finish() {
    const std::string left = std::exchange(held_, {});
    std::string_view text = left;
    if (state_ == state::call) text.remove_prefix(opening.size());  // a model may end without the closing tag
    if (state_ == state::json || state_ == state::call) {
        if (auto call = parse_tool_call(text)) return {.tool_calls = {std::move(*call)}};
    }
    return {.content = left};
}

chat_output divided(std::optional<chat_output_parser>& parser, std::optional<tool_call_filter>& calls,
                    const generation_event& event) {
    const bool ends = event.reason != finish_reason::none;
    chat_output more{.content = event.text};
    if (parser) {
        more = parser->push(event.text);
        if (ends) more.append(parser->finish());
    }
    if (calls) {
        const std::string content = std::exchange(more.content, {});
        more.append(calls->push(content));
        if (ends) more.append(calls->finish());
    }
    return more;
}

}  // namespace imbrex::engine::server
