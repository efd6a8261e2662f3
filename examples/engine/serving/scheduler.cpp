#include "engine/serving/scheduler.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace imbrex::engine {

namespace {

constraint_progress start_of_constraint(const sampling_params& sampling) {
    return sampling.constraint ? constraint_progress(sampling.constraint->start(sampling.drops_space))
                               : constraint_progress();
}

// After a token that is no EOS token. A constraint may end in a token that it does not allow, if the vocabulary has no
// allowed one: the text is then cut, as at its maximum length.
finish_reason reason_of_end(const sequence& it) {
    if (it.constraint && it.constraint->must_end())
        return it.constraint->may_end() ? finish_reason::complete : finish_reason::length;
    return it.is_complete() ? finish_reason::length : finish_reason::none;
}

}  // namespace

scheduler::scheduler(block_manager blocks, scheduler_options options)
    : blocks_(std::move(blocks)), options_(options), token_budget_(options.max_num_batched_tokens) {
    require(options.context >= 2, "context: ", options.context, "; it must hold a token of a prompt and a new one");
    require(options.max_num_seqs >= 1, "max_num_seqs: ", options.max_num_seqs, "; it must be at least 1");
    require(options.max_num_batched_tokens >= options.max_num_seqs,
            "max_num_batched_tokens: ", options.max_num_batched_tokens, "; it must be at least max_num_seqs, ",
            options.max_num_seqs, ", so that every sequence gets a token in each step");
    require(options.max_draft_tokens >= 0 && options.max_num_draft_tokens >= 0,
            "max_draft_tokens: ", options.max_draft_tokens, ", and ", options.max_num_draft_tokens,
            " of all sequences; they must be 0 (none; any number) or more");
}

void scheduler::limit_batched_tokens(int tokens) {
    token_budget_ = std::clamp(tokens, options_.max_num_seqs, options_.max_num_batched_tokens);
}

std::vector<sequence_id> scheduler::add(const request& wanted) {
    check(wanted.sampling);
    require(wanted.samples >= 1, "samples: ", wanted.samples, "; it must be at least 1");
    require(wanted.max_new_tokens >= 0, "max_new_tokens: ", wanted.max_new_tokens,
            "; it must be 0 (as many as fit) or more");
    require(!wanted.prompt.empty(), "prompt: it has no tokens; it must have at least one");
    const std::int64_t prompt = static_cast<std::int64_t>(wanted.prompt.size());
    const std::int64_t all = prompt + std::max(wanted.max_new_tokens, 1);
    const std::int64_t room = blocks_.max_sequence_tokens();
    require(all <= options_.context, "prompt: its ", prompt, " tokens and ", all - prompt, " new ones are ", all,
            "; the context has at most ", options_.context);
    require(all <= room, "prompt: its ", prompt, " tokens and ", all - prompt, " new ones are ", all,
            "; the cache has room for ", room, "; more memory for it (--memory) or fewer new tokens help");
    const bool is_embedding = wanted.pooling != pooling_mode::none;
    require(!is_embedding || (wanted.max_new_tokens == 1 && wanted.samples == 1), "pooling: with ",
            wanted.max_new_tokens, " new tokens and ", wanted.samples, " samples; an embedding has one of each");
    const std::int64_t most = wanted.max_new_tokens == 0 ? std::min<std::int64_t>(options_.context, room) : all;

    std::vector<sequence_id> ids{next_id_++};
    const auto first = std::make_shared<sequence>(sequence{.id = ids[0],
                                                           .tokens = wanted.prompt,
                                                           .num_prompt_tokens = static_cast<int>(prompt),
                                                           .max_total_tokens = static_cast<int>(most),
                                                           .eos_tokens = wanted.eos_tokens,
                                                           .sampling = wanted.sampling,
                                                           .constraint = start_of_constraint(wanted.sampling),
                                                           .priority = wanted.priority,
                                                           .pooling = wanted.pooling});
    if (is_embedding) first->pooled = std::make_shared<pooled_state>();
    sequences_.emplace(ids[0], first);
    waiting_.insert(first);
    for (int i = 1; i < wanted.samples; ++i)
        ids.push_back(fork(ids[0], wanted.sampling.seed + static_cast<std::uint64_t>(i)));
    return ids;
}

sequence_id scheduler::fork(sequence_id id, std::uint64_t seed) {
    const auto parent = sequences_.find(id);
    require(parent != sequences_.end(), "fork: there is no sequence ", id, "; it must not have ended");
    require(!parent->second->has_unknown_token(), "fork: the last token of sequence ", id,
            " is not known yet; finish its batch first");
    const auto child = std::make_shared<sequence>(*parent->second);
    child->id = next_id_++;
    // A fork that still waits for its parent's blocks has none to share, also not in the batch in which it gets them.
    if (child->parent < 0) child->parent = id;
    child->sampling.seed = seed;
    child->state = sequence_state::waiting;
    child->num_computed_tokens = 0;
    child->block_table = {};
    sequences_.emplace(child->id, child);
    waiting_.insert(child);
    return child->id;
}

bool scheduler::end(sequence_id id, finish_reason reason) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) return false;
    const pointer ended = found->second;
    waiting_.erase(ended);
    running_.erase(ended);
    reads_.erase(id);
    sequences_.erase(found);
    ended->reason = reason;
    ended->state = reason == finish_reason::cancelled ? sequence_state::cancelled : sequence_state::finished;
    if (in_flight() > 0) {
        ended_in_flight_.push_back({ended, scheduled_});
    } else {
        blocks_.free(ended->block_table);
    }
    return true;
}

const sequence* scheduler::find(sequence_id id) const {
    const auto found = sequences_.find(id);
    return found == sequences_.end() ? nullptr : found->second.get();
}

batch scheduler::schedule() {
    require(in_flight() == 0, "schedule: the previous batch is in flight; call finish or abandon first");
    batch next;
    append_blocks();
    complete(next);
    return next;
}

// Admits and fills; with the blocks of running sequences it is the next batch.
void scheduler::complete(batch& next) {
    admit_waiting(next);
    fill_batch(next);
    if (next.entries.empty()) return;
    next.moves = blocks_.take_moves();
    ++scheduled_;
}

batch scheduler::save_cached() {
    require(in_flight() == 0, "save_cached: a batch is in flight; call finish or abandon first");
    batch next;
    blocks_.save_cached();
    next.moves = blocks_.take_moves();
    scheduled_ += !next.moves.empty();
    return next;
}

void scheduler::append_blocks() {
    for (auto it = running_.begin(); it != running_.end(); ++it) {
        sequence& needy = **it;
        // The last in order cannot preempt a sequence; it keeps its blocks until others end or need them.
        while (!blocks_.extend(needy.block_table, needy.num_computed_tokens + 1) && *running_.rbegin() != *it)
            preempt_last();
    }
}

void scheduler::admit_waiting(batch& next) {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        const pointer first = *it;
        if (waits_for_parent(*first) || waits_for_files(*first)) {
            ++it;
        } else if (const auto known = preempt_until_fits(*first)) {
            start(first, *known, next);
            it = waiting_.erase(it);
        } else {
            return;  // no overtaking: a long prompt would starve
        }
    }
}

bool scheduler::waits_for_parent(const sequence& it) const {
    const sequence* parent = find(it.parent);
    return parent && parent->num_computed_tokens < it.length() - 1;
}

// Begins to read the files of its prefix, once: of a prefix that has changed in the meantime, the rest is computed.
bool scheduler::waits_for_files(sequence& it) {
    const auto known = reads_.find(it.id);
    if (known == reads_.end()) {
        const std::vector<disk_block> files =
            find(it.parent) ? std::vector<disk_block>() : blocks_.files_of_prefix(findable_tokens(it));
        it.state = files.empty() ? sequence_state::waiting : sequence_state::loading;
        if (files.empty()) return false;
        if (auto read = blocks_.read_files(files)) reads_.emplace(it.id, std::move(read));
        return true;
    }
    if (it.state == sequence_state::loading && known->second->ended()) {
        it.state = sequence_state::waiting;
        ++counts_.disk_waits;
        counts_.disk_wait_seconds += known->second->seconds();
    }
    return it.state == sequence_state::loading;
}

int scheduler::loading() const {
    return static_cast<int>(
        std::ranges::count(waiting_, sequence_state::loading, [](const pointer& it) { return it->state; }));
}

void scheduler::wait_for_files(std::chrono::milliseconds most) {
    if (reads_.empty()) return;
    blocks_.lower()->disk()->reader().wait(
        most, [&] { return std::ranges::any_of(reads_, [](const auto& each) { return each.second->ended(); }); });
}

// Its prefix, if it fits.
std::optional<cached_prefix> scheduler::preempt_until_fits(const sequence& it) {
    for (;;) {
        if (running() - num_ending_ < options_.max_num_seqs) {
            cached_prefix known = prefix_of(it);
            // One spare block per running sequence avoids a preemption in the very next steps.
            if (blocks_.can_start(known, it.length(), running())) return known;
        }
        if (running_.empty() || (*running_.rbegin())->priority >= it.priority) return std::nullopt;
        preempt_last();
    }
}

cached_prefix scheduler::prefix_of(const sequence& it) const {
    if (const sequence* parent = find(it.parent); parent && !waits_for_parent(it)) {
        if (auto shared = blocks_.shared_prefix(parent->block_table, it.length() - 1)) return *std::move(shared);
    }
    const auto read = reads_.find(it.id);
    return blocks_.find_cached_prefix(findable_tokens(it), read == reads_.end() ? nullptr : read->second.get());
}

std::span<const int> scheduler::findable_tokens(const sequence& it) const {
    if (it.pooling == pooling_mode::mean) return {};  // all its tokens are computed
    const int findable = options_.separate_prefill ? std::min(it.length(), it.num_prompt_tokens + 1) : it.length();
    return std::span(it.tokens).first(static_cast<std::size_t>(findable));
}

void scheduler::start(const pointer& it, const cached_prefix& known, batch& next) {
    reads_.erase(it->id);
    it->block_table = blocks_.start(known, next.copies);
    it->num_computed_tokens = known.tokens;
    if (it->num_cached_tokens < 0) it->num_cached_tokens = known.tokens;
    blocks_.extend_full(it->block_table, it->length());
    blocks_.extend(it->block_table, it->num_computed_tokens + 1);
    it->parent = -1;
    it->state = sequence_state::running;
    running_.insert(it);
    counts_.prompt_tokens += it->length();
    counts_.cached_tokens += it->num_computed_tokens;
    counts_.host_tokens += known.host_tokens;
    counts_.disk_tokens += known.disk_tokens;
}

// The number of tokens of a sequence in the next batch.
int scheduler::wanted(const sequence& it) const {
    if (!has_blocks(it) || it.is_complete()) return 0;
    if (!options_.separate_prefill) return it.num_uncomputed_tokens();
    if (prefill_turn_) return std::max(it.num_prompt_tokens - it.num_computed_tokens, 0);
    return it.is_prefill() ? 0 : it.num_uncomputed_tokens();
}

void scheduler::fill_batch(batch& next) {
    // Prefill and decode batches alternate if both have work.
    const auto has_prompt = [&](const pointer& it) { return has_blocks(*it) && it->is_prefill(); };
    const auto has_generated = [&](const pointer& it) {
        return has_blocks(*it) && !it->is_prefill() && !it->is_complete();
    };
    prefill_turn_ =
        std::ranges::any_of(running_, has_prompt) && !(prefill_turn_ && std::ranges::any_of(running_, has_generated));
    const auto decodes = [&](const pointer& it) { return wanted(*it) == 1; };
    int budget = token_budget_ - static_cast<int>(std::ranges::count_if(running_, decodes));
    for (const pointer& it : running_) {
        const int most = wanted(*it);
        int count = most == 1 ? 1 : std::min(most, budget);
        if (count == 0) continue;
        blocks_.extend(it->block_table, it->num_computed_tokens + count);
        count = std::min(count, blocks_.capacity(it->block_table) - it->num_computed_tokens);
        if (most > 1) budget -= count;
        next.entries.push_back({.sequence = it,
                                .first = it->num_computed_tokens,
                                .count = count,
                                .samples = count == it->num_uncomputed_tokens(),
                                .input_row = it->unknown_row});
    }
    allow_drafts(next, budget);
}

// Drafts leave a free block to each running sequence: they cause no preemption.
void scheduler::allow_drafts(batch& next, int budget) {
    const auto decodes = [](const batch_entry& entry) {
        return entry.samples && entry.count == 1 && !entry.sequence->is_prefill() && entry.input_row < 0;
    };
    const auto sharers = static_cast<int>(std::ranges::count_if(next.entries, decodes));
    if (sharers == 0) return;
    const int all = options_.max_num_draft_tokens == 0 ? budget : std::min(budget, options_.max_num_draft_tokens);
    for (batch_entry& entry : next.entries) {
        if (!decodes(entry)) continue;
        sequence& it = *sequences_.at(entry.sequence->id);
        const int most = std::min({options_.max_draft_tokens, all / sharers, it.max_total_tokens - it.length() - 1});
        const auto room = [&] { return blocks_.capacity(it.block_table) - it.length(); };
        const int more = std::max(blocks_.blocks_for(most - room()), 0);
        if (more > 0 && blocks_.min_free() >= running() + more) blocks_.extend(it.block_table, it.length() + most);
        entry.max_draft = std::clamp(room(), 0, std::max(most, 0));
    }
}

void scheduler::preempt_last() {
    const pointer last = *running_.rbegin();
    blocks_.free(last->block_table);
    last->num_computed_tokens = 0;
    last->state = sequence_state::waiting;
    running_.erase(last);
    waiting_.insert(last);
    ++counts_.preemptions;
}

std::vector<progress> scheduler::finish(const batch& done, std::span<const int> sampled) {
    require(static_cast<int>(sampled.size()) == done.samples(), "sampled: ", sampled.size(), " tokens; the batch has ",
            done.samples(), " sampled positions");
    release_batch(done);
    blocks_.finish(done.moves);
    std::vector<progress> all;
    int first = 0;  // of the entry's sampled tokens
    for (const batch_entry& entry : done.entries) {
        const int own = std::exchange(first, first + entry.num_samples());
        const auto found = sequences_.find(entry.sequence->id);
        if (found == sequences_.end()) continue;  // it ended while the batch ran
        sequence& it = *found->second;
        const auto drafted = static_cast<int>(entry.draft.size());
        counts_.drafted_tokens += drafted;
        int computed = entry.first + entry.count - drafted;
        finish_reason reason = finish_reason::none;
        bool accepted = true;
        for (int i = 0; i < entry.num_samples() && accepted && reason == finish_reason::none; ++i) {
            const int token = sampled[static_cast<std::size_t>(own + i)];
            reason = append(it, token);
            accepted = i < drafted && token == entry.draft[static_cast<std::size_t>(i)];
            all.push_back({.id = it.id,
                           .token = token,
                           .reason = reason,
                           .sample = own + i,
                           .accepted = accepted,
                           .cached = it.num_cached_tokens});
            counts_.accepted_tokens += accepted;
            if (accepted && reason == finish_reason::none) ++computed;  // its keys and values are right
        }
        blocks_.cache_full_blocks(it.block_table, it.tokens,
                                  options_.separate_prefill ? std::min(computed, it.num_prompt_tokens) : computed);
        blocks_.free_behind_windows(it.block_table, computed);
        it.num_computed_tokens = computed;
        if (reason != finish_reason::none) end(it.id, reason);
    }
    return all;
}

finish_reason scheduler::append(sequence& it, int token) {
    drop_unknown_token(it);
    it.tokens.push_back(token);
    if (std::ranges::find(it.eos_tokens, token) != it.eos_tokens.end()) return finish_reason::eos_token;
    if (it.constraint) it.constraint->push(token);
    return reason_of_end(it);
}

void scheduler::abandon(const batch& failed) {
    release_batch(failed);
    blocks_.abandon(failed.moves);
    for (const pointer& it : running_) drop_unknown_token(*it);
    while (!running_.empty()) preempt_last();
}

void scheduler::release_batch(const batch& past) {
    require(in_flight() > 0, "batch: none is in flight; call schedule first");
    ++released_;
    for (const block_copy& copy : past.copies) blocks_.release(copy);
    std::erase_if(ended_in_flight_, [&](const ended_sequence& ended) {
        const bool is_free = ended.last_batch <= released_;
        if (is_free) blocks_.free(ended.sequence->block_table);
        return is_free;
    });
    counts_.copies += static_cast<std::int64_t>(past.copies.size());
}

}  // namespace imbrex::engine
