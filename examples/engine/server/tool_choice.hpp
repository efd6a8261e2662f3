// The fields "tools", "tool_choice" and "parallel_tool_calls" of a chat.
#pragma once

#include <vector>

#include "engine/chat/tool_calls.hpp"
#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

struct tool_choice {
    json shown{};             // to the model, by the template; null for none
    tool_call_rules rules{};  // of the answer
};

tool_choice read_tools(request_fields& fields);

// The constraint of the answer to this prompt; null if it is free.
shared_constraint constraint_of_tools(const api_context& context, const tool_call_rules& rules,
                                      const std::vector<int>& prompt);

// By which the client's answer names a call.
std::string new_call_id(const api_context& context);

}  // namespace imbrex::engine::server
