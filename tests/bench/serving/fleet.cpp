// The fleet simulation: one replica against times computed by hand, conservation of requests, policies, determinism.
#include "serving/fleet_simulation.hpp"

#include <doctest/doctest.h>

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "serving/fleet_load.hpp"

namespace bench::test {

using namespace imbrex::engine;

namespace {

fleet_options small_fleet(int replicas, const std::string& policy = "round-robin") {
    return {.replicas = replicas,
            .policy = policy,
            .bounded = {.bound = 1.25, .least_bound = 64},
            .replica = {.scheduler = {.context = 512, .max_num_batched_tokens = 16, .max_num_seqs = 8},
                        .groups = {{.blocks = 64}},
                        .block_size = 4}};
}

request_trace random_load(std::uint64_t seed) {
    return generate_load({.rate = 4,
                          .seconds = 20,
                          .burstiness = 4,
                          .input = "uniform:1,30",
                          .output = "uniform:1,10",
                          .turns = "uniform:1,3",
                          .think = "exponential:1",
                          .systems = 3,
                          .system_tokens = "uniform:8,24",
                          .seed = seed});
}

std::string error_of(const auto& call) {
    try {
        call();
    } catch (const imbrex::error& problem) {
        return problem.what();
    }
    return "";
}

void check_error(const std::string& expected, const auto& call) {
    const std::string found = error_of(call);
    INFO(found);
    CHECK(found.find(expected) != std::string::npos);
}

}  // namespace

TEST_CASE("fleet: one replica, times by hand") {
    fleet_options fleet = small_fleet(1);
    // Powers of two: sums are exact.
    fleet.costs = {.decode = {.step = 0.5, .sequence = 0.25, .context_token = 0.0625},
                   .mixed = {.step = 1, .prompt = 0.5, .prompt_token = 0.125, .pair = 0.03125, .sequence = 2}};
    const request_trace trace{{.arrival = 1, .turns = {{.input = 20, .output = 3}}},
                              {.arrival = 2, .turns = {{.input = 4, .output = 1}}}};
    // 1: 16 tokens of the first prompt; 16 * 17 / 2 = 136 pairs
    const double first = 1 + 1 + 0.5 + 16 * 0.125 + 136 * 0.03125;
    // 2: its last 4, 4 * 16 + 10 = 74 pairs, and the second prompt, 10 pairs
    const double second = first + 1 + 2 * 0.5 + 8 * 0.125 + 84 * 0.03125;
    // 3, 4: one token, with 21 and 22 in the cache
    const double third = second + 0.5 + 0.25 + 21 * 0.0625;
    const double fourth = third + 0.5 + 0.25 + 22 * 0.0625;
    const fleet_result result = simulate(fleet, trace, {.ttft = second - 2, .itl = 100});
    const latency_summary& it = result.latencies;
    CHECK(it.requests == 2);
    CHECK(it.finished == 2);
    CHECK(it.tokens == 4);
    CHECK(it.seconds == fourth);
    CHECK(it.ttft.p50 == second - 2);
    CHECK(it.ttft.max == second - 1);
    CHECK(it.itl.p50 == third - second);
    CHECK(it.itl.max == fourth - third);
    CHECK(it.goodput == 0.5);  // the first request waited longer
    CHECK(result.steps == 4);
    CHECK(result.utilisation == doctest::Approx((fourth - 1) / fourth));
    CHECK(result.hit_rate == 0);
}

TEST_CASE("fleet: with steps that take no time, latencies are 0 and conversations take their think times") {
    const request_trace trace{
        {.arrival = 1, .turns = {{.input = 9, .output = 5}, {.think = 2, .input = 1, .output = 7}}}};
    const fleet_result result = simulate(small_fleet(3), trace, {.ttft = 0, .itl = 0});
    CHECK(result.latencies.requests == 2);
    CHECK(result.latencies.tokens == 12);
    CHECK(result.latencies.seconds == 3);
    CHECK(result.latencies.ttft.max == 0);
    CHECK(result.latencies.itl.max == 0);
    CHECK(result.latencies.goodput == 1);
    CHECK(result.utilisation == 0);
}

TEST_CASE("fleet: the next turn finds the conversation in the cache of its replica") {
    // 16 + 8 tokens, of which the last is not computed: 5 full blocks. The next prompt has 28.
    const request_trace trace{
        {.arrival = 0, .turns = {{.input = 16, .output = 8}, {.think = 1, .input = 4, .output = 1}}}};
    CHECK(simulate(small_fleet(1), trace, {}).hit_rate == doctest::Approx(20.0 / (16 + 28)));
    CHECK(simulate(small_fleet(2, "session-hash"), trace, {}).hit_rate == doctest::Approx(20.0 / (16 + 28)));
    CHECK(simulate(small_fleet(2, "round-robin"), trace, {}).hit_rate == 0);
}

TEST_CASE("fleet: prefix-hash sends equal system prompts to one replica") {
    request_trace trace;
    for (int i = 0; i < 8; ++i)
        trace.push_back({.arrival = i * 10.0, .system = 5, .system_tokens = 32, .turns = {{.input = 4, .output = 1}}});
    CHECK(simulate(small_fleet(4, "prefix-hash"), trace, {}).hit_rate == doctest::Approx(7.0 * 32 / (8 * 36)));
    CHECK(simulate(small_fleet(4, "round-robin"), trace, {}).hit_rate == doctest::Approx(4.0 * 32 / (8 * 36)));
}

TEST_CASE("fleet: every request finishes once, with every policy, also with preemptions") {
    std::int64_t preemptions = 0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const request_trace trace = random_load(seed);
        for (const std::string& policy : routing_policies()) {
            for (const int replicas : {1, 3, 20}) {
                CAPTURE(policy);
                CAPTURE(replicas);
                fleet_options fleet = small_fleet(replicas, policy);
                fleet.costs = {.decode = {.step = 0.01, .sequence = 0.001},
                               .mixed = {.step = 0.01, .prompt_token = 0.002}};
                fleet.replica.groups[0].blocks = 40;
                const fleet_result result = simulate(fleet, trace, {});
                CHECK(result.latencies.requests == requests_of(trace));
                CHECK(result.latencies.finished == requests_of(trace));
                CHECK(result.latencies.tokens == outputs_of(trace));
                CHECK(result.utilisation > 0);
                CHECK(result.utilisation <= 1);
                if (replicas == 1) preemptions += result.preemptions;
            }
        }
    }
    CHECK(preemptions > 0);
}

TEST_CASE("fleet: with overlapping steps, a request misses the step after the one during which it arrives") {
    fleet_options fleet = small_fleet(1);
    fleet.costs = {.decode = {.step = 1}, .mixed = {.step = 4}};
    const request_trace trace{{.arrival = 0, .turns = {{.input = 8, .output = 4}}},
                              {.arrival = 1, .turns = {{.input = 8, .output = 1}}}};
    // Steps without overlap end at 4, 8, 9, 10; with it at 4, 5, 9, 10.
    CHECK(simulate(fleet, trace, {}).latencies.ttft.max == 8 - 1);
    fleet.replica.overlaps = true;
    CHECK(simulate(fleet, trace, {}).latencies.ttft.max == 9 - 1);
    // An idle replica begins at once.
    CHECK(simulate(fleet, {trace[0]}, {}).latencies.ttft.max == 4);
}

TEST_CASE("fleet: the same seed gives the same result; another seed another") {
    fleet_options fleet = small_fleet(3, "least-loaded");
    fleet.costs = {.decode = {.step = 0.01}, .mixed = {.step = 0.02}};
    const std::string one = simulate(fleet, random_load(1), {}).latencies.json();
    CHECK(one == simulate(fleet, random_load(1), {}).latencies.json());
    CHECK(one != simulate(fleet, random_load(2), {}).latencies.json());
}

TEST_CASE("fleet: the smallest fleet is enough, and one replica less is not") {
    fleet_options fleet = small_fleet(1, "least-loaded");
    fleet.costs = {.decode = {.step = 0.02}, .mixed = {.step = 0.04}};
    const request_trace trace = random_load(3);
    const latency_limits limits{.ttft = 0.4, .itl = 0.04};
    const fleet_size found = smallest_fleet(fleet, trace, limits, 0.95, 64);
    REQUIRE(found.replicas > 1);
    CHECK(found.result.latencies.goodput >= 0.95);
    fleet.replicas = found.replicas - 1;
    CHECK(simulate(fleet, trace, limits).latencies.goodput < 0.95);
    CHECK(smallest_fleet(fleet, trace, limits, 0.95, found.replicas - 1).replicas == 0);
}

TEST_CASE("fleet: a thousand replicas") {
    fleet_options fleet = small_fleet(1000, "prefix-hash");
    fleet.costs = {.decode = {.step = 0.01}, .mixed = {.step = 0.02}};
    const request_trace trace = random_load(1);
    CHECK(simulate(fleet, trace, {}).latencies.finished == requests_of(trace));
}

TEST_CASE("fleet: errors name the argument, its value and what is allowed") {
    const request_trace trace = random_load(1);
    check_error("replicas: 0; there must be at least one", [&] { simulate(small_fleet(0), trace, {}); });
    check_error("policy: random; it must be round-robin, least-loaded, prefix-hash or session-hash",
                [&] { simulate(small_fleet(1, "random"), trace, {}); });
    check_error("goodput: 2; it must be more than 0 and at most 1",
                [&] { smallest_fleet(small_fleet(1), trace, {}, 2, 4); });
    const request_trace long_one{{.arrival = 0, .turns = {{.input = 600, .output = 1}}}};
    check_error("the context has at most 512", [&] { simulate(small_fleet(1), long_one, {}); });
}

}  // namespace bench::test
