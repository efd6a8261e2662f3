// Weight formats of the engine against the float64 reference with weights rounded in the same way, and inputs quantised
// for int8 dot products.
#include <imbrex/core/weight_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/random_weights.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/rounded_weights.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

bool has_groups(const weight& one) {
    return one.row_elements() % weight_group_size == 0;
}

// Rounds all matrices of the layers and the LM head; the embedding table stays.
model_files rounded(const model_files& files, weight_format format) {
    return changed(files, [&](const weight& one, std::vector<float>& values) {
        if (one.shape.size() == 2 && one.name != "model.embed_tokens.weight")
            round_matrix(format, one.rows(), one.row_elements(), values);
    });
}

// Root mean square of the differences, relative to that of the logits.
double mean_distance(const rows& logits, const rows& expected) {
    double differences = 0, squares = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t k = 0; k < expected[i].size(); ++k) {
            differences += std::pow(logits[i][k] - expected[i][k], 2);
            squares += std::pow(expected[i][k], 2);
        }
    }
    return std::sqrt(differences / squares);
}

}  // namespace

TEST_CASE("Uses weights of every file type exactly") {
    using enum weight_type;
    // One type for all, and a mixture in which parts of a stacked matrix differ.
    const std::vector<std::vector<weight_type>> mixtures{
        {f32}, {bf16}, {f16}, {q8_0}, {q4_0}, {q8_0, bf16, f32, q4_0, f16}, {q4_0, q8_0}};
    model_config config = small_config(model_family::llama);
    config.hidden_size = 96;  // a multiple of 32; other matrices stay f32
    const model_files files = random_model(config);
    const std::vector<int> tokens = random_tokens(20, config.vocab_size, 22);
    for (const std::vector<weight_type>& types : mixtures) {
        CAPTURE(std::string(name_of(types.front())));
        CAPTURE(types.size());
        std::size_t next = 0;
        const model_files typed =
            changed(files, [&](const weight&, const std::vector<float>&) { return types[next++ % types.size()]; });
        const bool has_quantised =
            std::ranges::any_of(types, [](weight_type type) { return type == q8_0 || type == q4_0; });
        const rows expected =
            reference_logits(config, typed.weights, tokens, [](const weight& one) { return is_block(one.type); });
        const auto with = runner_of(typed, weight_format::as_in_file);
        for (const std::vector<int>& chunks : {std::vector<int>(20, 1), std::vector<int>{13, 7}}) {
            const rows logits = logits_of_chunks(*with, sequence_in(tokens, {2, 0}), chunks, config.vocab_size);
            const double here = largest_distance(logits, at_ends(expected, chunks));
            CHECK(here < (has_quantised ? input_rounding : fp32_rounding));
        }
    }
}

TEST_CASE("Quantises on load like the library, with the expected error") {
    model_config config = small_config(model_family::llama);
    config.hidden_size = 96;  // a multiple of 32; the intermediate size is not, so those rows stay unquantised
    const model_files files = random_model(config);
    const std::vector<int> tokens = random_tokens(40, config.vocab_size, 21);
    const rows exact = reference_logits(config, files.weights, tokens);
    const std::pair<weight_format, double> costs[] = {{weight_format::f16, 0.001},
                                                      {weight_format::bf16, 0.01},
                                                      {weight_format::e4m3, 0.15},
                                                      {weight_format::int8, 0.03},
                                                      {weight_format::int4, 0.3}};
    for (const auto& [format, most] : costs) {
        CAPTURE(std::string(name_of(format)));
        const bool is_whole = format == weight_format::int8 || format == weight_format::int4;
        const rows expected = reference_logits(config, rounded(files, format).weights, tokens,
                                               [&](const weight& one) { return is_whole && has_groups(one); });
        const auto with = runner_of(files, format);
        for (const std::vector<int>& chunks : {std::vector<int>(40, 1), std::vector<int>{21, 19}}) {
            const rows logits = logits_of_chunks(*with, sequence_in(tokens, {2, 0, 1}), chunks, config.vocab_size);
            const double here = largest_distance(logits, at_ends(expected, chunks));
            const double cost = mean_distance(logits, at_ends(exact, chunks));
            CHECK(here < (is_whole ? input_rounding : fp32_rounding));
            CHECK(cost < most);
            CHECK(cost > most / 10);
        }
    }
}

}  // namespace imbrex::engine::test
