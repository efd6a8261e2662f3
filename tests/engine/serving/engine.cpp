// The serving loop: events, text, stop strings, statistics.
#include "engine/serving/engine.hpp"

#include "engine/serving/fake_runner.hpp"

#include <doctest/doctest.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

using namespace imbrex::engine;

namespace {

// A runner that repeats a text, one token per letter ('a' is 97). A capital letter is half a character: the detokenizer
// holds it back until the next one.
struct speaker {
    std::string text;
    bool fails = false;
    double* now = nullptr;

    std::vector<int> run(const batch& work) {
        if (fails) throw std::runtime_error("out of order");
        if (now) *now += 0.5;
        std::vector<int> tokens;
        for (const batch_entry& entry : work.entries) {
            if (entry.samples)
                tokens.push_back(text[static_cast<std::size_t>(entry.sequence->generated()) % text.size()]);
        }
        return tokens;
    }
};

detokenize_function letters() {
    return [held = std::string()](std::optional<int> token) mutable {
        if (!token) return std::exchange(held, {});
        held += static_cast<char>(*token);
        return *token < 'a' && *token >= 'A' ? std::string() : std::exchange(held, {});
    };
}

request asking(int max_new_tokens, std::vector<std::string> stop = {}, std::vector<int> eos_tokens = {}) {
    return {.prompt = {1, 2, 3},
            .max_new_tokens = max_new_tokens,
            .eos_tokens = std::move(eos_tokens),
            .sampling = {.bias = {}, .stop = std::move(stop)}};
}

struct outcome {
    std::string text;
    int tokens = 0;
    finish_reason reason = finish_reason::none;
};

template <class Engine>
std::map<sequence_id, outcome> run_to_end(Engine& all) {
    std::map<sequence_id, outcome> outcomes;
    while (!all.idle()) {
        for (const event& each : all.step()) {
            outcome& it = outcomes[each.id];
            CHECK(it.reason == finish_reason::none);  // no event after the end
            it.text += each.text;
            it.reason = each.reason;
            ++it.tokens;
        }
    }
    CHECK(all.blocks().used_bytes() == 0);
    return outcomes;
}

}  // namespace

TEST_CASE("Emits text up to the token limit, an EOS token or a stop string") {
    speaker model{"once upon a time."};
    engine all(model, block_manager(32, 4), {}, letters);
    all.add(asking(9));
    all.add(asking(99, {}, {'.'}));
    all.add(asking(99, {"a time", "pony"}));
    all.add(asking(8, {"once upoooon"}));
    all.add(asking(9, {"pon"}));
    auto outcomes = run_to_end(all);
    CHECK(outcomes[0].text == "once upon");
    CHECK(outcomes[0].reason == finish_reason::length);
    CHECK(outcomes[1].text == "once upon a time");
    CHECK(outcomes[1].reason == finish_reason::eos_token);
    CHECK(outcomes[2].text == "once upon ");
    CHECK(outcomes[2].reason == finish_reason::stop_string);
    CHECK(outcomes[2].tokens == 16);
    CHECK(outcomes[3].text == "once upo");  // held back to the end, not a stop string
    CHECK(outcomes[3].reason == finish_reason::length);
    CHECK(outcomes[4].text == "once u");  // completed by its last token
    CHECK(outcomes[4].reason == finish_reason::stop_string);
    CHECK(all.step().empty());
}

TEST_CASE("Flushes the detokenizer with the last event, which may complete a stop string") {
    speaker model{"abC"};
    engine all(model, block_manager(32, 4), {}, letters);
    all.add(asking(3));
    all.add(asking(3, {"bC"}));
    auto outcomes = run_to_end(all);
    CHECK(outcomes[0].text == "abC");
    CHECK(outcomes[1].text == "a");
    CHECK(outcomes[1].reason == finish_reason::stop_string);
}

TEST_CASE("Emits tokens only without a detokenizer") {
    speaker model{"ab"};
    engine all(model, block_manager(32, 4), {});
    all.add(asking(4, {"b"}));
    auto outcomes = run_to_end(all);
    CHECK(outcomes[0].text == "");
    CHECK(outcomes[0].tokens == 4);
}

TEST_CASE("Emits no events after cancel") {
    speaker model{"ab"};
    engine all(model, block_manager(32, 4), {}, letters);
    const auto ids = all.add(asking(4));
    all.add(asking(4));
    CHECK(all.step().size() == 2);
    CHECK(all.cancel(ids[0]));
    CHECK_FALSE(all.cancel(ids[0]));
    auto outcomes = run_to_end(all);
    CHECK(outcomes.count(0) == 0);
    CHECK(outcomes[1].text == "bab");
    CHECK(all.summary().cancelled == 1);
    CHECK(all.summary().finished == 1);
}

TEST_CASE("Recovers all sequences if the runner throws") {
    speaker model{"abcdef"};
    engine all(model, block_manager(32, 4), {}, letters);
    all.add(asking(6));
    all.step();
    model.fails = true;
    CHECK_THROWS_WITH(all.step(), "out of order");
    CHECK_THROWS_WITH(all.step(), "out of order");
    model.fails = false;
    CHECK(run_to_end(all)[0].text == "bcdef");
}

TEST_CASE("A rejected request leaves no state") {
    speaker model{"ab"};
    engine all(model, block_manager(2, 4), {}, letters);
    CHECK_THROWS_AS(all.add(asking(99)), imbrex::invalid_argument);
    CHECK(all.idle());
    CHECK(all.summary().arrived == 0);
}

TEST_CASE("Statistics of a small load") {
    double now = 10;
    speaker model{"ab", false, &now};
    engine all(model, block_manager(8, 4), {}, letters, statistics([&] { return now; }));
    auto sampled = asking(2);
    sampled.samples = 2;
    all.add(sampled);
    run_to_end(all);
    const statistics_summary summary = all.summary();
    CHECK(summary.arrived == 2);
    CHECK(summary.finished == 2);
    CHECK(summary.steps == 3);  // prefill; one token of each; the last token of the second
    CHECK(summary.generated_tokens == 4);
    CHECK(summary.computed_tokens == 3 + 2 + 1);
    CHECK(summary.busy_seconds == doctest::Approx(1.5));
    CHECK(summary.ttft_mean == doctest::Approx(0.75));
    CHECK(summary.batch_max == 2);
    CHECK(summary.prefix_cache_hit_rate == doctest::Approx(2.0 / 6));
}
