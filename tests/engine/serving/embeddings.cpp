// Embeddings of the text engine against the float64 reference: chunks, several prompts in a step, prefix cache, cancelling
// and preemption.
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "engine/loading/random_model.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/on_cuda.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/serving/text_engine.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

model_files tiny() {
    return random_model(config_of_known_model("tiny"), 1);
}

engine_options exact(int batched_tokens, int sequences) {
    return {.weights = weight_format::f32,
            .kv_cache = kv_cache_format::f32,
            .context = 256,
            .max_num_batched_tokens = batched_tokens,
            .max_num_seqs = sequences};
}

text_options embedding(pooling_mode pooling) {
    text_options options{.max_tokens = 1, .ends = false};
    options.sampling.temperature = 0;
    options.pooling = pooling;
    return options;
}

text_options text(int tokens, int priority = 0) {
    text_options options{.max_tokens = tokens, .ends = false, .priority = priority};
    options.sampling.temperature = 0;
    return options;
}

row expected_embedding(const model_files& files, const std::vector<int>& prompt, pooling_mode pooling) {
    const rows states = reference_model(files.config, files.weights).hidden_states(prompt);
    if (pooling == pooling_mode::last) return states.back();
    row mean(states.front().size());
    for (const row& each : states) {
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += each[i] / static_cast<double>(states.size());
    }
    return mean;
}

// Runs to the end; the last event of each sequence.
std::map<sequence_id, text_event> last_events(text_engine& model) {
    std::map<sequence_id, text_event> all;
    while (!model.idle()) {
        for (text_event& each : model.step()) all[each.id] = std::move(each);
    }
    return all;
}

double distance_of(const text_event& found, const row& expected) {
    return distance(row(found.sampled.embedding.begin(), found.sampled.embedding.end()), expected);
}

// Of several prompts in a step, between texts.
void check_against_reference(const engine_options& options, double tolerance) {
    const model_files files = tiny();
    text_engine model(tiny(), options);
    std::map<sequence_id, row> expected;
    unsigned seed = 0;
    for (const int length : {1, 2, 16, 33, 64, 65, 150}) {
        for (const pooling_mode pooling : {pooling_mode::mean, pooling_mode::last}) {
            const std::vector<int> prompt = random_tokens(length, files.config.vocab_size, ++seed);
            expected[model.submit(prompt, embedding(pooling))] = expected_embedding(files, prompt, pooling);
            model.submit(prompt, text(3));
        }
    }
    const auto found = last_events(model);
    for (const auto& [id, values] : expected) {
        CAPTURE(id);
        CHECK(found.at(id).reason == finish_reason::length);
        CHECK(distance_of(found.at(id), values) < tolerance);
    }
}

}  // namespace

TEST_CASE("Embeddings match the reference, whatever the chunks and the batch") {
    for (const int batched_tokens : {8, 50, 256}) {
        CAPTURE(batched_tokens);
        check_against_reference(exact(batched_tokens, 4), 1e-4);
    }
}

TEST_CASE("Embeddings on a GPU") {
    if (!cuda_is_available()) return;
    for (const bool overlap : {false, true}) {
        CAPTURE(overlap);
        engine_options options{.where = world::device,
                               .context = 256,
                               .max_num_batched_tokens = 50,
                               .max_num_seqs = 4,
                               .overlap = overlap};
        check_against_reference(options, cuda_rounding);
    }
}

TEST_CASE("Embeddings and the prefix cache") {
    const model_files files = tiny();
    text_engine model(tiny(), exact(64, 4));
    const std::vector<int> prompt = random_tokens(100, files.config.vocab_size, 1);
    const auto run = [&](const text_options& options) {
        const sequence_id id = model.submit(prompt, options);
        return last_events(model).at(id);
    };
    CHECK(run(text(2)).cached_tokens == 0);
    const text_event last = run(embedding(pooling_mode::last)), mean = run(embedding(pooling_mode::mean));
    CHECK(last.cached_tokens == 96);
    CHECK(mean.cached_tokens == 0);
    CHECK(distance_of(last, expected_embedding(files, prompt, pooling_mode::last)) < 1e-4);
    CHECK(distance_of(mean, expected_embedding(files, prompt, pooling_mode::mean)) < 1e-4);
    CHECK(run(text(2)).cached_tokens == 96);
    CHECK(run(text(2)).sampled.embedding.empty());
}

TEST_CASE("Embeddings that are cancelled or preempted in the middle of a prompt") {
    const model_files files = tiny();
    engine_options options = exact(16, 4);
    options.kv_cache_bytes = 10 * kv_cache_groups(files.config, {.kv_cache = options.kv_cache})[0].block_bytes;
    text_engine model(tiny(), options);
    unsigned seed = 0;
    const auto new_prompt = [&](int length) { return random_tokens(length, files.config.vocab_size, ++seed); };

    const sequence_id cancelled = model.submit(new_prompt(120), embedding(pooling_mode::mean));
    for (int i = 0; i < 3; ++i) CHECK(model.step().empty());
    CHECK(model.cancel(cancelled));
    CHECK(model.idle());
    CHECK(model.cache().min_free() == 10);

    for (const pooling_mode pooling : {pooling_mode::mean, pooling_mode::last}) {
        const auto preempted = model.summary().preemptions;
        const std::vector<int> prompt = new_prompt(120);
        const sequence_id id = model.submit(prompt, embedding(pooling));
        for (int i = 0; i < 4; ++i) CHECK(model.step().empty());
        model.submit(new_prompt(100), text(4, 1));
        CHECK(distance_of(last_events(model).at(id), expected_embedding(files, prompt, pooling)) < 1e-4);
        CHECK(model.summary().preemptions > preempted);
    }
}

TEST_CASE("An embedding has one sample of one token") {
    text_engine model(tiny(), exact(64, 4));
    text_options options = embedding(pooling_mode::mean);
    options.max_tokens = 2;
    check_error_message("pooling: with 2 new tokens", [&] { model.submit("Hello", options); });
}

}  // namespace imbrex::engine::test
