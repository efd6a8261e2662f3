// Routing policies, step costs and generated loads.
#include <doctest/doctest.h>

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "serving/fleet_costs.hpp"
#include "serving/fleet_load.hpp"
#include "serving/fleet_routing.hpp"

namespace bench::test {

using namespace imbrex::engine;

namespace {

void check_error(const std::string& expected, const auto& call) {
    std::string found;
    try {
        call();
    } catch (const imbrex::error& problem) {
        found = problem.what();
    }
    INFO(found);
    CHECK(found.find(expected) != std::string::npos);
}

using loads = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("routing: round-robin and least-loaded") {
    const routing_policy round = make_policy("round-robin", 3);
    for (const int expected : {0, 1, 2, 0}) CHECK(round({}, loads{9, 0, 0}) == expected);
    const routing_policy least = make_policy("least-loaded", 3);
    CHECK(least({}, loads{5, 3, 4}) == 1);
    CHECK(least({}, loads{5, 5, 4}) == 2);
    CHECK(least({}, loads{4, 4, 4}) == 0);  // equal ones in turn
    CHECK(least({}, loads{4, 4, 4}) == 1);
}

TEST_CASE("routing: hashing is consistent, and passes on what exceeds the bound") {
    const bounded_load bounded{.bound = 1.25, .least_bound = 0};
    const routing_policy ten = make_policy("session-hash", 10), eleven = make_policy("session-hash", 11);
    int moved = 0;
    std::set<int> used;
    for (std::uint64_t key = 0; key < 1000; ++key) {
        const routed_request one{.conversation = key, .tokens = 10};
        const int before = ten(one, loads(10)), after = eleven(one, loads(11));
        CHECK(ten(one, loads(10)) == before);
        used.insert(before);
        moved += before != after;
        if (before != after) CHECK(after == 10);
    }
    CHECK(used.size() == 10);
    CHECK(moved > 20);
    CHECK(moved < 250);  // about 1000 / 11

    const routing_policy strict = make_policy("prefix-hash", 4, bounded);
    const routed_request one{.conversation = 1, .system = 7, .tokens = 10};
    const int home = strict(one, loads(4, 100));
    CHECK(strict({.conversation = 2, .system = 7, .tokens = 10}, loads(4, 100)) == home);
    loads full(4, 100);
    full[static_cast<std::size_t>(home)] = 200;  // the mean with the request is 127.5, the bound 159
    const int next = strict(one, full);
    CHECK(next != home);
    full[static_cast<std::size_t>(home)] = 100;
    CHECK(strict(one, full) == home);
    // A large request fits nowhere: the least loaded one takes it.
    CHECK(make_policy("prefix-hash", 2, {.bound = 1, .least_bound = 0})({.system = 7, .tokens = 1000}, loads{50, 20}) ==
          1);
    check_error("bound: 0.5; it must be at least 1", [] { make_policy("prefix-hash", 2, {.bound = 0.5}); });
}

TEST_CASE("step costs: the fit finds the coefficients of exact steps") {
    const step_costs exact{
        .decode = {.step = 4e-3, .sequence = 2e-5, .context_token = 3e-8},
        .mixed = {
            .step = 5e-3, .prompt = 1e-4, .prompt_token = 3e-5, .pair = 1e-9, .sequence = 3e-5, .context_token = 2e-8}};
    std::mt19937 chance(1);
    std::vector<measured_step> steps;
    for (int i = 0; i < 400; ++i) {
        step_load load{.decodes = static_cast<int>(chance() % 64)};
        load.decode_context = load.decodes * static_cast<std::int64_t>(chance() % 2000);
        if (i % 2 == 0) {
            load.prompts = 1 + static_cast<int>(chance() % 8);
            load.prompt_tokens = load.prompts * (2 + static_cast<int>(chance() % 500));
            load.prompt_context = std::int64_t{load.prompt_tokens} * (chance() % 3000);
        }
        steps.push_back({.source = "x", .load = load, .seconds = exact.seconds(load)});
    }
    const step_costs fitted = fitted_costs(steps);
    CHECK(error_of(fitted, steps).p90 < 1e-3);
    CHECK(fitted.decode.step == doctest::Approx(4e-3).epsilon(1e-2));
    CHECK(fitted.mixed.prompt_token == doctest::Approx(3e-5).epsilon(1e-2));
    CHECK(fitted.mixed.pair == doctest::Approx(1e-9).epsilon(2e-2));

    for (measured_step& one : steps) one.seconds *= 1.1;
    const fit_error error = error_of(exact, steps);
    CHECK(error.steps == 400);
    CHECK(error.mean == doctest::Approx(1 - 1 / 1.1));
    CHECK(error.total == doctest::Approx(1 / 1.1 - 1));
    check_error("there is no step", [] { fitted_costs({}); });
}

TEST_CASE("step costs: coefficients are never negative") {
    // Fewer seconds with more sequences.
    const std::vector<measured_step> steps{{.source = "x", .load = {.decodes = 1}, .seconds = 2},
                                           {.source = "x", .load = {.decodes = 9}, .seconds = 1}};
    const step_costs fitted = fitted_costs(steps);
    CHECK(fitted.decode.sequence == 0);
    CHECK(fitted.decode.step > 1);
    CHECK(fitted.decode.step < 2);
}

TEST_CASE("step costs: files") {
    constexpr const char* header =
        R"({"model":"m","world":"host","replica":{"context":64,"max_num_batched_tokens":32,"max_num_seqs":4,"block_size":16,"groups":[{"blocks":9,"window":0,"block_bytes":2}]}})";
    std::istringstream file(
        std::string(header) +
        "\n"
        R"({"source":"trace","seconds":0.5,"prompts":1,"prompt_tokens":8,"prompt_context":36,"decodes":2,"decode_context":20})"
        "\n");
    const measured_steps read = read_steps(file, "steps.jsonl");
    CHECK(read.model == "m");
    CHECK(read.replica.scheduler.max_num_seqs == 4);
    CHECK(read.replica.groups.at(0).blocks == 9);
    REQUIRE(read.steps.size() == 1);
    CHECK(read.steps[0].load == step_load{1, 8, 36, 2, 20});

    const cost_file made{.model = "m", .world = "host", .replica = read.replica, .costs = fitted_costs(read.steps)};
    const cost_file again = read_costs(json_of(made).dump(), "costs.json");
    CHECK(json_of(again) == json_of(made));
    CHECK(again.costs.seconds(read.steps[0].load) == doctest::Approx(0.5));

    std::istringstream none, wrong(std::string(header) + R"(
{"source":"trace","seconds":0,"prompts":0,"prompt_tokens":0,"decodes":1})");
    check_error("steps.jsonl: it is empty", [&] { read_steps(none, "steps.jsonl"); });
    check_error("steps.jsonl, line 2: \"seconds\" is 0; a measured step takes more than 0",
                [&] { read_steps(wrong, "steps.jsonl"); });
    check_error("costs.json: \"context\" is missing; it must be 0 or more",
                [] { read_costs(R"({"replica":{}})", "costs.json"); });
}

TEST_CASE("load: rate, burstiness and lengths are as wanted") {
    load_options options{.rate = 50, .seconds = 400, .input = "uniform:10,20", .output = "fixed:7"};
    for (const double burstiness : {1.0, 6.0}) {
        options.burstiness = burstiness;
        const request_trace trace = generate_load(options);
        double sum = 0, squares = 0, last = 0;
        for (const trace_conversation& one : trace) {
            sum += one.arrival - last;
            squares += (one.arrival - last) * (one.arrival - last);
            last = one.arrival;
            REQUIRE(one.turns.size() == 1);
            CHECK(one.turns[0].input >= 10);
            CHECK(one.turns[0].input <= 20);
            CHECK(one.turns[0].output == 7);
        }
        const double count = static_cast<double>(trace.size()), mean = sum / count;
        CHECK(1 / mean == doctest::Approx(50).epsilon(0.05));
        CHECK(squares / count / mean / mean - 1 == doctest::Approx(burstiness).epsilon(0.1));
    }
}

TEST_CASE("load: conversations have turns, think times and one of the system prompts") {
    const request_trace trace = generate_load({.rate = 10,
                                               .seconds = 30,
                                               .input = "lognormal:20,1",
                                               .turns = "fixed:3",
                                               .think = "fixed:2",
                                               .systems = 4,
                                               .system_tokens = "uniform:50,60",
                                               .max_tokens = 2000});
    std::set<std::pair<int, int>> systems;
    for (const trace_conversation& one : trace) {
        systems.insert({one.system, one.system_tokens});
        CHECK(one.turns.front().think == 0);
        for (std::size_t i = 1; i < one.turns.size(); ++i) CHECK(one.turns[i].think == 2);
    }
    CHECK(systems.size() == 4);
    CHECK(longest_of(trace) <= 2000);
}

TEST_CASE("load: errors") {
    check_error("distribution: normal:1,2; it must be fixed:value, uniform", [] { distribution("normal:1,2"); });
    check_error("distribution: uniform:5; it must be", [] { distribution("uniform:5"); });
    check_error("distribution: fixed:x; it must be", [] { distribution("fixed:x"); });
    check_error("distribution: uniform:5,2; least must not exceed most", [] { distribution("uniform:5,2"); });
    check_error("rate: 0; it must be more than 0", [] { generate_load({.rate = 0}); });
    check_error("burstiness: 0.5; it must be 1 (Poisson) or more", [] { generate_load({.burstiness = 0.5}); });
    check_error("no conversation arrives in 0.001 seconds", [] { generate_load({.rate = 0.001, .seconds = 0.001}); });
}

}  // namespace bench::test
