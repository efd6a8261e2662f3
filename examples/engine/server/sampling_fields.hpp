// The fields that all generating endpoints share: sampling, length, stop strings, number of choices, streaming.
#pragma once

#include <vector>

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

struct sampling_fields {
    text_options options{};
    bool has_max_tokens = false;
    std::uint64_t seed = 0;  // choice i has seed + i
    int choices = 1;
    bool streams = false, includes_usage = false;
};

// `max_tokens` are the names of the field, the preferred one first.
sampling_fields read_sampling(const api_context& context, request_fields& fields,
                              std::initializer_list<const char*> max_tokens);

// max_tokens is an upper bound: no more than fit after the prompt.
void limit_length(const api_context& context, std::size_t prompt, text_options& options);

// The requests of all choices for a prompt, appended.
void add_choices(std::vector<generation_request>& requests, const std::vector<int>& prompt,
                 const sampling_fields& sampling);

// "stop" or "length", as the API names reasons.
const char* api_name_of(finish_reason reason);

}  // namespace imbrex::engine::server
