#include "engine/server/chat_completions.hpp"

#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/server/chat_messages.hpp"
#include "engine/server/logprobs.hpp"
#include "engine/server/response_format.hpp"
#include "engine/server/sampling_fields.hpp"
#include "engine/server/tool_call_filter.hpp"
#include "engine/server/usage.hpp"

namespace imbrex::engine::server {

namespace {

struct chat_choice {
    std::optional<chat_output_parser> parser{};
    std::optional<tool_call_filter> calls{};  // if there are tools
    chat_output said{};
    json logprobs = json::array();
    std::size_t calls_sent = 0;
    bool has_begun = false, has_called = false;
    finish_reason reason = finish_reason::none;
};

class chat_writer final : public reply_writer {
  public:
    chat_writer(const api_context& context, const sampling_fields& sampling, int top_logprobs, bool has_logprobs,
                const usage& counts, std::vector<chat_choice> choices)
        : context_(context),
          head_{{"id", new_id("chatcmpl-")},
                {"object", sampling.streams ? "chat.completion.chunk" : "chat.completion"},
                {"created", unix_time()},
                {"model", context.settings.model_name}},
          streams_(sampling.streams),
          includes_usage_(sampling.includes_usage),
          has_logprobs_(has_logprobs),
          top_logprobs_(top_logprobs),
          usage_(counts),
          choices_(std::move(choices)) {
        json head = head_;
        head["choices"] = json::array();
        chunk_head_ = dumped(head);
        chunk_head_.resize(chunk_head_.size() - 2);  // up to "["
        chunk_head_ = "data: " + chunk_head_;
    }

    void take(generation_event& event, std::string& out) override {
        chat_choice& choice = choices_[static_cast<std::size_t>(event.index)];
        usage_.take(event);
        const chat_output more = divided(choice.parser, choice.calls, event);
        if (has_logprobs_ && event.reason != finish_reason::eos_token)
            choice.logprobs.push_back(chat_logprob(context_.model.tokens(), event.sampled, top_logprobs_));
        choice.reason = event.reason;
        if (streams_) {
            stream(event.index, choice, more, out);
        } else {
            choice.said.append(more);
        }
    }

    std::string finish() override {
        if (streams_) return (includes_usage_ ? usage_chunk() : "") + "data: [DONE]\n\n";
        json reply = head_;
        reply["choices"] = json::array();
        for (chat_choice& choice : choices_) {
            json message{{"role", "assistant"}, {"content", choice.said.content}, {"refusal", nullptr}};
            if (!choice.said.reasoning.empty()) message["reasoning_content"] = choice.said.reasoning;
            if (!choice.said.tool_calls.empty()) message["tool_calls"] = calls_json(choice.said.tool_calls, choice);
            if (choice.said.content.empty() && !choice.said.tool_calls.empty()) message["content"] = nullptr;
            reply["choices"].push_back({{"index", reply["choices"].size()},
                                        {"message", std::move(message)},
                                        {"logprobs", logprobs_of(choice)},
                                        {"finish_reason", reason_of(choice)}});
        }
        reply["usage"] = usage_.to_json();
        return dumped(reply);
    }

  private:
    void stream(int index, chat_choice& choice, const chat_output& more, std::string& out) {
        json delta = json::object();
        if (!std::exchange(choice.has_begun, true)) delta = {{"role", "assistant"}, {"content", ""}};
        if (!more.reasoning.empty()) delta["reasoning_content"] = more.reasoning;
        if (!more.content.empty()) delta["content"] = more.content;
        if (!more.tool_calls.empty()) {
            json calls = calls_json(more.tool_calls, choice);
            for (json& call : calls) call["index"] = choice.calls_sent++;
            delta["tool_calls"] = std::move(calls);
        }
        if (!delta.empty() || !choice.logprobs.empty()) chunk(index, delta, choice, nullptr, out);
        if (choice.reason != finish_reason::none) chunk(index, json::object(), choice, reason_of(choice), out);
    }

    // The parts that are the same in all chunks are text already.
    void chunk(int index, const json& delta, chat_choice& choice, const char* reason, std::string& out) {
        out += chunk_head_;
        out += "{\"index\":" + std::to_string(index) + ",\"delta\":" + dumped(delta) +
               ",\"logprobs\":" + dumped(logprobs_of(choice)) + ",\"finish_reason\":";
        out += reason != nullptr ? str_cat("\"", reason, "\"") : "null";
        out += includes_usage_ ? "}],\"usage\":null}\n\n" : "}]}\n\n";
    }

    std::string usage_chunk() const {
        json last = head_;
        last["choices"] = json::array();
        last["usage"] = usage_.to_json();
        return "data: " + dumped(last) + "\n\n";
    }

    json logprobs_of(chat_choice& choice) const {
        if (!has_logprobs_) return {};
        return {{"content", std::exchange(choice.logprobs, json::array())}, {"refusal", nullptr}};
    }

    // With ids, by which the client's answers name the calls.
    json calls_json(const std::vector<tool_call>& calls, chat_choice& choice) const {
        json all = to_json(calls);
        json result = json::array();
        for (json& call : all) {
            json one{{"id", new_call_id(context_)}};
            one.update(call);
            result.push_back(std::move(one));
        }
        choice.has_called = true;
        return result;
    }

    static const char* reason_of(const chat_choice& choice) {
        const bool calls = choice.has_called && choice.reason != finish_reason::length;
        return calls ? "tool_calls" : api_name_of(choice.reason);
    }

    const api_context& context_;
    json head_;
    std::string chunk_head_;
    bool streams_, includes_usage_, has_logprobs_;
    int top_logprobs_;
    usage usage_;
    std::vector<chat_choice> choices_;
};

void refuse_unsupported(request_fields& fields) {
    fields.refuse("audio", nullptr, "this server answers in text");
    fields.refuse("modalities", json::array({"text"}), "this server answers in text: [\"text\"] is allowed");
    fields.refuse("functions", nullptr, "\"tools\" replaces it");
    fields.refuse("function_call", nullptr, "\"tool_choice\" replaces it");
    fields.refuse("web_search_options", nullptr, "this server searches nothing");
    fields.refuse("verbosity", "medium", "no model here knows it; \"medium\" is allowed");
    fields.ignore({"prediction"});  // the text does not depend on it
}

}  // namespace

api_reply chat_completions(const api_context& context, const json& body) {
    request_fields fields(body);
    check_model(context, fields);
    refuse_unsupported(fields);
    sampling_fields sampling = read_sampling(context, fields, {"max_completion_tokens", "max_tokens"});
    const bool has_logprobs = fields.boolean("logprobs", false);
    const auto top = fields.integer("top_logprobs", 0, max_logprobs);
    if (top && !has_logprobs) fields.fail("top_logprobs", "it needs \"logprobs\": true");
    if (has_logprobs) sampling.options.sampling.logprobs = std::max(1, static_cast<int>(top.value_or(0)));
    const chat_prompt prompt = read_chat_prompt(context, fields);
    prepare_answer(context, prompt, sampling.options);
    if (const auto format = read_response_format(context, fields, prompt.tokens)) {
        if (prompt.tools.rules.is_required) fields.fail("response_format", "a required call of a tool has no format");
        sampling.options.sampling.constraint = format;
    }
    fields.refuse_unknown();
    std::vector<generation_request> requests;
    add_choices(requests, prompt.tokens, sampling);
    std::vector<chat_choice> choices(requests.size());
    for (chat_choice& choice : choices) {
        if (context.format) choice.parser = context.format->output_parser(prompt.tokens);
        if (prompt.has_tools()) choice.calls.emplace();
    }
    const usage counts(static_cast<std::int64_t>(prompt.tokens.size()), sampling.choices);
    api_reply reply{.streams = sampling.streams};
    reply.writer = std::make_unique<chat_writer>(context, sampling, static_cast<int>(top.value_or(0)), has_logprobs,
                                                 counts, std::move(choices));
    reply.work = context.service.submit(std::move(requests));
    return reply;
}

}  // namespace imbrex::engine::server
