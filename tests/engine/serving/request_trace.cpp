#include "engine/serving/request_trace.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "engine/serving/request_latencies.hpp"
#include "engine/serving/step_load.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

request_trace read(const std::string& text) {
    std::istringstream lines(text);
    return read_trace(lines, "trace.jsonl");
}

}  // namespace

TEST_CASE("request trace: reads what it writes") {
    const request_trace made{{.arrival = 0.25, .turns = {{.input = 3, .output = 4}}},
                             {.arrival = 1.5,
                              .system = 2,
                              .system_tokens = 9,
                              .turns = {{.input = 1, .output = 2}, {.think = 0.5, .input = 5, .output = 6}}}};
    std::ostringstream written;
    write_trace(written, made);
    const request_trace again = read(written.str() + "\n");
    REQUIRE(again.size() == 2);
    CHECK(again[0].system == -1);
    CHECK(again[1].system_tokens == 9);
    CHECK(again[1].turns[1].think == 0.5);
    CHECK(requests_of(again) == 3);
    CHECK(outputs_of(again) == 12);
    CHECK(longest_of(again) == 23);
    std::ostringstream twice;
    write_trace(twice, again);
    CHECK(twice.str() == written.str());
}

TEST_CASE("request trace: errors name the line and the member") {
    const auto refuses = [](const char* expected, const std::string& text) {
        check_error_message(expected, [&] { read(text); });
    };
    refuses("trace.jsonl: it has no conversation", "\n");
    refuses("trace.jsonl, line 1", "nonsense");
    refuses("trace.jsonl, line 1: it is 3; it must be an object", "3");
    refuses("trace.jsonl, line 1: \"turns\" must be an array with at least one turn", R"({"turns":[]})");
    refuses("trace.jsonl, line 1: \"output\" is 0; it must be at least 1", R"({"turns":[{"input":1}]})");
    refuses("trace.jsonl, line 2: \"arrival\" is 1; the line before has a later one",
            R"({"arrival":2,"turns":[{"input":1,"output":1}]})"
            "\n"
            R"({"arrival":1,"turns":[{"input":1,"output":1}]})");
    check_error_message("trace: /no/such/file cannot be read", [] { read_trace_file("/no/such/file"); });
}

TEST_CASE("request trace: prompts grow by turns, and share their system prompts only") {
    const trace_conversation one{
        .system = 1, .system_tokens = 4, .turns = {{.input = 3, .output = 1}, {.input = 2, .output = 1}}};
    conversation_tokens first(one, 0, 100), second(one, 1, 100), same(one, 0, 100);
    const std::vector<int> prompt = first.ask(), other = second.ask();
    REQUIRE(prompt.size() == 7);
    CHECK(prompt == same.ask());
    CHECK(std::vector(prompt.begin(), prompt.begin() + 4) == std::vector(other.begin(), other.begin() + 4));
    CHECK(prompt != other);
    for (const int token : prompt) CHECK((token >= 0 && token < 100));
    first.answer(42);
    CHECK(first.has_turn());
    const std::vector<int> next = first.ask();
    REQUIRE(next.size() == 10);
    CHECK(std::vector(next.begin(), next.begin() + 7) == prompt);
    CHECK(next[7] == 42);
    CHECK_FALSE(first.has_turn());
}

TEST_CASE("request latencies: percentiles and goodput") {
    CHECK(percentiles_of({}).max == 0);
    std::vector<double> values;
    for (int i = 100; i >= 1; --i) values.push_back(i);
    const latency_percentiles all = percentiles_of(values);
    CHECK(all.mean == 50.5);
    CHECK(all.p50 == 50);
    CHECK(all.p90 == 90);
    CHECK(all.p99 == 99);
    CHECK(all.max == 100);

    request_latencies latencies;
    const int quick = latencies.arrived(1), slow = latencies.arrived(1), late = latencies.arrived(1);
    for (const double time : {1.5, 1.75, 2.0}) latencies.token(quick, time);
    for (const double time : {1.5, 2.5}) latencies.token(slow, time);
    latencies.token(late, 4);
    for (const int each : {quick, slow, late}) latencies.finished(each);
    const latency_summary it = latencies.summary({.ttft = 1, .itl = 0.25});
    CHECK(it.requests == 3);
    CHECK(it.finished == 3);
    CHECK(it.tokens == 6);
    CHECK(it.seconds == 4);
    CHECK(it.tokens_per_second == 1.5);
    CHECK(it.ttft.max == 3);
    CHECK(it.itl.p50 == 0.25);
    CHECK(it.goodput == doctest::Approx(1.0 / 3));
    CHECK(latencies.summary({.ttft = 3, .itl = 1}).goodput == 1);
}

TEST_CASE("step load: chunks of prompts and decodes") {
    const auto any = std::make_shared<sequence>();
    const batch work{.copies = {},
                     .entries = {{.sequence = any, .first = 9, .count = 1, .samples = true},
                                 {.sequence = any, .first = 0, .count = 4},
                                 {.sequence = any, .first = 10, .count = 2, .samples = true}}};
    CHECK(load_of(work) ==
          step_load{.prompts = 2, .prompt_tokens = 6, .prompt_context = 10 + 23, .decodes = 1, .decode_context = 10});
    CHECK(load_of({}) == step_load{});
}

}  // namespace imbrex::engine::test
