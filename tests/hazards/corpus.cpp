// The checker finds the bug of every wrong kernel of the corpus and is silent about the fixed variants and the correct
// kernels, with both schedulers. IMBREX_CORPUS_JSON=<file> writes the findings, case by case.
#include "hazards/corpus.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "schedules.hpp"

using namespace imbrex_hazards;

namespace {

// Wrong kernels that the checker does not detect yet, by name. Must be empty in the end; a case leaves this list when it
// is detected.
const std::vector<std::string> missed = {};

struct finding {
    int schedules = 0;  // until the first hazard; 0: none
    std::string kind;
    bool expected = false;
    bool replayed = false;      // the shrunk schedule shows the same hazard again
    std::size_t decisions = 0;  // of the shrunk schedule
};

bool is_expected(const corpus_case& one, const std::optional<hazard>& found) {
    return found && std::find(one.expected.begin(), one.expected.end(), found->kind) != one.expected.end();
}

finding find_hazard(const corpus_case& one, int schedules, scheduling scheduler) {
    host::check_summary summary;
    const auto found = one.check(false, {.schedules = schedules, .scheduler = scheduler, .summary = &summary});
    if (!found) return {};
    finding made{summary.schedules, name_of(found->kind), is_expected(one, found)};
    if (found->replay.empty()) return made;
    const auto again = one.check(false, {.replay = found->replay});
    made.replayed = again && hw::same_hazard(*again, *found);
    made.decisions = replayed_schedule::parse(found->replay).decisions.size();
    return made;
}

// In how many of 100 schedules the bug shows.
int schedules_of_100(const corpus_case& one, scheduling scheduler) {
    host::check_summary summary;
    one.check(false, {.schedules = 10, .scheduler = scheduler, .shrink_replays = 0, .summary = &summary});
    int count = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const auto found = one.check(false, {.schedules = 1,
                                             .first_seed = seed,
                                             .scheduler = scheduler,
                                             .pct_steps = summary.steps,
                                             .shrink_replays = 0});
        count += is_expected(one, found) ? 1 : 0;
    }
    return count;
}

struct findings {
    const corpus_case* of;
    finding random, pct;
};

std::string json_of(const corpus_case& of, const finding& one, scheduling scheduler) {
    return str_cat("{\"schedules\": ", one.schedules, ", \"hazard\": \"", one.kind,
                   "\", \"expected\": ", one.expected ? "true" : "false", ", \"decisions\": ", one.decisions,
                   ", \"of_100\": ", schedules_of_100(of, scheduler), "}");
}

void write_json(const std::string& file, const std::vector<findings>& all) {
    std::ofstream out(file);
    out << "[\n";
    for (const findings& one : all) {
        out << "  {\"family\": \"" << one.of->family << "\", \"name\": \"" << one.of->name
            << "\", \"random\": " << json_of(*one.of, one.random, scheduling::random)
            << ", \"pct\": " << json_of(*one.of, one.pct, scheduling::pct) << "}" << (&one == &all.back() ? "" : ",")
            << "\n";
    }
    out << "]\n";
}

}  // namespace

TEST_CASE("the checker detects the bug of every wrong kernel, with random schedules and with PCT") {
    std::vector<findings> all;
    for (const corpus_case& one : corpus()) {
        if (one.expected.empty()) continue;
        const int schedules = imbrex_test::schedules_to_run(1000);
        all.push_back(
            {&one, find_hazard(one, schedules, scheduling::random), find_hazard(one, schedules, scheduling::pct)});
        CAPTURE(one.family);
        CAPTURE(one.name);
        CAPTURE(all.back().random.kind);
        CAPTURE(all.back().pct.kind);
        const bool known = std::find(missed.begin(), missed.end(), one.name) != missed.end();
        CHECK(all.back().random.expected == !known);
        CHECK(all.back().pct.expected == !known);
        CHECK(all.back().random.replayed);
        CHECK(all.back().pct.replayed);
    }
    if (const char* file = std::getenv("IMBREX_CORPUS_JSON")) write_json(file, all);
}

TEST_CASE("the checker is silent about fixed and correct kernels") {
    for (const corpus_case& one : corpus()) {
#if defined(IMBREX_CORPUS_WITHOUT_FIXED)
        if (!one.expected.empty()) continue;
#endif
        CAPTURE(one.family);
        CAPTURE(one.name);
        const int schedules = imbrex_test::schedules_to_run(1000);
        const int few = (schedules + 4) / 5;
        CHECK(hazard_text(one.check(true, {.schedules = one.expected.empty() ? schedules : few})) == "");
        CHECK(hazard_text(one.check(true, {.schedules = few, .scheduler = scheduling::pct})) == "");
    }
}

TEST_CASE("names in the corpus are unique") {
    std::map<std::string, int> count;
    for (const corpus_case& one : corpus()) CHECK(++count[one.name] == 1);
}
