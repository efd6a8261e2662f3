#include "engine/server/information.hpp"

#include <charconv>
#include <imbrex/core/error.hpp>

#include "engine/server/embedded_files.hpp"

namespace imbrex::engine::server {

namespace {

constexpr int failing_steps = 3;  // in a row, until the server calls itself unhealthy

// The shortest text that reads back as this number.
std::string number(double value) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

class metrics_text {
  public:
    void head(const char* name, const char* type, const char* help) {
        text_ += str_cat("# HELP imbrex_", name, " ", help, "\n# TYPE imbrex_", name, " ", type, "\n");
    }
    void value(const std::string& name, double value) { text_ += str_cat("imbrex_", name, " ", number(value), "\n"); }
    void single(const char* name, const char* type, const char* help, double it) {
        head(name, type, help);
        value(name, it);
    }
    void histogram(const char* name, const char* help, const latency_histogram& all) {
        head(name, "histogram", help);
        std::int64_t below = 0;
        for (std::size_t i = 0; i <= std::size(latency_histogram::bounds); ++i) {
            below += all.counts[i];
            const bool is_last = i == std::size(latency_histogram::bounds);
            const std::string bound = is_last ? "+Inf" : number(latency_histogram::bounds[i]);
            value(str_cat(name, "_bucket{le=\"", bound, "\"}"), static_cast<double>(below));
        }
        value(str_cat(name, "_sum"), all.sum);
        value(str_cat(name, "_count"), static_cast<double>(all.count));
    }
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

void add_requests(metrics_text& text, const service_figures& figures) {
    text.head("requests_total", "counter", "Requests by outcome.");
    const auto outcome = [&](const char* name, std::int64_t count) {
        text.value(str_cat("requests_total{outcome=\"", name, "\"}"), static_cast<double>(count));
    };
    outcome("completed", figures.completed);
    outcome("cancelled", figures.cancelled);
    outcome("failed", figures.failed);
    outcome("timed_out", figures.timed_out);
    outcome("refused", figures.refused);
}

// Each number of the engine's statistics becomes a gauge of its name.
void add_engine(metrics_text& text, const statistics_summary& summary) {
    const json all = json::parse(summary.json(), nullptr, false);
    for (const auto& [name, value] : all.items()) {
        if (!value.is_number()) continue;
        const std::string full = "engine_" + name;
        text.single(full.c_str(), "gauge", "A statistic of the engine since its start.", value.get<double>());
    }
}

}  // namespace

api_reply models(const api_context& context) {
    const json model{{"id", context.settings.model_name},
                     {"object", "model"},
                     {"created", context.started},
                     {"owned_by", "imbrex"},
                     {"max_model_len", context.max_sequence_length},
                     {"has_chat_template", context.format.has_value()}};
    return {.body = dumped({{"object", "list"}, {"data", json::array({model})}})};
}

api_reply health(const api_context& context) {
    const service_status status = context.service.status();
    const bool fails = status.failed_steps >= failing_steps;
    api_reply reply{.status = status.is_draining || fails ? 503 : 200};
    reply.body = dumped({{"status", status.is_draining ? "draining" : fails ? "failing" : "ok"}});
    return reply;
}

api_reply metrics(const api_context& context) {
    const service_figures figures = context.service.figures();
    metrics_text text;
    add_requests(text, figures);
    text.single("prompt_tokens_total", "counter", "Tokens of prompts.", static_cast<double>(figures.prompt_tokens));
    text.single("generated_tokens_total", "counter", "Generated tokens.",
                static_cast<double>(figures.generated_tokens));
    text.single("sequences", "gauge", "Sequences that run or wait.", figures.sequences);
    text.single("sequences_limit", "gauge", "Sequences that may run or wait; more get status 429.",
                context.service.limits().running + context.service.limits().queue);
    text.single("failed_steps", "gauge", "Steps that failed, since the last that did not.", figures.failed_steps);
    text.single("draining", "gauge", "1 while the server shuts down.", figures.is_draining ? 1 : 0);
    text.histogram("time_to_first_token_seconds", "From the request to its first token.", figures.time_to_first_token);
    text.histogram("inter_token_latency_seconds", "Between tokens of a request.", figures.inter_token_latency);
    text.histogram("request_duration_seconds", "From the request to its last token.", figures.duration);
    add_engine(text, figures.engine);
    return {.body = text.take(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
}

api_reply openapi(const api_context&) {
    return {.body = std::string(openapi_json())};
}

api_reply page(const api_context&) {
    return {.body = std::string(chat_page_html()), .content_type = "text/html; charset=utf-8"};
}

}  // namespace imbrex::engine::server
