// How many draft tokens pay, from made-up step times and acceptances.
#include "engine/serving/speculation_control.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <vector>

using namespace imbrex::engine;

namespace {

std::shared_ptr<const sequence> sequence_of(sequence_id id) {
    sequence made;
    made.id = id;
    return std::make_shared<const sequence>(std::move(made));
}

// Sequences that are decoded together. All steps take the time of their rows, and so many draft tokens are accepted.
struct machine {
    std::function<double(int rows)> seconds;
    std::function<int(sequence_id, int drafted)> accepts;
    double draft_seconds = 0;  // of each draft token
    int most = 7;
    speculation_control control{};
    std::vector<std::shared_ptr<const sequence>> sequences{};

    explicit machine(int count, std::function<double(int)> of_rows, std::function<int(sequence_id, int)> accepted)
        : seconds(std::move(of_rows)), accepts(std::move(accepted)) {
        for (int i = 0; i < count; ++i) sequences.push_back(sequence_of(i));
    }

    // The draft tokens of each sequence.
    std::vector<int> step() {
        batch work;
        for (const auto& each : sequences)
            work.entries.push_back({.sequence = each, .count = 1, .samples = true, .max_draft = most});
        control.choose(work);
        std::vector<int> chosen;
        int deepest = 0;
        for (batch_entry& entry : work.entries) {
            chosen.push_back(entry.max_draft);
            deepest = std::max(deepest, entry.max_draft);
            entry.add_draft(std::vector<int>(static_cast<std::size_t>(entry.max_draft)));
        }
        control.observe(work, deepest * draft_seconds, seconds(work.tokens()));
        for (const batch_entry& entry : work.entries) {
            const int drafted = static_cast<int>(entry.draft.size());
            if (drafted > 0) control.accepted(entry.sequence->id, drafted, accepts(entry.sequence->id, drafted));
        }
        return chosen;
    }
    // Draft tokens per sequence and step, in so many steps after a beginning.
    std::vector<double> mean(int steps, int beginning = 100) {
        for (int i = 0; i < beginning; ++i) step();
        std::vector<double> sums(sequences.size());
        for (int i = 0; i < steps; ++i) {
            const std::vector<int> chosen = step();
            for (std::size_t at = 0; at < sums.size(); ++at) sums[at] += chosen[at] / static_cast<double>(steps);
        }
        return sums;
    }
};

double weights_bound(int rows) {
    return 4.2e-3 + 1e-5 * rows;
}
double compute_bound(int rows) {
    return 2e-3 * rows;
}
int all_of(sequence_id, int drafted) {
    return drafted;
}
int none_of(sequence_id, int) {
    return 0;
}

}  // namespace

TEST_CASE("Rows that are nearly free are used, also for poor drafts") {
    CHECK(machine(1, weights_bound, all_of).mean(100)[0] == doctest::Approx(7));
    CHECK(machine(1, weights_bound, [](sequence_id, int drafted) { return drafted / 2; }).mean(100)[0] > 4);
    CHECK(machine(4, weights_bound, all_of).mean(100)[3] == doctest::Approx(7));
    // Nothing is ever accepted: few rows, and now and then more.
    const double hopeless = machine(1, weights_bound, none_of).mean(1000)[0];
    CHECK(hopeless < 1.5);
    CHECK(hopeless > 0.01);
}

TEST_CASE("Rows that cost as much as a step are not used, but for trials") {
    machine one(1, compute_bound, [](sequence_id, int drafted) { return drafted / 2; });
    CHECK(one.mean(4000)[0] < 0.05);
    CHECK(machine(64, compute_bound, none_of).mean(500)[10] < 0.05);
}

TEST_CASE("Speculation ends when the batch grows and begins again when it shrinks") {
    // Free up to 16 rows, then each row costs.
    const auto seconds = [](int rows) { return rows <= 16 ? 4e-3 : 4e-3 / 16 * rows; };
    machine one(2, seconds, [](sequence_id, int drafted) { return drafted / 2; });
    CHECK(one.mean(100)[0] > 3);
    for (int i = 2; i < 16; ++i) one.sequences.push_back(sequence_of(i));
    CHECK(one.mean(200)[0] < 0.5);
    one.sequences.resize(2);
    CHECK(one.mean(100)[0] > 3);
}

TEST_CASE("A sequence with good drafts gets more of the rows than one with poor drafts") {
    const auto seconds = [](int rows) { return 1e-3 + 4e-4 * rows; };
    machine two(2, seconds, [](sequence_id id, int drafted) { return id == 0 ? drafted : 0; });
    const std::vector<double> mean = two.mean(500);
    CHECK(mean[0] > 6);
    CHECK(mean[1] < 1);
}

TEST_CASE("The time of a draft model limits the depth") {
    const auto accepts = [](sequence_id, int drafted) { return std::min(drafted, 2); };
    machine cheap(1, weights_bound, accepts), dear(1, weights_bound, accepts);
    cheap.draft_seconds = 1e-5;
    dear.draft_seconds = 4e-3;
    CHECK(cheap.mean(200)[0] > 4);
    CHECK(dear.mean(200)[0] < 1.2);
}

TEST_CASE("Slow first steps and outliers do not end speculation") {
    int step = 0;
    const auto seconds = [&](int rows) { return weights_bound(rows) * (++step < 3 || step % 50 == 0 ? 20 : 1); };
    CHECK(machine(1, seconds, all_of).mean(500)[0] > 6.5);
}

TEST_CASE("Step costs between measured numbers of rows are interpolated") {
    step_costs costs;
    CHECK(costs.of(5) == 0);
    for (int i = 0; i < 5; ++i) costs.observe(2, 0.1);
    CHECK(costs.of(1) == doctest::Approx(0.05));
    CHECK(costs.of(100) == doctest::Approx(0.1));
    for (int i = 0; i < 5; ++i) costs.observe(6, 0.3);
    CHECK(costs.of(2) == doctest::Approx(0.1));
    CHECK(costs.of(4) == doctest::Approx(0.2));
    CHECK(costs.of(7) == doctest::Approx(0.3));
    for (int i = 0; i < step_costs::forgotten + 3; ++i) costs.observe(2, 0.1);
    CHECK(costs.of(6) == doctest::Approx(0.1));  // forgotten
}
