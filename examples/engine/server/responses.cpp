#include "engine/server/responses.hpp"

#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/server/chat_messages.hpp"
#include "engine/server/sampling_fields.hpp"
#include "engine/server/usage.hpp"

namespace imbrex::engine::server {

namespace {

class response_writer final : public reply_writer {
  public:
    response_writer(const api_context& context, const sampling_fields& sampling, usage counts, std::string instructions,
                    std::optional<chat_output_parser> parser)
        : id_(new_id("resp_")),
          item_id_(new_id("msg_")),
          created_(unix_time()),
          model_(context.settings.model_name),
          instructions_(std::move(instructions)),
          options_(sampling.options),
          streams_(sampling.streams),
          usage_(counts),
          parser_(std::move(parser)) {}

    void take(generation_event& event, std::string& out) override {
        ++usage_.completion_tokens;
        chat_output more{.content = event.text};
        if (parser_) {
            more = parser_->push(event.text);
            if (event.reason != finish_reason::none) more.append(parser_->finish());
        }
        reason_ = event.reason;
        said_.append(more);
        if (!streams_) return;
        if (!std::exchange(has_begun_, true)) begin(out);
        if (more.content.empty()) return;
        add(out, "response.output_text.delta",
            {{"item_id", item_id_},
             {"output_index", 0},
             {"content_index", 0},
             {"delta", more.content},
             {"logprobs", json::array()}});
    }

    std::string finish() override {
        const json response = response_json(reason_ == finish_reason::length ? "incomplete" : "completed");
        if (!streams_) return dumped(response);
        std::string out;
        add(out, "response.output_text.done",
            {{"item_id", item_id_},
             {"output_index", 0},
             {"content_index", 0},
             {"text", said_.content},
             {"logprobs", json::array()}});
        add(out, "response.content_part.done",
            {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}, {"part", text_part(said_.content)}});
        add(out, "response.output_item.done", {{"output_index", 0}, {"item", message("completed")}});
        add(out, str_cat("response.", response["status"].get<std::string>()).c_str(), {{"response", response}});
        return out;
    }

    std::string fail(const api_error& failure) override {
        std::string out;
        json response = response_json("failed");
        response["error"] = {{"code", "server_error"}, {"message", failure.what()}};
        add(out, "response.failed", {{"response", std::move(response)}});
        return out;
    }

  private:
    void begin(std::string& out) {
        add(out, "response.created", {{"response", response_json("in_progress")}});
        add(out, "response.in_progress", {{"response", response_json("in_progress")}});
        add(out, "response.output_item.added", {{"output_index", 0}, {"item", message("in_progress")}});
        add(out, "response.content_part.added",
            {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}, {"part", text_part("")}});
    }

    // The order of events is in their numbers, too.
    void add(std::string& out, const char* type, const json& fields) {
        json event{{"type", type}, {"sequence_number", events_++}};
        event.update(fields);
        out += str_cat("event: ", type, "\ndata: ", dumped(event), "\n\n");
    }

    static json text_part(const std::string& text) {
        return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}};
    }

    json message(const char* status) const {
        json content = json::array();
        if (std::string_view(status) != "in_progress") content.push_back(text_part(said_.content));
        return {{"id", item_id_}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", content}};
    }

    json response_json(const char* status) const {
        const bool has_ended = std::string_view(status) != "in_progress";
        const bool is_cut = std::string_view(status) == "incomplete";
        json result{{"id", id_},
                    {"object", "response"},
                    {"created_at", created_},
                    {"status", status},
                    {"error", nullptr},
                    {"incomplete_details", nullptr},
                    {"instructions", nullptr},
                    {"max_output_tokens", options_.max_tokens},
                    {"model", model_},
                    {"output", json::array()},
                    {"parallel_tool_calls", true},
                    {"previous_response_id", nullptr},
                    {"store", false},
                    {"temperature", options_.sampling.temperature},
                    {"text", {{"format", {{"type", "text"}}}}},
                    {"tool_choice", "auto"},
                    {"tools", json::array()},
                    {"top_p", options_.sampling.top_p},
                    {"truncation", "disabled"},
                    {"usage", nullptr},
                    {"metadata", json::object()}};
        if (!instructions_.empty()) result["instructions"] = instructions_;
        if (is_cut) result["incomplete_details"] = {{"reason", "max_output_tokens"}};
        if (!has_ended) return result;
        result["output"].push_back(message(is_cut ? "incomplete" : "completed"));
        result["usage"] = {{"input_tokens", usage_.prompt_tokens},
                           {"input_tokens_details", {{"cached_tokens", 0}}},
                           {"output_tokens", usage_.completion_tokens},
                           {"output_tokens_details", {{"reasoning_tokens", 0}}},
                           {"total_tokens", usage_.prompt_tokens + usage_.completion_tokens}};
        return result;
    }

    std::string id_, item_id_;
    std::int64_t created_;
    std::string model_, instructions_;
    text_options options_;
    bool streams_, has_begun_ = false;
    int events_ = 0;
    usage usage_;
    std::optional<chat_output_parser> parser_;
    chat_output said_;
    finish_reason reason_ = finish_reason::none;
};

// The messages of a chat: "instructions", then "input", a text or an array of messages.
json messages_of(request_fields& fields, const std::string& instructions) {
    json messages = json::array();
    if (!instructions.empty()) messages.push_back({{"role", "system"}, {"content", instructions}});
    const json* const input = fields.find("input");
    if (input != nullptr && input->is_string()) {
        messages.push_back({{"role", "user"}, {"content", *input}});
        return messages;
    }
    if (input == nullptr || !input->is_array() || input->empty())
        fields.fail("input", "a text or an array of messages is needed");
    for (const json& each : *input) {
        const std::string path = str_cat("input[", messages.size(), "]");
        if (!each.is_object()) throw api_error(400, path + ": " + shown(each) + "; an object is allowed", path);
        request_fields item(each, path + ".");
        item.choice("type", {"message"});
        json message{{"role", item.required_text("role")}};
        const json* const content = item.find("content");
        if (content == nullptr) item.fail("content", "a text is needed");
        message["content"] = content_text(*content, item.path_of("content"));
        item.ignore({"id", "status"});  // of an answer that is sent back
        item.refuse_unknown();
        messages.push_back(std::move(message));
    }
    return messages;
}

void refuse_unsupported(request_fields& fields) {
    constexpr const char* text_only = "this server answers in text, and stores nothing";
    fields.refuse("previous_response_id", nullptr, text_only);
    fields.refuse("conversation", nullptr, text_only);
    fields.refuse("background", false, text_only);
    fields.refuse("prompt", nullptr, text_only);
    fields.refuse("tools", json::array(), "only chat completions have tools");
    fields.refuse("tool_choice", "auto", "only chat completions have tools");
    fields.refuse("text", json{{"format", {{"type", "text"}}}}, "only {\"format\": {\"type\": \"text\"}} is allowed");
    fields.refuse("n", 1, "a response has one text");
    fields.ignore({"include", "truncation", "parallel_tool_calls", "max_tool_calls", "top_logprobs"});
}

}  // namespace

api_reply responses(const api_context& context, const json& body) {
    request_fields fields(body);
    check_model(context, fields);
    refuse_unsupported(fields);
    sampling_fields sampling = read_sampling(context, fields, {"max_output_tokens"});
    const std::string instructions = fields.text("instructions").value_or("");
    json chat{{"messages", messages_of(fields, instructions)}};
    if (const json* const reasoning = fields.object("reasoning"); reasoning != nullptr && reasoning->contains("effort"))
        chat["reasoning_effort"] = (*reasoning)["effort"];
    if (const json* const variables = fields.find("chat_template_kwargs")) chat["chat_template_kwargs"] = *variables;
    fields.refuse_unknown();
    request_fields chat_fields(chat);
    const chat_prompt prompt = read_chat_prompt(context, chat_fields);

    prepare_answer(context, prompt, sampling.options);
    std::vector<generation_request> requests;
    add_choices(requests, prompt.tokens, sampling);
    std::optional<chat_output_parser> parser;
    if (context.format) parser = context.format->output_parser(prompt.tokens);
    const usage counts{.prompt_tokens = static_cast<std::int64_t>(prompt.tokens.size())};
    api_reply reply{.streams = sampling.streams};
    reply.writer = std::make_unique<response_writer>(context, sampling, counts, instructions, std::move(parser));
    reply.work = context.service.submit(std::move(requests));
    return reply;
}

}  // namespace imbrex::engine::server
