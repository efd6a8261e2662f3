// Generated texts on a GPU. If two tokens have almost equal logits, bf16 rounding decides; texts are therefore compared
// with the float64 reference, and with golden texts where the reference has a clear best token.
#include "engine/serving/text_engine.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/golden_tales.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/on_cuda.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/serving/engine.hpp"
#include "engine/support.hpp"
#include "random_below.hpp"

namespace imbrex::engine::test {

namespace {

text_options greedy(int tokens, incremental_detokenizer::text_position position =
                                    incremental_detokenizer::text_position::continuation) {
    return {.max_tokens = tokens, .sampling = {.temperature = 0, .bias = {}, .stop = {}}, .position = position};
}

// The margin below which the best token of the tales model is uncertain in bf16 (best logits are above 10). In the host
// world the error of a difference is at most 0.025.
constexpr double tale_margin = 0.1;

// Whether the best token is certain.
bool is_sure(const row& expected, double margin) {
    int candidates = 0;
    for (int token = 0; token < static_cast<int>(expected.size()); ++token) {
        candidates += could_be_best(expected, token, margin) ? 1 : 0;
    }
    return candidates == 1;
}

}  // namespace

// The margin of the first 50 tokens is at least 0.13; rounding in the host world is 0.06.
TEST_CASE("On a GPU: stories260K generates the start of its golden story") {
    if (!cuda_is_available()) return;
    for (const char* name : {"stories260K.bin", "stories260K.gguf"}) {
        CAPTURE(std::string(name));
        const auto path = shared_file(std::string("stories260K/") + name);
        const auto story_path = shared_file("stories260K/golden-greedy-200.txt");
        if (!path || !story_path) return;
        text_engine model(open_model(*path), {.where = world::device, .max_num_seqs = 2});
        model.submit(std::vector<int>{*model.config().bos_token},
                     greedy(50, incremental_detokenizer::text_position::beginning));
        std::string story;
        std::vector<int> tokens{*model.config().bos_token};
        while (!model.idle()) {
            for (const text_event& one : model.step()) {
                story += one.text;
                tokens.push_back(one.sampled.token);
            }
        }
        CHECK(tokens.size() == 51);
        CHECK(story.size() > 100);
        CHECK(content(*story_path).starts_with(story));

        const model_files files = open_model(*path);
        const rows expected = reference_logits(files.config, files.weights, tokens);
        const auto with = runner_on_cuda(files);
        for (const std::vector<int>& chunks : {std::vector<int>(51, 1), {20, 30, 1}}) {
            const auto sequence = sequence_in(tokens, {4, 1, 7, 2});
            const rows logits = logits_of_chunks(*with, sequence, chunks, files.config.vocab_size);
            CHECK(largest_distance(logits, at_ends(expected, chunks)) < cuda_rounding);
        }
    }
}

TEST_CASE("On a GPU: next tokens of the golden tales match where the margin is clear") {
    if (!cuda_is_available()) return;
    const std::vector<golden_tale> tales = golden_tales();
    if (tales.empty()) return;
    const model_files files = open_model(tales_folder());
    const auto with = runner_on_cuda(files);
    int all = 0, sure = 0;
    for (const golden_tale& tale : tales) {
        CAPTURE(tale.prompt);
        std::vector<int> tokens = tale.prompt_ids, chunks{static_cast<int>(tokens.size())};
        tokens.insert(tokens.end(), tale.greedy_ids.begin(), tale.greedy_ids.end());
        chunks.resize(tale.greedy_ids.size(), 1);
        const rows expected = at_ends(reference_logits(files.config, files.weights, tokens), chunks);
        const auto sequence = sequence_in(tokens, blocks_from(2, static_cast<int>(tokens.size()) / 16 + 1));
        const rows logits = logits_of_chunks(*with, sequence, chunks, files.config.vocab_size);
        for (std::size_t i = 0; i < logits.size(); ++i) {
            CAPTURE(i);
            ++all;
            if (!is_sure(expected[i], tale_margin)) continue;
            ++sure;
            CHECK(best_token(logits[i]) == tale.greedy_ids[i]);
        }
    }
    CHECK(sure > all / 4 * 3);
}

TEST_CASE("On a GPU: batched tales choose tokens within the rounding of the best") {
    if (!cuda_is_available()) return;
    const std::vector<golden_tale> tales = golden_tales();
    if (tales.empty()) return;
    const model_files files = open_model(tales_folder());
    text_engine model(open_model(tales_folder()),
                      {.where = world::device, .max_num_batched_tokens = 40, .max_num_seqs = 8});
    std::map<sequence_id, std::vector<int>> texts;
    std::map<sequence_id, std::size_t> prompts;
    for (const golden_tale& tale : tales) {
        const sequence_id id = model.submit(tale.prompt_ids, greedy(static_cast<int>(tale.greedy_ids.size())));
        texts[id] = tale.prompt_ids;
        prompts[id] = tale.prompt_ids.size();
    }
    while (!model.idle()) {
        for (const text_event& one : model.step()) texts[one.id].push_back(one.sampled.token);
    }
    for (const auto& [id, tokens] : texts) {
        CAPTURE(id);
        CHECK(tokens.size() > prompts[id]);
        const rows expected = reference_logits(files.config, files.weights, tokens);
        for (std::size_t at = prompts[id]; at < tokens.size(); ++at) {
            CAPTURE(at);
            CHECK(could_be_best(expected[at - 1], tokens[at], tale_margin));
        }
    }
}

TEST_CASE("On a GPU: a small KV cache serves many requests with preemption, cancellation and shared prefixes") {
    if (!cuda_is_available()) return;
    std::int64_t preemptions = 0, cancelled = 0;
    double prefix_cache_hit_rate = 0;
    for (unsigned seed = 0; seed < 4; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const imbrex_test::random_below below(random);
        model_config config = small_config(static_cast<model_family>(seed % 3));
        config.layers = 2;
        config.head_dim = seed == 3 ? 16 : seed == 2 ? 128 : 64;
        const model_files files = random_model(config, weight_type::bf16, seed);
        const auto with = runner_on_cuda(files, {.num_kv_blocks = 12, .max_num_batched_tokens = 40, .max_num_seqs = 6});
        engine<runner> serving(*with, block_manager(kv_cache_groups(config, {.num_kv_blocks = 12})),
                               {.context = 150, .max_num_batched_tokens = 40, .max_num_seqs = 6});
        const std::vector<int> stem = random_tokens(50, config.vocab_size, seed);
        std::map<sequence_id, std::vector<int>> texts;
        std::map<sequence_id, std::size_t> prompts;
        for (int left = 25; left > 0 || !serving.idle();) {
            if (left > 0 && below(2) == 0) {
                --left;
                request wanted;
                wanted.prompt.assign(stem.begin(), stem.begin() + below(50));
                for (const int token : random_tokens(1 + below(5), config.vocab_size, random())) {
                    wanted.prompt.push_back(token);
                }
                wanted.max_new_tokens = 1 + below(40);
                wanted.samples = 1 + below(4) / 3;
                wanted.priority = below(3);
                wanted.sampling.temperature = 0;
                for (const sequence_id id : serving.add(wanted)) {
                    texts[id] = wanted.prompt;
                    prompts[id] = wanted.prompt.size();
                }
            }
            if (below(8) == 0) serving.cancel(below(static_cast<int>(texts.size()) + 1));
            for (const event& one : serving.step()) texts[one.id].push_back(one.sampled.token);
        }
        for (const auto& [id, tokens] : texts) {
            CAPTURE(id);
            const rows expected = reference_logits(config, files.weights, tokens);
            for (std::size_t at = prompts[id]; at < tokens.size(); ++at) {
                CAPTURE(at);
                CHECK(could_be_best(expected[at - 1], tokens[at], margin_of_rounding(expected[at - 1])));
            }
        }
        CHECK(serving.blocks().used_bytes() == 0);
        preemptions += serving.summary().preemptions;
        cancelled += serving.summary().cancelled;
        prefix_cache_hit_rate = std::max(prefix_cache_hit_rate, serving.summary().prefix_cache_hit_rate);
    }
    CHECK(preemptions > 10);
    CHECK(cancelled > 5);
    CHECK(prefix_cache_hit_rate > 0.1);
}

}  // namespace imbrex::engine::test
