#include "engine/serving/draft_model.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

void require_same_vocabulary(const tokenizer& target, const tokenizer& draft) {
    require(target.size() == draft.size(), "draft model: its vocabulary has ", draft.size(), " tokens, the model's ",
            target.size(), "; both must have the same");
    for (int id = 0; id < target.size(); ++id) {
        require(target.at(id).bytes == draft.at(id).bytes, "draft model: token ", id, " is ",
                printable(draft.at(id).bytes), ", and ", printable(target.at(id).bytes),
                " in the model; both must have the same vocabulary");
    }
}

draft_model::draft_model(std::unique_ptr<runner> model, block_manager blocks, const draft_model_options& options)
    : model_(std::move(model)), blocks_(std::move(blocks)), options_(options) {}

void draft_model::propose(batch& next) {
    try {
        draft_all(next);
    } catch (...) {
        forget_all();
        throw;
    }
}

void draft_model::draft_all(batch& next) {
    ++steps_;
    for (const batch_entry& entry : next.entries) {
        const auto found = followers_.find(entry.sequence->id);
        if (found != followers_.end()) found->second.last_used = steps_;
    }
    std::vector<drafting> all;
    for (batch_entry& entry : next.entries) {
        if (entry.max_draft == 0) continue;
        follower& it = followers_[entry.sequence->id];
        it.last_used = steps_;
        if (follow(it, *entry.sequence, entry.max_draft)) all.push_back({.entry = &entry, .with = &it});
    }
    catch_up(all);
    while (true) {
        std::vector<drafting*> unfinished;
        for (drafting& each : all) {
            if (static_cast<int>(each.tokens.size()) < each.entry->max_draft &&
                each.with->own->num_uncomputed_tokens() == 1)
                unfinished.push_back(&each);
        }
        if (unfinished.empty()) break;
        draft_next(unfinished);
    }
    for (drafting& each : all) each.entry->add_draft(std::move(each.tokens));
}

// Gives the follower the tokens of its sequence, and blocks for them and for a draft. False if there is no room.
bool draft_model::follow(follower& it, const sequence& target, int depth) {
    sequence& own = *it.own;
    const auto same = std::mismatch(own.tokens.begin() + it.verified, own.tokens.end(),
                                    target.tokens.begin() + it.verified, target.tokens.end());
    const auto seen = static_cast<int>(same.first - own.tokens.begin());
    own.tokens.erase(same.first, own.tokens.end());
    own.tokens.insert(own.tokens.end(), same.second, target.tokens.end());
    it.verified = own.length();
    own.num_computed_tokens = std::min({own.num_computed_tokens, seen, own.length() - 1});
    if (own.block_table.empty()) {
        own.id = target.id;
        own.num_prompt_tokens = target.num_prompt_tokens;
        own.sampling = target.sampling;
        own.sampling.logprobs = 0;
        own.sampling.constraint = nullptr;
        const cached_prefix known = blocks_.find_cached_prefix(own.tokens);
        std::vector<block_copy> copies;  // none: a prefix has whole blocks
        own.block_table = blocks_.start(known, copies);
        own.num_computed_tokens = known.tokens;
    } else {
        blocks_.cache_full_blocks(own.block_table, own.tokens, own.num_computed_tokens);
        blocks_.free_behind_windows(own.block_table, own.num_computed_tokens);
    }
    if (own.length() + depth > options_.context) return false;
    while (!blocks_.extend(own.block_table, own.length() + depth)) {
        if (free_an_unused_follower()) continue;
        blocks_.free(own.block_table);
        own.num_computed_tokens = 0;
        return false;
    }
    return true;
}

// Of sequences that are not in this batch, the one that was in none for longest.
bool draft_model::free_an_unused_follower() {
    follower* oldest = nullptr;
    for (auto& [id, each] : followers_) {
        if (each.last_used == steps_ || each.own->block_table.empty()) continue;
        if (oldest == nullptr || each.last_used < oldest->last_used) oldest = &each;
    }
    if (oldest == nullptr) return false;
    blocks_.free(oldest->own->block_table);
    oldest->own->num_computed_tokens = 0;
    return true;
}

// Computes all tokens that the draft model has not seen, in chunks, and samples the first draft token of each.
void draft_model::catch_up(std::vector<drafting>& all) {
    for (auto first = all.begin(); first != all.end();) {
        batch work;
        int budget = options_.max_num_batched_tokens;
        std::vector<drafting*> sampled;
        for (auto each = first; each != all.end() && budget > 0; ++each) {
            sequence& own = *each->with->own;
            const int count = std::min(own.num_uncomputed_tokens(), budget);
            const bool samples = count == own.num_uncomputed_tokens();
            work.entries.push_back(
                {.sequence = each->with->own, .first = own.num_computed_tokens, .count = count, .samples = samples});
            budget -= count;
            own.num_computed_tokens += count;
            if (!samples) break;
            sampled.push_back(&*each);
            first = std::next(each);
        }
        const std::vector<int> tokens = model_->run(work);
        for (std::size_t i = 0; i < sampled.size(); ++i) take(*sampled[i], tokens[i]);
    }
}

void draft_model::draft_next(std::vector<drafting*>& all) {
    batch work;
    for (const drafting* each : all) {
        sequence& own = *each->with->own;
        work.entries.push_back(
            {.sequence = each->with->own, .first = own.num_computed_tokens++, .count = 1, .samples = true});
    }
    const std::vector<int> tokens = model_->run(work);
    for (std::size_t i = 0; i < all.size(); ++i) take(*all[i], tokens[i]);
}

// A token that the target does not have ends the draft: nothing is left to compute.
void draft_model::take(drafting& it, int token) const {
    if (token >= options_.vocab_size) return;
    it.tokens.push_back(token);
    it.with->own->tokens.push_back(token);
}

void draft_model::ended(sequence_id id) {
    const auto found = followers_.find(id);
    if (found == followers_.end()) return;
    blocks_.free(found->second.own->block_table);
    followers_.erase(found);
}

void draft_model::forget_all() {
    for (auto& [id, each] : followers_) blocks_.free(each.own->block_table);
    followers_.clear();
}

}  // namespace imbrex::engine
