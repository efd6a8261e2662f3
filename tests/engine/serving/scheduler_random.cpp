// Thousands of random histories: batches one after another and scheduled ahead, small block pools, cache groups with and
// without windows, shared prefixes, forks, cancellation, priorities, preemption, failing batches, host memory and files for
// evicted blocks, right and wrong draft tokens. Every sequence gets the tokens that it gets alone, invariants hold after each
// step, and all blocks are free at the end.
#include "engine/serving/scheduler.hpp"

#include "engine/serving/fake_runner.hpp"
#include "engine/support.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <climits>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace imbrex::engine;
using imbrex::engine::test::fake_runner;
using imbrex::engine::test::temporary_folder;
using imbrex::engine::test::text_alone;

namespace {

std::uint64_t one_hash(std::uint64_t, std::span<const int>) {
    return 0;
}
std::uint64_t weak_hash(std::uint64_t parent, std::span<const int> tokens) {
    return chain_hash(parent, tokens) % 5;
}

// Events over all histories; each must occur, or the test covers nothing.
struct events_met {
    std::int64_t steps = 0, tokens = 0, preemptions = 0, copies = 0, cached = 0, shared = 0, forks = 0, cancels = 0,
                 in_flight = 0, refusals = 0, failures = 0, stalls = 0, ends = 0, behind_windows = 0,
                 cached_behind_windows = 0, drafted = 0, accepted = 0, saved = 0, loaded = 0, host_tokens = 0,
                 host_evictions = 0, files = 0, disk_tokens = 0, damaged = 0, disk_evictions = 0,
                 steps_beside_reads = 0, ahead = 0;
};

struct expected_text {
    std::vector<int> tokens;  // all tokens of the finished sequence
    std::size_t next;         // tokens returned so far
};

class history {
  public:
    // Histories share the directory, as successive processes do.
    history(unsigned seed, events_met& met, const std::filesystem::path& directory)
        : random_(seed),
          met_(met),
          directory_(directory),
          block_size_(below(8) == 0 ? 16 : 1 + below(6)),
          vocabulary_(2 + below(30)),
          kinds_apart_(seed % 4 == 3),
          drafts_(seed % 3 != 0),
          options_(random_options()),
          groups_(random_groups()),
          slots_(random_slots()),
          runner_(groups_, block_size_, vocabulary_, kinds_apart_, slots_),
          plan_(random_blocks(), options_) {
        for (const cache_group& each : groups_) windows_.push_back(each.window);
        for (std::vector<int>& stem : stems_) stem = random_tokens(40);
    }

    void run() {
        const int steps = 10 + below(60);
        for (int i = 0; i < steps; ++i) {
            if (below(3) == 0) disturb();
            step();
        }
        disturbed_ = false;
        // Without new requests, the first running sequence advances in every step. It is preempted only if an earlier
        // one in order starts, and there are fewer and fewer of them.
        std::int64_t most = 0;
        for (const auto& [id, text] : expected_) most += static_cast<std::int64_t>(text.tokens.size());
        most *= static_cast<std::int64_t>(expected_.size()) * (kinds_apart_ ? 2 : 1);
        most += 2;  // batches in flight
        for (; !plan_.idle() || !in_flight_.empty(); --most) {
            expect(most > 0, "all requests end");
            step();
        }
        expect(expected_.empty(), "all have ended");
        expect(plan_.blocks().used_bytes() == 0, "all blocks are free");
        met_.preemptions += plan_.counts().preemptions;
        met_.copies += plan_.counts().copies;
        met_.cached += plan_.counts().cached_tokens;
        met_.drafted += plan_.counts().drafted_tokens;
        met_.accepted += plan_.counts().accepted_tokens;
        if (const lower_levels* const lower = plan_.blocks().lower()) {
            met_.saved += lower->host_counts().saved_blocks;
            met_.loaded += lower->host_counts().loaded_blocks;
            met_.host_evictions += lower->host_counts().evicted_blocks;
            met_.host_tokens += plan_.counts().host_tokens;
        }
        if (disk_) {
            disk_->flush();
            met_.files += disk_->counts().saved_blocks;
            met_.disk_tokens += plan_.counts().disk_tokens;
            met_.damaged += disk_->counts().damaged_blocks;
            met_.disk_evictions += disk_->counts().evicted_blocks;
            expect(disk_->counts().held_bytes <= disk_->capacity(), "the directory keeps its budget");
        }
    }

  private:
    int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

    static void expect(bool holds, const char* what) {
        if (!holds) FAIL(std::string(what));
    }

    scheduler_options random_options() {
        const int sequences = 1 + below(8);
        const int context = 4 + below(80);
        return {.context = context,
                .max_num_batched_tokens = sequences + below(30),
                .max_num_seqs = sequences,
                .separate_prefill = kinds_apart_,
                .max_draft_tokens = drafts_ ? 1 + below(6) : 0,
                .max_num_draft_tokens = below(3) == 0 ? 1 + below(9) : 0};
    }

    // All tokens; a window; both; two windows.
    std::vector<cache_group> random_groups() {
        const int kind = below(8);
        std::vector<cache_group> groups;
        if (kind != 4) groups.push_back({.blocks = 2 + below(30)});
        for (int i = 0; i < (kind < 4 ? 0 : kind < 7 ? 1 : 2); ++i)
            groups.push_back({.blocks = 2 + below(30), .window = 1 + below(below(2) == 0 ? 6 : 30)});
        for (cache_group& each : groups) each.block_bytes = block_size_ * 8;
        return groups;
    }

    // None in a third of the histories.
    std::vector<int> random_slots() {
        std::vector<int> slots;
        const bool none = below(3) == 0;
        for (std::size_t i = 0; i < groups_.size() && !none; ++i) slots.push_back(below(below(2) == 0 ? 4 : 40));
        return slots;
    }

    block_manager random_blocks() {
        const prefix_caching caching = below(6) == 0 ? prefix_caching::off : prefix_caching::on;
        block_manager made(groups_, block_size_, caching, random_hash());
        if (slots_.empty()) return made;
        lower_levels::options options{.host_slots = slots_,
                                      .policy = below(2) == 0 ? cache_policy::lru : cache_policy::lfu};
        if (below(6) == 0) {
            disk_ = options.disk = std::make_shared<disk_level>(
                disk_level_options{.directory = directory_, .bytes = 1000 + below(20000), .policy = options.policy});
            options.store = &runner_;
            options.root_key = key_of_numbers();
        }
        made.add_lower_levels(options);
        return made;
    }

    // What the numbers in a block depend on, besides its tokens.
    content_key key_of_numbers() const {
        std::string all = std::to_string(block_size_);
        for (const cache_group& each : groups_) all += " " + std::to_string(each.window);
        return first_key(all);
    }

    // Damages, shortens or deletes a file.
    void spoil_a_file() {
        disk_->flush();
        std::vector<std::filesystem::path> files;
        for (const auto& each : std::filesystem::recursive_directory_iterator(directory_)) {
            if (each.path().extension() == ".kv") files.push_back(each.path());
        }
        if (files.empty()) return;
        std::ranges::sort(files);
        const auto& chosen = files[static_cast<std::size_t>(below(static_cast<int>(files.size())))];
        const int kind = below(3);
        if (kind == 0) {
            std::filesystem::remove(chosen);
        } else if (kind == 1) {
            std::filesystem::resize_file(chosen, std::filesystem::file_size(chosen) / 2);
        } else {
            std::fstream file(chosen, std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(below(static_cast<int>(std::filesystem::file_size(chosen))));
            file.put(static_cast<char>(below(256)));
        }
    }

    // The longest sequence: a window needs blocks for one more token than it has, in any position.
    int room() const {
        int most = options_.context;
        for (const cache_group& each : groups_) {
            if (each.window > 0 && each.blocks > (each.window + block_size_ - 1) / block_size_) continue;
            most = std::min(most, each.blocks * block_size_ + 1);
        }
        return most;
    }

    prefix_tree::hash_function random_hash() {
        const int kind = below(4);
        return kind == 0 ? one_hash : kind == 1 ? weak_hash : chain_hash;
    }

    std::vector<int> random_tokens(int count) {
        std::vector<int> tokens(static_cast<std::size_t>(count));
        for (int& token : tokens) token = below(vocabulary_);
        return tokens;
    }

    sequence_id random_id() { return std::next(expected_.begin(), below(static_cast<int>(expected_.size())))->first; }

    void disturb() {
        const int kind = below(12);
        if (kind < 7) {
            add();
        } else if (kind < 9 && !expected_.empty() && expected_.size() < 30) {
            fork();
        } else if (!expected_.empty()) {
            const sequence_id id = random_id();
            expect(plan_.end(id, kind == 9 ? finish_reason::stop_string : finish_reason::cancelled),
                   "the sequence exists");
            expected_.erase(id);
            ++met_.cancels;
        }
    }

    void add() {
        const std::vector<int>& stem = stems_[static_cast<std::size_t>(below(2))];
        const int room = this->room();
        request wanted{.prompt = {stem.begin(), stem.begin() + below(std::min(40, room))},
                       .max_new_tokens = below(5) == 0 ? 0 : 1 + below(room),
                       .eos_tokens = {},
                       .sampling = {.bias = {}, .seed = static_cast<std::uint64_t>(below(3)), .stop = {}},
                       .samples = below(4) == 0 ? 1 + below(4) : 1,
                       .priority = below(3)};
        for (const int token : random_tokens(1 + below(6))) wanted.prompt.push_back(token);
        if (below(2) == 0) wanted.eos_tokens.push_back(below(vocabulary_));
        const int prompt = static_cast<int>(wanted.prompt.size());
        if (prompt + std::max(wanted.max_new_tokens, 1) > room) {
            CHECK_THROWS_AS(plan_.add(wanted), imbrex::invalid_argument);
            ++met_.refusals;
            return;
        }
        const int most = wanted.max_new_tokens == 0 ? room : prompt + wanted.max_new_tokens;
        std::uint64_t seed = wanted.sampling.seed;
        for (const sequence_id id : plan_.add(wanted)) {
            expected_[id] = {text_alone(wanted.prompt, seed++, vocabulary_, most, wanted.eos_tokens,
                                        other_kind_from(prompt), windows_),
                             wanted.prompt.size()};
        }
    }

    void fork() {
        const sequence_id parent = random_id();
        const sequence& from = *plan_.find(parent);
        if (from.has_unknown_token()) return;
        const auto seed = static_cast<std::uint64_t>(below(4));
        const sequence_id id = plan_.fork(parent, seed);
        expected_[id] = {text_alone(from.tokens, seed, vocabulary_, from.max_total_tokens, from.eos_tokens,
                                    other_kind_from(from.num_prompt_tokens), windows_),
                         from.tokens.size()};
        ++met_.forks;
    }

    int other_kind_from(int prompt) const { return kinds_apart_ ? prompt : INT_MAX; }

    void step() {
        if (in_flight_.empty()) {
            batch work = plan_.schedule();
            if (work.entries.empty()) {
                expect(plan_.idle() || plan_.loading() > 0, "a batch is empty only if idle or if files are read");
                expect(plan_.running() == 0, "what can run does");
                return plan_.wait_for_files(std::chrono::seconds(1));
            }
            launch(std::move(work));
            check_references(in_flight_.back().copies);
        }
        disturb_in_flight();
        const bool tries_ahead = in_flight_.size() == 1 && below(3) != 0;
        if (tries_ahead) launch_ahead();
        for (const batch& each : in_flight_) {
            for (const batch_entry& entry : each.entries) {
                expect(plan_.blocks().capacity(entry.sequence->block_table) >= entry.first + entry.count,
                       "what is in a batch keeps its blocks, even if it has ended");
            }
        }
        const bool fails = disturbed_ && below(50) == 0;
        const std::vector<int> tokens = runner_.wait();
        disturb_in_flight();
        if (fails) {
            abandon();
        } else {
            for (const progress& each : plan_.finish(in_flight_.front(), tokens)) check_progress(each);
            in_flight_.pop_front();
        }
        if (!in_flight_.empty()) return;
        check_references({});
        if (!tries_ahead) check_slots();  // blocks that were taken in vain may have moves
    }

    void launch(batch work) {
        met_.steps_beside_reads += plan_.loading() > 0;
        draft(work);
        if (disk_ && below(2) == 0) disk_->flush();
        if (disk_ && below(8) == 0) spoil_a_file();
        check_batch(work);
        ++met_.steps;
        met_.tokens += work.tokens();
        in_flight_.push_back(std::move(work));
        runner_.launch(in_flight_.back());
        if (below(2) == 0) runner_.compute();
    }

    void launch_ahead() {
        const int preemptions = static_cast<int>(plan_.counts().preemptions);
        std::optional<batch> next = plan_.schedule_ahead(in_flight_.front());
        expect(plan_.counts().preemptions == preemptions, "nothing is preempted while a batch is in flight");
        if (!next) return;
        ++met_.ahead;
        launch(*std::move(next));
    }

    void abandon() {
        if (in_flight_.size() > 1) runner_.wait();
        for (const batch& each : in_flight_) plan_.abandon(each);
        in_flight_.clear();
        ++met_.failures;
    }

    // Between steps no slot takes part in a move.
    void check_slots() const {
        if (slots_.empty()) return;
        const host_level& host = plan_.blocks().lower()->host();
        for (int group = 0; group < plan_.blocks().num_groups(); ++group) {
            int used = 0;
            for (int i = 0; i < host.slots(group); ++i) {
                expect(host.at(group, i).pins == 0, "no slot is pinned between steps");
                used += host.at(group, i).node != prefix_tree::root;
            }
            expect(used == host.used(group), "slots without a prefix are free");
        }
    }

    // Up to a random position the tokens that the sequence gets, then others.
    void draft(batch& work) {
        for (batch_entry& entry : work.entries) {
            if (entry.max_draft == 0 || below(4) == 0) continue;
            const auto& [expected, next] = expected_.at(entry.sequence->id);
            std::vector<int> tokens = random_tokens(1 + below(entry.max_draft));
            const auto right = std::min<std::size_t>(tokens.size(), expected.size() - next);
            std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(next), below(static_cast<int>(right) + 1),
                        tokens.begin());
            entry.add_draft(std::move(tokens));
        }
        met_.tokens -= work.drafted();
    }

    void disturb_in_flight() {
        while (disturbed_ && below(12) == 0) {
            disturb();
            ++met_.in_flight;
        }
    }

    void check_progress(const progress& each) {
        const auto found = expected_.find(each.id);
        expect(found != expected_.end(), "only unfinished sequences get tokens");
        auto& [expected, next] = found->second;
        expect(next < expected.size() && expected[next++] == each.token,
               "the token is the one that the sequence has alone");
        expect((each.reason != finish_reason::none) == (next == expected.size()), "it ends as it does alone");
        expect(each.reason == finish_reason::none || plan_.find(each.id) == nullptr, "it is gone when it has ended");
        if (each.reason == finish_reason::none) return;
        met_.ends += each.reason == finish_reason::eos_token;
        expected_.erase(found);
    }

    // All running sequences that have something to compute, in order.
    std::vector<const sequence*> in_order() const {
        std::vector<const sequence*> all;
        for (const auto& [id, text] : expected_) {
            const sequence* const it = plan_.find(id);
            if (it->state == sequence_state::running && !it->is_complete()) all.push_back(it);
        }
        std::ranges::sort(all, [](const sequence* a, const sequence* b) {
            return std::pair(-a->priority, a->id) < std::pair(-b->priority, b->id);
        });
        return all;
    }

    void check_batch(const batch& work) {
        expect(work.tokens() <= options_.max_num_batched_tokens, "within the token budget");
        expect(static_cast<int>(work.entries.size()) <= options_.max_num_seqs, "within max_num_seqs");
        std::map<const sequence*, const batch_entry*> entries;
        std::vector<block_copy> all_copies = work.copies;
        for (const batch& each : in_flight_)
            all_copies.insert(all_copies.end(), each.copies.begin(), each.copies.end());
        for (const batch_entry& entry : work.entries) {
            const sequence& it = *entry.sequence;
            expect(entries.emplace(&it, &entry).second, "a sequence occurs once in a batch");
            expect(it.state == sequence_state::running && entry.first == it.num_computed_tokens && entry.count >= 1,
                   "an entry goes on where its sequence is");
            const int drafted = static_cast<int>(entry.draft.size());
            expect(entry.samples == (entry.first + entry.count - drafted == it.length()),
                   "a token is sampled where all are computed");
            for (int group = 0; group < plan_.blocks().num_groups(); ++group)
                check_written_blocks(group, it, entry, all_copies);
        }
        for (const block_copy& copy : work.copies) {
            const auto count_of = [&](int block_copy::*place) {
                return std::ranges::count_if(work.copies, [&](const block_copy& other) {
                    return other.group == copy.group && other.*place == copy.to;
                });
            };
            expect(count_of(&block_copy::to) == 1, "a block is the destination of one copy");
            expect(count_of(&block_copy::from) == 0, "a block copied to is copied from nowhere");
        }
        if (kinds_apart_) return;  // prefill and decode batches alternate
        const std::vector<const sequence*> all = in_order();
        expect(entries.contains(all.front()), "the first in order advances");
        for (const sequence* it : all) {
            const auto entry = entries.find(it);
            if (entry != entries.end() && it->num_uncomputed_tokens() <= entry->second->count) continue;
            if (it->num_uncomputed_tokens() == 1) {
                expect(it == all.back() && a_group_is_full(),
                       "decoding waits only for blocks, and only the last in order");
                ++met_.stalls;
            } else {
                expect(work.tokens() == options_.max_num_batched_tokens || a_group_is_full(),
                       "a prompt waits for the token budget, or for the blocks of a window");
            }
        }
    }

    bool a_group_is_full() const {
        for (int group = 0; group < plan_.blocks().num_groups(); ++group) {
            if (plan_.blocks().pool(group).num_free() == 0) return true;
        }
        return false;
    }

    void check_written_blocks(int group, const sequence& it, const batch_entry& entry,
                              const std::vector<block_copy>& copies) const {
        const std::vector<int>& table = it.block_table.groups[static_cast<std::size_t>(group)];
        for (int i = entry.first / block_size_; i <= (entry.first + entry.count - 1) / block_size_; ++i) {
            const int block = table[static_cast<std::size_t>(i)];
            const auto copied = std::ranges::count_if(
                copies, [&](const block_copy& copy) { return copy.group == group && copy.from == block; });
            expect(plan_.blocks().pool(group).ref_count(block) == 1 + copied,
                   "a block that is written has one holder, besides copies of it");
            expect(!plan_.blocks().is_cached(group, block), "a written block is not in the prefix cache");
        }
    }

    void check_references(const std::vector<block_copy>& copies) {
        for (const auto& [id, text] : expected_) {
            const sequence& it = *plan_.find(id);
            expect(it.state == sequence_state::running || (it.block_table.empty() && it.num_computed_tokens == 0),
                   "a waiting sequence holds no blocks");
            expect(it.num_computed_tokens <= plan_.blocks().capacity(it.block_table) &&
                       it.num_computed_tokens < it.length(),
                   "what is computed has blocks");
        }
        for (int group = 0; group < plan_.blocks().num_groups(); ++group) check_references(group, copies);
    }

    void check_references(int group, const std::vector<block_copy>& copies) {
        const block_pool& pool = plan_.blocks().pool(group);
        std::vector<int> references(static_cast<std::size_t>(pool.count()));
        const auto count = [&](int block) { met_.shared += ++references[static_cast<std::size_t>(block)] > 1; };
        for (const block_copy& copy : copies) {
            if (copy.group == group) count(copy.from);
        }
        for (const auto& [id, text] : expected_) {
            const sequence& it = *plan_.find(id);
            if (it.block_table.empty()) continue;
            int held = 0;
            for (const int block : it.block_table.groups[static_cast<std::size_t>(group)]) {
                if (block == no_block) continue;
                count(block);
                ++held;
            }
            check_window(group, it, held);
        }
        int free = 0;
        for (int i = 0; i < pool.count(); ++i) {
            expect(pool.ref_count(i) == references[static_cast<std::size_t>(i)], "references are those of the tables");
            free += pool.ref_count(i) == 0;
            met_.cached_behind_windows += pool.ref_count(i) == 0 &&
                                          groups_[static_cast<std::size_t>(group)].window > 0 &&
                                          plan_.blocks().is_cached(group, i);
        }
        expect(pool.num_free() == free, "blocks without references are free");
    }

    // A sequence holds the tokens of its window, those that its batch computes, and no others.
    void check_window(int group, const sequence& it, int held) {
        const int window = groups_[static_cast<std::size_t>(group)].window;
        const int all = static_cast<int>(it.block_table.groups[static_cast<std::size_t>(group)].size());
        if (window == 0) return expect(held == all, "without a window all blocks are kept");
        const int first = std::max(it.num_computed_tokens - window, 0) / block_size_;
        expect(held == all - first, "blocks behind the window are freed, and no others");
        met_.behind_windows += all - held;
    }

    std::mt19937 random_;
    events_met& met_;
    std::filesystem::path directory_;
    int block_size_, vocabulary_;
    bool kinds_apart_;  // separate_prefill; the runner distinguishes the kinds
    bool drafts_;
    scheduler_options options_;
    std::vector<cache_group> groups_;
    std::vector<int> slots_;  // of host memory, of each group
    std::vector<int> windows_;
    fake_runner runner_;
    std::shared_ptr<disk_level> disk_;
    scheduler plan_;
    std::vector<int> stems_[2];
    std::map<sequence_id, expected_text> expected_;  // of unfinished sequences
    std::deque<batch> in_flight_;
    bool disturbed_ = true;
};

}  // namespace

TEST_CASE("Every sequence gets the text that it has alone, and all blocks are free at the end") {
    events_met met;
    const temporary_folder folder;
    for (unsigned seed = 0; seed < 4000; ++seed) {
        INFO("history ", seed);
        history(seed, met, folder.path()).run();
    }
    MESSAGE(met.steps, " steps, ", met.tokens, " tokens computed, ", met.cached, " found in the cache, ", met.shared,
            " shared blocks, ", met.copies, " copies, ", met.preemptions, " preemptions, ", met.stalls,
            " waits for a block, ", met.forks, " forks, ", met.cancels, " cancels, ", met.in_flight, " in flight, ",
            met.refusals, " refusals, ", met.failures, " failed batches, ", met.ends, " end tokens, ",
            met.behind_windows, " blocks behind windows, ", met.cached_behind_windows,
            " free ones in the prefix cache, ", met.drafted, " drafted, ", met.accepted, " accepted, ", met.saved,
            " blocks saved to host memory, ", met.loaded, " loaded, ", met.host_tokens, " tokens found there, ",
            met.host_evictions, " evicted, ", met.files, " files, ", met.disk_tokens, " tokens found there, ",
            met.disk_evictions, " evicted, ", met.damaged, " damaged, ", met.steps_beside_reads,
            " steps beside reads, ", met.ahead, " steps scheduled ahead");
    for (const std::int64_t each : {met.tokens,         met.cached,
                                    met.shared,         met.copies,
                                    met.preemptions,    met.stalls,
                                    met.forks,          met.cancels,
                                    met.in_flight,      met.refusals,
                                    met.failures,       met.ends,
                                    met.behind_windows, met.cached_behind_windows,
                                    met.accepted,       met.drafted - met.accepted,
                                    met.saved,          met.loaded,
                                    met.host_tokens,    met.host_evictions}) {
        CHECK(each > 1000);
    }
    for (const std::int64_t each : {met.files, met.disk_tokens, met.disk_evictions}) CHECK(each > 200);
    CHECK(met.damaged > 2);
    CHECK(met.steps_beside_reads > 20);
    CHECK(met.ahead > met.steps / 5);
    CHECK(met.ahead < met.steps * 4 / 5);
}
