// Steps that overlap: the texts, ends and statistics of steps one after another, over random loads with stop strings, EOS
// tokens, forks, priorities, windows, lower levels of the cache, cancelled and failing sequences; which steps are launched
// ahead; the order of launches and events; errors; blocks of batches in flight.
#include "engine/serving/engine.hpp"
#include "engine/serving/fake_runner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::engine::test {

namespace {

// The fake runner with a log and failures. A batch is computed when it is waited for, or before, at random.
struct fake_gpu {
    fake_runner runner;
    std::string log{};
    int fails_in = -1;       // launches
    int wait_fails_in = -1;  // waits
    std::mt19937 chance{};

    std::vector<int> run(const batch& work) { return runner.run(work); }
    void launch(const batch& work) {
        if (fails_in >= 0 && fails_in-- == 0) throw std::runtime_error("no launch");
        log += "launch ";
        runner.launch(work);
        if (chance() % 2 == 0) runner.compute();
    }
    std::vector<int> wait() {
        log += "wait ";
        std::vector<int> tokens = runner.wait();
        if (wait_fails_in >= 0 && wait_fails_in-- == 0) throw std::runtime_error("no tokens");
        return tokens;
    }
};

detokenize_function letters(std::string* log = nullptr) {
    return [log](std::optional<int> token) {
        if (log) *log += "text ";
        return token ? std::string(1, static_cast<char>('a' + *token)) : std::string();
    };
}

struct outcome {
    std::string text;
    finish_reason reason = finish_reason::none;
    bool operator==(const outcome&) const = default;
};

constexpr int vocabulary = 6;

// Requests and cache of a seed.
struct history {
    bool kinds_differ = false;
    std::vector<cache_group> groups{};
    std::vector<int> slots{};
    std::vector<request> requests{};
    std::mt19937 chance;

    explicit history(unsigned seed) : chance(seed) {
        kinds_differ = below(4) == 0;
        groups = {{.blocks = 12 + below(20), .block_bytes = 32}};
        if (below(3) == 0) groups.push_back({.blocks = 12 + below(20), .window = 1 + below(9), .block_bytes = 32});
        for (std::size_t i = 0; i < groups.size() && seed % 3 == 0; ++i) slots.push_back(below(12));
        const bool has_priorities = below(3) == 0;
        for (int i = 0; i < 20; ++i) requests.push_back(random_request(has_priorities));
    }

    int below(unsigned count) { return static_cast<int>(chance() % count); }

    request random_request(bool has_priorities) {
        request wanted{
            .prompt = {}, .max_new_tokens = 1 + below(20), .eos_tokens = {}, .sampling = {.bias = {}, .stop = {}}};
        for (int left = 1 + below(12); left > 0; --left) wanted.prompt.push_back(below(2));
        if (below(2) == 0) wanted.eos_tokens = {below(vocabulary)};
        if (below(2) == 0)
            wanted.sampling.stop = {
                std::string{static_cast<char>('a' + below(vocabulary)), static_cast<char>('a' + below(vocabulary))}};
        wanted.sampling.seed = chance();
        if (below(12) == 0) wanted.sampling.presence_penalty = 1;
        if (below(8) == 0) wanted.samples = 1 + below(3);
        if (has_priorities) wanted.priority = below(3);
        return wanted;
    }

    block_manager make_blocks() const {
        block_manager made(groups, 4);
        if (!slots.empty()) made.add_lower_levels({.host_slots = slots});
        return made;
    }
};

// What all histories met; each must occur, or the test covers nothing.
struct events_met {
    std::int64_t preemptions = 0, steps = 0, steps_ahead = 0, cached = 0, loaded = 0, failures = 0;
    std::map<finish_reason, int> ends{};
};

struct served {
    std::map<sequence_id, outcome> outcomes{};
    std::map<sequence_id, bool> failed{};
};

// A history, and cancellations and failures, at random steps. A failing step ends its requests.
served serve(unsigned seed, bool overlaps, events_met& met) {
    history load(seed);
    fake_gpu model{fake_runner(load.groups, 4, vocabulary, load.kinds_differ, load.slots)};
    engine all(model, load.make_blocks(),
               {.max_num_batched_tokens = 16, .max_num_seqs = 8, .separate_prefill = load.kinds_differ},
               [] { return letters(); });
    if (overlaps) all.overlap_steps();
    served found;
    std::vector<sequence_id> ids;
    std::size_t added = 0;
    while (added < load.requests.size() || !all.idle()) {
        if (added < load.requests.size() && (all.idle() || load.below(2) == 0)) {
            for (const sequence_id id : all.add(load.requests[added])) ids.push_back(id);
            ++added;
        }
        if (load.below(16) == 0) all.cancel(ids[load.chance() % ids.size()]);
        if (seed % 4 == 1 && load.below(20) == 0) (load.below(2) == 0 ? model.fails_in : model.wait_fails_in) = 0;
        try {
            for (event& each : all.step()) {
                outcome& it = found.outcomes[each.id];
                CHECK(it.reason == finish_reason::none);
                it.text += each.text;
                it.reason = each.reason;
            }
        } catch (const std::runtime_error&) {
            ++met.failures;
            CHECK(!all.failed_batch().empty());
            if (load.below(2) == 0) continue;  // they are recomputed
            const std::vector<sequence_id> failed = all.failed_batch();
            for (const sequence_id id : failed) all.cancel(id);
        }
    }
    CHECK(model.runner.in_flight() == 0);
    CHECK(all.blocks().used_bytes() == 0);
    const statistics_summary sums = all.summary();
    met.preemptions += sums.preemptions;
    met.steps += sums.steps;
    met.steps_ahead += sums.steps_ahead;
    met.cached += sums.cached_tokens;
    met.loaded += sums.host_cache.tokens;
    return found;
}

}  // namespace

TEST_CASE("Steps that overlap give the texts of steps one after another") {
    events_met one_by_one, overlapped;
    for (unsigned seed = 0; seed < 600; ++seed) {
        CAPTURE(seed);
        const served expected = serve(seed, false, one_by_one), found = serve(seed, true, overlapped);
        for (const auto& [id, one] : expected.outcomes) {
            const auto same = found.outcomes.find(id);
            if (same == found.outcomes.end()) continue;
            const outcome& other = same->second;
            // Steps differ, and so do the sequences that are cancelled and when.
            if (one.reason != finish_reason::none && other.reason != finish_reason::none) {
                CHECK(one == other);
                ++overlapped.ends[one.reason];
            } else {
                const std::size_t both = std::min(one.text.size(), other.text.size());
                CHECK(one.text.substr(0, both) == other.text.substr(0, both));
            }
        }
    }
    CHECK(one_by_one.steps_ahead == 0);
    CHECK(overlapped.steps_ahead > overlapped.steps / 2);
    CHECK(overlapped.steps_ahead < overlapped.steps * 19 / 20);
    CHECK(overlapped.preemptions > 50);
    CHECK(overlapped.cached > 500);
    CHECK(overlapped.loaded > 50);
    CHECK(overlapped.failures > 50);
    for (const finish_reason reason : {finish_reason::eos_token, finish_reason::stop_string, finish_reason::length})
        CHECK(overlapped.ends[reason] > 200);
}

TEST_CASE("The next batch is launched while one runs, and before the events of that one") {
    fake_gpu model{fake_runner(16, 4, vocabulary)};
    engine all(model, block_manager(16, 4), {}, [&] { return letters(&model.log); });
    all.overlap_steps();
    const auto log_of_step = [&](std::size_t events) {
        model.log.clear();
        CHECK(all.step().size() == events);
        return model.log;
    };
    all.add({.prompt = {1, 2}, .max_new_tokens = 4, .eos_tokens = {}, .sampling = {.bias = {}, .stop = {}}});
    CHECK(log_of_step(1) == "launch wait text ");  // at once
    CHECK(log_of_step(1) == "launch launch wait text ");
    CHECK(log_of_step(1) == "launch wait text ");
    CHECK(log_of_step(1) == "wait text text ");  // nothing is left to launch; the end of the text
    CHECK(all.idle());
    CHECK(all.summary().steps == 4);
    CHECK(all.summary().steps_ahead == 2);
    CHECK(all.summary().computed_tokens == 2 + 3);
}

TEST_CASE("A batch that needs tokens of the one before is launched behind it, before its events") {
    fake_gpu model{fake_runner(16, 4, vocabulary)};
    engine all(model, block_manager(16, 4), {}, [&] { return letters(&model.log); });
    all.overlap_steps();
    all.add({.prompt = {1, 2},
             .max_new_tokens = 3,
             .eos_tokens = {},
             .sampling = {.frequency_penalty = 1, .bias = {}, .stop = {}}});
    CHECK(all.step().size() == 1);
    CHECK(model.log == "launch wait text ");
    CHECK(all.step().size() == 1);
    CHECK(model.log == "launch wait text launch wait launch text ");
    CHECK(all.step().size() == 1);
    CHECK(model.log == "launch wait text launch wait launch text wait text text ");
    CHECK(all.summary().steps_ahead == 0);
}

TEST_CASE("Chunks of a prompt and other requests join the batches that are launched ahead") {
    fake_gpu model{fake_runner(64, 4, vocabulary)};
    engine all(model, block_manager(64, 4), {.max_num_batched_tokens = 8, .max_num_seqs = 2}, {});
    all.overlap_steps();
    const auto add = [&](int prompt, int new_tokens) {
        all.add({.prompt = std::vector<int>(static_cast<std::size_t>(prompt), prompt % 3),
                 .max_new_tokens = new_tokens,
                 .eos_tokens = {},
                 .sampling = {.bias = {}, .stop = {}}});
    };
    add(1, 12);
    add(30, 1);  // 7 tokens a step beside the first
    add(5, 5);   // takes the place of the one that ends by its length, without a pause
    std::vector<step_load> loads;
    while (!all.idle()) {
        all.step();
        loads.push_back(all.last_step());
    }
    REQUIRE(loads.size() == 12);
    for (int step = 0; step < 12; ++step) {
        CAPTURE(step);
        const step_load& now = loads[static_cast<std::size_t>(step)];
        CHECK(now.prompt_tokens == (step < 4 ? 7 : step == 4 ? 2 : step == 5 ? 5 : 0));
        CHECK(now.decodes == (step >= 6 && step < 10 ? 2 : 1));
    }
    CHECK(all.summary().steps_ahead == 10);
}

TEST_CASE("The row of a sequence that ends with an EOS token is dropped") {
    const auto serve_one = [](bool overlaps) {
        fake_gpu model{fake_runner(16, 4, vocabulary)};
        const std::vector<int> alone = text_alone({1, 2}, 5, vocabulary, 12, {});
        engine all(model, block_manager(16, 4), {}, [] { return letters(); });
        if (overlaps) all.overlap_steps();
        all.add({.prompt = {1, 2},
                 .max_new_tokens = 10,
                 .eos_tokens = {alone[6]},
                 .sampling = {.bias = {}, .seed = 5, .stop = {}}});
        std::vector<int> tokens{1, 2};
        finish_reason reason = finish_reason::none;
        while (!all.idle()) {
            for (const event& each : all.step()) {
                tokens.push_back(each.sampled.token);
                reason = each.reason;
            }
        }
        CHECK(reason == finish_reason::eos_token);
        CHECK(tokens == text_alone({1, 2}, 5, vocabulary, 12, std::vector{alone[6]}));
        CHECK(all.blocks().used_bytes() == 0);
        CHECK(all.summary().generated_tokens == static_cast<std::int64_t>(tokens.size()) - 2);
        return all.summary().steps;
    };
    CHECK(serve_one(true) == serve_one(false) + 1);
}

TEST_CASE("A step that fails while another one is in flight loses no event, and its sequences are recomputed") {
    const auto text_of = [](int launch_fails, int wait_fails, int failures) {
        fake_gpu gpu{.runner = fake_runner(16, 4, vocabulary), .fails_in = launch_fails, .wait_fails_in = wait_fails};
        engine all(gpu, block_manager(16, 4), {}, [] { return letters(); });
        all.overlap_steps();
        all.add({.prompt = {1, 2}, .max_new_tokens = 6, .eos_tokens = {}, .sampling = {.bias = {}, .stop = {}}});
        std::string text;
        int thrown = 0;
        while (!all.idle()) {
            try {
                for (const event& each : all.step()) text += each.text;
            } catch (const std::runtime_error& failure) {
                CHECK(std::string(failure.what()) == (launch_fails >= 0 ? "no launch" : "no tokens"));
                CHECK(all.failed_batch().size() == 1);
                ++thrown;
            }
        }
        CHECK(thrown == failures);
        return text;
    };
    const std::string text = text_of(-1, -1, 0);
    CHECK(text.size() == 6);
    for (int number = 0; number < 5; ++number) {
        CHECK(text_of(number, -1, 1) == text);
        CHECK(text_of(-1, number, 1) == text);
    }
}

TEST_CASE("Blocks of a batch in flight are free when its last sequence is cancelled") {
    fake_gpu model{fake_runner(16, 4, vocabulary)};
    engine all(model, block_manager(16, 4), {}, [] { return letters(); });
    all.overlap_steps();
    const auto ids =
        all.add({.prompt = {1, 2}, .max_new_tokens = 9, .eos_tokens = {}, .sampling = {.bias = {}, .stop = {}}});
    all.step();
    CHECK(all.blocks().used_bytes() > 0);
    CHECK(all.cancel(ids.front()));
    CHECK(all.blocks().used_bytes() == 0);
    CHECK(all.step().empty());
}

}  // namespace imbrex::engine::test
