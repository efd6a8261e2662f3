// The float64 reference against other implementations: llama2.c's story and the golden file of the tales.
// transformers.cpp compares with Hugging Face.
#include "engine/model/reference_model.hpp"

#include "engine/golden_tales.hpp"
#include "engine/loading/model_files.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

// Each token must be the best after its prefix. Attention is causal, so one pass over all tokens checks it.
void check_greedy(const rows& logits, std::span<const int> tokens, std::size_t first_chosen) {
    for (std::size_t i = first_chosen; i < tokens.size(); ++i) {
        CAPTURE(i);
        CHECK(best_token(logits[i - 1]) == tokens[i]);
    }
}

void check_best(const row& logits, const golden_logits& best) {
    for (std::size_t i = 0; i < best.ids.size(); ++i) {
        CHECK(std::abs(logits.at(best.ids[i]) - best.values[i]) < 1e-4);  // the golden logits are fp32 with 5 digits
    }
}

}  // namespace

TEST_CASE("stories260K: every file format gives the golden story") {
    for (const char* name : {"stories260K.bin", "stories260K.v1.bin", "stories260K.gguf"}) {
        CAPTURE(std::string(name));
        const auto path = shared_file(std::string("stories260K/") + name);
        const auto story_path = shared_file("stories260K/golden-greedy-200.txt");
        if (!path || !story_path) return;
        const model_files model = open_model(*path);
        std::string story = content(*story_path);
        REQUIRE(story.ends_with('\n'));
        story.pop_back();  // line break of the program that printed it
        const std::vector<int> tokens = model.tokens.encode(story);
        REQUIRE(model.config.bos_token.has_value());
        REQUIRE(tokens.front() == *model.config.bos_token);
        REQUIRE(tokens.size() == 201);
        REQUIRE(model.tokens.decode(tokens) == story);
        check_greedy(reference_logits(model.config, model.weights, tokens), tokens, 1);
    }
}

TEST_CASE("Matches the golden file of the tales: logits and greedy texts") {
    const std::vector<golden_tale> tales = golden_tales();
    if (tales.empty()) return;
    const model_files model = open_model(tales_folder());
    for (const golden_tale& tale : tales) {
        CAPTURE(tale.prompt);
        std::vector<int> tokens = tale.prompt_ids;
        tokens.insert(tokens.end(), tale.greedy_ids.begin(), tale.greedy_ids.end());
        const rows logits = reference_logits(model.config, model.weights, tokens);
        check_best(logits.front(), tale.first);
        check_best(logits[tale.prompt_ids.size() - 1], tale.last);
        // Logits closer than fp32 resolution: either token is correct.
        if (tale.least_margin > 1e-3) check_greedy(logits, tokens, tale.prompt_ids.size());
        CHECK(model.tokens.decode(tale.greedy_ids) == tale.text);
    }
}

TEST_CASE("RoPE frequencies of engine and reference agree") {
    model_config config = small_config(model_family::llama);
    config.head_dim = 64;
    config.rope.factor = 8;
    config.rope.theta = 500000;
    config.rope.original_max_position_embeddings = 8192;
    config.context = 4 * 8192;
    const auto check = [&] {
        const row expected = reference_model(config, {}).frequencies();
        const std::vector<double> frequencies = rope_inv_freq(config, config.rope);
        REQUIRE(frequencies.size() == expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i)
            CHECK(frequencies[i] == doctest::Approx(expected[i]).epsilon(1e-12));
    };
    for (const auto scaling :
         {rope_scaling::none, rope_scaling::linear, rope_scaling::dynamic, rope_scaling::yarn, rope_scaling::llama3}) {
        config.rope.scaling = scaling;
        for (const int columns : {64, 32}) {
            config.rope.rotary_dim = columns;
            check();
        }
    }
    config.rope.truncate = false;
    config.rope.scaling = rope_scaling::yarn;
    check();
    for (int pair = 0; pair < 16; ++pair) {
        config.rope.freq_factors.push_back(1.0f + 0.25f * static_cast<float>(pair));
        config.rope.long_freq_factors.push_back(2.0f + static_cast<float>(pair));
    }
    for (const auto scaling : {rope_scaling::none, rope_scaling::longrope}) {
        config.rope.scaling = scaling;
        check();
    }
    config.context = 8192;  // not longer than the original one
    for (const auto scaling : {rope_scaling::dynamic, rope_scaling::longrope}) {
        config.rope.scaling = scaling;
        if (scaling == rope_scaling::dynamic) config.rope.freq_factors.clear();
        check();
        config.rope.freq_factors.assign(16, 3.0f);
    }
}

// GGUF converters permute the rows of Q and K from half-split to interleaved RoPE.
TEST_CASE("Half-split and interleaved RoPE agree after permuting rows") {
    const model_config config = small_config(model_family::llama);
    const model_files split = random_model(config);
    model_files interleaved = changed(split, [&](const weight& one, std::vector<float>& values) {
        if (one.name.find("q_proj") == std::string::npos && one.name.find("k_proj") == std::string::npos) return;
        const std::vector<float> before = values;
        const std::size_t head_dim = static_cast<std::size_t>(config.head_dim);
        const std::size_t length = static_cast<std::size_t>(one.row_elements());
        for (std::size_t to = 0; to < static_cast<std::size_t>(one.rows()); ++to) {
            const std::size_t inside = to % head_dim;
            const std::size_t from = to - inside + inside / 2 + inside % 2 * head_dim / 2;
            std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(from * length), length,
                        values.begin() + static_cast<std::ptrdiff_t>(to * length));
        }
    });
    interleaved.config.rope.style = rope_style::interleaved;
    const std::vector<int> tokens = random_tokens(20, config.vocab_size, 3);
    const rows expected = reference_logits(config, split.weights, tokens);
    const rows logits = reference_logits(interleaved.config, interleaved.weights, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) CHECK(distance(logits[i], expected[i]) < 1e-12);
    const rows unrotated = reference_logits(config, interleaved.weights, tokens);
    CHECK(distance(unrotated.back(), expected.back()) > 0.01);
}

TEST_CASE("A sliding window hides older tokens in its layers") {
    model_config config = small_config(model_family::qwen2);
    config.layers = 1;
    config.set_windows(4, [](int) { return true; });
    const model_files model = random_model(config);
    std::vector<int> tokens = random_tokens(9, config.vocab_size, 4);
    const rows before = reference_logits(config, model.weights, tokens);
    tokens[2] = (tokens[2] + 1) % config.vocab_size;
    const rows after = reference_logits(config, model.weights, tokens);
    for (const std::size_t same : {0, 1, 6, 7, 8}) CHECK(distance(after[same], before[same]) < 1e-12);
    for (const std::size_t other : {2, 3, 4, 5}) CHECK(distance(after[other], before[other]) > 1e-3);
    config.attention_layers.clear();
    CHECK(distance(reference_logits(config, model.weights, tokens)[8], after[8]) > 1e-3);
}

TEST_CASE("Random weights of each type are close to their unrounded values") {
    model_config config = small_config(model_family::llama);
    config.hidden_size = 96;
    const model_files exact = random_model(config);
    const weight& first = exact.weights.at("model.layers.1.self_attn.q_proj.weight");
    const std::vector<float> values = to_floats(first);
    for (const auto& [type, most] : {std::pair{weight_type::f16, 1e-4},
                                     {weight_type::bf16, 1e-3},
                                     {weight_type::q8_0, 1e-3},
                                     {weight_type::q4_0, 0.02}}) {
        CAPTURE(std::string(name_of(type)));
        const model_files model = random_model(config, type);
        const weight& other = model.weights.at(first.name);
        CHECK(other.type == type);
        CHECK(other.bytes.size() == byte_size(type, other.shape));
        const std::vector<float> rounded = to_floats(other);
        double largest = 0;
        for (std::size_t i = 0; i < values.size(); ++i)
            largest = std::max(largest, std::abs(static_cast<double>(rounded[i] - values[i])));
        CHECK(largest < most);
        CHECK(largest > most / 30);
    }
}

TEST_CASE("A random model survives writing and reading a folder") {
    for (const auto family : {model_family::llama, model_family::qwen2, model_family::qwen3}) {
        for (const auto type : {weight_type::f32, weight_type::f16, weight_type::bf16}) {
            CAPTURE(std::string(name_of(family)));
            CAPTURE(std::string(name_of(type)));
            model_config config = small_config(family);
            config.rope.scaling = family == model_family::llama   ? rope_scaling::llama3
                                  : family == model_family::qwen2 ? rope_scaling::none
                                                                  : rope_scaling::linear;
            config.rope.factor = config.rope.scaling == rope_scaling::none ? 1 : 8;
            config.rope.original_max_position_embeddings = config.rope.scaling == rope_scaling::llama3 ? 64 : 0;
            if (family == model_family::qwen2) config.set_windows(11, [](int layer) { return layer >= 1; });
            const model_files model = random_model(config, type);
            const temporary_folder folder;
            write_folder(model, folder.path());
            const model_files read = open_model(folder.path());
            CHECK(config_json(read.config) == config_json(config));
            CHECK(read.config.qk_norm == config.qk_norm);
            CHECK(read.config.qkv_bias == config.qkv_bias);
            REQUIRE(read.weights.all().size() == expected_weights(config).size());
            for (const weight& one : model.weights.all()) {
                const weight& other = read.weights.at(one.name);
                CHECK(other.type == type);
                CHECK(to_floats(other) == to_floats(one));
            }
            CHECK(read.tokens.encode("baz") == std::vector<int>{1, 0, 25});
        }
    }
}

}  // namespace imbrex::engine::test
