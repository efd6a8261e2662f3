// Steps in flight: a batch whose input tokens the batch before samples, on a CPU and on a GPU. The tokens and the
// log-probabilities are those of steps one after another, also when rows move, sequences end and CUDA graphs are replayed.
#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/on_cuda.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/serving/engine.hpp"

namespace imbrex::engine::test {

namespace {

struct generated {
    std::vector<int> tokens{};
    std::vector<float> logprobs{};
    std::vector<int> tops{};
    finish_reason reason = finish_reason::none;
    bool operator==(const generated&) const = default;
};

// The same requests in all calls: long and short prompts, biases, log-probabilities, penalties, EOS tokens.
request request_of(unsigned number, int vocabulary, float temperature) {
    std::mt19937 chance(number);
    const auto below = [&](int count) { return static_cast<int>(chance() % static_cast<unsigned>(count)); };
    request wanted{.prompt = random_tokens(1 + below(40), vocabulary, number % 5),
                   .max_new_tokens = 1 + below(24),
                   .eos_tokens = {},
                   .sampling = {.temperature = temperature, .bias = {}, .seed = chance(), .stop = {}}};
    if (below(3) == 0) wanted.sampling.logprobs = 1 + below(3);
    if (below(3) == 0) wanted.sampling.bias = {{below(vocabulary), 4.0f}};
    if (below(9) == 0) wanted.sampling.repetition_penalty = 1.2f;
    if (below(2) == 0) {
        for (int i = 0; i < vocabulary / 16; ++i) wanted.eos_tokens.push_back(below(vocabulary));
    }
    return wanted;
}

struct outcome {
    std::map<sequence_id, generated> texts{};
    statistics_summary sums{};
};

outcome serve(const model_files& files, const runner_options& options, bool overlaps, float temperature) {
    const auto with = make_runner(files, options);
    engine all(*with, block_manager(kv_cache_groups(files.config, options), options.block_size),
               {.context = files.config.context,
                .max_num_batched_tokens = options.max_num_batched_tokens,
                .max_num_seqs = options.max_num_seqs,
                .separate_prefill = options.batch_invariant});
    if (overlaps) all.overlap_steps();
    outcome found;
    constexpr unsigned requests = 24;
    for (unsigned next = 0; next < requests || !all.idle();) {
        for (int i = 0; i < 2 && next < requests; ++i)
            all.add(request_of(next++, files.config.vocab_size, temperature));
        for (const event& each : all.step()) {
            generated& it = found.texts[each.id];
            it.tokens.push_back(each.sampled.token);
            it.logprobs.push_back(each.sampled.logprob);
            for (const token_logprob& top : each.sampled.top_logprobs) it.tops.push_back(top.token);
            it.reason = each.reason;
        }
    }
    CHECK(all.blocks().used_bytes() == 0);
    found.sums = all.summary();
    return found;
}

model_files small_model() {
    model_config config = small_config(model_family::llama);
    config.layers = 2;
    return random_model(config, weight_type::bf16);
}

}  // namespace

TEST_CASE("On a CPU: steps that overlap give the bits of steps one after another") {
    const model_files files = small_model();
    const runner_options options{.num_kv_blocks = 24, .max_num_batched_tokens = 32, .max_num_seqs = 6};
    const outcome expected = serve(files, options, false, 1), found = serve(files, options, true, 1);
    CHECK(found.texts.size() == 24);
    CHECK(found.texts == expected.texts);
    CHECK(found.sums.steps_ahead > found.sums.steps / 4);
    CHECK(!found.sums.device_idle_seconds);
}

TEST_CASE("A third batch in flight is refused") {
    const model_files files = small_model();
    const auto with = runner_of(files);
    batch work;
    work.entries.push_back({.sequence = sequence_in({1, 2}, {0}), .first = 0, .count = 2, .samples = true});
    CHECK(error_message_of([&] { with->wait(); }) == "wait: no batch is in flight; call launch first");
    with->launch(work);
    with->launch(work);
    CHECK(error_message_of([&] { with->launch(work); }) == "launch: two batches are in flight; call wait first");
    CHECK(with->wait() == with->wait());
}

// With invariance the logits do not depend on the batch, whose sequences the overlap changes.
TEST_CASE("On a GPU: steps that overlap give the bits of steps one after another") {
    if (!cuda_is_available()) return;
    model_config config = small_config(model_family::llama);
    config.layers = 2;
    config.head_dim = 64;
    const model_files files = random_model(config, weight_type::bf16);
    const runner_options options{.where = world::device,
                                 .num_kv_blocks = 24,
                                 .max_num_batched_tokens = 32,
                                 .max_num_seqs = 6,
                                 .batch_invariant = true};
    for (const float temperature : {0.0f, 1.0f}) {
        const outcome expected = serve(files, options, false, temperature);
        const outcome found = serve(files, options, true, temperature);
        CHECK(found.texts == expected.texts);
        CHECK(found.sums.steps_ahead > found.sums.steps / 4);
        REQUIRE(found.sums.device_idle_seconds);
        CHECK(*found.sums.device_idle_seconds >= 0);
        CHECK(*found.sums.device_idle_seconds < found.sums.busy_seconds);
    }
}

}  // namespace imbrex::engine::test
