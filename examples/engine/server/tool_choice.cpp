#include "engine/server/tool_choice.hpp"

#include <imbrex/core/error.hpp>

namespace imbrex::engine::server {

namespace {

void check_tool(const json& tool, const std::string& path) {
    if (!tool.is_object()) throw api_error(400, path + ": " + shown(tool) + "; an object is allowed", path);
    request_fields fields(tool, path + ".");
    fields.required_text("type");
    fields.choice("type", {"function"});
    const json* const function = fields.object("function");
    if (function == nullptr) fields.fail("function", "an object is needed");
    request_fields inner(*function, fields.path_of("function") + ".");
    if (inner.required_text("name").empty()) inner.fail("name", "a name has a character");
    inner.object("parameters");
    inner.boolean("strict", false);
}

const json* find_tool(const json& tools, const std::string& name) {
    for (const json& each : tools) {
        if (each["function"]["name"] == name) return &each;
    }
    return nullptr;
}

// {"type": "function", "function": {"name": "..."}}
json named_tool(request_fields& fields, const json& choice, const json& tools) {
    request_fields inner(choice, "tool_choice.");
    inner.required_text("type");
    inner.choice("type", {"function"});
    const json* const function = inner.object("function");
    if (function == nullptr) inner.fail("function", "an object with a \"name\" is needed");
    const std::string name = request_fields(*function, "tool_choice.function.").required_text("name");
    const json* const tool = find_tool(tools, name);
    if (tool == nullptr) fields.fail("tool_choice", "the name of one of the \"tools\" is allowed");
    return json::array({*tool});
}

}  // namespace

tool_choice read_tools(request_fields& fields) {
    tool_choice result;
    const json* const tools = fields.array("tools");
    result.rules.allows_several = fields.boolean("parallel_tool_calls", true);
    if (tools != nullptr) result.rules.tools = *tools;
    for (std::size_t i = 0; i < result.rules.tools.size(); ++i)
        check_tool(result.rules.tools[i], str_cat(fields.path_of("tools"), "[", i, "]"));
    if (!result.rules.tools.empty()) result.shown = result.rules.tools;
    const json* const choice = fields.find("tool_choice");
    if (choice == nullptr) return result;
    const std::string word = choice->is_string() ? choice->get<std::string>() : "";
    if (word == "auto") return result;
    if (word == "none") return {};
    if (!choice->is_object() && word != "required")
        fields.fail("tool_choice",
                    "\"auto\", \"none\", \"required\" and an object with the name of a tool are allowed");
    if (result.rules.tools.empty()) fields.fail("tool_choice", "it needs \"tools\"");
    result.rules.is_required = true;
    if (choice->is_object()) result.rules.tools = named_tool(fields, *choice, result.rules.tools);
    return result;
}

shared_constraint constraint_of_tools(const api_context& context, const tool_call_rules& rules,
                                      const std::vector<int>& prompt) {
    if (!context.format || !is_constrained(rules)) return nullptr;
    const std::string key = str_cat(rules.is_required ? "required" : "auto",
                                    rules.allows_several ? " several " : " one ", dumped(rules.tools));
    shared_constraint made = context.constraints->find(key);
    try {
        if (!made) {
            made = context.format->constrained_calls(rules, context.model.token_trie());
            context.constraints->keep(key, made);
        }
        if (context.format->tool_calls() == tool_call_format::harmony) return made;
        return context.format->constrained_answer(made, prompt, context.model.token_trie());
    } catch (const error& failure) {
        throw api_error(400, str_cat("tools: ", failure.what()), "tools");
    }
}

std::string new_call_id(const api_context& context) {
    constexpr std::size_t length_for_mistral = 9;  // its templates allow no other
    const bool is_mistral = context.format && context.format->tool_calls() == tool_call_format::mistral;
    return is_mistral ? new_id("").substr(0, length_for_mistral) : new_id("call_");
}

}  // namespace imbrex::engine::server
