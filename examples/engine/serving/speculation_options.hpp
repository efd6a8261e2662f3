// The options of speculative decoding, as programs set them.
#pragma once

#include <memory>
#include <optional>

#include "engine/loading/model_files.hpp"
#include "engine/serving/speculation.hpp"

namespace imbrex::engine {

enum class draft_source { none, ngram, model };

struct speculation_options {
    draft_source source = draft_source::none;
    int draft_tokens = 7;  // of a sequence in a step, at most: with the last token they are the 8 rows of a GEMV
    std::shared_ptr<model_files> draft_model{};  // source `model`
    speculation::depth depth = speculation::depth::adapted;
    // For benchmarks: draft tokens are accepted with this probability, whatever the model samples. The text is noise.
    std::optional<double> steered_acceptance{};
};

}  // namespace imbrex::engine
