// The token counts of a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/server/generation_service.hpp"
#include "engine/server/request_fields.hpp"

namespace imbrex::engine::server {

class usage {
  public:
    // `choices` of each prompt share its tokens, which count once.
    usage(std::int64_t prompt_tokens, int choices) : prompt_tokens_(prompt_tokens), choices_(choices) {}

    void take(const generation_event& event) {
        ++completion_tokens_;
        const auto index = static_cast<std::size_t>(event.index);
        if (index >= has_begun_.size()) has_begun_.resize(index + 1);
        if (!has_begun_[index] && event.index % choices_ == 0) cached_tokens_ += event.cached_tokens;
        has_begun_[index] = true;
    }

    json to_json() const {
        return {{"prompt_tokens", prompt_tokens_},
                {"completion_tokens", completion_tokens_},
                {"total_tokens", prompt_tokens_ + completion_tokens_},
                {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}}};
    }
    // As in the Responses API.
    json to_response_json() const {
        return {{"input_tokens", prompt_tokens_},
                {"input_tokens_details", {{"cached_tokens", cached_tokens_}}},
                {"output_tokens", completion_tokens_},
                {"output_tokens_details", {{"reasoning_tokens", 0}}},
                {"total_tokens", prompt_tokens_ + completion_tokens_}};
    }

  private:
    std::int64_t prompt_tokens_, completion_tokens_ = 0, cached_tokens_ = 0;
    int choices_;
    std::vector<bool> has_begun_;  // by sequence
};

}  // namespace imbrex::engine::server
