// The checker finds the bug of every wrong kernel of the corpus and is silent about the fixed variants and the correct
// kernels. IMBREX_CORPUS_JSON=<file> writes the findings, case by case.
#include "corpus.hpp"

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
};

finding find_hazard(const corpus_case& one, int schedules) {
    for (int seed = 0; seed < schedules; ++seed) {
        if (const auto found = one.check(false, 1, seed)) {
            const bool expected =
                std::find(one.expected.begin(), one.expected.end(), found->kind) != one.expected.end();
            return {seed + 1, name_of(found->kind), expected};
        }
    }
    return {};
}

void write_json(const std::string& file, const std::vector<std::pair<const corpus_case*, finding>>& findings) {
    std::ofstream out(file);
    out << "[\n";
    for (std::size_t i = 0; i < findings.size(); ++i) {
        const auto& [one, found] = findings[i];
        out << "  {\"family\": \"" << one->family << "\", \"name\": \"" << one->name
            << "\", \"schedules\": " << found.schedules << ", \"hazard\": \"" << found.kind
            << "\", \"expected\": " << (found.expected ? "true" : "false") << "}"
            << (i + 1 < findings.size() ? "," : "") << "\n";
    }
    out << "]\n";
}

}  // namespace

TEST_CASE("the checker detects the bug of every wrong kernel") {
    std::vector<std::pair<const corpus_case*, finding>> findings;
    for (const corpus_case& one : corpus()) {
        if (one.expected.empty()) continue;
        const finding found = find_hazard(one, imbrex_test::schedules_to_run(1000));
        findings.emplace_back(&one, found);
        CAPTURE(one.family);
        CAPTURE(one.name);
        CAPTURE(found.kind);
        const bool known = std::find(missed.begin(), missed.end(), one.name) != missed.end();
        CHECK(found.expected == !known);
    }
    if (const char* file = std::getenv("IMBREX_CORPUS_JSON")) write_json(file, findings);
}

TEST_CASE("the checker is silent about fixed and correct kernels") {
    for (const corpus_case& one : corpus()) {
#if defined(IMBREX_CORPUS_WITHOUT_FIXED)
        if (!one.expected.empty()) continue;
#endif
        CAPTURE(one.family);
        CAPTURE(one.name);
        const int schedules = imbrex_test::schedules_to_run(1000);
        const auto found = one.check(true, one.expected.empty() ? schedules : (schedules + 4) / 5, 0);
        INFO((found ? found->text() : std::string()));
        CHECK(!found);
    }
}

TEST_CASE("names in the corpus are unique") {
    std::map<std::string, int> count;
    for (const corpus_case& one : corpus()) CHECK(++count[one.name] == 1);
}
