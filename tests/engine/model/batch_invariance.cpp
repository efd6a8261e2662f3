// On a CPU what stands beside a sequence changes nothing of it: neither the batch, nor how its prompt is cut, nor what was found in the cache or
// computed again after a preemption, with any weights.
#include "engine/model/batch_invariance.hpp"

#include <string>
#include <vector>

#include "engine/model/model_variants.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/weight_format.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr weight_format all_formats[] = {weight_format::f32, weight_format::bf16, weight_format::e4m3,
                                         weight_format::int8, weight_format::int4};

// Whole groups of 32, and rows that are longer than what is added up at once.
model_config wide_config(model_family family) {
    model_config config = small_config(family);
    config.layers = 2;
    config.hidden_size = 96;
    config.intermediate_size = 1120;
    config.head_dim = 32;
    return config;
}

}  // namespace

TEST_CASE("A sequence has the same logits, bit for bit, alone and in any batch, however its prompt is cut") {
    for (const weight_format format : all_formats) {
        CAPTURE(std::string(name_of(format)));
        for (const auto family : {model_family::llama, model_family::qwen2, model_family::qwen3}) {
            CAPTURE(std::string(name_of(family)));
            model_config config = wide_config(family);
            if (family == model_family::qwen2) config.sliding_window = 19;
            runner_options options = runner_of_bystanders;
            options.weights = format;
            const auto with = make_runner(random_model(config), options);
            check_logits_batch_invariant(*with, config.vocab_size);
        }
    }
}

TEST_CASE("Models of every family have the same logits alone and in any batch") {
    for (const variant& which : variants()) {
        CAPTURE(std::string(which.name));
        const model_config config = config_of(which);
        for (const weight_type type : {weight_type::f32, weight_type::f16, weight_type::q8_0, weight_type::q4_0}) {
            const auto with = make_runner(random_model(config, type), runner_of_bystanders);
            check_logits_batch_invariant(*with, config.vocab_size);
        }
    }
}

TEST_CASE(
    "A text at temperature 1 is the same alone and among many, preempted or not, found in the cache or computed") {
    served_figures figures;
    for (const weight_format format : all_formats) {
        CAPTURE(std::string(name_of(format)));
        for (unsigned seed = 0; seed < 3; ++seed) {
            CAPTURE(seed);
            const model_config config = wide_config(static_cast<model_family>(seed));
            runner_options options = small_cache;
            options.weights = format;
            const auto with = make_runner(random_model(config, weight_type::bf16, seed), options);
            check_texts_batch_invariant(*with, config.vocab_size, figures, seed);
        }
    }
    CHECK(figures.preemptions > 50);
    CHECK(figures.prefix_cache_hit_rate > 0.1);
}

}  // namespace imbrex::engine::test
