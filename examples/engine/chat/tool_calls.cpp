#include "engine/chat/tool_calls.hpp"

#include <algorithm>
#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/chat/bounded_json.hpp"
#include "engine/grammar/code_points.hpp"
#include "engine/grammar/grammar.hpp"
#include "engine/grammar/json_schema.hpp"

namespace imbrex::engine {

namespace {

using json = nlohmann::ordered_json;

constexpr int most_calls = 16;  // of a constrained answer
constexpr std::string_view mistral_mark = "[TOOL_CALLS]", mistral_arguments = "[ARGS]", mistral_id = "[CALL_ID]";

expression special(std::string_view name) {
    return literal(special_token_mark + std::string(name) + special_token_mark);
}

bool is_strict(const json& tool) {
    const json& function = tool.at("function");
    return function.contains("strict") && function["strict"] == true;
}

std::string quoted(const std::string& name) {
    return json(name).dump(-1, ' ', false, json::error_handler_t::replace);
}

// Tries it, with what is left of the work that all tools may take.
bool is_supported(grammar_builder& all, const std::string& schema) {
    grammar_builder trial;
    trial.budget() = all.budget();
    bool is_good = true;
    try {
        const std::int32_t start = add_json_schema(trial, schema, json_spacing::flexible);
        all.budget() = trial.budget();
        std::move(trial).finished(start);
    } catch (const error&) {
        all.budget() = trial.budget();
        is_good = false;
    }
    return is_good;
}

// The rule of a tool's arguments.
std::int32_t add_arguments(grammar_builder& all, const json& tool) {
    const json& function = tool.at("function");
    std::string schema = R"({"type": "object"})";
    if (function.contains("parameters") && !function["parameters"].is_null()) {
        const std::string given = function["parameters"].dump();
        if (is_strict(tool) || is_supported(all, given)) schema = given;
    }
    return add_json_schema(all, schema, json_spacing::flexible);
}

// A call in the JSON of the formats; in harmony and with [ARGS]: name, then arguments.
expression call_of(grammar_builder& all, const json& tool, tool_call_format format, bool has_marked_arguments) {
    const std::string name = tool.at("function").at("name").get<std::string>();
    const expression arguments = call(add_arguments(all, tool));
    switch (format) {
        case tool_call_format::harmony:
            return concatenation({special("<|channel|>"), literal("commentary to=functions." + name + " "),
                                  special("<|constrain|>"), literal("json"), special("<|message|>"), arguments});
        case tool_call_format::mistral:
            if (has_marked_arguments) return concatenation({literal(name), special(mistral_arguments), arguments});
            break;
        default:
            break;
    }
    const char* const key = format == tool_call_format::json ? "parameters" : "arguments";
    return concatenation({literal(str_cat("{\"name\": ", quoted(name), ", \"", key, "\": ")), arguments, literal("}")});
}

// With `between` them.
expression several(const expression& one, const expression& between, bool allows_several) {
    if (!allows_several) return one;
    return concatenation({one, repeated(concatenation({between, one}), 0, most_calls - 1)});
}

expression any_text(int least = 0) {
    return repeated(encoded(code_point_set::all(), text_encoding::utf8), least);
}

// Text that does not begin as a call does.
expression answer_without_call() {
    const code_point_set begins({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}, {'{', '{'}});
    return concatenation({encoded(begins.complement(), text_encoding::utf8), any_text()});
}

expression harmony_message(const char* channel) {
    return concatenation({special("<|channel|>"), literal(channel), special("<|message|>"), any_text()});
}

// Reasoning, and text before a call, come first; the prompt has begun the first message.
expression harmony_answer(const expression& one, bool is_required) {
    const expression before = concatenation({choice({harmony_message("analysis"), harmony_message("commentary")}),
                                             special("<|end|>"), special("<|start|>"), literal("assistant")});
    return concatenation({repeated(before, 0), is_required ? one : choice({one, harmony_message("final")})});
}

// The text from its beginning, or, if no call is required, behind the trigger.
expression constrained_text(const expression& one, const tool_call_rules& rules, tool_call_format format,
                            bool has_marked_arguments) {
    const expression line = optional(any_of({"\n", "\n\n"}));
    const expression opening = literal("<tool_call>"), closing = literal("\n</tool_call>");
    switch (format) {
        case tool_call_format::harmony:
            return harmony_answer(one, rules.is_required);
        case tool_call_format::json:
            return rules.is_required ? concatenation({line, one}) : choice({one, answer_without_call()});
        case tool_call_format::hermes: {
            const expression rest = concatenation({line, one, closing});
            const expression more = repeated(concatenation({line, opening, rest}), 0, most_calls - 1);
            const expression all = rules.allows_several ? concatenation({rest, more}) : rest;
            return rules.is_required ? concatenation({line, opening, all}) : all;
        }
        case tool_call_format::mistral:
            break;
    }
    expression list = several(one, has_marked_arguments ? special(mistral_mark) : literal(", "), rules.allows_several);
    if (!has_marked_arguments)
        list = concatenation({optional(literal(" ")), literal("["), std::move(list), literal("]")});
    return rules.is_required ? concatenation({special(mistral_mark), list}) : list;
}

// What a call begins with where text may come before it.
std::optional<std::string> trigger_of(tool_call_format format) {
    if (format == tool_call_format::hermes) return "<tool_call>";
    if (format == tool_call_format::mistral) return std::string(mistral_mark);
    return {};
}

// {"name": "...", "arguments": {...}}
std::optional<tool_call> call_in(const json& call) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return {};
    for (const char* const key : {"arguments", "parameters"}) {
        if (!call.contains(key)) continue;
        const json& arguments = call[key];
        return tool_call{call["name"], arguments.is_string() ? arguments.get<std::string>() : arguments.dump()};
    }
    return {};
}

}  // namespace

nlohmann::ordered_json to_json(const std::vector<tool_call>& calls) {
    auto all = nlohmann::ordered_json::array();
    for (const tool_call& call : calls)
        all.push_back({{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    return all;
}

std::optional<tool_call> parse_tool_call(std::string_view text) {
    const auto call = parse_bounded_json(text);
    return call ? call_in(*call) : std::nullopt;
}

std::vector<tool_call> parse_mistral_calls(std::string_view text) {
    std::vector<tool_call> calls;
    if (text.find(mistral_arguments) == std::string_view::npos) {
        const auto list = parse_bounded_json(text);
        if (!list || !list->is_array()) return {};
        for (const json& each : *list) {
            auto call = call_in(each);
            if (!call) return {};
            calls.push_back(std::move(*call));
        }
        return calls;
    }
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t next = text.find(mistral_mark, begin);
        const std::string_view one = text.substr(begin, next == std::string_view::npos ? next : next - begin);
        const std::size_t at = one.find(mistral_arguments);
        if (at == std::string_view::npos) return {};
        const std::string_view name = one.substr(0, std::min(at, one.find(mistral_id)));
        calls.push_back({std::string(name), std::string(one.substr(at + mistral_arguments.size()))});
        begin = next == std::string_view::npos ? text.size() : next + mistral_mark.size();
    }
    return calls;
}

tool_call_format tool_call_format_of(std::string_view chat_template, const tokenizer& tokens) {
    const auto has = [&](std::string_view part) { return chat_template.find(part) != std::string_view::npos; };
    if (tokens.special("<|start|>") && tokens.special("<|channel|>") && tokens.special("<|message|>"))
        return tool_call_format::harmony;
    if (tokens.special(mistral_mark) && has(mistral_mark)) return tool_call_format::mistral;
    return has("<tool_call>") ? tool_call_format::hermes : tool_call_format::json;
}

bool is_constrained(const tool_call_rules& rules) {
    if (rules.tools.empty()) return false;
    return rules.is_required || !rules.allows_several || std::ranges::any_of(rules.tools, is_strict);
}

shared_constraint constrain_to_tool_calls(const tool_call_rules& rules, tool_call_format format,
                                          const tokenizer& tokens, shared_trie trie) {
    const bool has_marked_arguments =
        format == tool_call_format::mistral && tokens.special(mistral_arguments).has_value();
    grammar_builder all;
    const std::int32_t start = all.add_rule("answer"), one = all.add_rule("call");
    std::vector<expression> calls;
    for (const json& tool : rules.tools) calls.push_back(call_of(all, tool, format, has_marked_arguments));
    all.define(one, choice(std::move(calls)));
    all.define(start, constrained_text(call(one), rules, format, has_marked_arguments));
    const shared_constraint made = constrain_to_grammar(std::move(all).finished(start), trie);
    const auto trigger = trigger_of(format);
    return rules.is_required || !trigger ? made : constrain_after({*trigger}, made, trie);
}

}  // namespace imbrex::engine
