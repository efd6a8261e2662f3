// Cuts a template into text, output tags {{ }}, statement tags {% %} and their tokens. White space around tags goes as
// transformers sets Jinja: trim_blocks, lstrip_blocks, and the signs - and + in tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace imbrex::engine::jinja {

enum class token_type {
    text,         // outside of tags
    print_begin,  // {{
    print_end,    // }}
    block_begin,  // {%
    block_end,    // %}
    name,
    string,
    integer,
    real,
    sign,  // an operator or a bracket
    end,
};

struct token {
    token_type type;
    std::string text;  // of a string: without quotes and escapes
    int line;
};

std::vector<token> tokens_of(std::string_view source, const std::string& name);

}  // namespace imbrex::engine::jinja
