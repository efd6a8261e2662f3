// How models write the calls of tools. The chat template shows which of these formats a model knows:
//
//     hermes    <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>        Qwen, SmolLM3, Granite, ...
//     json      {"name": "f", "parameters": {...}}                                  Llama 3: the whole answer
//     mistral   [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]                or, with [ARGS] in the vocabulary:
//               [TOOL_CALLS]f[ARGS]{...}[TOOL_CALLS]...
//     harmony   <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
//
// Constraints make a model write calls of this form, with arguments by the JSON Schema of each tool (docs/structured_output.md).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/structured_output.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

struct tool_call {
    std::string name, arguments;  // the arguments as the model wrote them, usually JSON

    bool operator==(const tool_call&) const = default;
};

// As in a message: [{"type": "function", "function": {"name": "...", "arguments": "..."}}, ...].
nlohmann::ordered_json to_json(const std::vector<tool_call>& calls);

// {"name": "...", "arguments": {...}}, or "parameters"; nothing for any other text.
std::optional<tool_call> parse_tool_call(std::string_view text);

// What stands behind [TOOL_CALLS], with the names of special tokens; empty if it is none.
std::vector<tool_call> parse_mistral_calls(std::string_view text);

enum class tool_call_format { hermes, json, mistral, harmony };

tool_call_format tool_call_format_of(std::string_view chat_template, const tokenizer& tokens);

struct tool_call_rules {
    nlohmann::ordered_json tools = nlohmann::ordered_json::array();  // that may be called, as in a chat request
    bool is_required = false;                                        // the answer is a call
    bool allows_several = true;
};

// False if any answer is allowed: no call is required, several are allowed, and no tool is "strict".
bool is_constrained(const tool_call_rules& rules);

// Of an answer without the reasoning before it; in the harmony format with it. Arguments of a tool that is not strict are any
// object if its schema is not supported. Throws imbrex::error if that of a strict one is not.
shared_constraint constrain_to_tool_calls(const tool_call_rules& rules, tool_call_format format,
                                          const tokenizer& tokens, shared_trie trie);

}  // namespace imbrex::engine
