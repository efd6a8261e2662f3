// The lines that batch reads and writes. A request is an object in JSON on a line of its own:
//
//   {"prompt": "Once", "id": 7, "max_tokens": 20, "temperature": 0, "stop": ["."]}
//   {"messages": [{"role": "user", "content": "Hi!"}], "seed": 5}
//
// and so is its result, or the sentence with which it was refused. A field that is not known is refused: it may be a known one misspelt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cli/command_model.hpp"
#include "engine/tokenizer/chat_template.hpp"

namespace imbrex::engine {

struct batch_request {
    std::string prompt;
    std::vector<chat_message> messages;  // instead of a prompt
    generation_args text;
    int priority = 0;
};

// What the line says, over what holds for all lines. `number` counts lines from 1.
batch_request parse_batch_request(std::string_view line, int number, const generation_args& usual);

// What a result repeats of the line: its "id" as JSON, or the line's number, also where the line is refused for something else.
std::string batch_request_id(std::string_view line, int number);

// Lines without a line break at the end.
std::string result_line(const std::string& id, const written_text& written, int prompt_tokens, const tokenizer& tokens,
                        bool with_logprobs);
std::string error_line(const std::string& id, int number, const std::string& sentence);

}  // namespace imbrex::engine
