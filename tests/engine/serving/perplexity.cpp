#include "engine/serving/perplexity.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "engine/support.hpp"

using namespace imbrex::engine;
using imbrex::engine::test::check_error_message;

namespace {

constexpr int vocab_size = 5;

// Logits that depend on the position and on the token there alone: row t is [0, 1, ..., 4] * (t + 1), at each position. Checks
// that a step only uses positions that are computed.
class table_runner : public runner {
  public:
    void launch(const batch& work) override {
        logits_.clear();
        samples_ = work.samples();
        for (const batch_entry& entry : work.entries) {
            CHECK(entry.first == computed_ % entry.sequence->length());
            computed_ = entry.first + entry.count;
            tokens_ += entry.count;
            CHECK(static_cast<int>(entry.sequence->block_table.groups[0].size()) * 4 >= entry.sequence->length());
            if (!entry.samples) continue;
            const int token = entry.sequence->tokens[static_cast<std::size_t>(computed_ - 1)];
            for (int i = 0; i < vocab_size; ++i) logits_.push_back(static_cast<float>(i * (token + 1)));
            if (computed_ == entry.sequence->length() - 1) computed_ = 0;  // the last token predicts nothing
        }
        CHECK(work.tokens() <= 3);
    }
    std::vector<int> wait() override { return std::vector<int>(static_cast<std::size_t>(samples_)); }
    const std::vector<sampled_token>& last_sampled() const override { return none_; }
    std::vector<float> last_logits() const override { return logits_; }
    std::span<std::byte> slot(int, int) override { return {}; }
    int tokens() const { return tokens_; }

  private:
    std::vector<float> logits_;
    std::vector<sampled_token> none_;
    int computed_ = 0, tokens_ = 0, samples_ = 0;
};

double expected(int before, int token) {
    double sum = 0;
    for (int i = 0; i < vocab_size; ++i) sum += std::exp(double(i * (before + 1)));
    return std::log(sum) - token * (before + 1);
}

}  // namespace

TEST_CASE("Perplexity is exp of the mean of -log p of the second half of each window") {
    std::vector<int> text(23);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int>(i * i % vocab_size);
    for (const bool has_prefix : {false, true}) {
        table_runner model;
        perplexity_options options{.window = 8, .max_batched_tokens = 3, .max_scored = 2, .block_size = 4};
        if (has_prefix) options.prefix = {4};
        const perplexity_result found = perplexity_of(model, text, vocab_size, options);
        const int own = has_prefix ? 7 : 8, windows = 23 / own, scored = own - own / 2;
        CHECK(found.tokens == windows * scored);
        CHECK(model.tokens() == windows * 7);
        double sum = 0, squares = 0;
        for (int w = 0; w < windows; ++w) {
            for (int i = own / 2; i < own; ++i) {
                const auto at = static_cast<std::size_t>(w * own + i);
                const double one = expected(text[at - 1], text[at]);
                sum += one, squares += one * one;
            }
        }
        const double mean = sum / double(found.tokens);
        CHECK(found.mean == doctest::Approx(mean));
        CHECK(found.perplexity() == doctest::Approx(std::exp(mean)));
        const double deviation = std::sqrt(squares / double(found.tokens) - mean * mean);
        CHECK(found.standard_error() ==
              doctest::Approx(std::exp(mean) * deviation / std::sqrt(double(found.tokens - 1))));
    }
}

TEST_CASE("Perplexity of a text that is shorter than a window, and of one that is too short") {
    table_runner model;
    const perplexity_options options{.window = 100, .max_batched_tokens = 3, .max_scored = 2, .block_size = 4};
    const std::vector<int> text{1, 2, 0};
    CHECK(perplexity_of(model, text, vocab_size, options).mean ==
          doctest::Approx((expected(1, 2) + expected(2, 0)) / 2));
    check_error_message("a text of 1; a window needs two tokens of the text",
                        [&] { perplexity_of(model, std::vector<int>{1}, vocab_size, options); });
    check_error_message("token 5; the model has 5", [&] {
        perplexity_of(model, std::vector<int>{1, 5}, vocab_size, options);
    });
}

TEST_CASE("Perplexity can be stopped") {
    table_runner model;
    const perplexity_options options{.window = 4, .max_batched_tokens = 3, .max_scored = 2, .block_size = 4};
    const std::vector<int> text(20, 1);
    const perplexity_result found = perplexity_of(model, text, vocab_size, options, [](auto done, auto all) {
        CHECK(all == 10);
        return done < 4;
    });
    CHECK(found.tokens == 4);
}
