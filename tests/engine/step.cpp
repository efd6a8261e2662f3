// A batch goes to the memory of a world as it is, and what does not fit is refused.
#include "engine/step.hpp"

#include <doctest/doctest.h>

#include "support.hpp"

using namespace imbrex;
using namespace imbrex::engine;

namespace {

batch_arrays some_arrays() {
    batch_arrays arrays;
    arrays.tokens = {7, 8, 9};
    arrays.starts = {0, 2, 3};
    arrays.lengths = {2, 20};
    arrays.tables = {4, 0, 5, 6};
    arrays.table_width = 2;
    arrays.sampled_rows = {1, 2};
    return arrays;
}

}  // namespace

TEST_CASE("a step has what the batch has") {
    step_memory memory(world::host, 3, 2, 2);
    for (int again = 0; again < 2; ++again) {
        const batch_arrays arrays = some_arrays();
        const step now = memory.place(arrays);
        CHECK(now.tokens == 3);
        CHECK(now.sequences == 2);
        CHECK(now.samples == 2);
        CHECK(now.table_width == 2);
        CHECK(std::vector<int>(now.ids, now.ids + 3) == arrays.tokens);
        CHECK(std::vector<int>(now.starts, now.starts + 3) == arrays.starts);
        CHECK(std::vector<int>(now.lengths, now.lengths + 2) == arrays.lengths);
        CHECK(std::vector<int>(now.tables, now.tables + 4) == arrays.tables);
        CHECK(std::vector<int>(now.sampled_rows, now.sampled_rows + 2) == arrays.sampled_rows);
    }
}

TEST_CASE("a batch that is too large for the runner is refused") {
    step_memory few_tokens(world::host, 2, 2, 2), few_sequences(world::host, 3, 1, 2);
    CHECK(test::refusal([&] { few_tokens.place(some_arrays()); }) ==
          "batch: it has 3 tokens; this runner was made for 2");
    CHECK(test::refusal([&] { few_sequences.place(some_arrays()); }) ==
          "batch: it has 2 sequences; this runner was made for 1");
}
