// Tests of engine/server/tool_call_filter.hpp.
#include "engine/server/tool_call_filter.hpp"

#include <doctest/doctest.h>

using namespace imbrex::engine;
using namespace imbrex::engine::server;

namespace {

chat_output filtered(std::string_view text, std::size_t piece) {
    tool_call_filter filter;
    chat_output all;
    for (std::size_t at = 0; at < text.size(); at += piece) all.append(filter.push(text.substr(at, piece)));
    all.append(filter.finish());
    return all;
}

}  // namespace

TEST_CASE("tool_call_filter: calls are found however the text is split") {
    const struct {
        const char* text;
        chat_output expected;
    } cases[] = {
        {"It is warm.", {.content = "It is warm."}},
        {"a < b <tool", {.content = "a < b <tool"}},
        {R"(I look. <tool_call>
{"name": "weather", "arguments": {"town": "Rome"}}
</tool_call>
<tool_call>{"name": "time", "arguments": {}}</tool_call>)",
         {.content = "I look. ", .tool_calls = {{"weather", R"({"town":"Rome"})"}, {"time", "{}"}}}},
        {R"(<tool_call>{"name": "f", "arguments": {}})", {.tool_calls = {{"f", "{}"}}}},
        {"<tool_call>f()</tool_call>.", {.content = "<tool_call>f()</tool_call>."}},
        {R"({"name": "f", "parameters": {"x": [1, 2]}})", {.tool_calls = {{"f", R"({"x":[1,2]})"}}}},
        {"\n\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n", {.tool_calls = {{"f", "{}"}}}},
        {" \n<tool", {.content = " \n<tool"}},
        {R"({"x": 1})", {.content = R"({"x": 1})"}},
        {R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>)", {.tool_calls = {{"f", R"({"x": 1})"}}}},
        {"", {}},
    };
    for (const auto& each : cases) {
        for (const std::size_t piece : {1, 2, 7, 1000}) {
            CAPTURE(each.text);
            CAPTURE(piece);
            CHECK(filtered(each.text, piece) == each.expected);
        }
    }
}

TEST_CASE("tool_call_filter: JSON that is deep enough to overflow a stack is no call") {
    const std::string deep = std::string(300000, '[') + std::string(300000, ']');
    const std::string call = R"(<tool_call>{"name": "f", "arguments": )" + deep + "}</tool_call>";
    CHECK(filtered(call, call.size()) == chat_output{.content = call});
}
