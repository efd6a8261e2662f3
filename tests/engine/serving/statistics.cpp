// Counts and times, with a controlled clock.
#include "engine/serving/statistics.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace imbrex::engine;

TEST_CASE("Statistics are zero at the start") {
    const statistics_summary summary = statistics().summary();
    CHECK(summary.arrived == 0);
    CHECK(summary.generated_per_second == 0);
    CHECK(summary.ttft_mean == 0);
    CHECK(summary.prefix_cache_hit_rate == 0);
    CHECK(summary.batch_mean == 0);
}

TEST_CASE("Computes times, rates and means of two steps") {
    double now = 100;
    statistics all([&] { return now; });
    all.arrived(1);
    now = 101;
    all.arrived(2);
    all.arrived(3);
    all.step_begins();
    now = 103;
    all.token(1);  // TTFT 3 s
    all.token(2);  // 2 s
    all.step_ends({.sequences = 2,
                   .tokens = 30,
                   .used_bytes = 4000000,
                   .cache_bytes = 8000000,
                   .prompt_tokens = 28,
                   .cached_tokens = 0,
                   .preemptions = 0});
    now = 110;  // idle time does not count
    all.step_begins();
    now = 112;
    all.token(1);  // not the first token
    all.token(3);  // 11 s
    all.ended(1, finish_reason::length);
    all.ended(3, finish_reason::stop_string);
    all.step_ends({.sequences = 3,
                   .tokens = 10,
                   .used_bytes = 8000000,
                   .cache_bytes = 8000000,
                   .prompt_tokens = 40,
                   .cached_tokens = 10,
                   .preemptions = 1});
    all.ended(2, finish_reason::cancelled);

    const statistics_summary summary = all.summary();
    CHECK(summary.arrived == 3);
    CHECK(summary.finished == 2);
    CHECK(summary.cancelled == 1);
    CHECK(summary.steps == 2);
    CHECK(summary.generated_tokens == 4);
    CHECK(summary.computed_tokens == 40);
    CHECK(summary.busy_seconds == doctest::Approx(4));
    CHECK(summary.generated_per_second == doctest::Approx(1));
    CHECK(summary.computed_per_second == doctest::Approx(10));
    CHECK(summary.ttft_mean == doctest::Approx(16.0 / 3));
    CHECK(summary.ttft_median == doctest::Approx(3));
    CHECK(summary.ttft_max == doctest::Approx(11));
    CHECK(summary.batch_mean == doctest::Approx(2.5));
    CHECK(summary.batch_max == 3);
    CHECK(summary.kv_cache_usage_mean == doctest::Approx(0.75));
    CHECK(summary.kv_cache_usage_max == doctest::Approx(1));
    CHECK(summary.prefix_cache_hit_rate == doctest::Approx(0.25));
    CHECK(summary.preemptions == 1);

    CHECK(summary.text() ==
          "sequences       3 arrived, 2 finished, 1 cancelled\n"
          "first token     5333.3 ms on average, 3000.0 median, 11000.0 at worst\n"
          "generated       4 tokens, 1.0 a second\n"
          "computed        40 tokens, 10.0 a second, in 4.00 s\n"
          "batch           2.5 sequences on average, 3 at most, 2 steps\n"
          "cache           75.0 % held on average, 100.0 % at most (8.0 MB); 25.0 % of tokens found\n"
          "preemptions     1\n");

    statistics_summary with_energy = summary;
    with_energy.gpu_joules = 10;
    CHECK(with_energy.text().ends_with(
        "preemptions     1\nenergy          10.0 J by the GPU, 2.500 J per generated token, 2 W\n"));
    CHECK(with_energy.json().ends_with("\"preemptions\":1,\"gpu_joules\":10}"));
}

TEST_CASE("Mean and maximum of TTFT are of all sequences, the median is of the latest ones") {
    double now = 0;
    statistics all([&] { return now; });
    constexpr int old = 5'000, latest = 10'000;
    for (int i = 0; i < old + latest; ++i) {
        all.arrived(i);
        now += i < old ? 5 : 2;
        all.token(i);
    }
    const statistics_summary summary = all.summary();
    CHECK(summary.ttft_mean == doctest::Approx((5.0 * old + 2.0 * latest) / (old + latest)));
    CHECK(summary.ttft_median == 2);
    CHECK(summary.ttft_max == 5);
}

TEST_CASE("A sequence cancelled before its first token has no TTFT") {
    double now = 0;
    statistics all([&] { return now; });
    all.arrived(1);
    all.arrived(2);
    all.ended(1, finish_reason::cancelled);
    now = 5;
    all.token(2);
    CHECK(all.summary().ttft_mean == doctest::Approx(5));
    CHECK(all.summary().ttft_max == doctest::Approx(5));
}

TEST_CASE("Statistics as JSON") {
    statistics_summary summary;
    summary.arrived = 3;
    summary.ttft_mean = 0.25;
    const std::string text = summary.json();
    CHECK(text.starts_with("{\"arrived\":3,\"finished\":0,"));
    CHECK(text.find("\"ttft_mean\":0.25,") != std::string::npos);
    CHECK(text.find("\"drafted_tokens\":0,\"accepted_tokens\":0,\"acceptance_rate\":0,\"tokens_per_step\":0,") !=
          std::string::npos);
    CHECK(text.ends_with("\"preemptions\":0}"));
}

TEST_CASE("Time in which a GPU has nothing to do, and steps that were launched ahead") {
    double now = 0;
    statistics all([&] { return now; });
    for (int step = 0; step < 4; ++step) {
        all.step_begins();
        now += 1;
        all.step_ends({.sequences = 1, .tokens = 1});
    }
    CHECK(all.summary().text().find("GPU") == std::string::npos);
    CHECK(all.summary().json().find("\"steps_ahead\":0,\"busy_seconds\":4,") != std::string::npos);
    for (int step = 0; step < 3; ++step) all.launched_ahead();
    all.device_idled(0.25);
    all.device_idled(0.75);
    CHECK(all.summary().text().find("\nGPU             idle for 250000.0 us between steps on average, 25.0 % of the "
                                    "time; 75.0 % of steps ahead\n") != std::string::npos);
    CHECK(all.summary().json().find("\"steps_ahead\":3,\"device_idle_seconds\":1,\"busy_seconds\":4,") !=
          std::string::npos);
}

TEST_CASE("Statistics of drafts") {
    statistics all([] { return 0.0; });
    for (int i = 0; i < 6; ++i) all.token(1);
    all.step_begins();
    all.step_ends({.sequences = 3, .sampling = 2, .tokens = 9, .drafted_tokens = 4, .accepted_tokens = 1});
    all.step_begins();
    all.step_ends({.sequences = 1, .sampling = 1, .tokens = 5, .drafted_tokens = 8, .accepted_tokens = 3});
    const statistics_summary summary = all.summary();
    CHECK(summary.drafted_tokens == 8);
    CHECK(summary.acceptance_rate == doctest::Approx(0.375));
    CHECK(summary.tokens_per_step == doctest::Approx(2));
    CHECK(summary.text().ends_with("drafts          8 tokens, 3 accepted (37.5 %); 2.00 tokens a step and sequence\n"));
}
