// Calls of tools: what models write is parsed, and constraints make them write it.
#include "engine/chat/tool_calls.hpp"

#include <optional>
#include <string>
#include <vector>

#include "engine/chat/chat_format.hpp"
#include "engine/grammar/token_trie.hpp"
#include "engine/loading/model_folder.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

using json = nlohmann::ordered_json;

json tool(const std::string& name, const std::string& parameters, bool is_strict = false) {
    json function{{"name", name}, {"parameters", json::parse(parameters)}};
    if (is_strict) function["strict"] = true;
    return {{"type", "function"}, {"function", std::move(function)}};
}

json two_tools(bool are_strict = false) {
    return json::array(
        {tool("look", R"({"type":"object","properties":{"town":{"enum":["Rome","Bonn"]}},"required":["town"]})",
              are_strict),
         tool("stop", R"({"type":"object","properties":{},"additionalProperties":false})", are_strict)});
}

// A vocabulary of bytes and special tokens, and what a constraint allows of texts with their names.
class vocabulary_of_bytes {
  public:
    explicit vocabulary_of_bytes(const std::vector<std::string>& special)
        : file_(byte_tokenizer_json(special)),
          tokens_(read_tokenizer_json(bytes(file_), "test")),
          trie_(std::make_shared<const token_trie>(tokens_, tokens_.size())) {}

    const tokenizer& tokens() const { return tokens_; }
    shared_constraint constraint(const tool_call_rules& rules, tool_call_format format) const {
        return constrain_to_tool_calls(rules, format, tokens_, trie_);
    }

    bool allows(const shared_constraint& what, const std::string& text) const {
        const auto state = what->start(false);
        for (const int id : tokens_.encode(text, {.add_special_tokens = false, .parse_special = true})) {
            if (state->must_end()) return false;
            if (!state->is_free()) {
                std::vector<std::uint32_t> mask(static_cast<std::size_t>(tokens_.size()) / 32 + 1);
                state->allowed_tokens(mask);
                if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) == 0) return false;
            }
            state->push(id);
        }
        return state->may_end();
    }

  private:
    std::string file_;
    tokenizer tokens_;
    shared_trie trie_;
};

const std::vector<std::string> harmony_tokens{"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"};

}  // namespace

TEST_CASE("Calls in JSON and in Mistral's formats") {
    CHECK(parse_tool_call(R"({"name": "f", "arguments": {"x": 1}})") == tool_call{"f", R"({"x":1})"});
    CHECK(parse_tool_call(R"({"name": "f", "parameters": "{}"})") == tool_call{"f", "{}"});
    CHECK_FALSE(parse_tool_call(R"({"name": "f"})"));
    CHECK_FALSE(parse_tool_call("f()"));
    using calls = std::vector<tool_call>;
    CHECK(parse_mistral_calls(R"( [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"x": 1}}])") ==
          calls{{"f", "{}"}, {"g", R"({"x":1})"}});
    CHECK(parse_mistral_calls(R"(f[ARGS]{"x": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{})") ==
          calls{{"f", R"({"x": 1})"}, {"g", "{}"}});
    CHECK(parse_mistral_calls("[]").empty());
    CHECK(parse_mistral_calls(R"([{"name": "f"}])").empty());
    CHECK(parse_mistral_calls("f(1)[ARGS]{}[TOOL_CALLS]g").empty());
}

TEST_CASE("Templates and vocabularies say how a model calls tools") {
    const vocabulary_of_bytes plain({}), mistral({"[TOOL_CALLS]"}), harmony(harmony_tokens);
    CHECK(tool_call_format_of("<tool_call>", plain.tokens()) == tool_call_format::hermes);
    CHECK(tool_call_format_of("{\"name\": ", plain.tokens()) == tool_call_format::json);
    CHECK(tool_call_format_of("[TOOL_CALLS] [", mistral.tokens()) == tool_call_format::mistral);
    CHECK(tool_call_format_of("[TOOL_CALLS] [", plain.tokens()) == tool_call_format::json);
    CHECK(tool_call_format_of("", harmony.tokens()) == tool_call_format::harmony);
}

TEST_CASE("A required call, in each format") {
    const tool_call_rules several{.tools = two_tools(), .is_required = true};
    const tool_call_rules one{.tools = two_tools(), .is_required = true, .allows_several = false};
    const std::string look = R"({"name": "look", "arguments": {"town": "Rome"}})",
                      stop = R"({"name": "stop", "arguments": {}})",
                      nowhere = R"({"name": "look", "arguments": {"town": "Paris"}})";
    const auto tagged = [](const std::string& call) { return "<tool_call>\n" + call + "\n</tool_call>"; };
    {
        const vocabulary_of_bytes words({});
        const auto any = words.constraint(several, tool_call_format::hermes);
        CHECK(words.allows(any, tagged(look)));
        CHECK(words.allows(any, "\n\n" + tagged(look) + "\n" + tagged(stop)));
        CHECK_FALSE(words.allows(any, tagged(nowhere)));
        CHECK_FALSE(words.allows(any, tagged(R"({"name": "other", "arguments": {}})")));
        CHECK_FALSE(words.allows(any, "It is warm."));
        CHECK_FALSE(words.allows(any, ""));
        const auto single = words.constraint(one, tool_call_format::hermes);
        CHECK(words.allows(single, tagged(look)));
        CHECK_FALSE(words.allows(single, tagged(look) + "\n" + tagged(stop)));
        const auto whole = words.constraint(several, tool_call_format::json);
        CHECK(words.allows(whole, R"({"name": "look", "parameters": {"town": "Bonn"}})"));
        CHECK_FALSE(words.allows(whole, look));
    }
    {
        const vocabulary_of_bytes words({"[TOOL_CALLS]"});
        const auto any = words.constraint(several, tool_call_format::mistral);
        CHECK(words.allows(any, "[TOOL_CALLS] [" + look + ", " + stop + "]"));
        CHECK(words.allows(any, "[TOOL_CALLS][" + look + "]"));
        CHECK_FALSE(words.allows(any, "[" + look + "]"));
        CHECK_FALSE(
            words.allows(words.constraint(one, tool_call_format::mistral), "[TOOL_CALLS][" + look + ", " + stop + "]"));
        const vocabulary_of_bytes later({"[TOOL_CALLS]", "[ARGS]"});
        const auto marked = later.constraint(several, tool_call_format::mistral);
        CHECK(later.allows(marked, R"([TOOL_CALLS]look[ARGS]{"town": "Rome"}[TOOL_CALLS]stop[ARGS]{})"));
        CHECK_FALSE(later.allows(marked, R"([TOOL_CALLS]look{"town": "Rome"})"));
    }
    {
        const vocabulary_of_bytes words(harmony_tokens);
        const auto any = words.constraint(several, tool_call_format::harmony);
        const std::string call =
            R"(<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"town": "Rome"})";
        const std::string reasoning = "<|channel|>analysis<|message|>Hm \u2026<|end|><|start|>assistant";
        CHECK(words.allows(any, call));
        CHECK(words.allows(any, reasoning + call));
        CHECK(words.allows(any, reasoning + "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + call));
        CHECK_FALSE(words.allows(any, reasoning));
        CHECK_FALSE(words.allows(any, reasoning + "<|channel|>final<|message|>Warm."));
    }
}

TEST_CASE("Strict tools constrain calls and leave other answers free") {
    const tool_call_rules rules{.tools = two_tools(true)};
    const std::string good = R"({"name": "look", "arguments": {"town": "Rome"}})",
                      bad = R"({"name": "look", "arguments": {"town": 1}})";
    CHECK(is_constrained(rules));
    CHECK_FALSE(is_constrained({.tools = two_tools()}));
    CHECK(is_constrained({.tools = two_tools(), .allows_several = false}));
    CHECK_FALSE(is_constrained({.is_required = true}));
    const vocabulary_of_bytes words({"[TOOL_CALLS]"});
    const auto hermes = words.constraint(rules, tool_call_format::hermes);
    CHECK(words.allows(hermes, "It is {warm}."));
    CHECK(words.allows(hermes, "I look.<tool_call>\n" + good + "\n</tool_call>"));
    CHECK_FALSE(words.allows(hermes, "I look.<tool_call>\n" + bad + "\n</tool_call>"));
    const auto mistral = words.constraint(rules, tool_call_format::mistral);
    CHECK(words.allows(mistral, "It is warm."));
    CHECK(words.allows(mistral, "[TOOL_CALLS][" + good + "]"));
    CHECK_FALSE(words.allows(mistral, "[TOOL_CALLS][" + bad + "]"));
    const auto whole = words.constraint(rules, tool_call_format::json);
    CHECK(words.allows(whole, "It is {warm}."));
    CHECK(words.allows(whole, R"({"name": "stop", "parameters": {}})"));
    CHECK_FALSE(words.allows(whole, R"({"name": "stop", "parameters": {"x": 1}})"));
    const vocabulary_of_bytes other(harmony_tokens);
    const auto harmony = other.constraint(rules, tool_call_format::harmony);
    CHECK(other.allows(harmony, "<|channel|>final<|message|>It is warm."));
    CHECK(other.allows(harmony, "<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{}"));
    CHECK_FALSE(other.allows(harmony, "<|channel|>commentary to=functions.go <|constrain|>json<|message|>{}"));
}

TEST_CASE("Schemas that are not supported: an error if the tool is strict, else any object") {
    const std::string schema = R"({"type": "object", "properties": {"x": {"not": {}}}})";
    const vocabulary_of_bytes words({});
    const auto any =
        words.constraint({.tools = json::array({tool("f", schema)}), .is_required = true}, tool_call_format::json);
    CHECK(words.allows(any, R"({"name": "f", "parameters": {"y": [1]}})"));
    check_error_message("#/properties/x: not: this keyword is not supported", [&] {
        words.constraint({.tools = json::array({tool("f", schema, true)})}, tool_call_format::json);
    });
}

TEST_CASE("Answers of models with [TOOL_CALLS] as a special token") {
    const vocabulary_of_bytes words({"[TOOL_CALLS]", "[ARGS]"});
    const auto parsed = [&](const std::string& answer) {
        chat_output_parser parser(chat_output_format::tags, "");
        incremental_detokenizer decoder(words.tokens(), incremental_detokenizer::text_position::beginning,
                                        tokenizer::special_tokens::marked);
        chat_output all;
        for (const int id : words.tokens().encode(answer, {.parse_special = true}))
            all.append(parser.push(decoder.push(id)));
        all.append(parser.finish());
        return all;
    };
    CHECK(parsed(R"(I look.[TOOL_CALLS][{"name": "f", "arguments": {}}])") ==
          chat_output{.content = "I look.", .tool_calls = {{"f", "{}"}}});
    CHECK(parsed("[THINK]Hm[/THINK][TOOL_CALLS]f[ARGS]{}") ==
          chat_output{.reasoning = "Hm", .tool_calls = {{"f", "{}"}}});
    CHECK(parsed("[TOOL_CALLS]f(1)") == chat_output{.content = "f(1)"});
    CHECK(parsed("Yes.") == chat_output{.content = "Yes."});
}

}  // namespace imbrex::engine::test
