// A sampling problem with random logits, its outputs, and the comparison with the sorting reference.
#pragma once

#include <imbrex/kernels/sample.hpp>

#include "kernels/elementwise.hpp"
#include "kernels/sample/reference.hpp"
#include "worlds.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace imbrex_test {

using namespace imbrex;

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

template <class T>
class sample_trial {
  public:
    // Normally distributed logits, one row per options.
    sample_trial(world where, int vocabulary, const std::vector<sample_options>& wanted, float spread = 3, int gap = 0,
                 int before = 0, int num_top_logprobs = 0)
        : shape{static_cast<int>(wanted.size()), 1, vocabulary, gap, before},
          count(num_top_logprobs),
          logits(where, shape.elements()),
          options(where, wanted.size()),
          adjustment_offsets(where, wanted.size() + 1),
          tokens(where, wanted.size(), -7),
          logprobs(where, wanted.size(), not_a_number),
          top_logprobs_tokens(where, wanted.size() * static_cast<std::size_t>(num_top_logprobs), -7),
          top_logprobs(where, top_logprobs_tokens.values.size(), not_a_number),
          thresholds(where, wanted.size()),
          where_(where) {
        std::mt19937 generator(static_cast<std::uint32_t>(vocabulary));
        std::normal_distribution<float> number(0, spread);
        logits.values = poisoned<T>(shape.elements());
        for (int row = 0; row < shape.rows(); ++row) {
            for (int i = 0; i < vocabulary; ++i) at(row, i) = convert<T>(number(generator));
        }
        options.values = wanted;
    }

    T& at(int row, int token) { return logits.values[shape.index(row, token)]; }
    std::vector<float> row(int number) {
        std::vector<float> all;
        for (int i = 0; i < shape.columns; ++i)
            all.push_back(is_allowed(number, i) ? convert<float>(at(number, i)) : -infinity);
        return all;
    }
    // Masks for two of three rows: one for each token set of `allows(mask, token)`. Bits past the vocabulary are set.
    template <class Allows>
    void mask_tokens(world where, int masks, Allows&& allows) {
        const int words = detail::token_mask_words(shape.columns);
        token_masks_ = std::make_unique<buffer<std::uint32_t>>(where, static_cast<std::size_t>(masks) * words);
        token_mask_rows_ = std::make_unique<buffer<int>>(where, static_cast<std::size_t>(shape.rows()));
        for (int i = 0; i < masks * words * 32; ++i) {
            const int mask = i / (words * 32), token = i % (words * 32);
            if (token >= shape.columns || allows(mask, token))
                token_masks_->values[static_cast<std::size_t>(i / 32)] |= 1u << (i % 32);
        }
        for (int row = 0; row < shape.rows(); ++row)
            token_mask_rows_->values[row] = row % 3 == 2 ? -1 : (row / 3 + row % 3) % masks;
    }
    bool is_allowed(int row, int token) const {
        if (token_masks_ == nullptr || token_mask_rows_->values[row] < 0) return true;
        const int words = detail::token_mask_words(shape.columns);
        return detail::is_in_mask(token_masks_->values.data() + token_mask_rows_->values[row] * words, token);
    }
    // Adjusts a token about every `step` tokens in each row.
    void adjust_tokens(world where, int step) {
        std::mt19937 generator(5);
        std::vector<logit_adjustment> all;
        for (int row = 0; row < shape.rows(); ++row) {
            for (int i = row % step; i < shape.columns; i += 1 + static_cast<int>(generator() % step)) {
                const int kind = static_cast<int>(generator() % 4);
                all.push_back({.token = i,
                               .generated = kind == 0 ? 0 : kind - 1,
                               .in_prompt = kind < 2 ? 1 : 0,
                               .bias = generator() % 3 == 0 ? static_cast<float>(generator() % 7) - 3 : 0.0f});
                if (generator() % 16 == 0) all.back().bias = -infinity;
            }
            adjustment_offsets.values[row + 1] = static_cast<int>(all.size());
        }
        adjustments_ = std::make_unique<buffer<logit_adjustment>>(where, all.size());
        adjustments_->values = all;
    }

    sample_problem<T> upload() {
        sample_problem<T> p{.logits = shape.view<const T>(logits.upload()),
                            .options = options.upload(),
                            .tokens = tokens.upload(),
                            .logprobs = logprobs.upload(),
                            .num_top_logprobs = count,
                            .top_logprobs_tokens = top_logprobs_tokens.upload(),
                            .top_logprobs = top_logprobs.upload(),
                            .thresholds = thresholds.upload()};
        if (adjustments_ != nullptr)
            p.adjustments = adjustments_->upload(), p.adjustment_offsets = adjustment_offsets.upload();
        if (token_masks_ != nullptr) {
            p.token_masks = token_masks_->upload();
            p.token_mask_rows = token_mask_rows_->upload();
            p.num_token_masks = static_cast<int>(token_masks_->values.size()) / detail::token_mask_words(shape.columns);
        }
        return p;
    }
    void launch() {
        sample_tokens<T>::launch(where_, upload());
        tokens.download();
        logprobs.download();
        top_logprobs_tokens.download();
        top_logprobs.download();
        thresholds.download();
    }

    std::span<const logit_adjustment> adjustments_of(int row) const {
        if (adjustments_ == nullptr) return {};
        return std::span(adjustments_->values)
            .subspan(adjustment_offsets.values[row],
                     adjustment_offsets.values[row + 1] - adjustment_offsets.values[row]);
    }

    void check() {
        for (int row = 0; row < shape.rows(); ++row) {
            CAPTURE(row);
            const std::vector<float> values = this->row(row);
            const reference_sample wanted = sample_by_sorting(values, options.values[row], adjustments_of(row));
            check_threshold(row, wanted);
            check_logprobs(row, values);
        }
    }

  private:
    void check_threshold(int row, const reference_sample& wanted) {
        const int token = tokens.values[row];
        REQUIRE((token >= 0 && token < shape.columns));
        if (wanted.sorted.empty()) {
            CHECK(token == 0);
            return;
        }
        const sample_threshold threshold = thresholds.values[row];
        std::size_t kept = 0;
        for (int i = 0; i < shape.columns; ++i) kept += threshold.keeps(wanted.scores[i], i) ? 1 : 0;
        CHECK(kept >= wanted.fewest);
        CHECK(kept <= wanted.most);
        bool best_are_kept = true;
        for (std::size_t i = 0; i < kept; ++i) {
            best_are_kept = best_are_kept && threshold.keeps(wanted.scores[wanted.sorted[i]], wanted.sorted[i]);
        }
        CHECK(best_are_kept);
        CHECK(threshold.keeps(wanted.scores[token], token));
        if (options.values[row].temperature == 0) {
            CHECK(token == wanted.sorted[0]);
        } else {
            CHECK(wanted.rate(token) >= wanted.best_rate(kept) * (1 - 1e-5));
        }
    }
    void check_logprobs(int row, const std::vector<float>& values) {
        const std::vector<double> wanted = log_probabilities(values);
        const auto near = [](float found, double right) {
            return found == right || std::fabs(found - right) <= 3e-6 * (1 + std::fabs(right));
        };
        const int token = tokens.values[row];
        if (std::isfinite(clean_logit(values[token]))) CHECK(near(logprobs.values[row], wanted[token]));
        std::vector<float> scores;
        for (const float value : values) scores.push_back(clean_logit(value));
        const std::vector<int> sorted = sorted_tokens(scores);
        bool right = true;
        for (int i = 0; i < count; ++i) {
            const std::size_t place = static_cast<std::size_t>(row) * count + i;
            const bool there = i < static_cast<int>(sorted.size());
            right = right && top_logprobs_tokens.values[place] == (there ? sorted[i] : -1);
            right = right && near(top_logprobs.values[place], there ? wanted[sorted[i]] : -infinity);
        }
        CHECK(right);
    }

  public:
    row_shape shape;
    int count;
    buffer<T> logits;
    buffer<sample_options> options;
    buffer<int> adjustment_offsets, tokens;
    buffer<float> logprobs;
    buffer<int> top_logprobs_tokens;
    buffer<float> top_logprobs;
    buffer<sample_threshold> thresholds;

  private:
    world where_;
    std::unique_ptr<buffer<logit_adjustment>> adjustments_;
    std::unique_ptr<buffer<std::uint32_t>> token_masks_;
    std::unique_ptr<buffer<int>> token_mask_rows_;
};

// Each option alone, and combinations.
inline std::vector<sample_options> many_options() {
    std::vector<sample_options> all{{.temperature = 0},
                                    {},
                                    {.temperature = 0.3f},
                                    {.temperature = 4},
                                    {.top_k = 1},
                                    {.top_k = 5},
                                    {.top_k = 300},
                                    {.top_p = 0.01f},
                                    {.top_p = 0.5f},
                                    {.top_p = 0.9f},
                                    {.top_p = 0.999f},
                                    {.temperature = 3, .top_p = 0.8f},
                                    {.min_p = 0.05f},
                                    {.min_p = 1},
                                    {.temperature = 0.5f, .min_p = 0.001f},
                                    {.temperature = 0.7f, .top_k = 20, .top_p = 0.95f},
                                    {.temperature = 2, .top_k = 100, .top_p = 0.9f, .min_p = 0.02f},
                                    {.repetition_penalty = 1.3f},
                                    {.temperature = 0, .repetition_penalty = 0.5f, .presence_penalty = 1.5f},
                                    {.top_p = 0.9f, .presence_penalty = -1, .frequency_penalty = 0.75f},
                                    {.temperature = 1e-20f},
                                    {.temperature = 1e20f, .top_p = 0.25f},
                                    {.temperature = 1e-20f, .top_k = 3, .top_p = 0.5f}};
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].seed = 0x123456789u * i;
        all[i].position = static_cast<int>(7 * i);
    }
    return all;
}

}  // namespace imbrex_test
