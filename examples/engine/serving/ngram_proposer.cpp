#include "engine/serving/ngram_proposer.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>

namespace imbrex::engine {

std::vector<int> ngram_draft(std::span<const int> tokens, int count, const ngram_options& options) {
    const auto length = static_cast<int>(tokens.size());
    const auto at = [&](int i) { return tokens[static_cast<std::size_t>(i)]; };
    int longest = 0, end = 0;  // of the match; `end` is the position behind it
    for (int i = length - 1; i > 0 && longest < options.max_ngram; --i) {
        int match = 0;
        while (match < std::min(i, options.max_ngram) && at(i - 1 - match) == at(length - 1 - match)) ++match;
        if (match <= longest) continue;
        longest = match;
        end = i;
    }
    if (longest < options.min_ngram) return {};
    std::vector<int> draft;
    for (int i = end; static_cast<int>(draft.size()) < count; ++i)
        draft.push_back(i < length ? at(i) : draft[static_cast<std::size_t>(i - length)]);
    return draft;
}

ngram_proposer::ngram_proposer(const ngram_options& options) : options_(options) {
    require(options.min_ngram >= 0 && options.min_ngram <= options.max_ngram, "min_ngram: ", options.min_ngram,
            "; it must be from 0 to max_ngram, ", options.max_ngram);
}

void ngram_proposer::propose(batch& next) {
    for (batch_entry& entry : next.entries) {
        if (entry.max_draft > 0) entry.add_draft(ngram_draft(entry.sequence->tokens, entry.max_draft, options_));
    }
}

}  // namespace imbrex::engine
