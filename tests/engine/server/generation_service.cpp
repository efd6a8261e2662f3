// Tests of engine/server/generation_service.hpp with a fake engine; also compiled with ThreadSanitizer.
#include "engine/server/generation_service.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "engine/server/fake_engine.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::server;
using namespace std::chrono_literals;

namespace {

struct collected {
    std::vector<std::string> texts;  // by the index of the sequence
    int status = 200;
    std::string error;
};

collected collect(generation& work) {
    collected all;
    try {
        for (;;) {
            const std::vector<generation_event> events = work.wait();
            if (events.empty()) return all;
            for (const generation_event& each : events) {
                all.texts.resize(std::max(all.texts.size(), static_cast<std::size_t>(each.index) + 1));
                all.texts[static_cast<std::size_t>(each.index)] += each.text;
            }
        }
    } catch (const api_error& failure) {
        all.status = failure.status();
        all.error = failure.what();
    }
    return all;
}

template <class Condition>
bool soon(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
    return condition();
}

int status_of_submit(generation_service& service, std::vector<generation_request> requests) {
    try {
        service.submit(std::move(requests));
    } catch (const api_error& failure) {
        return failure.status();
    }
    return 200;
}

}  // namespace

TEST_CASE("generation_service: each sequence's events come in order with its index") {
    fake_engine engine;
    generation_service service(engine, {});
    const auto one = service.submit({tokens_wanted(3), tokens_wanted(5)});
    const auto other = service.submit({tokens_wanted(1)});
    CHECK(collect(*one).texts == std::vector<std::string>{"0 1 2 ", "0 1 2 3 4 "});
    CHECK(collect(*other).texts == std::vector<std::string>{"0 "});
    CHECK(one->wait().empty());  // again
    const service_figures figures = service.figures();
    CHECK(figures.completed == 2);
    CHECK(figures.generated_tokens == 9);
    CHECK(figures.prompt_tokens == 9);
    CHECK(figures.sequences == 0);
    CHECK(figures.engine.arrived == 3);
    CHECK(figures.time_to_first_token.count == 2);
    CHECK(figures.inter_token_latency.count == 4);
}

TEST_CASE("generation_service: a cancelled generation is freed before the next step") {
    fake_engine engine;
    engine.step_microseconds = 2000;
    generation_service service(engine, {});
    const auto work = service.submit({tokens_wanted(100000), tokens_wanted(100000)});
    CHECK(!work->wait().empty());
    CHECK(engine.running == 2);
    const int before = engine.steps;
    work->cancel();
    CHECK(work->wait().empty());
    REQUIRE(soon([&] { return engine.running == 0; }));
    CHECK(engine.steps - before <= 1);  // the step that ran
    CHECK(service.figures().cancelled == 1);
    work->cancel();  // no effect
    CHECK(service.figures().cancelled == 1);
}

TEST_CASE("generation_service: a generation that is cancelled before it starts does not run") {
    fake_engine engine;
    engine.step_microseconds = 20000;
    generation_service service(engine, {});
    const auto first = service.submit({tokens_wanted(3)});
    REQUIRE(soon([&] { return engine.running == 1; }));
    service.submit({tokens_wanted(100000)})->cancel();
    CHECK(collect(*first).texts.size() == 1);
    REQUIRE(soon([&] { return service.figures().sequences == 0; }));
    CHECK(engine.running == 0);
}

TEST_CASE("generation_service: more sequences than run and wait are refused with 429") {
    fake_engine engine;
    engine.step_microseconds = 1000;
    generation_service service(engine, {.running = 2, .queue = 1});
    const auto work = service.submit({tokens_wanted(100000), tokens_wanted(100000)});
    CHECK(status_of_submit(service, {tokens_wanted(1), tokens_wanted(1)}) == 429);
    const auto third = service.submit({tokens_wanted(1)});
    CHECK(collect(*third).texts.size() == 1);
    work->cancel();
    CHECK(soon([&] { return service.figures().sequences == 0; }));
    CHECK(status_of_submit(service, {tokens_wanted(1), tokens_wanted(1), tokens_wanted(1)}) == 200);
    CHECK(service.figures().refused == 1);
}

TEST_CASE("generation_service: a step that fails ends the sequences of its batch, and no others") {
    fake_engine engine;
    engine.step_microseconds = 5000;
    engine.batch_size = 1;
    generation_service service(engine, {});
    engine.failing_steps = 1;
    const auto first = service.submit({tokens_wanted(2)});
    const auto second = service.submit({tokens_wanted(2)});
    const collected failed = collect(*first);
    CHECK(failed.status == 500);
    CHECK(failed.error == "the step failed: the kernel failed");
    CHECK(collect(*second).texts == std::vector<std::string>{"0 1 "});
    CHECK(service.status().failed_steps == 0);
    CHECK(service.figures().failed == 1);
}

TEST_CASE("generation_service: an engine that cannot make a batch ends all, and the service goes on") {
    fake_engine engine;
    engine.step_microseconds = 5000;
    engine.forgets_batch = true;
    engine.failing_steps = 1;
    generation_service service(engine, {});
    const auto work = service.submit({tokens_wanted(2), tokens_wanted(3)});
    CHECK(collect(*work).status == 500);
    CHECK(service.status().failed_steps == 1);
    CHECK(collect(*service.submit({tokens_wanted(2)})).texts == std::vector<std::string>{"0 1 "});
}

TEST_CASE("generation_service: what the engine refuses ends with 400") {
    fake_engine engine;
    generation_service service(engine, {});
    const collected refused = collect(*service.submit({tokens_wanted(2), generation_request{}}));
    CHECK(refused.status == 400);
    CHECK(refused.error.find("prompt") != std::string::npos);
    CHECK(soon([&] { return service.figures().sequences == 0; }));
    CHECK(engine.running == 0);
}

TEST_CASE("generation_service: the time limit ends a generation after the events before it") {
    fake_engine engine;
    engine.step_microseconds = 1000;
    generation_service service(engine, {.time_limit = 30ms});
    const collected late = collect(*service.submit({tokens_wanted(100000)}));
    CHECK(late.status == 504);
    CHECK(late.error.find("0.03") != std::string::npos);
    CHECK(late.texts[0].starts_with("0 1 "));
    CHECK(service.figures().timed_out == 1);
    CHECK(engine.running == 0);
}

TEST_CASE("generation_service: drain finishes what runs and refuses what comes") {
    fake_engine engine;
    engine.step_microseconds = 1000;
    generation_service service(engine, {});
    const auto work = service.submit({tokens_wanted(20)});
    std::thread draining([&] { CHECK(service.drain(10s)); });
    REQUIRE(soon([&] { return service.status().is_draining; }));
    CHECK(status_of_submit(service, {tokens_wanted(1)}) == 503);
    CHECK(collect(*work).status == 200);
    draining.join();
}

TEST_CASE("generation_service: drain ends what takes too long") {
    fake_engine engine;
    engine.step_microseconds = 1000;
    generation_service service(engine, {});
    const auto work = service.submit({tokens_wanted(1000000)});
    CHECK(!service.drain(20ms));
    CHECK(collect(*work).status == 503);
    CHECK(engine.running == 0);
}

TEST_CASE("generation_service: the destructor ends what runs") {
    fake_engine engine;
    std::shared_ptr<generation> work;
    {
        generation_service service(engine, {});
        work = service.submit({tokens_wanted(1000000)});
    }
    CHECK(collect(*work).status == 503);
}

TEST_CASE("generation_service: random clients leave nothing behind") {
    fake_engine engine;
    generation_service service(engine, {.running = 16, .queue = 16});
    std::atomic<int> wrong = 0;
    const auto client = [&](unsigned seed) {
        std::mt19937 chance(seed);
        for (int i = 0; i < 150; ++i) {
            const int tokens = static_cast<int>(chance() % 20) + 1;
            try {
                std::vector<generation_request> requests(chance() % 3 + 1, tokens_wanted(tokens));
                const auto work = service.submit(std::move(requests));
                if (chance() % 4 == 0) engine.failing_steps = 1;
                if (chance() % 3 == 0) {
                    if (chance() % 2 == 0) work->wait();
                    work->cancel();
                    continue;
                }
                const collected all = collect(*work);
                std::string expected;
                for (int token = 0; token < tokens; ++token) expected += std::to_string(token) + " ";
                for (const std::string& text : all.texts) wrong += all.status == 200 && text != expected ? 1 : 0;
            } catch (const api_error& failure) {
                wrong += failure.status() == 429 || failure.status() == 500 ? 0 : 1;
            }
        }
    };
    std::vector<std::thread> clients;
    for (unsigned seed = 0; seed < 6; ++seed) clients.emplace_back(client, seed);
    for (std::thread& each : clients) each.join();
    CHECK(wrong == 0);
    CHECK(service.drain(10s));
    const service_figures figures = service.figures();
    CHECK(figures.sequences == 0);
    CHECK(engine.running == 0);
    CHECK(figures.submitted == figures.completed + figures.cancelled + figures.failed);
}
