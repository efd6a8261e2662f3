// Steps that overlap: the texts, ends and statistics of steps one after another, over random loads with stop strings, cancelled
// and failing sequences; the order of launches and events; errors; blocks of batches in flight.
#include "engine/serving/engine.hpp"
#include "engine/serving/fake_runner.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace imbrex::engine::test {

namespace {

// The fake runner in two parts, with a log. Its memory changes at the launch, when that of a GPU may.
struct fake_gpu {
    fake_runner runner;
    std::string log{};
    int fails_in = -1;  // launches

    std::vector<int> run(const batch& work) { return runner.run(work); }
    void launch(const batch& work) {
        if (fails_in >= 0 && fails_in-- == 0) throw std::runtime_error("no launch");
        log += "launch ";
        tokens = runner.run(work);
    }
    std::vector<int> wait() {
        log += "wait ";
        return tokens;
    }

    std::vector<int> tokens{};
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

request random_request(std::mt19937& chance) {
    const auto below = [&](unsigned count) { return static_cast<int>(chance() % count); };
    request wanted{
        .prompt = {}, .max_new_tokens = 1 + below(20), .eos_tokens = {}, .sampling = {.bias = {}, .stop = {}}};
    for (int left = 1 + below(12); left > 0; --left) wanted.prompt.push_back(below(2));
    if (below(2) == 0) wanted.eos_tokens = {below(vocabulary)};
    if (below(2) == 0)
        wanted.sampling.stop = {
            std::string{static_cast<char>('a' + below(vocabulary)), static_cast<char>('a' + below(vocabulary))}};
    wanted.sampling.seed = chance();
    return wanted;
}

// The requests of a seed, and cancellations, at random steps.
std::map<sequence_id, outcome> serve(unsigned seed, bool overlaps, int& preemptions) {
    std::mt19937 chance(seed);
    const int blocks = 12 + static_cast<int>(chance() % 20);
    fake_gpu model{fake_runner(blocks, 4, vocabulary)};
    engine all(model, block_manager(blocks, 4), {.max_num_batched_tokens = 16, .max_num_seqs = 8},
               [] { return letters(); });
    if (overlaps) all.overlap_steps();
    std::vector<request> requests;
    for (int i = 0; i < 20; ++i) requests.push_back(random_request(chance));
    std::map<sequence_id, outcome> outcomes;
    std::vector<sequence_id> ids;
    while (ids.size() < requests.size() || !all.idle()) {
        if (ids.size() < requests.size() && (all.idle() || chance() % 2 == 0))
            ids.push_back(all.add(requests[ids.size()]).front());
        if (chance() % 16 == 0) all.cancel(ids[chance() % ids.size()]);
        for (event& each : all.step()) {
            outcome& it = outcomes[each.id];
            CHECK(it.reason == finish_reason::none);
            it.text += each.text;
            it.reason = each.reason;
        }
    }
    CHECK(all.blocks().used_bytes() == 0);
    preemptions += static_cast<int>(all.summary().preemptions);
    return outcomes;
}

}  // namespace

TEST_CASE("Steps that overlap give the texts of steps one after another") {
    int preemptions = 0, ended_by_stop = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        const auto expected = serve(seed, false, preemptions), outcomes = serve(seed, true, preemptions);
        // Steps differ, and so do the sequences that are cancelled; all others are equal.
        for (const auto& [id, one] : expected) {
            const auto found = outcomes.find(id);
            if (one.reason == finish_reason::none) continue;
            ended_by_stop += one.reason == finish_reason::stop_string;
            if (found == outcomes.end() || found->second.reason == finish_reason::none) continue;
            CHECK(found->second == one);
        }
    }
    CHECK(preemptions > 50);
    CHECK(ended_by_stop > 50);
}

TEST_CASE("The next batch is launched before the events of the one that has ended") {
    fake_gpu model{fake_runner(16, 4, vocabulary)};
    engine all(model, block_manager(16, 4), {}, [&] { return letters(&model.log); });
    all.overlap_steps();
    all.add({.prompt = {1, 2}, .max_new_tokens = 3, .eos_tokens = {}, .sampling = {.bias = {}, .stop = {}}});
    CHECK(all.step().size() == 1);
    CHECK(model.log == "launch wait launch text ");
    model.log.clear();
    CHECK(all.step().size() == 1);
    CHECK(model.log == "wait launch text ");
    model.log.clear();
    CHECK(all.step().size() == 1);
    CHECK(model.log == "wait text text ");  // nothing is left to launch; the end of the text
    CHECK(all.idle());
    CHECK(all.summary().steps == 3);
}

TEST_CASE("A launch ahead that fails loses no event, and its sequences are recomputed") {
    fake_gpu model{fake_runner(16, 4, vocabulary)}, without_failure = model;
    const auto text_of = [](fake_gpu& gpu, int failures) {
        engine all(gpu, block_manager(16, 4), {}, [] { return letters(); });
        all.overlap_steps();
        all.add({.prompt = {1, 2}, .max_new_tokens = 6, .eos_tokens = {}, .sampling = {.bias = {}, .stop = {}}});
        std::string text;
        int thrown = 0;
        while (!all.idle()) {
            try {
                for (const event& each : all.step()) text += each.text;
            } catch (const std::runtime_error& failure) {
                CHECK(std::string(failure.what()) == "no launch");
                ++thrown;
            }
        }
        CHECK(thrown == failures);
        return text;
    };
    model.fails_in = 2;
    const std::string text = text_of(model, 1);
    CHECK(text.size() == 6);
    CHECK(text == text_of(without_failure, 0));
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
