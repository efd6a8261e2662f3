#include "engine/server/responses.hpp"

#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/server/chat_messages.hpp"
#include "engine/server/sampling_fields.hpp"
#include "engine/server/tool_call_filter.hpp"
#include "engine/server/usage.hpp"

namespace imbrex::engine::server {

namespace {

// What a response repeats of its request.
struct response_settings {
    std::string instructions{};
    json tools = json::array();
    json tool_choice = "auto";
    bool allows_several_calls = true;
};

// An item of the output: the message, or a call of a tool.
struct output_item {
    std::string id;
    std::optional<tool_call> call{};
    std::string text{};  // of a message
    std::string call_id{};
};

class response_writer final : public reply_writer {
  public:
    response_writer(const api_context& context, const sampling_fields& sampling, const usage& counts,
                    response_settings settings, std::optional<chat_output_parser> parser, bool finds_calls)
        : context_(context),
          id_(new_id("resp_")),
          created_(unix_time()),
          settings_(std::move(settings)),
          options_(sampling.options),
          streams_(sampling.streams),
          usage_(counts),
          parser_(std::move(parser)) {
        if (finds_calls) calls_.emplace();
    }

    void take(generation_event& event, std::string& out) override {
        usage_.take(event);
        reason_ = event.reason;
        const chat_output more = divided(parser_, calls_, event);
        if (streams_ && events_ == 0) {
            add(out, "response.created", {{"response", response_json("in_progress")}});
            add(out, "response.in_progress", {{"response", response_json("in_progress")}});
        }
        if (!more.content.empty()) add_text(more.content, out);
        for (const tool_call& each : more.tool_calls) add_call(each, out);
    }

    std::string finish() override {
        std::string out;
        if (items_.empty()) add_text("", out);
        end_message(out);
        const json response = response_json(is_cut() ? "incomplete" : "completed");
        if (!streams_) return dumped(response);
        add(out, is_cut() ? "response.incomplete" : "response.completed", {{"response", response}});
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
    bool is_cut() const { return reason_ == finish_reason::length; }

    void add_text(const std::string& text, std::string& out) {
        if (!message_is_open_) begin_message(out);
        items_.back().text += text;
        if (text.empty() || !streams_) return;
        add(out, "response.output_text.delta", at_part({{"delta", text}, {"logprobs", json::array()}}));
    }

    void begin_message(std::string& out) {
        message_is_open_ = true;
        items_.push_back({.id = new_id("msg_")});
        if (!streams_) return;
        add(out, "response.output_item.added", at_item({{"item", item_json(items_.back(), "in_progress")}}));
        add(out, "response.content_part.added", at_part({{"part", text_part("")}}));
    }

    void end_message(std::string& out) {
        if (!std::exchange(message_is_open_, false) || !streams_) return;
        const std::string& text = items_.back().text;
        add(out, "response.output_text.done", at_part({{"text", text}, {"logprobs", json::array()}}));
        add(out, "response.content_part.done", at_part({{"part", text_part(text)}}));
        add(out, "response.output_item.done", at_item({{"item", item_json(items_.back(), "completed")}}));
    }

    void add_call(const tool_call& call, std::string& out) {
        end_message(out);
        items_.push_back({.id = new_id("fc_"), .call = call, .call_id = new_call_id(context_)});
        if (!streams_) return;
        output_item begun = items_.back();
        begun.call->arguments.clear();
        add(out, "response.output_item.added", at_item({{"item", item_json(begun, "in_progress")}}));
        const json where = at_item({{"item_id", items_.back().id}});
        json delta = where, done = where;
        delta["delta"] = call.arguments;
        done["name"] = call.name;
        done["arguments"] = call.arguments;
        add(out, "response.function_call_arguments.delta", delta);
        add(out, "response.function_call_arguments.done", done);
        add(out, "response.output_item.done", at_item({{"item", item_json(items_.back(), "completed")}}));
    }

    // The order of events is in their numbers, too.
    void add(std::string& out, const char* type, const json& fields) {
        json event{{"type", type}, {"sequence_number", events_++}};
        event.update(fields);
        out += str_cat("event: ", type, "\ndata: ", dumped(event), "\n\n");
    }

    // Fields of an event about the last item, and about the text of the last message.
    json at_item(const json& fields) const {
        json all{{"output_index", items_.size() - 1}};
        all.update(fields);
        return all;
    }
    json at_part(const json& fields) const {
        json all{{"item_id", items_.back().id}, {"output_index", items_.size() - 1}, {"content_index", 0}};
        all.update(fields);
        return all;
    }

    static json text_part(const std::string& text) {
        return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}};
    }

    static json item_json(const output_item& item, const char* status) {
        if (item.call) {
            return {{"id", item.id},           {"type", "function_call"}, {"status", status},
                    {"call_id", item.call_id}, {"name", item.call->name}, {"arguments", item.call->arguments}};
        }
        json content = json::array();
        if (std::string_view(status) != "in_progress") content.push_back(text_part(item.text));
        return {{"id", item.id}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", content}};
    }

    json response_json(const char* status) const {
        const bool has_ended = std::string_view(status) != "in_progress";
        json result{{"id", id_},
                    {"object", "response"},
                    {"created_at", created_},
                    {"status", status},
                    {"error", nullptr},
                    {"incomplete_details", nullptr},
                    {"instructions", nullptr},
                    {"max_output_tokens", options_.max_tokens},
                    {"model", context_.settings.model_name},
                    {"output", json::array()},
                    {"parallel_tool_calls", settings_.allows_several_calls},
                    {"previous_response_id", nullptr},
                    {"store", false},
                    {"temperature", options_.sampling.temperature},
                    {"text", {{"format", {{"type", "text"}}}}},
                    {"tool_choice", settings_.tool_choice},
                    {"tools", settings_.tools},
                    {"top_p", options_.sampling.top_p},
                    {"truncation", "disabled"},
                    {"usage", nullptr},
                    {"metadata", json::object()}};
        if (!settings_.instructions.empty()) result["instructions"] = settings_.instructions;
        if (!has_ended) return result;
        if (is_cut()) result["incomplete_details"] = {{"reason", "max_output_tokens"}};
        for (std::size_t i = 0; i < items_.size(); ++i) {
            const bool is_last = i + 1 == items_.size();
            result["output"].push_back(item_json(items_[i], is_last && is_cut() ? "incomplete" : "completed"));
        }
        result["usage"] = usage_.to_response_json();
        return result;
    }

    const api_context& context_;
    std::string id_;
    std::int64_t created_;
    response_settings settings_;
    text_options options_;
    bool streams_, message_is_open_ = false;
    int events_ = 0;
    usage usage_;
    std::optional<chat_output_parser> parser_;
    std::optional<tool_call_filter> calls_;
    std::vector<output_item> items_;
    finish_reason reason_ = finish_reason::none;
};

// A call that the model made in an earlier answer joins the message of the calls before it.
void add_call_item(request_fields& item, json& messages) {
    const json call{
        {"id", item.required_text("call_id")},
        {"type", "function"},
        {"function", {{"name", item.required_text("name")}, {"arguments", item.required_text("arguments")}}}};
    if (messages.empty() || !messages.back().contains("tool_calls"))
        messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", json::array()}});
    messages.back()["tool_calls"].push_back(call);
}

void add_message_item(request_fields& item, json& messages) {
    json message{{"role", item.required_text("role")}};
    const json* const content = item.find("content");
    if (content == nullptr) item.fail("content", "a text is needed");
    message["content"] = content_text(*content, item.path_of("content"));
    messages.push_back(std::move(message));
}

void add_item(request_fields& item, json& messages) {
    const std::string type =
        item.choice("type", {"message", "function_call", "function_call_output", "reasoning"}).value_or("message");
    item.ignore({"id", "status"});  // of an answer that is sent back
    if (type == "function_call") {
        add_call_item(item, messages);
    } else if (type == "function_call_output") {
        const json* const output = item.find("output");
        if (output == nullptr) item.fail("output", "a text is needed");
        messages.push_back({{"role", "tool"},
                            {"tool_call_id", item.required_text("call_id")},
                            {"content", content_text(*output, item.path_of("output"))}});
    } else if (type == "reasoning") {
        item.ignore({"summary", "content", "encrypted_content"});
    } else {
        add_message_item(item, messages);
    }
    item.refuse_unknown();
}

// The messages of a chat: "instructions", then "input", a text or an array of items.
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
    for (std::size_t i = 0; i < input->size(); ++i) {
        const json& each = (*input)[i];
        const std::string path = str_cat("input[", i, "]");
        if (!each.is_object()) throw api_error(400, path + ": " + shown(each) + "; an object is allowed", path);
        request_fields item(each, path + ".");
        add_item(item, messages);
    }
    return messages;
}

// The tools, and the choice of one, in the form of chat completions: within "function".
json tool_of_chat(const json& tool) {
    if (!tool.is_object() || tool.contains("function")) return tool;
    json function = tool;
    function.erase("type");
    json result = json::object();
    if (tool.contains("type")) result["type"] = tool["type"];
    if (!function.empty()) result["function"] = std::move(function);
    return result;
}

void copy_tools(request_fields& fields, json& chat, response_settings& settings) {
    if (const json* const tools = fields.array("tools")) {
        settings.tools = *tools;
        chat["tools"] = json::array();
        for (const json& each : *tools) chat["tools"].push_back(tool_of_chat(each));
    }
    if (const json* const choice = fields.find("tool_choice")) {
        settings.tool_choice = *choice;
        chat["tool_choice"] = tool_of_chat(*choice);
    }
    settings.allows_several_calls = fields.boolean("parallel_tool_calls", true);
    chat["parallel_tool_calls"] = settings.allows_several_calls;
}

void refuse_unsupported(request_fields& fields) {
    constexpr const char* text_only = "this server answers in text, and stores nothing";
    fields.refuse("previous_response_id", nullptr, text_only);
    fields.refuse("conversation", nullptr, text_only);
    fields.refuse("background", false, text_only);
    fields.refuse("prompt", nullptr, text_only);
    fields.refuse("text", json{{"format", {{"type", "text"}}}}, "only {\"format\": {\"type\": \"text\"}} is allowed");
    fields.refuse("n", 1, "a response has one text");
    fields.ignore({"include", "truncation", "max_tool_calls", "top_logprobs"});
}

}  // namespace

api_reply responses(const api_context& context, const json& body) {
    request_fields fields(body);
    check_model(context, fields);
    refuse_unsupported(fields);
    sampling_fields sampling = read_sampling(context, fields, {"max_output_tokens"});
    response_settings settings{.instructions = fields.text("instructions").value_or("")};
    json chat{{"messages", messages_of(fields, settings.instructions)}};
    copy_tools(fields, chat, settings);
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
    const usage counts(static_cast<std::int64_t>(prompt.tokens.size()), 1);
    api_reply reply{.streams = sampling.streams};
    reply.writer = std::make_unique<response_writer>(context, sampling, counts, std::move(settings), std::move(parser),
                                                     prompt.has_tools());
    reply.work = context.service.submit(std::move(requests));
    return reply;
}

}  // namespace imbrex::engine::server
