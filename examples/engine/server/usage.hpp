// The token counts of a request.
#pragma once

#include <cstdint>

#include "engine/server/request_fields.hpp"

namespace imbrex::engine::server {

struct usage {
    std::int64_t prompt_tokens = 0, completion_tokens = 0;

    json to_json() const {
        return {{"prompt_tokens", prompt_tokens},
                {"completion_tokens", completion_tokens},
                {"total_tokens", prompt_tokens + completion_tokens}};
    }
};

}  // namespace imbrex::engine::server
