#include "scheduler.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace imbrex::engine {

scheduler::scheduler(block_manager blocks, scheduler_options options) : blocks_(std::move(blocks)), options_(options) {
    require(options.context >= 2, "context: ", options.context, "; it must hold a token of a prompt and a new one");
    require(options.max_sequences >= 1, "max_sequences: ", options.max_sequences, "; it must be at least 1");
    require(options.token_budget >= options.max_sequences, "token_budget: ", options.token_budget,
            "; it must be at least max_sequences, ", options.max_sequences,
            ", so that every sequence gets a token in each step");
}

std::vector<sequence_id> scheduler::add(const request& wanted) {
    check(wanted.sampling);
    require(wanted.samples >= 1, "samples: ", wanted.samples, "; it must be at least 1");
    require(wanted.max_new_tokens >= 0, "max_new_tokens: ", wanted.max_new_tokens,
            "; it must be 0 (as many as fit) or more");
    require(!wanted.prompt.empty(), "prompt: it has no tokens; it must have at least one");
    const std::int64_t prompt = static_cast<std::int64_t>(wanted.prompt.size());
    const std::int64_t all = prompt + std::max(wanted.max_new_tokens, 1);
    // The last token of all is given out, but never computed.
    const std::int64_t room = std::int64_t{blocks_.count()} * blocks_.block_size() + 1;
    require(all <= options_.context, "prompt: its ", prompt, " tokens and ", all - prompt, " new ones are ", all,
            "; the context has at most ", options_.context);
    require(all <= room, "prompt: its ", prompt, " tokens and ", all - prompt, " new ones are ", all, "; the cache of ",
            blocks_.count(), " blocks of ", blocks_.block_size(), " tokens has room for ", room);
    const std::int64_t most = wanted.max_new_tokens == 0 ? std::min<std::int64_t>(options_.context, room) : all;

    std::vector<sequence_id> ids{next_id_++};
    const auto first = std::make_shared<sequence>(sequence{.id = ids[0],
                                                           .tokens = wanted.prompt,
                                                           .prompt_length = static_cast<int>(prompt),
                                                           .most_tokens = static_cast<int>(most),
                                                           .end_tokens = wanted.end_tokens,
                                                           .sampling = wanted.sampling,
                                                           .priority = wanted.priority});
    sequences_.emplace(ids[0], first);
    waiting_.insert(first);
    for (int i = 1; i < wanted.samples; ++i)
        ids.push_back(fork(ids[0], wanted.sampling.seed + static_cast<std::uint64_t>(i)));
    return ids;
}

sequence_id scheduler::fork(sequence_id id, std::uint64_t seed) {
    const auto parent = sequences_.find(id);
    require(parent != sequences_.end(), "fork: there is no sequence ", id, "; it must not have ended");
    const auto child = std::make_shared<sequence>(*parent->second);
    child->id = next_id_++;
    // One that waits to share others' blocks has none to share yet, and not even in the batch in which it gets them.
    if (child->parent < 0) child->parent = id;
    child->sampling.seed = seed;
    child->state = sequence_state::waiting;
    child->computed = 0;
    child->blocks.clear();
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
    sequences_.erase(found);
    ended->reason = reason;
    ended->state = reason == finish_reason::cancelled ? sequence_state::cancelled : sequence_state::finished;
    if (in_flight_) {
        leaving_.push_back(ended);  // the batch may still read and write its blocks
    } else {
        blocks_.release(ended->blocks);
    }
    return true;
}

const sequence* scheduler::find(sequence_id id) const {
    const auto found = sequences_.find(id);
    return found == sequences_.end() ? nullptr : found->second.get();
}

batch scheduler::schedule() {
    require(!in_flight_, "schedule: the batch before has not come back; finish or abandon must be called first");
    batch next;
    secure();
    admit(next);
    fill(next);
    in_flight_ = !next.entries.empty();
    return next;
}

void scheduler::secure() {
    for (auto it = running_.begin(); it != running_.end(); ++it) {
        sequence& needy = **it;
        if (has_room(needy)) continue;
        while (blocks_.available() == 0 && *running_.rbegin() != *it) preempt_last();
        // The last in order has nobody to preempt, and keeps what it has until others end or need it.
        if (blocks_.available() > 0) needy.blocks.push_back(blocks_.take());
    }
}

void scheduler::admit(batch& next) {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        const pointer first = *it;
        if (waits_for_parent(*first)) {
            ++it;
        } else if (make_space(*first)) {
            it = waiting_.erase(it);
            start(first, next);
        } else {
            return;  // nobody overtakes, or a long prompt might wait for ever
        }
    }
}

bool scheduler::waits_for_parent(const sequence& it) const {
    const sequence* parent = find(it.parent);
    return parent && parent->computed < it.length() - 1;
}

bool scheduler::make_space(const sequence& it) {
    while (!fits(it)) {
        if (running_.empty() || (*running_.rbegin())->priority >= it.priority) return false;
        preempt_last();
    }
    return true;
}

bool scheduler::fits(const sequence& it) const {
    const prefix known = known_prefix(it);
    const auto idle = std::ranges::count_if(known.blocks, [&](int block) { return blocks_.references(block) == 0; });
    const int needed = blocks_.blocks_for(it.length()) - known.tokens / blocks_.block_size() + static_cast<int>(idle);
    // With a block to spare for each that runs, nobody has to be preempted as soon as the next ones need theirs.
    return running() < options_.max_sequences && needed + running() <= blocks_.available();
}

scheduler::prefix scheduler::known_prefix(const sequence& it) const {
    if (const sequence* parent = find(it.parent); parent && !waits_for_parent(it)) {
        const auto begin = parent->blocks.begin();
        return {.blocks = {begin, begin + blocks_.blocks_for(it.length() - 1)}, .tokens = it.length() - 1};
    }
    const int findable = options_.kinds_apart ? std::min(it.length(), it.prompt_length + 1) : it.length();
    prefix known{.blocks = blocks_.find(std::span(it.tokens).first(static_cast<std::size_t>(findable)))};
    known.tokens = static_cast<int>(known.blocks.size()) * blocks_.block_size();
    return known;
}

void scheduler::start(const pointer& it, batch& next) {
    const prefix known = known_prefix(*it);
    for (const int block : known.blocks) blocks_.share(block);
    it->blocks = known.blocks;
    it->computed = known.tokens;
    if (it->computed % blocks_.block_size() != 0) {
        if (const auto copy = blocks_.make_writable(it->blocks.back())) next.copies.push_back(*copy);
    }
    while (!has_room(*it)) it->blocks.push_back(blocks_.take());
    it->parent = -1;
    it->state = sequence_state::running;
    running_.insert(it);
    counts_.prompt_tokens += it->length();
    counts_.cached_tokens += it->computed;
}

// How many tokens of a sequence the next batch may have.
int scheduler::wanted(const sequence& it) const {
    if (!has_room(it)) return 0;
    if (!options_.kinds_apart) return it.left();
    if (prompts_turn_) return std::max(it.prompt_length - it.computed, 0);
    return it.in_prompt() ? 0 : it.left();
}

void scheduler::fill(batch& next) {
    // Prompts and generated tokens take turns, where there are both.
    const auto has_prompt = [&](const pointer& it) { return has_room(*it) && it->in_prompt(); };
    const auto has_generated = [&](const pointer& it) { return has_room(*it) && !it->in_prompt(); };
    prompts_turn_ =
        std::ranges::any_of(running_, has_prompt) && !(prompts_turn_ && std::ranges::any_of(running_, has_generated));
    const auto decodes = [&](const pointer& it) { return wanted(*it) == 1; };
    int budget = options_.token_budget - static_cast<int>(std::ranges::count_if(running_, decodes));
    for (const pointer& it : running_) {
        const int most = wanted(*it), count = most == 1 ? 1 : std::min(most, budget);
        if (count == 0) continue;
        if (most > 1) budget -= count;
        next.entries.push_back({.sequence = it, .first = it->computed, .count = count, .samples = count == it->left()});
    }
}

void scheduler::preempt_last() {
    const pointer last = *running_.rbegin();
    blocks_.release(last->blocks);
    last->computed = 0;
    last->state = sequence_state::waiting;
    running_.erase(last);
    waiting_.insert(last);
    ++counts_.preemptions;
}

std::vector<progress> scheduler::finish(const batch& done, std::span<const int> sampled) {
    require(static_cast<int>(sampled.size()) == done.samples(), "sampled: ", sampled.size(), " tokens; the batch has ",
            done.samples(), " entries that sample");
    settle(done);
    std::vector<progress> all;
    auto token = sampled.begin();
    for (const batch_entry& entry : done.entries) {
        const int next = entry.samples ? *token++ : -1;
        const auto found = sequences_.find(entry.sequence->id);
        if (found == sequences_.end()) continue;  // it has ended while the batch ran
        sequence& it = *found->second;
        const int computed = it.computed + entry.count;
        blocks_.computed(it.blocks, it.tokens, it.computed,
                         options_.kinds_apart ? std::min(computed, it.prompt_length) : computed);
        it.computed += entry.count;
        if (!entry.samples) continue;
        it.tokens.push_back(next);
        const bool last = std::ranges::find(it.end_tokens, next) != it.end_tokens.end();
        const finish_reason reason = last                            ? finish_reason::end_token
                                     : it.length() == it.most_tokens ? finish_reason::length
                                                                     : finish_reason::none;
        all.push_back({.id = it.id, .token = next, .reason = reason});
        if (reason != finish_reason::none) end(it.id, reason);
    }
    return all;
}

void scheduler::abandon(const batch& failed) {
    settle(failed);
    while (!running_.empty()) preempt_last();
}

void scheduler::settle(const batch& past) {
    require(in_flight_, "batch: there is none to come back; schedule gives one");
    for (const block_copy& copy : past.copies) blocks_.release(copy.from);
    for (const pointer& ended : leaving_) blocks_.release(ended->blocks);
    leaving_.clear();
    counts_.copies += static_cast<std::int64_t>(past.copies.size());
    in_flight_ = false;
}

}  // namespace imbrex::engine
