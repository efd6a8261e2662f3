// The scheduler, one scenario at a time. scheduler_random.cpp has thousands of random histories.
#include "engine/serving/scheduler.hpp"

#include "engine/serving/fake_runner.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/error.hpp>

#include <map>
#include <numeric>
#include <string>
#include <vector>

using namespace imbrex::engine;
using imbrex::engine::test::fake_runner;
using imbrex::engine::test::text_of;

namespace {

constexpr int vocabulary = 1000;

std::vector<int> counting(int count, int from = 0) {
    std::vector<int> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), from);
    return tokens;
}

// A scheduler and a fake runner, and all returned tokens.
struct server {
    explicit server(int blocks, int block_size = 4, scheduler_options options = {},
                    prefix_caching caching = prefix_caching::on)
        : plan(block_manager(blocks, block_size, caching), options), runner(blocks, block_size, vocabulary) {}

    sequence_id add(std::vector<int> prompt, int max_new_tokens = 0, int priority = 0) {
        return plan.add({.prompt = std::move(prompt),
                         .max_new_tokens = max_new_tokens,
                         .eos_tokens = {},
                         .sampling = {},
                         .priority = priority})[0];
    }

    // The batch, as text_of writes it.
    std::string step() {
        const batch work = plan.schedule();
        if (!work.entries.empty()) finish(work);
        return text_of(work);
    }

    void finish(const batch& work) {
        for (const progress& each : plan.finish(work, runner.run(work))) {
            given[each.id].push_back(each.token);
            reasons[each.id] = each.reason;
        }
    }

    void run_to_end() {
        for (int steps = 0; !plan.idle(); ++steps) {
            REQUIRE(steps < 1000);
            REQUIRE(step() != "");
        }
        CHECK(plan.blocks().used_bytes() == 0);
    }

    // The continuation of this prompt alone.
    static std::vector<int> alone(const std::vector<int>& prompt, int max_new_tokens, std::uint64_t seed = 0) {
        const std::vector<int> all =
            test::text_alone(prompt, seed, vocabulary, static_cast<int>(prompt.size()) + max_new_tokens, {});
        return {all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end()};
    }

    scheduler plan;
    fake_runner runner;
    std::map<sequence_id, std::vector<int>> given;
    std::map<sequence_id, finish_reason> reasons;
};

}  // namespace

TEST_CASE("Computes a prompt, then one token per step") {
    server all(8);
    const sequence_id id = all.add(counting(6), 3);
    CHECK(all.plan.waiting() == 1);
    CHECK(all.step() == "0: 0+6*");
    CHECK(all.plan.running() == 1);
    CHECK(all.plan.find(id)->state == sequence_state::running);
    CHECK(all.plan.find(id)->generated() == 1);
    CHECK(all.step() == "0: 6+1*");
    CHECK(all.step() == "0: 7+1*");
    CHECK(all.plan.idle());
    CHECK(all.plan.find(id) == nullptr);
    CHECK(all.step() == "");
    CHECK(all.given[id] == server::alone(counting(6), 3));
    CHECK(all.reasons[id] == finish_reason::length);
    CHECK(all.plan.blocks().used_bytes() == 0);
}

TEST_CASE("An EOS token ends the text and is returned") {
    server all(8);
    const int end = server::alone(counting(5), 3)[2];
    all.plan.add({.prompt = counting(5), .max_new_tokens = 10, .eos_tokens = {-1, end}, .sampling = {}});
    all.run_to_end();
    CHECK(all.given[0] == server::alone(counting(5), 3));
    CHECK(all.reasons[0] == finish_reason::eos_token);
}

TEST_CASE("Chunked prefill fills the budget left by decode") {
    server all(40, 4, {.max_num_batched_tokens = 8, .max_num_seqs = 3});
    all.add(counting(4), 8);
    CHECK(all.step() == "0: 0+4*");
    all.add(counting(20, 100), 2);
    all.add(counting(5, 200), 2);
    CHECK(all.step() == "0: 4+1*, 1: 0+7");
    CHECK(all.step() == "0: 5+1*, 1: 7+7");
    CHECK(all.step() == "0: 6+1*, 1: 14+6*, 2: 0+1");
    CHECK(all.step() == "0: 7+1*, 1: 20+1*, 2: 1+4*");
    all.run_to_end();
    CHECK(all.given[0] == server::alone(counting(4), 8));
    CHECK(all.given[1] == server::alone(counting(20, 100), 2));
    CHECK(all.given[2] == server::alone(counting(5, 200), 2));
}

TEST_CASE("Orders by priority, then arrival") {
    server all(40, 4, {.max_num_batched_tokens = 8, .max_num_seqs = 8});
    all.add(counting(6), 1);
    all.add(counting(6, 100), 1);
    all.add(counting(6, 200), 1, 5);
    CHECK(all.step() == "2: 0+6*, 0: 0+2");
    CHECK(all.step() == "0: 2+4*, 1: 0+4");
}

TEST_CASE("Rejects requests that can never fit") {
    server all(4, 4, {.context = 30});
    const auto error_message_of = [&](const request& wanted) {
        try {
            all.plan.add(wanted);
        } catch (const imbrex::invalid_argument& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const auto asks = [&](int prompt, int max_new_tokens) {
        return error_message_of(
            {.prompt = counting(prompt), .max_new_tokens = max_new_tokens, .eos_tokens = {}, .sampling = {}});
    };
    CHECK(asks(20, 11) == "prompt: its 20 tokens and 11 new ones are 31; the context has at most 30");
    CHECK(asks(30, 0) == "prompt: its 30 tokens and 1 new ones are 31; the context has at most 30");
    CHECK(asks(10, 8) ==
          "prompt: its 10 tokens and 8 new ones are 18; the cache has room for 17; more memory "
          "for it (--memory) or fewer new tokens help");
    CHECK(asks(5, 2147483647) ==
          "prompt: its 5 tokens and 2147483647 new ones are 2147483652; the context has at most 30");
    CHECK(asks(0, 5) == "prompt: it has no tokens; it must have at least one");
    CHECK(asks(5, -1) == "max_new_tokens: -1; it must be 0 (as many as fit) or more");
    CHECK(error_message_of({.prompt = {1}, .eos_tokens = {}, .sampling = {}, .samples = 0}) ==
          "samples: 0; it must be at least 1");
    CHECK(error_message_of({.prompt = {1}, .eos_tokens = {}, .sampling = {.bias = {}, .stop = {""}}}) ==
          "stop: a stop string is empty; it must have a character");
    CHECK(all.plan.idle());

    all.add(counting(10), 7);  // 16 tokens in the KV cache, and one that is not computed
    all.add(counting(10, 50), 0);
    all.run_to_end();
    CHECK(all.given[0] == server::alone(counting(10), 7));
    CHECK(all.given[1] == server::alone(counting(10, 50), 7));
}

TEST_CASE("Rejects invalid options") {
    const auto error_message_of = [](scheduler_options options) {
        CHECK_THROWS_AS(scheduler(block_manager(4), options), imbrex::invalid_argument);
    };
    error_message_of({.context = 1});
    error_message_of({.max_num_seqs = 0});
    error_message_of({.max_num_batched_tokens = 7, .max_num_seqs = 8});
}

TEST_CASE("Recomputes the last token of a fully cached prompt") {
    server all(16);
    all.add(counting(8), 1);
    CHECK(all.step() == "0: 0+8*");
    all.add(counting(8), 2);
    CHECK(all.step() == "1: 4+4*");  // both blocks are cached, only the first is used
    all.run_to_end();
    CHECK(all.given[1] == server::alone(counting(8), 2));
    all.add(counting(9), 1);
    CHECK(all.step() == "2: 8+1*");
    CHECK(all.plan.counts().cached_tokens == 12);
    CHECK(all.plan.counts().prompt_tokens == 25);
}

TEST_CASE("Uncomputed blocks of another sequence are no hits") {
    server all(32, 4, {.max_num_batched_tokens = 6, .max_num_seqs = 3});
    all.add(counting(13), 2);
    all.add(counting(13), 2);  // in the same batch no block is computed yet
    CHECK(all.step() == "0: 0+6");
    all.add(counting(13), 2);  // first block computed, second half computed, third not
    CHECK(all.step() == "0: 6+6");
    CHECK(all.plan.find(1)->num_computed_tokens == 0);
    CHECK(all.plan.find(2)->num_computed_tokens == 4);
    all.run_to_end();
    for (int i = 0; i < 3; ++i) CHECK(all.given[i] == server::alone(counting(13), 2));
}

TEST_CASE("Preempts the last in order if blocks run out; its text does not change") {
    for (const prefix_caching caching : {prefix_caching::on, prefix_caching::off}) {
        server all(6, 4, {}, caching);
        all.add(counting(7), 14);
        all.add(counting(7, 100), 14);
        while (all.plan.counts().preemptions == 0) REQUIRE(all.step() != "");
        const sequence* preempted = all.plan.find(1);
        CHECK(preempted->state == sequence_state::waiting);
        CHECK(preempted->num_computed_tokens == 0);
        CHECK(preempted->block_table.empty());
        CHECK(preempted->generated() > 0);
        CHECK(all.plan.find(0)->state == sequence_state::running);
        all.run_to_end();
        CHECK(all.given[0] == server::alone(counting(7), 14));
        CHECK(all.given[1] == server::alone(counting(7, 100), 14));
    }
}

TEST_CASE("A preempted sequence reuses its cached blocks") {
    server all(12, 4);
    all.add(counting(9), 20);
    CHECK(all.step() == "0: 0+9*");
    all.add(counting(36, 100), 1, 1);  // 9 of 12 blocks: preempts the other
    CHECK(all.step() == "1: 0+36*");
    CHECK(all.plan.counts().preemptions == 1);
    CHECK(all.step() == "0: 8+2*");  // its two full blocks are still cached
    all.run_to_end();
    CHECK(all.given[0] == server::alone(counting(9), 20));
}

TEST_CASE("A waiting sequence preempts lower priorities only, for blocks and for slots") {
    server all(16, 4, {.max_num_seqs = 2});
    all.add(counting(4), 6, 1);
    all.add(counting(4, 100), 6, 0);
    CHECK(all.step() == "0: 0+4*, 1: 0+4*");
    all.add(counting(4, 200), 6, 0);
    CHECK(all.step() == "0: 4+1*, 1: 4+1*");
    all.add(counting(4, 300), 6, 1);
    CHECK(all.step() == "0: 5+1*, 3: 0+4*");
    CHECK(all.plan.counts().preemptions == 1);
    all.run_to_end();
    for (int i = 0; i < 4; ++i) CHECK(all.given[i] == server::alone(counting(4, 100 * i), 6));
    CHECK(all.plan.counts().preemptions == 1);
}

TEST_CASE("No sequence overtakes a long prompt that waits for blocks") {
    server all(8, 4);
    all.add(counting(12), 6);
    CHECK(all.step() == "0: 0+12*");
    all.add(counting(20, 100), 2);
    all.add(counting(1, 200), 2);
    CHECK(all.step() == "0: 12+1*");
    CHECK(all.plan.waiting() == 2);
    all.run_to_end();
}

TEST_CASE("The last in order waits with its blocks until others are freed") {
    server all(5, 4);
    all.add(counting(10), 5);
    CHECK(all.step() == "0: 0+10*");
    all.add(counting(2, 100), 6);
    CHECK(all.step() == "0: 10+1*, 1: 0+2*");
    CHECK(all.step() == "0: 11+1*, 1: 2+1*");
    CHECK(all.step() == "0: 12+1*, 1: 3+1*");
    CHECK(all.plan.blocks().pool(0).num_free() == 0);
    CHECK(all.step() == "0: 13+1*");
    CHECK(all.step() == "1: 4+1*");
    CHECK(all.plan.counts().preemptions == 0);
    all.run_to_end();
    CHECK(all.given[0] == server::alone(counting(10), 5));
    CHECK(all.given[1] == server::alone(counting(2, 100), 6));
}

TEST_CASE("Cancels a sequence at any time and frees its blocks") {
    server all(8, 4, {.max_num_batched_tokens = 4, .max_num_seqs = 2});
    all.add(counting(10), 4);
    all.add(counting(4, 100), 4);
    all.add(counting(4, 200), 4);
    CHECK(all.plan.cancel(2));  // waiting
    CHECK_FALSE(all.plan.cancel(2));
    CHECK_FALSE(all.plan.cancel(7));
    CHECK(all.step() == "0: 0+4");
    const batch work = all.plan.schedule();
    CHECK(all.plan.cancel(0));  // in the batch, half of its prompt computed
    CHECK(work.entries[0].sequence->state == sequence_state::cancelled);
    CHECK(work.entries[0].sequence->reason == finish_reason::cancelled);
    CHECK(work.entries[0].sequence->block_table.groups[0].size() == 3);  // kept while the batch may write them
    all.finish(work);
    CHECK(all.given.count(0) == 0);
    CHECK(all.step() == "1: 0+4*");
    CHECK(all.plan.cancel(1));  // running
    CHECK(all.plan.idle());
    CHECK(all.plan.blocks().used_bytes() == 0);
}

TEST_CASE("Drops a token of a sequence cancelled during the step") {
    server all(8);
    all.add(counting(5), 4);
    all.add(counting(5, 100), 4);
    all.step();
    const batch work = all.plan.schedule();
    all.plan.cancel(0);
    all.finish(work);
    CHECK(all.given[0].size() == 1);
    all.run_to_end();
    CHECK(all.given[1] == server::alone(counting(5, 100), 4));
}

TEST_CASE("Samples share the prompt: computed once, last block copied for each") {
    server all(32);
    const auto ids = all.plan.add({.prompt = counting(10),
                                   .max_new_tokens = 9,
                                   .eos_tokens = {},
                                   .sampling = {.bias = {}, .seed = 40, .stop = {}},
                                   .samples = 3});
    CHECK(ids == std::vector<sequence_id>{0, 1, 2});
    CHECK(all.step() == "0: 0+10*");
    const batch work = all.plan.schedule();
    CHECK(work.copies.size() == 2);
    CHECK(work.tokens() == 3);
    const auto& first = work.entries[0].sequence->block_table.groups[0];
    for (int i = 1; i < 3; ++i) {
        const auto& blocks = work.entries[static_cast<std::size_t>(i)].sequence->block_table.groups[0];
        CHECK(blocks[0] == first[0]);
        CHECK(blocks[1] == first[1]);
        CHECK(blocks[2] != first[2]);
        CHECK(work.copies[static_cast<std::size_t>(i - 1)].from == first[2]);
        CHECK(work.copies[static_cast<std::size_t>(i - 1)].to == blocks[2]);
    }
    CHECK(all.plan.blocks().pool(0).ref_count(first[0]) == 3);
    all.finish(work);
    all.run_to_end();
    for (int i = 0; i < 3; ++i)
        CHECK(all.given[i] == server::alone(counting(10), 9, 40 + static_cast<std::uint64_t>(i)));
    CHECK(all.given[0] != all.given[1]);
}

TEST_CASE("A sample whose prompt fills its last block recomputes the last token in a copy") {
    server all(32);
    all.plan.add({.prompt = counting(8), .max_new_tokens = 5, .eos_tokens = {}, .sampling = {}, .samples = 2});
    CHECK(all.step() == "0: 0+8*");
    CHECK(all.step() == "0: 8+1*, 1: 7+1*");
    CHECK(all.plan.counts().copies == 1);
    all.run_to_end();
    CHECK(all.given[1] == server::alone(counting(8), 5, 1));
}

TEST_CASE("Samples continue if the first is cancelled, before or after sharing") {
    for (const int steps : {0, 1, 2}) {
        server all(32);
        all.plan.add({.prompt = counting(10), .max_new_tokens = 5, .eos_tokens = {}, .sampling = {}, .samples = 2});
        for (int i = 0; i < steps; ++i) all.step();
        all.plan.cancel(0);
        all.run_to_end();
        CHECK(all.given[1] == server::alone(counting(10), 5, 1));
    }
}

TEST_CASE("Frees source and copy if cancelled between schedule and finish") {
    for (const sequence_id cancelled : {0, 1}) {
        server all(32);
        all.plan.add({.prompt = counting(10), .max_new_tokens = 5, .eos_tokens = {}, .sampling = {}, .samples = 2});
        all.step();
        const batch work = all.plan.schedule();
        REQUIRE(work.copies.size() == 1);
        all.plan.cancel(cancelled);
        all.finish(work);
        all.run_to_end();
        const sequence_id other = 1 - cancelled;
        CHECK(all.given[other] == server::alone(counting(10), 5, static_cast<std::uint64_t>(other)));
    }
}

TEST_CASE("A fork continues from the current tokens") {
    server all(32);
    all.add(counting(5), 12);
    for (int i = 0; i < 6; ++i) all.step();
    const sequence_id fork = all.plan.fork(0, 77);
    std::vector<int> so_far = all.plan.find(0)->tokens;
    CHECK(all.step() == "0: 10+1*, 1: 10+1*");
    all.run_to_end();
    CHECK(all.given[0] == server::alone(counting(5), 12));
    CHECK(all.given[fork] == server::alone(so_far, 6, 77));
    CHECK_THROWS_WITH_AS(all.plan.fork(0, 1), "fork: there is no sequence 0; it must not have ended",
                         imbrex::invalid_argument);
}

TEST_CASE(
    "A fork of a waiting fork shares the first parent's blocks: a copied block cannot be copied again in the same "
    "batch") {
    server all(32);
    all.add(counting(5), 12);
    all.step();
    const std::vector<int> so_far = all.plan.find(0)->tokens;
    all.plan.fork(all.plan.fork(0, 77), 78);
    const batch work = all.plan.schedule();
    REQUIRE(work.copies.size() == 2);
    CHECK(work.copies[0].from == work.copies[1].from);
    all.finish(work);
    all.run_to_end();
    CHECK(all.given[1] == server::alone(so_far, 11, 77));
    CHECK(all.given[2] == server::alone(so_far, 11, 78));
}

TEST_CASE("A fork survives the preemption of its parent") {
    server all(16, 4);
    all.add(counting(5), 12);
    for (int i = 0; i < 3; ++i) all.step();
    const std::vector<int> so_far = all.plan.find(0)->tokens;
    all.plan.fork(0, 77);
    all.add(counting(58, 100), 2, 9);  // uses all blocks
    CHECK(all.step() == "2: 0+58*");
    CHECK(all.plan.waiting() == 2);
    all.run_to_end();
    CHECK(all.given[0] == server::alone(counting(5), 12));
    CHECK(all.given[1] == server::alone(so_far, 9, 77));
}

TEST_CASE("Recomputes all sequences after an abandoned batch") {
    server all(32);
    all.plan.add({.prompt = counting(10), .max_new_tokens = 5, .eos_tokens = {}, .sampling = {}, .samples = 3});
    all.step();
    const batch work = all.plan.schedule();
    CHECK(work.copies.size() == 2);
    all.plan.abandon(work);
    CHECK(all.plan.blocks().used_bytes() == 0);
    CHECK(all.plan.waiting() == 3);
    all.run_to_end();
    for (int i = 0; i < 3; ++i) CHECK(all.given[i] == server::alone(counting(10), 5, static_cast<std::uint64_t>(i)));
}

TEST_CASE("A batch finishes once, with one token per sampling entry") {
    server all(8);
    all.add(counting(5), 4);
    const batch work = all.plan.schedule();
    CHECK_THROWS_WITH_AS(all.plan.schedule(), "schedule: the previous batch is in flight; call finish or abandon first",
                         imbrex::invalid_argument);
    CHECK_THROWS_WITH_AS(all.plan.finish(work, std::vector{1, 2}),
                         "sampled: 2 tokens; the batch has 1 sampled positions", imbrex::invalid_argument);
    all.finish(work);
    CHECK_THROWS_WITH_AS(all.plan.finish(work, std::vector{1}), "batch: none is in flight; call schedule first",
                         imbrex::invalid_argument);
}

TEST_CASE("Packs a batch into arrays") {
    const auto sequence_of = [](std::vector<int> tokens, std::vector<std::vector<int>> blocks) {
        return std::make_shared<sequence>(
            sequence{.tokens = std::move(tokens), .block_table = {.groups = std::move(blocks)}});
    };
    const auto long_one = sequence_of(counting(9), {{5, 3, 8, 1}, {no_block, 6, 2}});
    const auto short_one = sequence_of({20, 21}, {{7}, {4}});
    const batch work{.copies = {},
                     .entries = {{.sequence = long_one, .first = 4, .count = 5, .samples = true},
                                 {.sequence = short_one, .first = 0, .count = 1, .samples = false},
                                 {.sequence = short_one, .first = 1, .count = 1, .samples = true}}};
    const packed_batch packed = pack_batch(work, 4);
    CHECK(packed.input_ids == std::vector{4, 5, 6, 7, 8, 20, 21});
    CHECK(packed.cu_seqlens_q == std::vector{0, 5, 6, 7});
    CHECK(packed.seqused_k == std::vector{9, 1, 2});
    CHECK(packed.max_blocks_per_seq == 4);
    CHECK(packed.block_tables == std::vector{5, 3, 8, 0, 7, 0, 0, 0, 7, 0, 0, 0});
    CHECK(packed.logits_indices == std::vector{4, 6});
    CHECK(work.tokens() == 7);
    CHECK(work.samples() == 2);
    CHECK(pack_batch(work, 4, 2).block_tables ==
          std::vector{5, 3, 8, 0, 7, 0, 0, 0, 7, 0, 0, 0, 0, 6, 2, 0, 4, 0, 0, 0, 4, 0, 0, 0});
}

TEST_CASE("Rounds max_blocks_per_seq to few values") {
    CHECK(padded_blocks_per_seq(1) == 1);
    CHECK(padded_blocks_per_seq(2) == 2);
    CHECK(padded_blocks_per_seq(5) == 8);
    CHECK(padded_blocks_per_seq(64) == 64);
    CHECK(padded_blocks_per_seq(65) == 128);
}
