// Sampling against a reference that sorts in double: tokens kept by top-k, top-p and min-p, the draw from the same
// random numbers, logprobs and top_logprobs; vocabularies of all sizes, ties, NaN and infinities; and a chi-squared
// test of the draws.
#include <imbrex/kernels/sample.hpp>

#include "kernels/sample/reference.hpp"
#include "kernels/sample/trial.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T>
void check_sampled(int vocabulary, int adjustment_step = 0, int gap = 0, int before = 0, int num_top_logprobs = 0) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(vocabulary);
        CAPTURE(adjustment_step);
        sample_trial<T> trial(where, vocabulary, many_options(), 3, gap, before, num_top_logprobs);
        if (adjustment_step > 0) trial.adjust_tokens(where, adjustment_step);
        trial.launch();
        trial.check();
    }
}

// Chi-squared: the sum of (seen - expected)^2 / expected; tokens expected fewer than five times are pooled.
double chi_squared(const std::vector<int>& seen, const std::vector<double>& probabilities) {
    double all = 0, sum = 0, seldom_seen = 0, seldom_expected = 0;
    const auto difference = [](double one, double expected) { return (one - expected) * (one - expected) / expected; };
    for (const int one : seen) all += one;
    for (std::size_t i = 0; i < seen.size(); ++i) {
        const double expected = all * probabilities[i];
        if (expected == 0) CHECK(seen[i] == 0);
        if (expected >= 5) {
            sum += difference(seen[i], expected);
        } else {
            seldom_seen += seen[i], seldom_expected += expected;
        }
    }
    return seldom_expected > 0.5 ? sum + difference(seldom_seen, seldom_expected) : sum;
}

}  // namespace

TEST_CASE("sampling matches the sorting reference for any vocabulary size") {
    for (const int vocabulary : {1, 7, 512, 1000, 1024, 1032, 3001}) check_sampled<float>(vocabulary);
    for (const int vocabulary : {7, 2056}) check_sampled<bf16>(vocabulary);
    check_sampled<fp16>(999);
}

TEST_CASE("bias and penalties are applied before the filters") {
    check_sampled<float>(1, 1);
    check_sampled<float>(300, 5);
    check_sampled<float>(9000, 40);
    check_sampled<bf16>(2100, 3);
}

TEST_CASE("token masks: only allowed tokens, and thresholds and logprobs over these alone") {
    const auto check_masked = []<class T>(T, int vocabulary, int adjustment_step, int num_top_logprobs) {
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            CAPTURE(vocabulary);
            sample_trial<T> trial(where, vocabulary, many_options(), 3, 0, 0, num_top_logprobs);
            if (adjustment_step > 0) trial.adjust_tokens(where, adjustment_step);
            trial.mask_tokens(where, 4, [=](int mask, int token) {
                if (mask == 0) return token % 7 == 3;
                if (mask == 1) return token == vocabulary - 1;
                return mask == 2 ? token % 64 > 30 : token * 2654435761u >> 29 != 0;
            });
            trial.launch();
            trial.check();
            for (int row = 0; row < trial.shape.rows(); ++row) {
                const int token = trial.tokens.values[row];
                CHECK((trial.is_allowed(row, token) || (token == 0 && trial.logprobs.values[row] == -infinity)));
            }
        }
    };
    for (const int vocabulary : {1, 31, 33, 1000, 2100}) check_masked(0.0f, vocabulary, 0, 0);
    check_masked(0.0f, 4001, 20, 20);
    check_masked(bf16{}, 1032, 3, 5);
}

TEST_CASE("a token mask that allows no token") {
    for (const world where : worlds()) {
        sample_trial<float> trial(where, 70, {{}, {.temperature = 0}, {}, {.top_k = 5}, {.top_p = 0.5f}}, 3, 0, 0, 2);
        trial.mask_tokens(where, 1, [](int, int) { return false; });
        trial.launch();
        trial.check();
        CHECK(trial.tokens.values[0] == 0);
        CHECK(trial.logprobs.values[0] == -infinity);
        CHECK(trial.top_logprobs_tokens.values[0] == -1);
        CHECK(trial.logprobs.values[2] > -infinity);  // the row without a mask
    }
}

TEST_CASE("strided rows, logprobs and top_logprobs") {
    check_sampled<float>(1000, 0, 8, 4, 20);
    check_sampled<bf16>(1001, 9, 3, 1, 5);
    check_sampled<float>(3, 0, 1, 0, 20);
    check_sampled<fp16>(2048, 0, 0, 0, 1);
}

TEST_CASE("sampling matches the reference for large vocabularies") {
    // Too slow in the checked world, and smaller sizes take the same paths.
    const world where = worlds().front();
    sample_trial<float> trial(where, 151936,
                              {{.temperature = 0},
                               {.seed = 3},
                               {.top_k = 40, .seed = 4},
                               {.top_p = 0.9f, .seed = 5},
                               {.temperature = 0.2f, .top_p = 0.9f, .seed = 6},
                               {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .seed = 7},
                               {.min_p = 0.05f, .seed = 8}},
                              2, 0, 0, 20);
    trial.launch();
    trial.check();
}

TEST_CASE("sampling matches the reference for the largest vocabulary") {
    sample_trial<bf16> trial(worlds().front(), 1 << 20, {{.temperature = 0.8f, .top_k = 3000, .top_p = 0.9f}}, 2, 0, 0,
                             2);
    trial.launch();
    trial.check();
}

TEST_CASE("ties keep the lowest tokens") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        sample_trial<float> trial(where, 5000,
                                  {{.temperature = 0},
                                   {.top_k = 3},
                                   {.top_k = 1500, .top_p = 0.5f},
                                   {.top_p = 0.5f},
                                   {.top_p = 1e-6f},
                                   {.min_p = 1}},
                                  0, 0, 0, 4);
        trial.launch();
        trial.check();
        CHECK(trial.tokens.values[0] == 0);
        CHECK(trial.thresholds.values[1].last_token == 2);
        CHECK(trial.thresholds.values[2].last_token == 749);
        CHECK(trial.thresholds.values[3].last_token == 2499);
        CHECK(trial.thresholds.values[4].last_token == 0);
        CHECK(trial.tokens.values[4] == 0);
        CHECK(trial.top_logprobs_tokens.values ==
              std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
    }
}

TEST_CASE("NaN and infinite logits") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const std::vector<sample_options> wanted(6, sample_options{.top_k = 1200, .top_p = 0.9f});
        sample_trial<float> trial(where, 1300, wanted, 1, 0, 0, 3);
        for (int i = 0; i < 1300; ++i) {
            trial.at(0, i) = not_a_number;
            trial.at(1, i) = -infinity;
            if (i != 1234) trial.at(2, i) = i % 2 == 0 ? -infinity : not_a_number;
            if (i % 100 == 7) trial.at(3, i) = infinity;
            if (i % 3 != 0) trial.at(4, i) = -not_a_number;
            trial.at(5, i) = i % 2 == 0 ? 0.0f : -0.0f;
        }
        trial.launch();
        trial.check();
        CHECK(trial.tokens.values[0] == 0);
        CHECK(trial.tokens.values[1] == 0);
        CHECK(trial.tokens.values[2] == 1234);
        CHECK(trial.tokens.values[3] % 100 == 7);
        CHECK(trial.tokens.values[4] % 3 == 0);
        CHECK(trial.top_logprobs_tokens.values[0] == -1);
        CHECK(trial.logprobs.values[0] == -infinity);
        CHECK(trial.logprobs.values[2] == 0.0f);
    }
}

TEST_CASE("token frequencies match probabilities") {
    const world where = worlds().front();
    constexpr int rows = 2500, vocabulary = 12;
    const std::vector<sample_options> kinds{{},
                                            {.temperature = 0.5f},
                                            {.temperature = 3, .top_k = 5},
                                            {.temperature = 2, .top_p = 0.8f},
                                            {.temperature = 2, .top_k = 9, .top_p = 0.9f, .min_p = 0.1f}};
    for (const sample_options& kind : kinds) {
        for (const bool by_seed : {false, true}) {
            if (by_seed && kind.temperature == 2) continue;
            std::vector<sample_options> all(rows, kind);
            for (int i = 0; i < rows; ++i) {
                all[i].position = by_seed ? 17 : i;
                all[i].seed = by_seed ? static_cast<std::uint64_t>(i) : 99;
            }
            sample_trial<float> trial(where, vocabulary, all);
            for (int row = 0; row < rows; ++row) {
                for (int i = 0; i < vocabulary; ++i) trial.at(row, i) = trial.at(0, i);
            }
            trial.launch();
            const reference_sample wanted = sample_by_sorting(trial.row(0), kind);
            std::vector<double> probabilities(vocabulary, 0.0), pairs(vocabulary * vocabulary, 0.0);
            double sum = 0;
            for (std::size_t i = 0; i < wanted.most; ++i) sum += wanted.weight(wanted.sorted[i]);
            for (std::size_t i = 0; i < wanted.most; ++i) {
                probabilities[wanted.sorted[i]] = wanted.weight(wanted.sorted[i]) / sum;
            }
            std::vector<int> seen(vocabulary, 0), seen_pairs(vocabulary * vocabulary, 0);
            for (int row = 0; row < rows; ++row) {
                ++seen[trial.tokens.values[row]];
                if (row % 2 == 1) {
                    ++seen_pairs[trial.tokens.values[row - 1] * vocabulary + trial.tokens.values[row]];
                }
            }
            // With 11 degrees of freedom one in a million exceeds 49; with 143, 239.
            CHECK(chi_squared(seen, probabilities) < 49);
            for (int i = 0; i < vocabulary * vocabulary; ++i) {
                pairs[i] = probabilities[i / vocabulary] * probabilities[i % vocabulary];
            }
            CHECK(chi_squared(seen_pairs, pairs) < 239);
        }
    }
}

TEST_CASE("a draw depends on seed and position only, not on the batch") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        std::vector<sample_options> all(7, sample_options{.top_p = 0.9f});
        for (int i = 0; i < 7; ++i) all[i].seed = 11, all[i].position = i;
        all[3] = {.temperature = 0};
        all[5] = {.temperature = 2, .top_k = 4, .seed = 12};
        sample_trial<float> together(where, 700, all);
        together.launch();
        for (int row = 0; row < 7; ++row) {
            sample_trial<float> alone(where, 700, {all[row]});
            for (int i = 0; i < 700; ++i) alone.at(0, i) = together.at(row, i);
            alone.launch();
            CHECK(alone.tokens.values[0] == together.tokens.values[row]);
        }
    }
}

TEST_CASE("an empty batch does nothing, and optional outputs are not written") {
    for (const world where : worlds()) {
        sample_tokens<float>::launch(where, {});
        sample_trial<float> trial(where, 100, {{}, {}}, 3, 0, 0, 2);
        sample_problem<float> p = trial.upload();
        p.logprobs = nullptr;
        p.thresholds = nullptr;
        p.num_top_logprobs = 0;
        p.top_logprobs_tokens = nullptr;
        p.top_logprobs = nullptr;
        sample_tokens<float>::launch(where, p);
        trial.tokens.download();
        trial.logprobs.download();
        CHECK(trial.tokens.values[1] >= 0);
        CHECK(std::isnan(trial.logprobs.values[0]));
    }
}

TEST_CASE("sampling rejects invalid problems") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        sample_trial<float> there(where, 64, {{}, {}}, 3, 0, 0, 2);
        there.adjust_tokens(where, 8);
        const sample_problem<float> good = there.upload();
        const auto refused = [&](auto change) {
            sample_problem<float> bad = good;
            change(bad);
            return error_message_of([&] { sample_tokens<float>::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.logits.pointer = nullptr; }) ==
              "logits.pointer: null; 2 x 1 x 64 elements are needed");
        CHECK(refused([](auto& p) { p.logits.extents.given[2] = 0; }) ==
              "logits.extents[2]: 0; the vocabulary size must be from 1 to 1048576");
        CHECK(refused([](auto& p) { p.logits.extents.given[2] = 1048577; }) ==
              "logits.extents[2]: 1048577; the vocabulary size must be from 1 to 1048576");
        CHECK(refused([](auto& p) { p.options = nullptr; }) == "options: null; 2 sample_options are needed");
        CHECK(refused([](auto& p) { p.tokens = nullptr; }) == "tokens: null; 2 elements are needed, one per row");
        CHECK(refused([](auto& p) { p.num_top_logprobs = 21; }) == "num_top_logprobs: 21; must be from 0 to 20");
        CHECK(refused([](auto& p) { p.top_logprobs = nullptr; }) ==
              "top_logprobs_tokens, top_logprobs: null; 2 x 2 of each are needed");
        CHECK(refused([](auto& p) { p.token_mask_rows = p.adjustment_offsets; }) ==
              "token_masks, token_mask_rows: one of them is null; both or neither must be given");
        CHECK(refused([](auto& p) { p.adjustments = nullptr; }) ==
              "adjustments, adjustment_offsets: one of them is null; both or neither must be given");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("sampling rejects invalid options and adjustments in the host world") {
    const auto refused = [](sample_options one) {
        sample_trial<float> there(world::host, 64, {{}, one});
        return error_message_of([&] { sample_tokens<float>::launch(world::host, there.upload()); });
    };
    const auto refused_mask = [](int row) {
        sample_trial<float> trial(world::host, 64, {{}, {}});
        trial.mask_tokens(world::host, 2, [](int, int) { return true; });
        sample_problem<float> p = trial.upload();
        const int rows[] = {-1, row};
        p.token_mask_rows = rows;
        return error_message_of([&] { sample_tokens<float>::launch(world::host, p); });
    };
    CHECK(refused_mask(2) == "token_mask_rows[1]: 2; must be -1 (no mask) or below num_token_masks, 2");
    CHECK(refused_mask(-2) == "token_mask_rows[1]: -2; must be -1 (no mask) or below num_token_masks, 2");
    CHECK(refused_mask(1) == "no error");
    CHECK(refused({.temperature = -1}) == "options[1].temperature: -1; must be 0 (greedy) or a positive number");
    CHECK(refused({.temperature = not_a_number}).starts_with("options[1].temperature: "));
    CHECK(refused({.top_k = -2}) == "options[1].top_k: -2; must be 0 (all tokens) or more");
    CHECK(refused({.top_p = 0}) == "options[1].top_p: 0; must be greater than 0 and at most 1");
    CHECK(refused({.min_p = 2}) == "options[1].min_p: 2; must be from 0 to 1");
    CHECK(refused({.repetition_penalty = 0}) == "options[1].repetition_penalty: 0; must be greater than 0 (1: none)");
    CHECK(refused({.presence_penalty = infinity}) == "options[1].presence_penalty: inf; must be finite");
    CHECK(refused({.frequency_penalty = not_a_number}).starts_with("options[1].frequency_penalty: "));
    CHECK(refused({.position = -1}) == "options[1].position: -1; must be 0 or more");

    const auto refused_adjustment = [](std::vector<logit_adjustment> adjustments, std::vector<int> starts) {
        sample_trial<float> there(world::host, 64, {{}, {}});
        sample_problem<float> p = there.upload();
        p.adjustments = adjustments.data();
        p.adjustment_offsets = starts.data();
        return error_message_of([&] { sample_tokens<float>::launch(world::host, p); });
    };
    CHECK(refused_adjustment({{.token = 1}}, {0, 1, 0}) ==
          "adjustment_offsets[1], adjustment_offsets[2]: 1, 0; they must be nonnegative and nondecreasing");
    CHECK(refused_adjustment({{.token = 64}}, {0, 0, 1}) == "adjustments[0].token: 64; the vocabulary has 64 tokens");
    CHECK(refused_adjustment({{.token = -1}}, {0, 1, 1}) == "adjustments[0].token: -1; the vocabulary has 64 tokens");
    CHECK(refused_adjustment({{.token = 5}, {.token = 5}}, {0, 2, 2}) ==
          "adjustments[1].token: 5; must be greater than the token before it, 5");
    CHECK(refused_adjustment({{.token = 5, .generated = -1}}, {0, 1, 1}) ==
          "adjustments[0].generated: -1; must be 0 or more");
    CHECK(refused_adjustment({{.token = 5, .bias = infinity}}, {0, 1, 1}) ==
          "adjustments[0].bias: inf; must be finite or -infinity");
    CHECK(refused_adjustment({{.token = 5}, {.token = 5}}, {0, 1, 2}) == "no error");
}

TEST_CASE("sampling has no hazard in any schedule, and every mutation is detected") {
    using kernel = sample_tokens<bf16>::kernel<row_alignment::unaligned>;
    // Enough ties to reach every kind of pass, and tokens for two warps.
    sample_trial<bf16> there(world::host, 1100, {{.temperature = 2, .top_k = 70, .top_p = 0.8f, .min_p = 0.01f}}, 0.02f,
                             0, 0, 2);
    there.adjust_tokens(world::host, 200);
    const auto args = sample_tokens<bf16>::arguments_of(there.upload());
    const grid_dim grid = kernel::grid_of(args);
    check_synchronisation<kernel>("sampling", grid, args);
}
#endif
