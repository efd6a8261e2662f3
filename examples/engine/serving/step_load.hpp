// What a step computes, as figures: what its time depends on. `imbrex bench --step-costs` writes them with the measured
// seconds, and the fleet simulation (bench/serving) predicts the seconds from them.
#pragma once

#include "engine/serving/batch.hpp"

#include <cstdint>

namespace imbrex::engine {

struct step_load {
    int prompts = 0;                  // entries with several tokens: chunks of prompts
    int prompt_tokens = 0;            // their tokens
    std::int64_t prompt_context = 0;  // pairs of a query and a key that they attend to
    int decodes = 0;                  // entries with one token, drafts aside
    std::int64_t decode_context = 0;  // tokens in the KV cache that they read

    bool operator==(const step_load&) const = default;
};

inline step_load load_of(const batch& work) {
    step_load load;
    for (const batch_entry& entry : work.entries) {
        if (entry.count == 1 + static_cast<int>(entry.draft.size())) {
            ++load.decodes;
            load.decode_context += entry.first + 1;
        } else {
            ++load.prompts;
            load.prompt_tokens += entry.count;
            load.prompt_context +=
                std::int64_t{entry.count} * entry.first + std::int64_t{entry.count} * (entry.count + 1) / 2;
        }
    }
    return load;
}

}  // namespace imbrex::engine
