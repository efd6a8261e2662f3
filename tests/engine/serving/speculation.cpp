// Speculative decoding in the scheduler and the serving loop, with runners without a model.
#include "engine/serving/speculation.hpp"

#include "engine/serving/engine.hpp"
#include "engine/serving/fake_runner.hpp"
#include "engine/serving/ngram_proposer.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace imbrex::engine;
using imbrex::engine::test::fake_runner;
using imbrex::engine::test::text_of;

namespace {

request asking(std::vector<int> prompt, int max_new_tokens) {
    return {.prompt = std::move(prompt),
            .max_new_tokens = max_new_tokens,
            .eos_tokens = {},
            .sampling = {.bias = {}, .stop = {}}};
}

// A step in which entry `at` has this draft and the model samples these tokens. The new tokens, "!" behind the last.
std::string step(scheduler& plan, std::vector<int> draft, const std::vector<int>& sampled, std::size_t at = 0) {
    batch work = plan.schedule();
    work.entries.at(at).add_draft(std::move(draft));
    std::string text;
    for (const progress& each : plan.finish(work, sampled)) {
        text +=
            std::to_string(each.token) + (each.accepted ? "+" : "") + (each.reason == finish_reason::none ? " " : "! ");
    }
    return text;
}

// The tokens 'a', 'b', ... of a text, by the position after the prompt; drafts do not change them.
struct speaker {
    std::string text;
    int steps = 0;

    std::vector<int> run(const batch& work) {
        ++steps;
        std::vector<int> tokens;
        for (const batch_entry& entry : work.entries) {
            for (int i = 0; i < entry.num_samples(); ++i) {
                const auto at = static_cast<std::size_t>(entry.sequence->generated() + i);
                tokens.push_back(text[at % text.size()]);
            }
        }
        return tokens;
    }
};

// The same in two parts, so that steps overlap.
struct overlapping_speaker : speaker {
    const batch* work = nullptr;

    void launch(const batch& next) { work = &next; }
    std::vector<int> wait() { return run(*work); }
};

// Drafts of the text, of which some tokens are wrong.
struct guesses final : draft_proposer {
    std::string text;
    double right;
    std::mt19937 random{1};
    std::map<sequence_id, int>* seen = nullptr;
    bool fails = false;

    guesses(std::string all, double rate) : text(std::move(all)), right(rate) {}
    void propose(batch& next) override {
        if (fails) throw std::runtime_error("no guess");
        for (batch_entry& entry : next.entries) {
            std::vector<int> draft;
            for (int i = 0; i < entry.max_draft; ++i) {
                const auto at = static_cast<std::size_t>(entry.sequence->generated() + i);
                draft.push_back(random() < right * 4294967296.0 ? text[at % text.size()] : '?');
            }
            entry.add_draft(std::move(draft));
        }
    }
    void ended(sequence_id id) override {
        if (seen) ++(*seen)[id];
    }
};

detokenize_function letters() {
    return [](std::optional<int> token) { return token ? std::string(1, static_cast<char>(*token)) : std::string(); };
}

}  // namespace

TEST_CASE("Decoding sequences share what prompts leave of the token budget") {
    scheduler plan(block_manager(64, 4),
                   {.context = 100, .max_num_batched_tokens = 12, .max_num_seqs = 4, .max_draft_tokens = 5});
    plan.add(asking({1, 2, 3}, 20));
    batch work = plan.schedule();
    CHECK(text_of(work) == "0: 0+3*");  // a prompt gets no drafts
    plan.finish(work, std::vector{7});
    work = plan.schedule();
    CHECK(text_of(work) == "0: 3+1*[5]");
    plan.finish(work, std::vector{7});
    plan.add(asking({1, 2, 3, 4, 5}, 20));
    work = plan.schedule();
    CHECK(text_of(work) == "0: 4+1*[5], 1: 0+5*");
    plan.finish(work, std::vector{7, 7});
    work = plan.schedule();
    CHECK(text_of(work) == "0: 5+1*[5], 1: 5+1*[5]");
    plan.finish(work, std::vector{7, 7});
    plan.add(asking(std::vector<int>(9, 1), 20));
    work = plan.schedule();
    CHECK(text_of(work) == "0: 6+1*, 1: 6+1*, 2: 0+9*");
    plan.finish(work, std::vector{7, 7, 7});
    plan.limit_batched_tokens(8);
    CHECK(text_of(plan.schedule()) == "0: 7+1*[1], 1: 7+1*[1], 2: 9+1*[1]");
}

TEST_CASE("Drafts end where the text ends, and take no blocks that others need") {
    scheduler plan(block_manager(3, 4),
                   {.context = 12, .max_num_batched_tokens = 12, .max_num_seqs = 1, .max_draft_tokens = 8});
    plan.add(asking({1, 2, 3}, 5));
    CHECK(step(plan, {}, {7}) == "7 ");
    CHECK(text_of(plan.schedule()) == "0: 3+1*[3]");  // 4 more tokens, the last of which is sampled behind a draft

    scheduler tight(block_manager(4, 4),
                    {.context = 12, .max_num_batched_tokens = 12, .max_num_seqs = 2, .max_draft_tokens = 8});
    tight.add(asking({1, 2}, 6));
    tight.add(asking({3, 4}, 6));
    tight.finish(tight.schedule(), std::vector{7, 7});
    // One block more would leave fewer free ones than there are sequences.
    CHECK(text_of(tight.schedule()) == "0: 2+1*[1], 1: 2+1*[1]");
    CHECK_THROWS_WITH_AS(scheduler(block_manager(4, 4), {.max_draft_tokens = -1}),
                         "max_draft_tokens: -1, and 0 of all sequences; they must be 0 (none; any number) or more",
                         imbrex::invalid_argument);
}

TEST_CASE("A sequence keeps the sampled tokens up to the first that is not its draft") {
    scheduler plan(block_manager(16, 4),
                   {.context = 40, .max_num_batched_tokens = 16, .max_num_seqs = 2, .max_draft_tokens = 4});
    request wanted = asking({1, 2, 3}, 12);
    wanted.eos_tokens = {99};
    const sequence_id id = plan.add(wanted).front();
    CHECK(step(plan, {}, {4}) == "4 ");
    CHECK(step(plan, {5, 6, 7}, {5, 6, 8, 9}) == "5+ 6+ 8 ");
    CHECK(plan.find(id)->tokens == std::vector{1, 2, 3, 4, 5, 6, 8});
    CHECK(plan.find(id)->num_computed_tokens == 6);
    CHECK(step(plan, {9, 9}, {10, 9, 9}) == "10 ");
    CHECK(step(plan, {11, 12}, {11, 12, 13}) == "11+ 12+ 13 ");
    CHECK(step(plan, {14, 99, 15}, {14, 99, 15, 16}) == "14+ 99+! ");  // the end, whatever was drafted behind it
    CHECK(plan.idle());
    CHECK(plan.blocks().used_bytes() == 0);
    CHECK(plan.counts().drafted_tokens == 10);
    CHECK(plan.counts().accepted_tokens == 6);
}

TEST_CASE("Rejected tokens never enter the prefix cache") {
    scheduler plan(block_manager(16, 4),
                   {.context = 40, .max_num_batched_tokens = 16, .max_num_seqs = 2, .max_draft_tokens = 6});
    const sequence_id id = plan.add(asking({1, 2, 3}, 20)).front();
    CHECK(step(plan, {}, {4}) == "4 ");
    CHECK(step(plan, {5, 6, 7, 8, 9}, {5, 50, 7, 8, 9, 10}) == "5+ 50 ");
    const auto cached = [&](std::vector<int> tokens) { return plan.blocks().find_cached_prefix(tokens).tokens; };
    CHECK(cached({1, 2, 3, 4, 5, 6, 7, 8, 9}) == 4);
    CHECK(cached({1, 2, 3, 4, 5, 50, 7, 8, 9}) == 4);
    CHECK(step(plan, {51, 52}, {51, 52, 53}) == "51+ 52+ 53 ");
    CHECK(cached({1, 2, 3, 4, 5, 50, 51, 52, 53}) == 8);
    CHECK(cached({1, 2, 3, 4, 5, 6, 7, 8, 9}) == 4);
    CHECK(plan.cancel(id));
}

TEST_CASE("Texts, stop strings, ends and limits are those without drafts, in fewer steps") {
    const std::string text = "the cat sat on the mat. ";
    std::vector<request> requests;
    for (const std::vector<std::string>& stop :
         {std::vector<std::string>{}, {"mat"}, {"cat sat", "on"}, {"t s"}, {"absent"}}) {
        for (const int tokens : {1, 7, 40}) {
            request one = asking({1, 2, 3}, tokens);
            one.sampling.stop = stop;
            if (tokens == 40) one.eos_tokens = {'.'};
            requests.push_back(one);
        }
    }
    const auto outcomes = [&]<class Speaker>(Speaker model, double right, int* steps) {
        model.text = text;
        std::map<sequence_id, int> ended;
        engine all(model, block_manager(64, 4), {.max_draft_tokens = right < 0 ? 0 : 5}, letters);
        if (right >= 0) {
            auto proposer = std::make_unique<guesses>(text, right);
            proposer->seen = &ended;
            all.speculate(speculation(std::move(proposer), speculation::depth::fixed));
        }
        if constexpr (overlapping_runner<Speaker>) all.overlap_steps();
        for (const request& each : requests) all.add(each);
        std::map<sequence_id, std::pair<std::string, finish_reason>> found;
        while (!all.idle()) {
            for (const event& each : all.step()) {
                CHECK((found.contains(each.id) ? found[each.id].second : finish_reason::none) == finish_reason::none);
                found[each.id].first += each.text;
                found[each.id].second = each.reason;
            }
        }
        *steps = model.steps;
        CHECK(all.blocks().used_bytes() == 0);
        for (const auto& [id, times] : ended) CHECK(times == 1);
        CHECK(ended.size() == (right < 0 ? 0 : requests.size()));
        const statistics_summary figures = all.summary();
        CHECK((figures.drafted_tokens > 0) == (right >= 0));
        if (right == 1) CHECK(figures.acceptance_rate > 0.9);  // behind an end nothing is accepted
        if (right == 0) CHECK(figures.tokens_per_step <= 1);
        if (right == 1) CHECK(figures.tokens_per_step > 3);
        return found;
    };
    int without = 0, steps = 0;
    const auto expected = outcomes(speaker{}, -1, &without);
    CHECK(expected.at(2).first == "the cat sat on the mat");
    for (const double right : {0.0, 0.5, 0.9, 1.0}) {
        CHECK(outcomes(overlapping_speaker{}, right, &steps) == expected);
        CHECK(outcomes(speaker{}, right, &steps) == expected);
        CHECK((right == 0 ? steps == without : steps < without));
    }
}

TEST_CASE("A proposer that throws loses no sequence") {
    speaker model{"abcdef"};
    auto proposer = std::make_unique<guesses>("abcdef", 1.0);
    guesses& guessing = *proposer;
    engine all(model, block_manager(32, 4), {.max_draft_tokens = 3}, letters);
    all.speculate(speculation(std::move(proposer), speculation::depth::fixed));
    all.add(asking({1, 2}, 9));
    all.step();
    guessing.fails = true;
    CHECK_THROWS_WITH(all.step(), "no guess");
    guessing.fails = false;
    std::string text;
    while (!all.idle()) {
        for (const event& each : all.step()) text += each.text;
    }
    CHECK(text == "bcdefabc");
}

TEST_CASE("N-gram drafts over random histories: the texts without drafts") {
    std::int64_t accepted = 0, drafted = 0, preemptions = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        const auto texts = [&](int draft_tokens) {
            std::mt19937 random(seed);
            const auto below = [&](unsigned bound) { return static_cast<int>(random() % bound); };
            const int vocabulary = 2 + below(3), block_size = 1 + below(5);
            const std::vector<cache_group> groups{{.blocks = 40 / block_size + 8}};
            fake_runner model(groups, block_size, vocabulary);
            engine all(
                model, block_manager(groups, block_size),
                {.context = 40, .max_num_batched_tokens = 20, .max_num_seqs = 5, .max_draft_tokens = draft_tokens});
            if (draft_tokens > 0)
                all.speculate(speculation(std::make_unique<ngram_proposer>(),
                                          seed % 2 == 0 ? speculation::depth::fixed : speculation::depth::adapted));
            std::map<sequence_id, std::vector<int>> found;
            for (int i = 0; i < 12 || !all.idle(); ++i) {
                if (i < 12) {
                    request one =
                        asking(std::vector<int>(static_cast<std::size_t>(1 + below(8)), below(2)), 1 + below(30));
                    one.sampling.seed = static_cast<std::uint64_t>(below(4));
                    one.samples = 1 + below(2);
                    all.add(one);
                }
                for (const event& each : all.step()) found[each.id].push_back(each.sampled.token);
            }
            CHECK(all.blocks().used_bytes() == 0);
            accepted += all.summary().accepted_tokens;
            drafted += all.summary().drafted_tokens;
            preemptions += all.summary().preemptions;
            return found;
        };
        CHECK(texts(6) == texts(0));
    }
    CHECK(accepted > 1000);
    CHECK(drafted - accepted > 1000);
    CHECK(preemptions > 100);
}
