#include "engine/loading/random_model.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <imbrex/core/error.hpp>
#include <imbrex/core/splitmix64.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <memory>

#include "engine/loading/families.hpp"
#include "engine/loading/random_blocks.hpp"

namespace imbrex::engine {

namespace {

constexpr std::array<std::string_view, 8> names{"llama-3.1-8b", "qwen2.5-0.5b", "qwen3-0.6b",    "gemma-3-1b",
                                                "smollm2-135m", "gpt-oss-20b",  "qwen3-30b-a3b", "tiny"};

model_config llama_8b() {
    return {.family = model_family::llama,
            .layers = 32,
            .hidden_size = 4096,
            .intermediate_size = 14336,
            .heads = 32,
            .kv_heads = 8,
            .head_dim = 128,
            .vocab_size = 128256,
            .context = 131072,
            .rope = {.theta = 500000,
                     .scaling = rope_scaling::llama3,
                     .factor = 8,
                     .low_freq_factor = 1,
                     .high_freq_factor = 4,
                     .original_max_position_embeddings = 8192},
            .bos_token = 128000,
            .eos_tokens = {128001, 128008, 128009}};
}

model_config qwen2_half_b() {
    return {.family = model_family::qwen2,
            .layers = 24,
            .hidden_size = 896,
            .intermediate_size = 4864,
            .heads = 14,
            .kv_heads = 2,
            .head_dim = 64,
            .vocab_size = 151936,
            .context = 32768,
            .norm_eps = 1e-6,
            .tie_word_embeddings = true,
            .qkv_bias = true,
            .rope = {.theta = 1e6},
            .bos_token = {},
            .eos_tokens = {151643, 151645}};
}

model_config qwen3_half_b() {
    return {.family = model_family::qwen3,
            .layers = 28,
            .hidden_size = 1024,
            .intermediate_size = 3072,
            .heads = 16,
            .kv_heads = 8,
            .head_dim = 128,
            .vocab_size = 151936,
            .context = 40960,
            .norm_eps = 1e-6,
            .tie_word_embeddings = true,
            .qk_norm = qk_norm_rows::head,
            .rope = {.theta = 1e6},
            .bos_token = {},
            .eos_tokens = {151643, 151645}};
}

model_config gemma3_1b() {
    model_config config{.family = model_family::gemma3,
                        .layers = 26,
                        .hidden_size = 1152,
                        .intermediate_size = 6912,
                        .heads = 4,
                        .kv_heads = 1,
                        .head_dim = 256,
                        .vocab_size = 262144,
                        .context = 32768,
                        .norm_eps = 1e-6,
                        .tie_word_embeddings = true,
                        .norms = norm_place::around,
                        .qk_norm = qk_norm_rows::head,
                        .activation = gate_activation::gelu_tanh,
                        .embedding_scale = std::sqrt(1152.0),
                        .rope = {.theta = 1e6},
                        .local_rope = rope_config{.theta = 10000},
                        .bos_token = 2,
                        .eos_tokens = {1, 106}};
    config.set_windows(512, [](int layer) { return (layer + 1) % 6 != 0; });
    assign_local_rope(config);
    return config;
}

model_config smollm2_135m() {
    return {.family = model_family::llama,
            .layers = 30,
            .hidden_size = 576,
            .intermediate_size = 1536,
            .heads = 9,
            .kv_heads = 3,
            .head_dim = 64,
            .vocab_size = 49152,
            .context = 8192,
            .tie_word_embeddings = true,
            .rope = {.theta = 100000},
            .bos_token = 1,
            .eos_tokens = {2}};
}

model_config gpt_oss_20b() {
    model_config config{.family = model_family::gpt_oss,
                        .layers = 24,
                        .hidden_size = 2880,
                        .intermediate_size = 2880,
                        .heads = 64,
                        .kv_heads = 8,
                        .head_dim = 64,
                        .vocab_size = 201088,
                        .context = 131072,
                        .qkv_bias = true,
                        .output_bias = true,
                        .experts = {.count = 32, .per_token = 4, .bias = true, .swiglu_limit = 7},
                        .attention_sinks = true,
                        .rope = {.theta = 150000,
                                 .scaling = rope_scaling::yarn,
                                 .factor = 32,
                                 .truncate = false,
                                 .original_max_position_embeddings = 4096},
                        .bos_token = 199998,
                        .eos_tokens = {200002, 199999, 200012}};
    config.set_windows(128, [](int layer) { return layer % 2 == 0; });
    return config;
}

model_config qwen3_30b() {
    return {.family = model_family::qwen3_moe,
            .layers = 48,
            .hidden_size = 2048,
            .intermediate_size = 768,
            .heads = 32,
            .kv_heads = 4,
            .head_dim = 128,
            .vocab_size = 151936,
            .context = 40960,
            .norm_eps = 1e-6,
            .qk_norm = qk_norm_rows::head,
            .experts = {.count = 128, .per_token = 8},
            .rope = {.theta = 1e6},
            .bos_token = {},
            .eos_tokens = {151643, 151645}};
}

model_config tiny() {
    return {.family = model_family::llama,
            .layers = 2,
            .hidden_size = 128,
            .intermediate_size = 256,
            .heads = 2,
            .kv_heads = 1,
            .head_dim = 64,
            .vocab_size = 512,
            .context = 1024,
            .tie_word_embeddings = true,
            .rope = {},
            .bos_token = 256,
            .eos_tokens = {}};
}

// Uniform in [-bound, bound], four values per draw.
void fill_evenly(std::span<std::uint16_t> values, float bound, std::uint64_t seed) {
    for (std::size_t i = 0; i < values.size(); i += 4) {
        std::uint64_t bits = splitmix64(seed + i * splitmix64_step);
        const std::size_t last = std::min(i + 4, values.size());
        for (std::size_t j = i; j < last; ++j, bits >>= 16) {
            const float value = static_cast<float>(static_cast<std::int16_t>(bits & 0xffffu)) * (bound / 32768);
            values[j] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
        }
    }
}

// Outputs have a variance near 1, so that activations neither explode nor vanish.
float bound_of(const expected_weight& weight) {
    return weight.shape.size() < 2 ? 0.1f : std::sqrt(3.0f / static_cast<float>(weight.shape.back()));
}

void fill(const expected_weight& weight, std::span<std::uint16_t> values, std::uint64_t seed) {
    constexpr std::uint16_t one = 0x3f80;
    if (weight.name.ends_with("norm.weight")) {
        std::ranges::fill(values, one);
        return;
    }
    constexpr std::size_t piece = 1 << 20;  // each chunk has its own seed: the result does not depend on threads
    const auto pieces = static_cast<int>((values.size() + piece - 1) / piece);
    hw::thread_pool::shared().for_each(pieces, 0, [&](int number) {
        const std::size_t first = static_cast<std::size_t>(number) * piece;
        fill_evenly(values.subspan(first, std::min(piece, values.size() - first)), bound_of(weight),
                    splitmix64(seed + static_cast<std::uint64_t>(number)));
    });
}

std::string made_up_word(int id) {
    constexpr std::string_view consonants = "bdfgklmnprstvz", vowels = "aeiou";
    std::string word = " ";
    for (int left = id; left > 0; left /= 70) {
        const auto syllable = static_cast<std::size_t>(left % 70);
        word += consonants[syllable % 14];
        word += vowels[syllable / 14];
    }
    return word;
}

tokenizer made_up_tokens(const model_config& config, const std::vector<std::string>& special) {
    const int plain = config.vocab_size - static_cast<int>(special.size());
    require(plain >= 256, "vocabulary: ", config.vocab_size, " with ", special.size(),
            " special tokens; there must be a token for each of the 256 bytes besides");
    vocabulary words;
    words.name = "random tokens";
    words.splits = {regular_expression(split_expressions::llama3)};
    for (int id = 0; id < plain; ++id)
        words.tokens.push_back({id < 256 ? std::string(1, static_cast<char>(id)) : made_up_word(id), {}, 0});
    for (const std::string& text : special) words.tokens.push_back({text, token_kind::special, 0});
    return tokenizer(std::move(words));
}

}  // namespace

std::span<const std::string_view> known_models() {
    return names;
}

model_config config_of_known_model(std::string_view name) {
    if (name == "llama-3.1-8b") return llama_8b();
    if (name == "qwen2.5-0.5b") return qwen2_half_b();
    if (name == "qwen3-0.6b") return qwen3_half_b();
    if (name == "gemma-3-1b") return gemma3_1b();
    if (name == "smollm2-135m") return smollm2_135m();
    if (name == "gpt-oss-20b") return gpt_oss_20b();
    if (name == "qwen3-30b-a3b") return qwen3_30b();
    std::string all;
    for (const std::string_view one : names) all += (all.empty() ? "" : ", ") + std::string(one);
    require(name == "tiny", "random model: ", std::string(name), "; these are known: ", all);
    return tiny();
}

model_config with_vocabulary_of(model_config shape, const model_config& other) {
    shape.vocab_size = other.vocab_size;
    shape.bos_token = other.bos_token;
    shape.eos_tokens = other.eos_tokens;
    return shape;
}

model_files random_model(const model_config& config, std::uint64_t seed, const std::vector<std::string>& special,
                         std::string_view kind) {
    check_sizes(config, "random model");
    weight_set weights;
    for (const expected_weight& expected : expected_weights(config)) {
        const weight_type type = random_weight_type(kind, config, expected);
        const auto size = byte_size(type, expected.shape);
        require(size.has_value(), expected.name, ": the shape ", to_string(expected.shape), " is too large");
        const auto bytes = static_cast<std::size_t>(*size);
        const std::size_t count = (bytes + 1) / sizeof(std::uint16_t);
        const std::shared_ptr<std::uint16_t[]> values = std::make_shared_for_overwrite<std::uint16_t[]>(count);
        seed = splitmix64(seed + 1);
        const auto all = std::as_writable_bytes(std::span(values.get(), count)).first(bytes);
        if (is_block(type)) {
            fill_with_random_blocks(type, all, bound_of(expected) / std::sqrt(3.0f), seed);
        } else {
            fill(expected, {values.get(), count}, seed);
        }
        weights.add({.name = expected.name, .type = type, .shape = expected.shape, .bytes = all}, "random model");
        weights.keep(values);
    }
    return {"random weights", config, std::move(weights), made_up_tokens(config, special)};
}

}  // namespace imbrex::engine
