#include "engine/model/sampling_arrays.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <span>

namespace imbrex::engine {

namespace {

// Collects the logit adjustments of a sequence (bias and penalties), each token once.
class logit_adjustments {
  public:
    logit_adjustments(int vocabulary, std::vector<logit_adjustment>& all) : vocabulary_(vocabulary), all_(all) {}

    // Appends the adjustments of one sequence that goes on with these draft tokens, sorted by token.
    void add(const sequence& one, std::span<const int> draft) {
        const sampling_params& wanted = one.sampling;
        const bool penalties = wanted.has_penalties();
        if (wanted.bias.empty() && !penalties) return;
        places_.resize(static_cast<std::size_t>(vocabulary_), nowhere);
        const auto first = static_cast<std::ptrdiff_t>(all_.size());
        for (const auto& [token, bias] : wanted.bias) adjustment_of(one, token).bias += bias;
        for (int i = 0; penalties && i < one.length(); ++i) {
            logit_adjustment& adjustment = adjustment_of(one, one.tokens[static_cast<std::size_t>(i)]);
            if (i < one.num_prompt_tokens) {
                adjustment.in_prompt = 1;
            } else {
                ++adjustment.generated;
            }
        }
        for (std::size_t i = 0; penalties && i < draft.size(); ++i) ++adjustment_of(one, draft[i]).generated;
        std::sort(all_.begin() + first, all_.end(),
                  [](const logit_adjustment& a, const logit_adjustment& b) { return a.token < b.token; });
        for (auto each = all_.begin() + first; each != all_.end(); ++each) place_of(each->token) = nowhere;
    }

  private:
    static constexpr int nowhere = -1;

    int& place_of(int token) { return places_[static_cast<std::size_t>(token)]; }
    logit_adjustment& adjustment_of(const sequence& one, int token) {
        require(token >= 0 && token < vocabulary_, "sequence ", one.id, ": it names token ", token,
                "; the vocabulary has ", vocabulary_, " tokens");
        if (place_of(token) == nowhere) {
            place_of(token) = static_cast<int>(all_.size());
            all_.push_back({.token = token});
        }
        return all_[static_cast<std::size_t>(place_of(token))];
    }

    int vocabulary_;
    std::vector<logit_adjustment>& all_;
    std::vector<int> places_;  // per token of the vocabulary: index of its adjustment
};

// The state behind one more draft token. Tokens that end the text are not pushed; nothing is sampled behind them.
void push_draft(const sequence& one, int token, constraint_progress& behind_draft) {
    if (!behind_draft) behind_draft = one.constraint;
    if (std::ranges::find(one.eos_tokens, token) == one.eos_tokens.end()) behind_draft->push(token);
}

}  // namespace

sampling_arrays sampling_arrays_of(const batch& work, int vocabulary) {
    sampling_arrays arrays;
    logit_adjustments adjustments(vocabulary, arrays.adjustments);
    for (const batch_entry& entry : work.entries) {
        if (!entry.samples) continue;
        const sequence& one = *entry.sequence;
        const sampling_params& wanted = one.sampling;
        check(wanted);
        constraint_progress behind_draft;
        for (int i = 0; i < entry.num_samples(); ++i) {
            arrays.options.push_back({.temperature = wanted.temperature,
                                      .top_k = wanted.top_k,
                                      .top_p = wanted.top_p,
                                      .min_p = wanted.min_p,
                                      .repetition_penalty = wanted.repetition_penalty,
                                      .presence_penalty = wanted.presence_penalty,
                                      .frequency_penalty = wanted.frequency_penalty,
                                      .position = one.length() + i,
                                      .seed = wanted.seed});
            adjustments.add(one, std::span(entry.draft).first(static_cast<std::size_t>(i)));
            arrays.adjustment_offsets.push_back(static_cast<int>(arrays.adjustments.size()));
            if (i > 0 && one.constraint) push_draft(one, entry.draft[static_cast<std::size_t>(i) - 1], behind_draft);
            const bool has_mask = one.constraint && !(behind_draft ? behind_draft : one.constraint)->is_free();
            arrays.token_mask_rows.push_back(has_mask ? static_cast<int>(arrays.token_masks.size()) : -1);
            if (has_mask) arrays.token_masks.push_back({&one, behind_draft});
        }
        arrays.num_top_logprobs = std::max(arrays.num_top_logprobs, wanted.logprobs);
    }
    return arrays;
}

void write_token_mask(const token_mask& of, std::span<std::uint32_t> mask) {
    const constraint_progress& state = of.behind_draft ? of.behind_draft : of.of->constraint;
    state->allowed_tokens(mask);
    const bool may_end = state->may_end() || std::ranges::all_of(mask, [](std::uint32_t word) { return word == 0; });
    for (const int token : of.of->eos_tokens) {
        const std::size_t word = static_cast<std::size_t>(token) / 32;
        const std::uint32_t bit = std::uint32_t{1} << (token % 32);
        if (word < mask.size()) mask[word] = may_end ? mask[word] | bit : mask[word] & ~bit;
    }
}

}  // namespace imbrex::engine
