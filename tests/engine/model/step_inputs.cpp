// Step inputs: copies of a batch in the memory of a world, and limits.
#include "engine/model/step_inputs.hpp"

#include <doctest/doctest.h>

#include "engine/support.hpp"

using namespace imbrex;
using namespace imbrex::engine;

namespace {

packed_batch some_batch() {
    packed_batch packed;
    packed.input_ids = {7, 8, 9};
    packed.cu_seqlens_q = {0, 2, 3};
    packed.seqused_k = {2, 20};
    packed.block_tables = {4, 0, 5, 6};
    packed.max_blocks_per_seq = 2;
    packed.logits_indices = {1, 2};
    return packed;
}

}  // namespace

TEST_CASE("Copies all arrays of the batch") {
    step_staging memory(world::host, 3, 2, 2);
    for (int again = 0; again < 2; ++again) {
        const packed_batch packed = some_batch();
        const step_inputs now = memory.stage(packed);
        CHECK(now.tokens == 3);
        CHECK(now.sequences == 2);
        CHECK(now.samples == 2);
        CHECK(now.max_blocks_per_seq == 2);
        CHECK(std::vector<int>(now.input_ids, now.input_ids + 3) == packed.input_ids);
        CHECK(std::vector<int>(now.cu_seqlens_q, now.cu_seqlens_q + 3) == packed.cu_seqlens_q);
        CHECK(std::vector<int>(now.seqused_k, now.seqused_k + 2) == packed.seqused_k);
        CHECK(std::vector<int>(now.block_tables, now.block_tables + 4) == packed.block_tables);
        CHECK(std::vector<int>(now.logits_indices, now.logits_indices + 2) == packed.logits_indices);
    }
}

TEST_CASE("Rejects a batch above the runner's limits") {
    step_staging few_tokens(world::host, 2, 2, 2), few_sequences(world::host, 3, 1, 2);
    CHECK(test::error_message_of([&] { few_tokens.stage(some_batch()); }) ==
          "batch: it has 3 tokens; this runner was made for 2");
    CHECK(test::error_message_of([&] { few_sequences.stage(some_batch()); }) ==
          "batch: it has 2 sequences; this runner was made for 1");
}
