// Answers of models with reasoning, divided as they arrive.
#include "engine/chat/chat_output.hpp"

#include <random>

#include "engine/chat/chat_format.hpp"
#include "engine/loading/model_folder.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr auto tags = chat_output_format::tags, harmony = chat_output_format::harmony;
constexpr const char* assistant = "<|start|>assistant";

// With marks around what looks like a special token.
std::string marked(const std::string& text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text.compare(i, 2, "<|") == 0) result += special_token_mark;
        result += text[i];
        if (i > 0 && text.compare(i - 1, 2, "|>") == 0) result += special_token_mark;
    }
    return result;
}

// `next` says how many bytes come together.
template <class Next>
chat_output in_pieces(chat_output_format format, const std::string& prompt, const std::string& text, const Next& next) {
    chat_output_parser parser(format, prompt);
    chat_output all;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = std::min<std::size_t>(next(), text.size() - at);
        all.append(parser.push(std::string_view(text).substr(at, length)));
        at += length;
    }
    all.append(parser.finish());
    return all;
}

// However the text is split, its parts are these.
void check_raw(chat_output_format format, const std::string& prompt, const std::string& text,
               const chat_output& expected) {
    CAPTURE(text);
    std::mt19937 random(1);
    const auto check = [&](const auto& next) {
        const chat_output got = in_pieces(format, prompt, text, next);
        CHECK(got.reasoning == expected.reasoning);
        CHECK(got.content == expected.content);
        CHECK(got.tool_calls == expected.tool_calls);
    };
    check([&] { return text.size(); });
    check([] { return 1u; });
    for (int i = 0; i < 10; ++i) check([&] { return 1 + random() % 9; });
}
void check(chat_output_format format, const std::string& prompt, const std::string& text, const chat_output& expected) {
    check_raw(format, marked(prompt), marked(text), expected);
}

chat_output said(const std::string& reasoning, const std::string& content) {
    return {.reasoning = reasoning, .content = content};
}

}  // namespace

TEST_CASE("harmony: analysis is reasoning, final is content") {
    check(harmony, assistant,
          "<|channel|>analysis<|message|>Hm, a < b.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
          said("Hm, a < b.", "Yes."));
    check(harmony, assistant, "<|channel|>final<|message|>Yes.<|return|>", said("", "Yes."));
    check(harmony, assistant, "<|channel|>final <|constrain|>json<|message|>{}", said("", "{}"));
    check(harmony, assistant, "", {});
    // Several messages of a kind, some without <|end|> or <|start|>.
    check(harmony, assistant,
          "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B"
          "<|channel|>commentary<|message|>C<|start|>assistant<|channel|>final<|message|>D",
          said("A\nB", "C\nD"));
    // Text that a token does not mark is text.
    check_raw(harmony, marked(assistant), marked("<|channel|>final<|message|>") + "It is <|end|> here.",
              said("", "It is <|end|> here."));
    check(harmony, assistant, "<|channel|>final<|message|>a<|unknown|>b", said("", "ab"));
}

TEST_CASE("harmony: an answer that ends too soon, or is none") {
    check(harmony, assistant, "<|channel|>analysis<|message|>Hm", said("Hm", ""));
    check(harmony, assistant, "<|channel|>anal", {});
    check(harmony, assistant, "<|channel|>analysis<|message|>Hm<|end|><|start|>assis", said("Hm", ""));
    check_raw(harmony, marked(assistant), marked("<|channel|>final<|message|>Yes") + "\xff<|retu", said("", "Yes"));
    check(harmony, assistant, "<|channel|>musing<|message|>Hm.", said("", "Hm."));
    check(harmony, assistant, "<|message|>Yes.", said("", "Yes."));
    check(harmony, assistant, "Hello.", said("", "Hello."));
    check(harmony, assistant, " tomorrow", said("", " tomorrow"));
    const std::string text(300, 'x');
    check(harmony, assistant, "<|channel|>" + text, said("", text));
}

TEST_CASE("harmony: the prompt may have begun the answer") {
    check(harmony, "<|start|>assistant<|channel|>analysis<|message|>So", " be it.<|end|>", said(" be it.", ""));
    check(harmony, "<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>", "Yes.", said("", "Yes."));
    check(harmony, "no header", "Yes.", said("", "Yes."));
}

TEST_CASE("harmony: messages to functions are calls") {
    const chat_output weather{.reasoning = "Hm", .tool_calls = {{"get_weather", R"({"city": "Bonn"})"}}};
    check(harmony, assistant,
          "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
          "<|constrain|>json<|message|>{\"city\": \"Bonn\"}<|call|>",
          weather);
    check(harmony, assistant,
          "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary "
          "json<|message|>{\"city\": \"Bonn\"}",
          weather);
    check(harmony, assistant, " to=functions.f<|channel|>commentary<|message|>{", {.tool_calls = {{"f", "{"}}});
    check(harmony, assistant, "<|channel|>analysis to=python code<|message|>1+1<|call|>",
          {.tool_calls = {{"python", "1+1"}}});
    CHECK(to_json(weather.tool_calls).dump() ==
          R"([{"type":"function","function":{"name":"get_weather","arguments":"{\"city\": \"Bonn\"}"}}])");
}

TEST_CASE("tags: what stands between them is reasoning") {
    check(tags, "", "<think>\nHm, 1 </ 2.\n</think>\n\nYes.\n", said("Hm, 1 </ 2.", "Yes.\n"));
    check(tags, "", "\n<think>\n\n</think>\n\nYes.", said("", "Yes."));
    check(tags, "", "[THINK]Hm[/THINK]Yes [THINK].", said("Hm", "Yes [THINK]."));
    check(tags, "<|im_start|>assistant\n<think>\n", "Hm\n</think>\nYes.", said("Hm", "Yes."));
    check(tags, "<think>\n\n</think>\n\n", "Yes.", said("", "Yes."));
    check(tags, "", "The tag <think> is text.</think>", said("", "The tag <think> is text.</think>"));
    check(tags, "", " <thin", said("", " <thin"));
    check(tags, "", "  <b>", said("", "  <b>"));
    check(tags, "", "<think>Hm </thi", said("Hm </thi", ""));
    check(tags, "", "a<|x|>b", said("", "ab"));
    // As special tokens.
    check_raw(tags, "", "\xff<think>\xffHm\xff</think>\xffYes.", said("Hm", "Yes."));
    check_raw(tags, "\xff<think>\xff", "Hm\xff</think>\xffYes.", said("Hm", "Yes."));
}

TEST_CASE("The vocabulary chooses the format, and its tokens carry the marks") {
    const auto divided = [](const std::vector<std::string>& special, const std::string& source,
                            const std::string& answer) {
        const std::string file = byte_tokenizer_json(special);
        const tokenizer tokens = read_tokenizer_json(bytes(file), "test");
        const auto format = chat_format::named("auto", tokens, {source, "", ""});
        const std::vector<int> prompt = format->encode({.messages = {{{"role", "user"}, {"content", "Hi"}}}});
        chat_output_parser parser = format->output_parser(prompt);
        incremental_detokenizer decoder(tokens, incremental_detokenizer::text_position::beginning,
                                        tokenizer::special_tokens::marked);
        chat_output all;
        for (const int id : tokens.encode(answer, {.parse_special = true})) all.append(parser.push(decoder.push(id)));
        all.append(parser.finish());
        return all;
    };
    const std::vector<std::string> of_harmony{"<|start|>", "<|channel|>", "<|message|>", "<|end|>"};
    CHECK(
        divided(of_harmony, "<|start|>user<|message|>{{ messages[0].content }}<|end|><|start|>assistant",
                "<|channel|>analysis<|message|>Hm \u2026<|end|><|start|>assistant<|channel|>final<|message|>\u00c4.") ==
        said("Hm \u2026", "\u00c4."));
    CHECK(divided(of_harmony, "<|start|>assistant<|channel|>analysis<|message|>", "Hm<|end|>") == said("Hm", ""));
    CHECK(divided({}, "{{ messages[0].content }}\n<think>\n", "Hm</think>\nYes.") == said("Hm", "Yes."));
    CHECK(divided({"<think>", "</think>"}, "{{ messages[0].content }}", "<think>Hm</think>\nYes.") ==
          said("Hm", "Yes."));
}

TEST_CASE("Templates for harmony get the names that they have for reasoning and arguments") {
    const std::string file = byte_tokenizer_json({"<|start|>", "<|channel|>", "<|message|>"});
    const tokenizer tokens = read_tokenizer_json(bytes(file), "test");
    const std::string source =
        "{{ messages[0].thinking }};{{ messages[0].tool_calls[0].function.arguments | tojson }};"
        "{{ messages[0].tool_calls[1].function.arguments | tojson }}";
    const auto format = chat_format::named("auto", tokens, {source, "", ""});
    const std::vector<int> ids = format->encode(
        {.messages = nlohmann::ordered_json::parse(
             R"([{"role":"assistant","reasoning_content":"Hm","tool_calls":[{"function":{"arguments":"{\"a\": 1}"}},)"
             R"({"function":{"arguments":"no JSON"}}]}])")});
    CHECK(tokens.decode(ids) == R"(Hm;{"a": 1};"no JSON")");
}

}  // namespace imbrex::engine::test
