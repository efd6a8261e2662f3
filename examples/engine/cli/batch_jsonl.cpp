#include "engine/cli/batch_jsonl.hpp"

#include <imbrex/core/error.hpp>
#include <limits>

#include "engine/loading/json_text.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using ordered = nlohmann::ordered_json;  // keeps the order of fields

std::string name_of_line(int number) {
    return "line " + std::to_string(number);
}

int small_whole(const json& value, const char* key, const std::string& name, int other) {
    const auto whole = int_member(value, key, name);
    if (!whole) return other;
    const bool fits = *whole >= std::numeric_limits<int>::min() && *whole <= std::numeric_limits<int>::max();
    require(fits, name, ": \"", key, "\" is ", *whole, "; it is too large");
    return static_cast<int>(*whole);
}

void read_real(const json& value, const char* key, const std::string& name, float& result) {
    if (const auto real = double_member(value, key, name)) result = static_cast<float>(*real);
}

std::vector<std::string> read_stop(const json& value, const std::string& name) {
    if (value.is_string()) return {value.get<std::string>()};
    std::vector<std::string> all;
    for (const json& each : value) {
        require(value.is_array() && each.is_string(), name, ": \"stop\" must be a string or an array of strings");
        all.push_back(each.get<std::string>());
    }
    require(value.is_array(), name, ": \"stop\" must be a string or an array of strings");
    return all;
}

std::vector<std::pair<int, float>> read_bias(const json& value, const std::string& name) {
    std::vector<std::pair<int, float>> all;
    require(value.is_object(), name, ": \"logit_bias\" must be an object: {\"<token>\": <number>}");
    for (const auto& [key, number] : value.items()) {
        const bool is_id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
        require(is_id && number.is_number(), name, ": \"logit_bias\" has ", printable(key), ": ", shown(number),
                "; token ids and numbers are allowed");
        all.emplace_back(std::stoi(key), number.get<float>());
    }
    return all;
}

// The conversation of a line. Keys keep their order, which templates print.
chat_request read_chat(std::string_view line, const json& value, const std::string& name) {
    const json* messages = find_member(value, "messages");
    require(messages && messages->is_array() && !messages->empty(), name,
            ": \"messages\" must be an array with at least one message");
    for (const json& each : *messages) {
        const bool has_content = each.is_object() && (each.contains("content") || each.contains("tool_calls"));
        require(has_content && string_member(each, "role", name), name,
                ": each of the \"messages\" must have a \"role\" and a \"content\"");
    }
    const ordered all = ordered::parse(line);
    chat_request request{.messages = all["messages"]};
    if (const json* tools = find_member(value, "tools")) {
        require(tools->is_array(), name, ": \"tools\" must be an array");
        if (!tools->empty()) request.tools = all["tools"];
    }
    if (const json* variables = find_member(value, "chat_template_kwargs")) {
        require(variables->is_object(), name, ": \"chat_template_kwargs\" must be an object");
        request.variables = all["chat_template_kwargs"];
    }
    return request;
}

// A text or tokens.
void read_prompt(const json& value, const std::string& name, batch_request& result) {
    require(value.is_string() || (value.is_array() && !value.empty()), name, ": \"prompt\" is ", shown(value),
            "; a string or an array of token ids is allowed");
    if (value.is_string()) {
        result.prompt = value.get<std::string>();
        return;
    }
    for (const json& each : value) {
        require(each.is_number_integer() && each.get<std::int64_t>() == each.get<int>(), name, ": \"prompt\" has ",
                shown(each), "; token ids are whole numbers");
        result.prompt_tokens.push_back(each.get<int>());
    }
}

void read_sampling(const json& value, const std::string& name, generation_args& text) {
    sampling_params& sampling = text.sampling;
    read_real(value, "temperature", name, sampling.temperature);
    read_real(value, "top_p", name, sampling.top_p);
    read_real(value, "min_p", name, sampling.min_p);
    read_real(value, "repetition_penalty", name, sampling.repetition_penalty);
    read_real(value, "presence_penalty", name, sampling.presence_penalty);
    read_real(value, "frequency_penalty", name, sampling.frequency_penalty);
    sampling.top_k = small_whole(value, "top_k", name, sampling.top_k);
    sampling.logprobs = small_whole(value, "logprobs", name, sampling.logprobs);
    if (const auto seed = int_member(value, "seed", name)) text.seed = static_cast<std::uint64_t>(*seed);
    if (const json* stop = find_member(value, "stop")) sampling.stop = read_stop(*stop, name);
    if (const json* bias = find_member(value, "logit_bias")) sampling.bias = read_bias(*bias, name);
    if (find_member(value, "max_tokens")) {
        text.max_tokens = small_whole(value, "max_tokens", name, 0);
        require(*text.max_tokens >= 1, name, ": \"max_tokens\" is ", *text.max_tokens, "; it must be at least 1");
    }
}

std::string dumped(const ordered& value) {
    return value.dump(-1, ' ', false,
                      ordered::error_handler_t::replace);  // the bytes of a token need not be valid UTF-8
}

void add_answer(ordered& line, const chat_output& answer) {
    line["text"] = answer.content;
    if (!answer.reasoning.empty()) line["reasoning_content"] = answer.reasoning;
    if (!answer.tool_calls.empty()) line["tool_calls"] = to_json(answer.tool_calls);
}

}  // namespace

batch_request parse_batch_request(std::string_view line, int number, const generation_args& usual) {
    constexpr std::string_view known[] = {"prompt",
                                          "messages",
                                          "tools",
                                          "chat_template_kwargs",
                                          "id",
                                          "max_tokens",
                                          "priority",
                                          "ignore_eos",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "min_p",
                                          "repetition_penalty",
                                          "seed",
                                          "presence_penalty",
                                          "stop",
                                          "frequency_penalty",
                                          "logprobs",
                                          "logit_bias",
                                          "response_format"};
    const std::string name = name_of_line(number);
    const json value = parse_json(line, name);
    require(value.is_object(), name, ": is ", shown(value), "; a request is an object: {\"prompt\": \"...\"}");
    for (const auto& [key, content] : value.items()) {
        bool is_known = false;
        for (const std::string_view one : known) is_known |= key == one;
        require(is_known, name, ": ", printable(key), " is not a field of a request; batch --help lists them");
    }
    batch_request result{.text = usual, .priority = small_whole(value, "priority", name, 0)};
    const json* messages = find_member(value, "messages");
    require((messages != nullptr) != (find_member(value, "prompt") != nullptr), name, ": has ",
            messages ? "both \"prompt\" and" : "neither \"prompt\" nor", " \"messages\"; a request has one of them");
    if (messages) {
        result.chat = read_chat(line, value, name);
    } else {
        read_prompt(value["prompt"], name, result);
    }
    if (const json* ignored = find_member(value, "ignore_eos")) {
        require(ignored->is_boolean(), name, ": \"ignore_eos\" is ", shown(*ignored), "; true or false is allowed");
        result.ignores_eos = ignored->get<bool>();
    }
    for (const char* key : {"tools", "chat_template_kwargs"}) {
        require(messages || !find_member(value, key), name, ": \"", key, "\" belongs to \"messages\"");
    }
    read_sampling(value, name, result.text);
    check(result.text.sampling);
    if (find_member(value, "response_format")) result.response_format = ordered::parse(line)["response_format"];
    return result;
}

std::string batch_request_id(std::string_view line, int number) {
    const json value = json::parse(line.begin(), line.end(), nullptr, false);
    if (const json* id = find_member(value, "id"); id && (id->is_string() || id->is_number())) return dumped(*id);
    return std::to_string(number);
}

std::string result_line(const std::string& id, const written_text& written, const chat_output* answer,
                        int prompt_tokens, const tokenizer& tokens, bool with_logprobs) {
    const auto described = [&](int token, float logprob) {
        return ordered{
            {"id", token}, {"token", token < tokens.size() ? tokens.at(token).bytes : ""}, {"logprob", logprob}};
    };
    ordered line{{"id", ordered::parse(id)}, {"text", written.text}};
    if (answer != nullptr) add_answer(line, *answer);
    line["finish"] = name_of(written.reason);
    line["prompt_tokens"] = prompt_tokens;
    line["tokens"] = written.tokens.size();
    if (with_logprobs) {
        ordered all = ordered::array();
        for (const sampled_token& each : written.tokens) {
            ordered one = described(each.token, each.logprob);
            one["top_logprobs"] = ordered::array();
            for (const token_logprob& other : each.top_logprobs)
                one["top_logprobs"].push_back(described(other.token, other.value));
            all.push_back(std::move(one));
        }
        line["logprobs"] = std::move(all);
    }
    return dumped(line);
}

std::string error_line(const std::string& id, int number, const std::string& message) {
    const ordered line{{"id", ordered::parse(id)}, {"line", number}, {"error", message}};
    return dumped(line);
}

}  // namespace imbrex::engine
