// Batch invariance on a CPU: the logits of a sequence do not depend on the batch, on the chunks of its prompt, on
// prefix cache hits or on recomputation after preemption, for all weight formats.
#include "engine/model/batch_invariance.hpp"

#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "engine/model/model_variants.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/weight_format.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr weight_format all_formats[] = {weight_format::f32,  weight_format::f16,  weight_format::bf16,
                                         weight_format::e4m3, weight_format::int8, weight_format::int4};

// Multiples of the group size 32, and rows longer than one accumulation block.
model_config wide_config(model_family family) {
    model_config config = small_config(family);
    config.layers = 2;
    config.hidden_size = 96;
    config.intermediate_size = 1120;
    config.head_dim = 32;
    return config;
}

}  // namespace

TEST_CASE("Logits are bitwise independent of the batch and of the prompt's chunks") {
    for (const weight_format format : all_formats) {
        CAPTURE(std::string(name_of(format)));
        for (const auto family : {model_family::llama, model_family::qwen2, model_family::qwen3}) {
            if (few_combinations && static_cast<int>(family) % 3 != static_cast<int>(format) % 3) continue;
            CAPTURE(std::string(name_of(family)));
            model_config config = wide_config(family);
            if (family == model_family::qwen2) config.set_windows(19, [](int) { return true; });
            runner_options options = runner_of_bystanders;
            options.weights = format;
            const auto with = make_runner(random_model(config), options);
            check_logits_batch_invariant(*with, config.vocab_size);
        }
    }
}

TEST_CASE("Logits of every model family are independent of the batch") {
    constexpr weight_type types[] = {weight_type::f32, weight_type::f16, weight_type::q8_0, weight_type::q4_0};
    std::size_t number = 0;
    for (const variant& which : all_variants()) {
        CAPTURE(std::string(which.name));
        const model_config config = config_of(which);
        ++number;
        for (const weight_type type : types) {
            if (few_combinations && type != types[number % std::size(types)]) continue;
            const auto with = make_runner(random_model(config, type), runner_of_bystanders);
            check_logits_batch_invariant(*with, config.vocab_size);
        }
    }
}

TEST_CASE("Texts at temperature 1 do not depend on the batch, preemption or prefix caching") {
    served_figures figures;
    for (const weight_format format : all_formats) {
        CAPTURE(std::string(name_of(format)));
        for (unsigned seed = 0; seed < 3; ++seed) {
            if (few_combinations && seed != static_cast<unsigned>(format) % 3) continue;
            CAPTURE(seed);
            const model_config config = wide_config(static_cast<model_family>(seed));
            runner_options options = small_cache;
            options.weights = format;
            const auto with = make_runner(random_model(config, weight_type::bf16, seed), options);
            check_texts_batch_invariant(*with, config, figures, seed);
        }
    }
    CHECK(figures.preemptions > (few_combinations ? 15 : 50));
    CHECK(figures.prefix_cache_hit_rate > 0.1);
}

TEST_CASE("Texts with windows in some layers equal those of a full cache without prefix caching") {
    // Of each layer; 0: all tokens.
    const std::vector<std::vector<int>> windows{
        {0, 5, 0, 5}, {19, 0, 19, 0}, {33, 33, 33, 33}, {16, 0, 40, 16}, {0, 1, 17, 0}};
    constexpr int budget = 48, requests = 16;
    served_figures figures;
    for (unsigned seed = 0; seed < windows.size(); ++seed) {
        CAPTURE(seed);
        model_config config = wide_config(model_family::qwen3);
        config.layers = 4;
        config.attention_layers.resize(4);
        for (std::size_t i = 0; i < 4; ++i) config.attention_layers[i].window = windows[seed][i];
        const model_files files = random_model(config, weight_type::bf16, seed);
        runner_options small = small_cache, full = small_cache;
        small.num_window_kv_blocks = 7;  // 9 in the other layers
        const auto texts = [&](const runner_options& options, std::vector<cache_group> groups, prefix_caching caching,
                               int sequences) {
            const auto with = make_runner(files, options);
            return served_texts(*with, block_manager(std::move(groups), 16, caching), config.vocab_size, requests, seed,
                                {.context = 150, .max_num_batched_tokens = budget, .max_num_seqs = sequences},
                                sequences > 1 ? &figures : nullptr);
        };
        std::vector<cache_group> without_windows = kv_cache_groups(config, full);
        CHECK(without_windows.size() == std::set<int>(windows[seed].begin(), windows[seed].end()).size());
        for (cache_group& each : without_windows) each.window = 0;
        const auto expected = texts(full, without_windows, prefix_caching::off, 1);
        CHECK(texts(small, kv_cache_groups(config, small), prefix_caching::on, 8) == expected);
        CHECK(texts(small, kv_cache_groups(config, small), prefix_caching::on, 3) == expected);
    }
    CHECK(figures.preemptions > 10);
    CHECK(figures.prefix_cache_hit_rate > 0.1);
}

}  // namespace imbrex::engine::test
