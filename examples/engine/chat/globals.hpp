// Functions that every template can call: raise_exception, strftime_now, namespace, dict and range.
#pragma once

#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/builtins.hpp"

namespace imbrex::engine::jinja {

// `now`, `namespaces` and the context must outlive the functions. Each namespace that is made is added to the list.
std::vector<std::pair<std::string, value>> global_functions(const builtin_context& context, const std::tm& now,
                                                            std::vector<value>& namespaces);

}  // namespace imbrex::engine::jinja
