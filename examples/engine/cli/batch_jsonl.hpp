// The JSON Lines that batch reads and writes. A request is a JSON object on one line:
//
//   {"prompt": "Once", "id": 7, "max_tokens": 20, "temperature": 0, "stop": ["."]}
//   {"prompt": [3, 17, 256], "max_tokens": 20, "ignore_eos": true}
//   {"messages": [{"role": "user", "content": "Hi!"}], "tools": [...], "chat_template_kwargs": {"enable_thinking": false}}
//
// and so is its result or its error message. Unknown fields are errors, to catch misspellings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cli/command_model.hpp"

namespace imbrex::engine {

struct batch_request {
    std::string prompt{};
    std::vector<int> prompt_tokens{};    // instead of its text
    std::optional<chat_request> chat{};  // instead of a prompt
    generation_args text;
    std::optional<nlohmann::ordered_json> response_format{};
    int priority = 0;
    bool ignores_eos = false;
};

// Parses a line; `text` has the defaults. `number` counts lines from 1.
batch_request parse_batch_request(std::string_view line, int number, const generation_args& usual);

// The "id" of a request as JSON, or the line number; also for lines with other errors.
std::string batch_request_id(std::string_view line, int number);

// Lines without a trailing line break. The answer in a chat is divided: "text" is its content.
std::string result_line(const std::string& id, const written_text& written, const chat_output* answer,
                        int prompt_tokens, const tokenizer& tokens, bool with_logprobs);
std::string error_line(const std::string& id, int number, const std::string& message);

}  // namespace imbrex::engine
