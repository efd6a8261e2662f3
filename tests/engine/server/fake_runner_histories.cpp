// Random histories of requests with the real scheduler and a fake runner: many more than with a model, with steps that
// overlap, and also compiled with ThreadSanitizer. request_histories.hpp says what clients do.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/server/request_histories.hpp"
#include "engine/serving/engine.hpp"
#include "engine/serving/fake_runner.hpp"
#include "engine/serving/ngram_proposer.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::server;
using imbrex::engine::test::fake_runner;
using imbrex::engine::test::text_alone;

namespace {

constexpr int histories_of_server = 25;
constexpr int vocabulary = 5, context = 60;

char letter(int token) {
    return static_cast<char>('a' + token);
}

class fake_runner_engine final : public generation_engine {
  public:
    explicit fake_runner_engine(unsigned seed)
        : chance_(seed),
          block_size_(1 + below(6)),
          blocks_(context / block_size_ + 1 + below(20)),
          slots_{below(2) == 0 ? 0 : 1 + below(20)},
          runner_(std::vector{cache_group{.blocks = blocks_}}, block_size_, vocabulary, false, slots_),
          engine_(runner_, random_blocks(), random_options(), [] { return letters(); }) {
        if (below(2) == 0) engine_.overlap_steps();
        if (drafts_ > 0) engine_.speculate(speculation(std::make_unique<ngram_proposer>()));
    }

    sequence_id submit(const generation_request& wanted) override {
        return engine_
            .add({.prompt = wanted.prompt,
                  .max_new_tokens = wanted.options.max_tokens,
                  .eos_tokens = wanted.options.eos_tokens,
                  .sampling = wanted.options.sampling,
                  .priority = wanted.options.priority})
            .front();
    }
    void cancel(sequence_id id) override { engine_.cancel(id); }
    std::vector<text_event> step() override {
        std::vector<text_event> events;
        for (event& each : engine_.step())
            events.push_back({each.id, std::move(each.text), each.reason, std::move(each.sampled)});
        return events;
    }
    std::vector<sequence_id> failed_batch() const override { return engine_.failed_batch(); }
    statistics_summary summary() const override { return engine_.summary(); }

    bool is_empty() const { return engine_.idle() && engine_.blocks().used_bytes() == 0; }

  private:
    int below(int bound) { return static_cast<int>(chance_() % static_cast<unsigned>(bound)); }

    block_manager random_blocks() {
        block_manager made({cache_group{.blocks = blocks_, .block_bytes = block_size_ * 8}}, block_size_);
        if (slots_.front() > 0) made.add_lower_levels({.host_slots = slots_});
        return made;
    }

    scheduler_options random_options() {
        const int sequences = 1 + below(6);
        drafts_ = below(3) == 0 ? 0 : 1 + below(5);
        return {.context = context,
                .max_num_batched_tokens = sequences + below(20),
                .max_num_seqs = sequences,
                .max_draft_tokens = drafts_};
    }

    static detokenize_function letters() {
        return [](std::optional<int> token) { return token ? std::string(1, letter(*token)) : std::string(); };
    }

    std::mt19937 chance_;
    int block_size_, blocks_, drafts_ = 0;
    std::vector<int> slots_;
    fake_runner runner_;
    imbrex::engine::engine<fake_runner> engine_;
};

known_request random_request(std::mt19937& chance) {
    const auto below = [&](int bound) { return static_cast<int>(chance() % static_cast<unsigned>(bound)); };
    known_request made{.request = {}, .text = {}};
    std::vector<int>& prompt = made.request.prompt;
    for (int left = 1 + below(25); left > 0; --left) prompt.push_back(below(8) == 0 ? below(vocabulary) : 1);
    text_options& options = made.request.options;
    options.max_tokens = 1 + below(25);
    options.priority = below(3);
    options.sampling.seed = static_cast<std::uint64_t>(below(3));
    if (below(3) == 0) options.eos_tokens = {below(vocabulary)};
    const std::vector<int> all = text_alone(prompt, options.sampling.seed, vocabulary,
                                            static_cast<int>(prompt.size()) + options.max_tokens, options.eos_tokens);
    const bool ends = std::ranges::find(options.eos_tokens, all.back()) != options.eos_tokens.end();
    made.reason = ends ? finish_reason::eos_token : finish_reason::length;
    for (auto i = prompt.size(); i < all.size() - (ends ? 1 : 0); ++i) made.text += letter(all[i]);
    return made;
}

}  // namespace

TEST_CASE("Random histories of requests with a fake runner: every text is right, and no block is lost") {
    outcomes_met met;
    std::int64_t preemptions = 0, cached = 0, host = 0, accepted = 0;
    const int histories = histories_to_run(200);
    for (int done = 0; done < histories; done += histories_of_server) {
        const auto seed = static_cast<unsigned>(first_history() + done);
        std::mt19937 chance(seed);
        std::vector<known_request> known;
        for (int i = 0; i < 40; ++i) known.push_back(random_request(chance));
        fake_runner_engine inner(chance());
        failing_engine engine(inner, chance() % 3 == 0 ? 40 : 0, chance());
        generation_service service(engine, {.running = 1 + static_cast<int>(chance() % 6), .queue = 4});
        for (int i = 0; i < std::min(histories_of_server, histories - done); ++i) {
            generation_request bad = random_request(chance).request;
            bad.prompt.assign(i % 2 == 0 ? 0 : 100, 1);
            CAPTURE(seed);
            CAPTURE(i);
            request_history(service, known, bad, seed + static_cast<unsigned>(i), met).run();
            CHECK(inner.is_empty());
        }
        const statistics_summary all = service.figures().engine;
        preemptions += all.preemptions;
        cached += all.cached_tokens;
        host += all.host_cache.tokens;
        accepted += all.accepted_tokens;
    }
    CHECK(met.wrong == 0);
    if (histories < 200) return;
    for (const auto* const count : {&met.complete, &met.left, &met.bad}) CHECK(*count > 0);
    for (const std::int64_t count : {preemptions, cached, host, accepted}) CHECK(count > 0);
}
