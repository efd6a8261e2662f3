// How a conversation becomes a prompt: by the model's own template (Jinja), by a template of the user, or by one of three
// that are written out as code (tokenizer/chat_template.hpp), for models without one.
//
// Special tokens in the text of a template become tokens; in the messages they stay text, so that a message cannot end its
// turn or begin another.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/chat/chat_output.hpp"
#include "engine/chat/jinja_template.hpp"
#include "engine/chat/tool_calls.hpp"
#include "engine/grammar/structured_output.hpp"
#include "engine/loading/chat_source.hpp"
#include "engine/tokenizer/chat_template.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

struct chat_request {
    // [{"role": "user", "content": "..."}, ...], with whatever else the template knows (tool_calls, ...).
    nlohmann::ordered_json messages = nlohmann::ordered_json::array();
    nlohmann::ordered_json tools{};                                       // an array, or null
    nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // of the template: {"enable_thinking": false}
};

class chat_format {
  public:
    // By a name: "auto" (the model's own, else by the special tokens of the vocabulary), "llama2", "llama3", "chatml", or a
    // file with a template. Nothing for "none", and for "auto" if the model has no template.
    static std::optional<chat_format> named(const std::string& name, const tokenizer& tokens, const chat_source& own);

    // The conversation up to the start of the assistant's next turn.
    std::vector<int> encode(const chat_request& request) const;

    // Divides the answer to this prompt. Its text has marks around special tokens.
    chat_output_parser output_parser(std::span<const int> prompt) const;

    // A constraint on the content of the answer to this prompt, which leaves the reasoning before it free: up to </think>, if
    // the prompt has begun it or the answer begins with <think>; in the harmony format up to the final message.
    shared_constraint constrained_answer(shared_constraint what, std::span<const int> prompt, shared_trie trie) const;

    // How the model writes calls of tools.
    tool_call_format tool_calls() const { return tool_calls_; }
    // A constraint on the content of an answer, by constrain_to_tool_calls; in harmony of the whole answer.
    shared_constraint constrained_calls(const tool_call_rules& rules, shared_trie trie) const {
        return constrain_to_tool_calls(rules, tool_calls_, *tokens_, std::move(trie));
    }

    // Tokens that end the assistant's turn, in addition to the model's own.
    const std::vector<int>& end_tokens() const { return end_tokens_; }

    const std::string& description() const { return description_; }

  private:
    chat_format(const tokenizer& tokens, std::string description)
        : tokens_(&tokens), description_(std::move(description)) {}
    static chat_format of_source(const tokenizer& tokens, const chat_source& source, const std::string& name);
    static chat_format of_style(const tokenizer& tokens, chat_template style);

    std::vector<int> encode_by_template(const jinja::jinja_template& made, const chat_request& request) const;

    const tokenizer* tokens_;
    std::string description_;
    std::variant<chat_template, jinja::jinja_template> template_ = chat_template::chatml;
    std::string bos_text_, eos_text_;
    std::vector<int> end_tokens_;
    tool_call_format tool_calls_ = tool_call_format::json;
};

}  // namespace imbrex::engine
