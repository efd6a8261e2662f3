// The model on a CPU against the float64 reference: every family and RoPE variant, any chunking of prompts and any
// block tables.
#include "engine/loading/model_files.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "engine/golden_tales.hpp"
#include "engine/model/model_variants.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/serving/engine.hpp"
#include "engine/support.hpp"
#include "engine/transformers.hpp"
#include "random_below.hpp"

namespace imbrex::engine::test {

namespace {

model_files model_of(const variant& which) {
    return random_model(config_of(which));
}

}  // namespace

TEST_CASE("Logits of every family match the reference, in one step, in chunks and token by token") {
    for (const variant& which : all_variants()) {
        CAPTURE(std::string(which.name));
        const model_files files = model_of(which);
        const int vocabulary = files.config.vocab_size;
        const std::vector<int> tokens = random_tokens(50, vocabulary, 7);
        const rows expected = reference_logits(files.config, files.weights, tokens);
        const auto with = runner_of(files);
        const std::vector<std::vector<int>> cuts{
            {50}, {16, 16, 18}, {1, 15, 17, 2, 15}, {7, 7, 7, 7, 7, 7, 8}, std::vector<int>(50, 1)};
        // Shuffled blocks with stale content of the previous chunking.
        const auto sequence = sequence_in(tokens, {9, 3, 17, 0});
        for (const std::vector<int>& chunks : cuts) {
            CAPTURE(chunks.size());
            const double here =
                largest_distance(logits_of_chunks(*with, sequence, chunks, vocabulary), at_ends(expected, chunks));
            CHECK(here < fp32_rounding);
            for (auto& table : sequence->block_table.groups) std::ranges::reverse(table);
        }
    }
}

TEST_CASE("Sequences of a mixed batch are independent") {
    for (const variant& which : all_variants()) {
        CAPTURE(std::string(which.name));
        const model_files files = model_of(which);
        const int vocabulary = files.config.vocab_size;
        const auto with = runner_of(files);
        std::vector<std::shared_ptr<sequence>> sequences;
        std::vector<rows> expected;
        int block = 23;
        for (const int length : {1, 16, 17, 33, 40}) {
            std::vector<int> blocks;
            for (int i = 0; i < (length + 15) / 16; ++i) blocks.push_back(block--);
            sequences.push_back(sequence_in(random_tokens(length, vocabulary, static_cast<unsigned>(length)), blocks));
            expected.push_back(reference_logits(files.config, files.weights, sequences.back()->tokens));
        }
        // Tokens computed after each batch, per sequence: prompts, chunks and single tokens mixed. The fourth is
        // sampled only at its end.
        const std::vector<std::vector<int>> steps{
            {1, 5, 16, 20, 1}, {1, 15, 17, 20, 2}, {1, 16, 17, 32, 3}, {1, 16, 17, 33, 40}};
        std::vector<int> done(sequences.size());
        for (const std::vector<int>& step : steps) {
            batch work;
            rows wanted;
            for (std::size_t i = 0; i < step.size(); ++i) {
                if (step[i] == done[i]) continue;
                const bool samples = i != 3 || step[i] == 33;
                work.entries.push_back({sequences[i], done[i], step[i] - done[i], samples});
                if (samples) wanted.push_back(expected[i][static_cast<std::size_t>(step[i]) - 1]);
            }
            CHECK(largest_distance(run_logits(*with, work, vocabulary), wanted) < fp32_rounding);
            done = step;
        }
    }
}

TEST_CASE("Models of random sizes match the reference") {
    for (unsigned seed = 0; seed < 20; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const imbrex_test::random_below below(random);
        model_config config = small_config(static_cast<model_family>(below(3)));
        config.layers = 1 + below(2);
        config.hidden_size = 1 + below(90);
        config.intermediate_size = 1 + below(120);
        config.kv_heads = 1 + below(3);
        config.heads = config.kv_heads * (1 + below(6));
        config.head_dim = 8 * (1 + below(below(4) == 0 ? 20 : 8));
        config.vocab_size = 26 + below(200);
        config.tie_word_embeddings = below(2) == 0;
        config.set_windows(below(3) == 0 ? 1 + below(20) : 0, [](int) { return true; });
        config.rope.style = below(2) == 0 ? rope_style::half_split : rope_style::interleaved;
        CAPTURE(config.hidden_size);
        CAPTURE(config.intermediate_size);
        CAPTURE(config.heads);
        CAPTURE(config.kv_heads);
        CAPTURE(config.head_dim);
        const model_files files = random_model(config, weight_type::f32, seed);
        const std::vector<int> tokens = random_tokens(1 + below(60), config.vocab_size, seed);
        std::vector<int> chunks;
        for (int left = static_cast<int>(tokens.size()); left > 0; left -= chunks.back())
            chunks.push_back(below(2) == 0 ? 1 : 1 + below(left));
        const rows logits =
            logits_of_chunks(*runner_of(files), sequence_in(tokens, {7, 1, 4, 20}), chunks, config.vocab_size);
        CHECK(largest_distance(logits, at_ends(reference_logits(config, files.weights, tokens), chunks)) <
              fp32_rounding);
    }
}

TEST_CASE("A batch without sampling fills the KV cache and returns no logits") {
    const model_files files = model_of(variants().front());
    const auto with = runner_of(files);
    const auto sequence = sequence_in(random_tokens(20, files.config.vocab_size, 5), {2, 1});
    batch work;
    work.entries.push_back({sequence, 0, 19, false});
    CHECK(run_logits(*with, work, files.config.vocab_size).empty());
    work.entries.front() = {sequence, 19, 1, true};
    const rows expected = reference_logits(files.config, files.weights, sequence->tokens);
    CHECK(largest_distance(run_logits(*with, work, files.config.vocab_size), {expected.back()}) < fp32_rounding);
}

TEST_CASE("Shares blocks and copies them before writes") {
    for (const variant& which : all_variants()) {
        CAPTURE(std::string(which.name));
        const model_files files = model_of(which);
        const int vocabulary = files.config.vocab_size;
        const auto with = runner_of(files);
        const std::vector<int> beginning = random_tokens(24, vocabulary, 11);
        const auto first = sequence_in(beginning, {5, 2});
        logits_of_chunks(*with, first, std::vector{24}, vocabulary);

        // Two continuations read block 5; one writes to block 2, the other to a copy of it. A third shares only the
        // first block.
        const auto continued = [&](std::size_t kept, unsigned seed, std::vector<int> blocks) {
            std::vector<int> tokens(beginning.begin(), beginning.begin() + static_cast<std::ptrdiff_t>(kept));
            for (const int token : random_tokens(12, vocabulary, seed)) tokens.push_back(token);
            return sequence_in(tokens, std::move(blocks));
        };
        const auto same = continued(24, 12, {5, 2, 8});
        const auto other = continued(24, 13, {5, 7, 1});
        const auto third = continued(16, 14, {5, 4});
        const auto expected = [&](const std::shared_ptr<sequence>& of, std::size_t length) {
            return reference_logits(files.config, files.weights, of->tokens)[length - 1];
        };
        batch work;
        work.copies = copies_in_all_groups(files, 2, 7);
        work.entries = {{same, 24, 1, true}, {other, 24, 9, true}, {third, 16, 12, true}};
        CHECK(largest_distance(run_logits(*with, work, vocabulary),
                               {expected(same, 25), expected(other, 33), expected(third, 28)}) < fp32_rounding);
        work.copies.clear();
        work.entries = {{same, 25, 11, true}, {other, 33, 3, true}};
        CHECK(largest_distance(run_logits(*with, work, vocabulary), {expected(same, 36), expected(other, 36)}) <
              fp32_rounding);
    }
}

TEST_CASE("Blocks leave for host memory and return to other places") {
    for (const variant& which : all_variants()) {
        CAPTURE(std::string(which.name));
        const model_files files = model_of(which);
        const int vocabulary = files.config.vocab_size;
        const auto with = runner_of(files);
        const auto first = sequence_in(random_tokens(40, vocabulary, 21), {5, 2, 9});
        logits_of_chunks(*with, first, std::vector{32}, vocabulary);

        // Another sequence gets its two full blocks in the step that saves them; then they return in reverse order, one
        // from its slot and one from bytes. A block whose content has just left takes one of them.
        const auto other = sequence_in(random_tokens(30, vocabulary, 22), {2, 5});
        batch work;
        for (int group = 0; group < cache_groups_of(files); ++group) {
            work.moves.saves.push_back({.group = group, .block = 5, .slot = 1});
            work.moves.saves.push_back({.group = group, .block = 2, .slot = 3});
        }
        work.entries = {{other, 0, 30, true}};
        const auto other_expected = reference_logits(files.config, files.weights, other->tokens);
        CHECK(largest_distance(run_logits(*with, work, vocabulary), {other_expected.back()}) < fp32_rounding);

        work = {};
        for (int group = 0; group < cache_groups_of(files); ++group) {
            const auto kept = with->slot(group, 3);
            work.moves.saves.push_back({.group = group, .block = 5, .slot = 0});
            work.moves.loads.push_back({.group = group, .block = 5, .slot = 1});
            work.moves.loads.push_back(
                {.group = group, .block = 11, .data = std::make_shared<const block_bytes>(kept.begin(), kept.end())});
            work.moves.loads.push_back({.group = group, .block = 12, .slot = 0});
        }
        const auto back = sequence_in(first->tokens, {5, 11, 0});
        work.entries = {{back, 32, 8, true}};
        const rows expected = reference_logits(files.config, files.weights, first->tokens);
        CHECK(largest_distance(run_logits(*with, work, vocabulary), {expected.back()}) < fp32_rounding);

        // What was saved in the step of its return.
        const auto again = sequence_in(other->tokens, {2, 12});
        work = {};
        work.entries = {{again, 29, 1, true}};
        CHECK(largest_distance(run_logits(*with, work, vocabulary), {other_expected.back()}) < fp32_rounding);
    }
}

TEST_CASE("A batch without entries only saves") {
    const model_files files = model_of(variants().front());
    const auto with = runner_of(files);
    const auto sequence = sequence_in(random_tokens(16, files.config.vocab_size, 5), {2});
    logits_of_chunks(*with, sequence, std::vector{16}, files.config.vocab_size);
    batch work;
    work.moves.saves = {{.group = 0, .block = 2, .slot = 0}};
    CHECK(with->run(work).empty());
    CHECK(std::ranges::any_of(with->slot(0, 0), [](std::byte each) { return each != std::byte{}; }));
}

TEST_CASE("A KV cache costs its rounding: in f16 an eighth of that in bf16, in e4m3 16 times that in bf16") {
    double largest[3] = {};
    for (const variant& which : variants()) {  // with experts, rounding may choose another one
        CAPTURE(std::string(which.name));
        const model_files files = model_of(which);
        const std::vector<int> tokens = random_tokens(50, files.config.vocab_size, 7), chunks{17, 1, 15, 17};
        const rows expected = at_ends(reference_logits(files.config, files.weights, tokens), chunks);
        const auto sequence = sequence_in(tokens, {9, 3, 17, 0});
        const auto distance_in = [&](kv_cache_format format) {
            const auto with = runner_of(files, weight_format::f32, format);
            return largest_distance(logits_of_chunks(*with, sequence, chunks, files.config.vocab_size), expected);
        };
        const double f16 = distance_in(kv_cache_format::f16), bf16 = distance_in(kv_cache_format::bf16);
        largest[2] = std::max(largest[2], distance_in(kv_cache_format::e4m3));
        CHECK(distance_in(kv_cache_format::by_device) == f16);
        largest[0] = std::max(largest[0], f16);
        largest[1] = std::max(largest[1], bf16);
    }
    MESSAGE("largest distances: f16 ", largest[0], ", bf16 ", largest[1], ", e4m3 ", largest[2]);
    CHECK(largest[0] > 1e-3);
    CHECK(largest[0] < 5e-3);
    CHECK(largest[1] > 4 * largest[0]);
    CHECK(largest[1] < 4e-2);
    CHECK(largest[2] > 4 * largest[1]);
    CHECK(largest[2] < 64e-2);
}

TEST_CASE("Keys and values outside the range of f16 or e4m3 are an error that names the layer") {
    const model_files files = model_of(variants().front());
    const auto sequence = sequence_in(random_tokens(20, files.config.vocab_size, 5), {2, 1});
    for (const char* tensor : {"k_proj", "v_proj"}) {
        const model_files large = changed(files, [&](const weight& one, std::vector<float>& values) {
            if (one.name != std::string("model.layers.1.self_attn.") + tensor + ".weight") return;
            for (float& value : values) value *= 1e6f;
        });
        const auto run_in = [&](kv_cache_format format) {
            const auto with = runner_of(large, weight_format::f32, format);
            return logits_of_chunks(*with, sequence, std::vector{20}, files.config.vocab_size);
        };
        for (const auto& [format, range] : {std::pair(kv_cache_format::f16, "f16 ends at 65504"),
                                            std::pair(kv_cache_format::e4m3, "e4m3 ends at 448")}) {
            const std::string message = error_message_of([&] { run_in(format); });
            CHECK(message.starts_with("KV cache: layer 1 has keys or values of up to "));
            CHECK(message.ends_with(std::string("; ") + range +
                                    ", and the formats bf16 and f32 (--kv-cache) at 3.40282e+38"));
        }
        CHECK(run_in(kv_cache_format::bf16).size() == 1);
    }
}

TEST_CASE("A NaN or an infinity in the logits is an error that names the part of the model") {
    const model_files files = model_of(variants().front());
    const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const auto& [tensor, value, part] : {std::tuple{"model.embed_tokens.weight", infinity, "the embedding"},
                                              {"model.layers.0.self_attn.v_proj.weight", nan, "layer 0"},
                                              {"model.layers.1.mlp.up_proj.weight", nan, "layer 1"},
                                              {"model.layers.2.post_attention_layernorm.weight", infinity, "layer 2"},
                                              {"lm_head.weight", nan, "the last norm or the LM head"}}) {
        CAPTURE(std::string(tensor));
        const model_files broken = changed(files, [&](const weight& one, std::vector<float>& values) {
            if (one.name == tensor) std::ranges::fill(values, value);
        });
        const auto with = runner_of(broken);
        const auto sequence = sequence_in(random_tokens(20, files.config.vocab_size, 5), {2, 1});
        check_error_message(
            str_cat("the logits have a NaN or an infinity; the first part of the model with one is ", part),
            [&] { logits_of_chunks(*with, sequence, std::vector{20}, files.config.vocab_size); });
    }
}

TEST_CASE("RoPE scaling that depends on the context uses that of the runner") {
    for (const variant& which : variants()) {
        const model_files files = model_of(which);
        const rope_scaling scaling = files.config.rope.scaling;
        if (scaling != rope_scaling::dynamic && scaling != rope_scaling::longrope) continue;
        CAPTURE(std::string(which.name));
        const std::vector<int> tokens = random_tokens(20, files.config.vocab_size, 6);
        model_config short_config = files.config;
        short_config.context = files.config.rope.original_max_position_embeddings;
        const rows expected = reference_logits(short_config, files.weights, tokens);
        const auto with = make_runner(files, {.weights = weight_format::f32,
                                              .kv_cache = kv_cache_format::f32,
                                              .num_kv_blocks = 4,
                                              .max_num_batched_tokens = 64,
                                              .max_num_seqs = 1,
                                              .context = short_config.context});
        const rows logits =
            logits_of_chunks(*with, sequence_in(tokens, {2, 1}), std::vector{20}, files.config.vocab_size);
        CHECK(largest_distance(logits, {expected.back()}) < fp32_rounding);
        const rows of_long = reference_logits(files.config, files.weights, tokens);
        CHECK(largest_distance(logits, {of_long.back()}) > 1e-3);
    }
}

TEST_CASE("stories260K: generates the golden story") {
    for (const char* name : {"stories260K.bin", "stories260K.gguf"}) {
        CAPTURE(std::string(name));
        const auto path = shared_file(std::string("stories260K/") + name);
        const auto story_path = shared_file("stories260K/golden-greedy-200.txt");
        if (!path || !story_path) return;
        const model_files files = open_model(*path);
        const auto with =
            make_runner(files, {.weights = weight_format::f32, .num_kv_blocks = 16, .max_num_batched_tokens = 64});
        engine<runner> serving(*with, block_manager(16), {}, [&] {
            auto decoder = std::make_shared<incremental_detokenizer>(files.tokens);
            return [decoder](std::optional<int> id) { return id ? decoder->push(*id) : decoder->finish(); };
        });
        request wanted;
        wanted.prompt = {*files.config.bos_token};
        wanted.max_new_tokens = 200;
        wanted.sampling.temperature = 0;
        serving.add(wanted);
        std::string story;
        while (!serving.idle()) {
            for (const event& one : serving.step()) story += one.text;
        }
        CHECK(story + "\n" == content(*story_path));
    }
}

TEST_CASE("Generates the golden tales in one batch") {
    const std::vector<golden_tale> tales = golden_tales();
    if (tales.empty()) return;
    const model_files files = open_model(tales_folder());
    const auto with = make_runner(files, {.num_kv_blocks = 64, .max_num_batched_tokens = 40, .max_num_seqs = 8});
    engine<runner> serving(*with, block_manager(64), {.context = 512, .max_num_batched_tokens = 40, .max_num_seqs = 8});
    std::map<sequence_id, std::vector<int>> generated;
    std::map<sequence_id, const golden_tale*> expected;
    for (const golden_tale& tale : tales) {
        request wanted;
        wanted.prompt = tale.prompt_ids;
        wanted.max_new_tokens = static_cast<int>(tale.greedy_ids.size());
        wanted.eos_tokens = files.config.eos_tokens;
        wanted.sampling.temperature = 0;
        expected[serving.add(wanted).front()] = &tale;
    }
    while (!serving.idle()) {
        for (const event& one : serving.step()) generated[one.id].push_back(one.sampled.token);
    }
    for (const auto& [id, tale] : expected) {
        CAPTURE(tale->prompt);
        if (tale->least_margin > 1e-3) CHECK(generated[id] == tale->greedy_ids);
    }
}

TEST_CASE("Logits match transformers") {
    for (const auto& folder : transformers_folders()) {
        CAPTURE(folder.string());
        const transformers_model model(folder);
        const int vocabulary = model.files.config.vocab_size, count = static_cast<int>(model.tokens.size());
        const auto sequence = sequence_in(model.tokens, blocks_from(0, (count + 15) / 16));
        const std::vector<int> chunks(model.tokens.size(), 1);
        CHECK(largest_distance(logits_of_chunks(*runner_of(model.files), sequence, chunks, vocabulary), model.logits) <
              fp32_rounding);
    }
}

}  // namespace imbrex::engine::test
