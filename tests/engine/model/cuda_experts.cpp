// Mixtures of experts of the GPU model in the host world, and on a GPU if there is one: scaled-down shapes of known models in every format of weights and
// with every kernel, against the reference with weights rounded in the same way.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/loading/expert_weights.hpp"
#include "engine/loading/random_model.hpp"
#include "engine/model/cuda_kernels_on_host.hpp"
#include "engine/model/on_cuda.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/rounded_weights.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr double bf16_rounding = 0.07;  // of logits, by distance(); clamping makes it larger than in other models

// All experts are chosen, so that rounding cannot choose another one.
model_config scaled_down(const char* name) {
    model_config config = config_of_known_model(name);
    config.layers = 2;
    if (!config.attention_layers.empty()) {
        config.attention_layers.resize(2);
        config.attention_layers[0].window = 11;
    }
    config.hidden_size = 96;
    config.intermediate_size = 160;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = 64;
    config.experts.count = config.experts.per_token = 3;
    config.vocab_size = 300;
    config.bos_token.reset();
    config.eos_tokens.clear();
    return config;
}

std::vector<int> some_tokens(int count) {
    std::vector<int> all;
    for (int i = 0; i < count; ++i) all.push_back(i * i * 7 % 300);
    return all;
}

rows logits_of(runner& with, const model_files& files, const std::vector<int>& tokens, const std::vector<int>& chunks) {
    return logits_of_chunks(with, sequence_in(tokens, {5, 0, 3, 7, 1, 2}), chunks, files.config.vocab_size);
}
rows logits_of(const model_files& files, const std::vector<int>& tokens, const std::vector<int>& chunks,
               weight_format format) {
    const auto with = make_cuda_kernels_runner_on_host(
        files, {.weights = format, .num_kv_blocks = 8, .max_num_batched_tokens = 128, .max_num_seqs = 4});
    return logits_of(*with, files, tokens, chunks);
}

// GEMV with tiles of 8 and 16 rows; grouped GEMM with 64 and 128.
const std::vector<std::vector<int>> chunks_by_kernel{{3, 10, 1}, {70, 17, 1}};
constexpr const char* kinds[]{"bf16", "q4_0", "q8_0", "q5_0", "mxfp4"};

}  // namespace

TEST_CASE("Experts of the GPU model: every kernel, in the types of files") {
    for (const char* name : {"gpt-oss-20b", "qwen3-30b-a3b"}) {
        for (const char* kind : kinds) {
            CAPTURE(std::string(name));
            CAPTURE(std::string(kind));
            const model_files files = random_model(scaled_down(name), 1, {}, kind);
            for (const std::vector<int>& chunks : chunks_by_kernel) {
                const std::vector<int> tokens = some_tokens(88);
                const rows expected = at_ends(reference_logits(files.config, files.weights, tokens), chunks);
                CHECK(largest_distance(logits_of(files, tokens, chunks, weight_format::as_in_file), expected) <
                      bf16_rounding);
            }
        }
    }
}

TEST_CASE("On a GPU: experts, every kernel and format, and replayed decode steps") {
    if (!cuda_is_available()) return;
    for (const char* name : {"gpt-oss-20b", "qwen3-30b-a3b"}) {
        for (const char* kind : kinds) {
            CAPTURE(std::string(name));
            CAPTURE(std::string(kind));
            const model_files files = random_model(scaled_down(name), 1, {}, kind);
            const auto with = runner_on_cuda(files);
            for (const std::vector<int>& chunks : {std::vector<int>{3, 10, 1, 1, 1, 1, 1}, {70, 17, 1}}) {
                const std::vector<int> tokens = some_tokens(88);
                const rows expected = at_ends(reference_logits(files.config, files.weights, tokens), chunks);
                CHECK(largest_distance(logits_of(*with, files, tokens, chunks), expected) < cuda_rounding);
            }
        }
    }
}

TEST_CASE("Experts of the GPU model: converted weights") {
    const model_files files = random_model(scaled_down("gpt-oss-20b"), 2);
    const std::vector<int> tokens = some_tokens(24);
    for (const weight_format format :
         {weight_format::bf16, weight_format::e4m3, weight_format::int8, weight_format::int4}) {
        CAPTURE(std::string(name_of(format)));
        const model_files rounded = changed(files, [&](const weight& one, std::vector<float>& values) {
            const bool stays =
                one.shape.size() != 2 || one.name == "model.embed_tokens.weight" || one.name.ends_with("router.weight");
            if (!stays) round_matrix(format, one.rows(), one.row_elements(), values);
        });
        const std::vector<int> chunks{20, 3, 1};
        const rows expected = at_ends(reference_logits(files.config, rounded.weights, tokens), chunks);
        CHECK(largest_distance(logits_of(files, tokens, chunks, format), expected) < bf16_rounding);
    }
}

TEST_CASE("Experts of the GPU model: types that it does not have become int8") {
    model_config config = scaled_down("qwen3-30b-a3b");
    config.hidden_size = config.intermediate_size = 256;
    const model_files files = random_model(config, 3, {}, "q4_K");
    const model_files rounded = changed(files, [&](const weight& one, std::vector<float>& values) {
        if (one.name.find(".experts.") != std::string::npos)
            round_matrix(weight_format::int8, one.rows(), one.row_elements(), values);
    });
    const std::vector<int> tokens = some_tokens(3), chunks{3};
    const rows expected = at_ends(reference_logits(config, rounded.weights, tokens), chunks);
    CHECK(largest_distance(logits_of(files, tokens, chunks, weight_format::as_in_file), expected) < bf16_rounding);
}

namespace {

// The experts in the layout of GPT-OSS's safetensors: neighbours share a byte, and rows of gate and up alternate.
weight_set in_safetensors_layout(const model_files& files) {
    weight_set made;
    for (const weight& one : files.weights.all()) {
        if (one.name.find(".experts.") == std::string::npos) made.add(one, "test");
    }
    for (const auto& owner : files.weights.owners()) made.keep(owner);
    const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape, weight_type type,
                         std::vector<std::byte> bytes) {
        const auto memory = std::make_shared<std::vector<std::byte>>(std::move(bytes));
        made.add({.name = name, .type = type, .shape = shape, .bytes = *memory}, "test");
        made.keep(memory);
    };
    const std::int64_t count = files.config.experts.count;
    for (int layer = 0; layer < files.config.layers; ++layer) {
        const std::string of = "model.layers." + std::to_string(layer) + ".mlp.experts.";
        const auto stack = [&](const std::string& to, const std::vector<const char*>& projections) {
            std::vector<std::byte> blocks, scales, biases;
            std::int64_t rows = 0, groups = 0;
            for (std::int64_t expert = 0; expert < count; ++expert) {
                const auto part = [&](const char* projection, const char* end) -> const weight& {
                    return files.weights.at(of + std::to_string(expert) + "." + projection + end);
                };
                rows = part(projections[0], ".weight").rows();
                groups = part(projections[0], ".weight").row_elements() / 32;
                for (std::int64_t row = 0; row < rows; ++row) {
                    for (const char* projection : projections) {
                        const weight& own = part(projection, ".weight");
                        for (std::int64_t group = row * groups; group < (row + 1) * groups; ++group) {
                            const std::byte* const block = own.bytes.data() + group * 17;
                            const auto nibble = [&](int i) {
                                return block[1 + i % 16] >> (i / 16 * 4) & std::byte{15};
                            };
                            scales.push_back(block[0]);
                            for (int i = 0; i < 32; i += 2) blocks.push_back(nibble(i) | nibble(i + 1) << 4);
                        }
                        const auto bias = part(projection, ".bias").bytes.subspan(static_cast<std::size_t>(row) * 2, 2);
                        biases.insert(biases.end(), bias.begin(), bias.end());
                    }
                }
            }
            rows *= static_cast<std::int64_t>(projections.size());
            add(of + to + "_blocks", {count, rows, groups, 16}, weight_type::u8, blocks);
            add(of + to + "_scales", {count, rows, groups}, weight_type::u8, scales);
            add(of + to + "_bias", {count, rows}, weight_type::bf16, biases);
        };
        stack("gate_up_proj", {"gate_proj", "up_proj"});
        stack("down_proj", {"down_proj"});
    }
    return made;
}

}  // namespace

TEST_CASE("Experts of the GPU model: both layouts of MXFP4 give the same logits") {
    const model_files blocks = random_model(scaled_down("gpt-oss-20b"), 4);
    model_files tensors = random_model(scaled_down("gpt-oss-20b"), 4);
    tensors.weights = with_separate_experts(in_safetensors_layout(blocks), "test");
    const std::vector<int> tokens = some_tokens(13), chunks{12, 1};
    CHECK(logits_of(blocks, tokens, chunks, weight_format::as_in_file) ==
          logits_of(tensors, tokens, chunks, weight_format::as_in_file));
}

TEST_CASE("Experts of the GPU model: sizes that it does not support") {
    model_config config = scaled_down("qwen3-30b-a3b");
    config.hidden_size = 100;
    const model_files files = random_model(config, 5);
    check_error_message("hidden_size: 100; on a GPU, a model with experts has a multiple of 8",
                        [&] { make_cuda_kernels_runner_on_host(files, {.num_kv_blocks = 1}); });
}

}  // namespace imbrex::engine::test
