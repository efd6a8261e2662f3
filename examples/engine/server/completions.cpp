#include "engine/server/completions.hpp"

#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/server/logprobs.hpp"
#include "engine/server/prompts.hpp"
#include "engine/server/response_format.hpp"
#include "engine/server/sampling_fields.hpp"
#include "engine/server/usage.hpp"

namespace imbrex::engine::server {

namespace {

constexpr int usual_tokens = 16;  // OpenAI's

struct completion_choice {
    std::string text{};
    json logprobs{};  // an object, if wanted
    std::size_t offset = 0;
    finish_reason reason = finish_reason::none;
};

class completion_writer final : public reply_writer {
  public:
    completion_writer(const api_context& context, const sampling_fields& sampling, bool has_logprobs,
                      const usage& counts, std::vector<completion_choice> choices)
        : tokens_(context.model.tokens()),
          head_{{"id", new_id("cmpl-")},
                {"object", "text_completion"},
                {"created", unix_time()},
                {"model", context.settings.model_name}},
          streams_(sampling.streams),
          includes_usage_(sampling.includes_usage),
          has_logprobs_(has_logprobs),
          usage_(counts),
          choices_(std::move(choices)) {
        for (completion_choice& choice : choices_) choice.offset = choice.text.size();
    }

    void take(generation_event& event, std::string& out) override {
        completion_choice& choice = choices_[static_cast<std::size_t>(event.index)];
        usage_.take(event);
        choice.text += event.text;
        choice.reason = event.reason;
        if (has_logprobs_ && event.reason != finish_reason::eos_token) add_logprobs(choice, event.sampled);
        choice.offset += event.text.size();
        if (!streams_) return;
        if (choice.text.empty() && choice.logprobs.is_null() && choice.reason == finish_reason::none) return;
        json chunk = head_;
        chunk["choices"] = json::array({json_of(event.index, choice)});
        if (includes_usage_) chunk["usage"] = nullptr;
        out += "data: " + dumped(chunk) + "\n\n";
        choice.text.clear();
        choice.logprobs = nullptr;
    }

    std::string finish() override {
        json reply = head_;
        reply["choices"] = json::array();
        for (std::size_t i = 0; i < choices_.size() && !streams_; ++i)
            reply["choices"].push_back(json_of(static_cast<int>(i), choices_[i]));
        reply["usage"] = usage_.to_json();
        if (!streams_) return dumped(reply);
        return (includes_usage_ ? "data: " + dumped(reply) + "\n\n" : "") + "data: [DONE]\n\n";
    }

  private:
    static json json_of(int index, const completion_choice& choice) {
        json reason;
        if (choice.reason != finish_reason::none) reason = api_name_of(choice.reason);
        return {{"text", choice.text}, {"index", index}, {"logprobs", choice.logprobs}, {"finish_reason", reason}};
    }

    void add_logprobs(completion_choice& choice, const sampled_token& sampled) const {
        if (choice.logprobs.is_null()) {
            choice.logprobs = {{"tokens", json::array()},
                               {"token_logprobs", json::array()},
                               {"top_logprobs", json::array()},
                               {"text_offset", json::array()}};
        }
        json top = json::object();
        for (const token_logprob& each : sampled.top_logprobs) {
            std::string key = bytes_of(tokens_, each.token);
            top[std::move(key)] = each.value;
        }
        choice.logprobs["tokens"].push_back(bytes_of(tokens_, sampled.token));
        choice.logprobs["token_logprobs"].push_back(sampled.logprob);
        choice.logprobs["top_logprobs"].push_back(std::move(top));
        choice.logprobs["text_offset"].push_back(choice.offset);
    }

    const tokenizer& tokens_;
    json head_;
    bool streams_, includes_usage_, has_logprobs_;
    usage usage_;
    std::vector<completion_choice> choices_;
};

}  // namespace

api_reply completions(const api_context& context, const json& body) {
    request_fields fields(body);
    check_model(context, fields);
    sampling_fields sampling = read_sampling(context, fields, {"max_tokens", "n_predict"});
    const auto encode = [&](const std::string& text) { return context.model.encode_prompt(text); };
    const std::vector<std::vector<int>> prompts = read_prompts(context, fields, "prompt", sampling.choices, encode);
    const auto logprobs = fields.integer("logprobs", 0, max_logprobs);
    const bool echoes = fields.boolean("echo", false);
    if (echoes && logprobs) fields.fail("echo", "it has no log-probabilities: \"logprobs\" is not allowed with it");
    fields.refuse("suffix", "", "this server continues texts; it fills no gaps");
    fields.refuse("best_of", sampling.choices, "the value of \"n\" is allowed");
    text_options& options = sampling.options;
    options.sampling.constraint = read_response_format(context, fields);
    fields.refuse_unknown();
    if (logprobs) options.sampling.logprobs = std::max(1, static_cast<int>(*logprobs));
    if (!sampling.has_max_tokens) options.max_tokens = context.settings.max_tokens.value_or(usual_tokens);
    std::vector<generation_request> requests;
    std::vector<completion_choice> choices;
    std::int64_t tokens = 0;
    for (const std::vector<int>& prompt : prompts) {
        sampling_fields own = sampling;
        limit_length(context, prompt.size(), own.options);
        add_choices(requests, prompt, own);
        tokens += static_cast<std::int64_t>(prompt.size());
        const std::string echo = echoes ? context.model.tokens().decode(prompt) : "";
        choices.resize(requests.size(), {.text = echo});
    }
    api_reply reply{.streams = sampling.streams};
    reply.writer = std::make_unique<completion_writer>(context, sampling, logprobs.has_value(),
                                                       usage(tokens, sampling.choices), std::move(choices));
    reply.work = context.service.submit(std::move(requests));
    return reply;
}

}  // namespace imbrex::engine::server
