#include "engine/server/sampling_fields.hpp"

#include <algorithm>
#include <charconv>
#include <imbrex/core/error.hpp>
#include <limits>
#include <random>

namespace imbrex::engine::server {

namespace {

constexpr int largest_count = 1 << 26;

void read_penalties(request_fields& fields, sampling_params& sampling) {
    const auto set = [&](const char* name, double least, double most, float& value) {
        if (const auto given = fields.number(name, least, most)) value = static_cast<float>(*given);
    };
    set("temperature", 0, 2, sampling.temperature);
    set("top_p", 0, 1, sampling.top_p);
    set("min_p", 0, 1, sampling.min_p);
    set("presence_penalty", -2, 2, sampling.presence_penalty);
    set("frequency_penalty", -2, 2, sampling.frequency_penalty);
    set("repetition_penalty", 1e-2, 100, sampling.repetition_penalty);
    set("repeat_penalty", 1e-2, 100, sampling.repetition_penalty);  // llama.cpp's name
    if (sampling.top_p == 0) {                                      // the most likely token, as in other servers
        sampling.top_p = 1;
        sampling.top_k = 1;
    }
    // -1: all, in vLLM
    if (const auto top_k = fields.integer("top_k", -1, largest_count))
        sampling.top_k = static_cast<int>(std::max<std::int64_t>(*top_k, 0));
}

void read_bias(const api_context& context, request_fields& fields, sampling_params& sampling) {
    const json* const bias = fields.object("logit_bias");
    if (bias == nullptr) return;
    const int vocabulary = context.model.config().vocab_size;
    const std::string allowed = str_cat("token ids below ", vocabulary, " and numbers from -100 to 100 are allowed");
    for (const auto& [key, value] : bias->items()) {
        int token = -1;
        const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), token);
        const bool is_token =
            failed == std::errc{} && end == key.data() + key.size() && token >= 0 && token < vocabulary;
        const bool is_bias = value.is_number() && value.get<double>() >= -100 && value.get<double>() <= 100;
        if (!is_token || !is_bias) fields.fail("logit_bias", allowed);
        const float number = value.get<float>();
        sampling.bias.emplace_back(token, number == -100 ? -std::numeric_limits<float>::infinity() : number);
    }
}

void read_stop(request_fields& fields, sampling_params& sampling) {
    constexpr std::size_t most_stops = 16;
    const std::vector<std::string> stops = fields.texts("stop", most_stops);
    if (std::ranges::any_of(stops, &std::string::empty)) fields.fail("stop", "an empty string is not allowed");
    if (!stops.empty()) sampling.stop = stops;
}

void read_stop_tokens(request_fields& fields, text_options& options) {
    const json* const tokens = fields.array("stop_token_ids");
    if (tokens == nullptr) return;
    for (const json& each : *tokens) {
        if (!each.is_number_integer() || each.get<std::int64_t>() < 0 || each.get<std::int64_t>() > largest_count)
            fields.fail("stop_token_ids", "token ids are allowed");
        options.eos_tokens.push_back(each.get<int>());
    }
}

std::uint64_t random_seed() {
    static thread_local std::mt19937_64 chance{std::random_device{}()};
    return chance();
}

void read_streaming(request_fields& fields, sampling_fields& result) {
    result.streams = fields.boolean("stream", false);
    const json* const options = fields.object("stream_options");
    if (options == nullptr) return;
    if (!result.streams) fields.fail("stream_options", "it needs \"stream\": true");
    request_fields inner(*options, "stream_options.");
    result.includes_usage = inner.boolean("include_usage", false);
    inner.ignore({"include_obfuscation", "continuous_usage_stats"});
    inner.refuse_unknown();
}

}  // namespace

sampling_fields read_sampling(const api_context& context, request_fields& fields,
                              std::initializer_list<const char*> max_tokens) {
    sampling_fields result;
    result.options.sampling = context.settings.sampling;
    read_penalties(fields, result.options.sampling);
    read_bias(context, fields, result.options.sampling);
    read_stop(fields, result.options.sampling);
    read_stop_tokens(fields, result.options);
    result.options.ends = !fields.boolean("ignore_eos", false);
    result.options.priority = static_cast<int>(fields.integer("priority", -1000, 1000).value_or(0));
    const json* const seed = fields.find("seed");
    if (seed != nullptr && !seed->is_number_integer()) fields.fail("seed", "an integer is allowed");
    result.seed = seed != nullptr ? seed->get<std::uint64_t>() : context.settings.seed.value_or(random_seed());
    const int most_choices =
        std::min(context.settings.max_choices, context.service.limits().running + context.service.limits().queue);
    result.choices = static_cast<int>(fields.integer("n", 1, most_choices).value_or(1));
    if (context.settings.max_tokens) result.options.max_tokens = *context.settings.max_tokens;
    for (const char* const name : max_tokens) {
        const auto given = fields.integer(name, 1, largest_count);
        if (!given || result.has_max_tokens) continue;
        result.has_max_tokens = true;
        result.options.max_tokens = static_cast<int>(*given);
    }
    read_streaming(fields, result);
    // Of other servers; they change nothing here.
    fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                   "prompt_cache_retention", "cache_prompt", "skip_special_tokens", "spaces_between_special_tokens",
                   "return_token_ids"});
    return result;
}

void limit_length(const api_context& context, std::size_t prompt, text_options& options) {
    const int fitting = context.max_sequence_length - static_cast<int>(prompt);
    options.max_tokens = options.max_tokens == 0 ? fitting : std::min(options.max_tokens, fitting);
}

void add_choices(std::vector<generation_request>& requests, const std::vector<int>& prompt,
                 const sampling_fields& sampling) {
    for (int i = 0; i < sampling.choices; ++i) {
        generation_request& one = requests.emplace_back(generation_request{prompt, sampling.options});
        one.options.sampling.seed = sampling.seed + static_cast<std::uint64_t>(i);
    }
}

const char* api_name_of(finish_reason reason) {
    return reason == finish_reason::length ? "length" : "stop";
}

}  // namespace imbrex::engine::server
