// Files of this folder that CMake puts into the program.
#pragma once

#include <string_view>

namespace imbrex::engine::server {

std::string_view chat_page_html();
std::string_view openapi_json();

}  // namespace imbrex::engine::server
