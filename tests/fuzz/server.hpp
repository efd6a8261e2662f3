// Fuzz target of the API: requests to every endpoint of a server without HTTP, with a tiny model. The first line of an input
// is an endpoint and a chat format, the rest is the body:
//
//     /v1/chat/completions qwen3
//     {"messages": [{"role": "user", "content": "Hi"}]}
//
// A request may be refused with an api_error of a client's fault. A reply is valid JSON, a stream is events of JSON, and
// afterwards the KV cache is empty. With the endpoint "answer" the body is what a model writes: its parts do not depend on
// how it arrives.
#pragma once

#include <chrono>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/loading/random_model.hpp"
#include "engine/server/api_routes.hpp"
#include "engine/server/tool_call_filter.hpp"
#include "fuzz/readers.hpp"

namespace imbrex::engine::fuzz {

using server::api_context;
using server::api_reply;

class tiny_server {
  public:
    // With a template of each kind; "none" continues texts.
    static constexpr std::string_view formats[] = {"none", "chatml", "qwen3", "llama3_tools", "harmony"};

    tiny_server() : model_(files(), {.context = 512, .max_num_seqs = 4}), engine_(model_), service_(engine_, limits()) {
        for (const std::string_view name : formats) {
            contexts_.push_back({.model = model_,
                                 .service = service_,
                                 .format = format_named(name),
                                 .settings = {.model_name = "tiny", .seed = 1},
                                 .max_sequence_length = model_.max_sequence_length()});
        }
    }

    const api_context* context(std::string_view format) const {
        for (std::size_t i = 0; i < contexts_.size(); ++i) {
            if (formats[i] == format) return &contexts_[i];
        }
        return nullptr;
    }

    // Everything is freed, soon after a request that was left.
    bool becomes_idle() const {
        for (int i = 0; i < 100'000 && service_.figures().sequences > 0; ++i)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        return service_.figures().sequences == 0 && model_.cache().used_bytes() == 0;
    }

    const text_engine& model() const { return model_; }

  private:
    static model_files files() {
        model_config small = config_of_known_model("tiny");
        small.layers = 1;
        small.intermediate_size = 64;
        return random_model(
            small, 1, {"<|im_start|>", "<|im_end|>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>"});
    }
    static server::service_limits limits() { return {.running = 4, .queue = 4}; }

    std::optional<chat_format> format_named(std::string_view name) const {
        const bool is_file = name != "none" && name != "chatml";
        const std::string folder = std::string(IMBREX_FUZZ_CORPUS) + "/../../engine/data/chat_templates/";
        return chat_format::named(is_file ? folder + std::string(name) + ".jinja" : std::string(name), model_.tokens(),
                                  model_.chat());
    }

    text_engine model_;
    server::model_generation_engine engine_;
    server::generation_service service_;
    std::vector<api_context> contexts_;
};

inline const tiny_server& small_server() {
    static const tiny_server made;
    return made;
}

// Events "data: {...}" with empty lines between, and perhaps "event: ..." lines.
inline void check_stream(std::string_view text) {
    must(text.ends_with("\n\n"));
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        if (line.empty() || line.starts_with("event: ")) continue;
        must(line.starts_with("data: "));
        line.remove_prefix(6);
        must(line == "[DONE]" || server::json::accept(line));
    }
}

// Reads a generation's reply to its end, or leaves it after some events like a client that goes.
inline void read(api_reply& reply) {
    constexpr int most = 40;
    std::string streamed;
    for (int events = 0; events < most; ++events) {
        std::vector<server::generation_event> made = reply.work->wait();
        for (server::generation_event& each : made) reply.writer->take(each, streamed);
        if (!made.empty()) continue;
        const std::string last = reply.writer->finish();
        if (reply.streams) return check_stream(streamed + last);
        must(streamed.empty() && server::json::accept(last));
        return;
    }
    if (!streamed.empty()) check_stream(streamed);
    reply.work->cancel();
}

inline void request(const api_context& context, const server::api_route& route, std::string_view body) {
    try {
        api_reply reply = route.answer(context, body);
        must(reply.status == 200);
        if (reply.work) return read(reply);
        must(reply.content_type != "application/json" || server::json::accept(reply.body));
    } catch (const server::api_error& failure) {
        must(failure.status() >= 400 && failure.status() < 500 && *failure.what() != '\0');
        must(is_utf8(server::dumped(failure.json())));
    }
}

// What a model writes, in one piece and byte by byte, divided by both parsers.
inline chat_output divided(std::string_view text, chat_output_format format, std::size_t step) {
    chat_output_parser parser(format, "");
    server::tool_call_filter filter;
    chat_output all;
    const auto take = [&](chat_output part) {
        const std::string content = std::exchange(part.content, {});
        all.append(part);
        all.append(filter.push(content));
    };
    for (std::size_t at = 0; at < text.size(); at += step) take(parser.push(text.substr(at, step)));
    take(parser.finish());
    all.append(filter.finish());
    return all;
}

// Marks around what looks like a special token; a tokenizer makes no others.
inline std::string marked(std::string_view text) {
    static const std::regex special("<\\|[a-z]{1,12}\\|>");
    std::string plain(text);
    std::erase(plain, special_token_mark);
    return std::regex_replace(plain, special, std::string{special_token_mark} + "$&" + special_token_mark);
}

inline void answer_of_model(std::string_view format, std::string_view body) {
    const chat_output_format kind = format == "harmony" ? chat_output_format::harmony : chat_output_format::tags;
    const std::string text = marked(body);
    const chat_output whole = divided(text, kind, text.size() + 1);
    must(divided(text, kind, 1) == whole);
    must(divided(text, kind, 7) == whole);
    must(server::json::accept(server::dumped(to_json(whole.tool_calls))));
}

inline void api_request(std::span<const std::byte> bytes) {
    const std::string_view input = as_text(bytes);
    const std::size_t line = input.find('\n');
    if (line == std::string_view::npos) return;
    const std::string_view first = input.substr(0, line), body = input.substr(line + 1);
    const std::size_t space = first.find(' ');
    if (space == std::string_view::npos) return;
    const std::string_view path = first.substr(0, space), format = first.substr(space + 1);
    if (path == "answer") return answer_of_model(format, body);
    const api_context* const context = small_server().context(format);
    if (context == nullptr) return;
    for (const server::api_route& route : server::api_routes()) {
        if (route.path != path) continue;
        request(*context, route, body);
        must(small_server().becomes_idle());
    }
}

}  // namespace imbrex::engine::fuzz
