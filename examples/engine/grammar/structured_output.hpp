// Structured output: constraints on what a model writes. A text is constrained to a JSON Schema, to any JSON object, to a
// regular expression or to one of several texts. docs/structured_output.md lists the supported schemas.
//
//     text_options options;
//     options.sampling.constraint = constrain_to_json_schema(schema_text, model.token_trie());
//     model.submit(prompt, options);          // the text is a JSON document of that schema, unless max_tokens cuts it
//
// A constraint is immutable and may be shared by many requests and threads: keep it to save the time of compiling it, and
// its masks. Everything unsupported, unsatisfiable or too large throws imbrex::error; the message names the path in the
// schema and the keyword.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/token_constraint.hpp"

namespace imbrex::engine {

class grammar;     // rules over bytes (grammar/grammar.hpp)
class token_trie;  // the bytes of a vocabulary (grammar/token_trie.hpp); text_engine::token_trie() has the model's

using shared_trie = std::shared_ptr<const token_trie>;
using shared_constraint = std::shared_ptr<const token_constraint>;

// The white space that a model may put between the tokens of JSON.
enum class json_spacing {
    flexible,  // none, a space, or a line break with up to 20 spaces
    compact,   // none
};

shared_constraint constrain_to_json_schema(std::string_view schema, shared_trie tokens,
                                           json_spacing spacing = json_spacing::flexible);
shared_constraint constrain_to_json_object(shared_trie tokens, json_spacing spacing = json_spacing::flexible);
// The whole text matches; ^ and $ may be written.
shared_constraint constrain_to_regex(std::string_view expression, shared_trie tokens);
shared_constraint constrain_to_choices(const std::vector<std::string>& choices, shared_trie tokens);

// Bytes 0xff stand for special tokens: their names between two of them (special_token_mark).
shared_constraint constrain_to_grammar(grammar rules, shared_trie tokens);

// The "response_format" of OpenAI's API: {"type": "text"} (null is returned), {"type": "json_object"}, {"type":
// "json_schema", "json_schema": {"name": "...", "schema": {...}}}.
shared_constraint constraint_of_response_format(const nlohmann::ordered_json& format, shared_trie tokens,
                                                json_spacing spacing = json_spacing::flexible);

// Leaves the text free until all of these strings have appeared in it, in this order, and constrains what follows. Special
// tokens appear by their names: {"</think>"}, or {"<|channel|>final", "<|message|>"} in the harmony format. With an opener the text is free only if that token comes first, and constrained from its beginning otherwise.
// chat_format::constrained_answer knows what a model needs.
shared_constraint constrain_after(std::vector<std::string> triggers, shared_constraint what, shared_trie tokens,
                                  std::optional<int> opener = {});

}  // namespace imbrex::engine
