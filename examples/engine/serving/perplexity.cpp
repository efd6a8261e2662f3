#include "engine/serving/perplexity.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <imbrex/core/error.hpp>
#include <memory>
#include <numeric>

namespace imbrex::engine {

namespace {

double minus_log_probability(std::span<const float> logits, int token) {
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    return largest + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

// Steps of one window. Each scored position is an entry of its own: a runner returns the logits of an entry's last token.
class window_scorer {
  public:
    window_scorer(runner& model, int vocab_size, const perplexity_options& options)
        : model_(model), vocab_size_(vocab_size), options_(options) {}

    // Calls score(-log p) for each token from `first_scored` on.
    template <class Score>
    void run(std::vector<int> tokens, int first_scored, const Score& score) {
        const int length = static_cast<int>(tokens.size());
        window_ = std::make_shared<sequence>();
        window_->tokens = std::move(tokens);
        window_->num_prompt_tokens = length;
        std::vector<int> blocks(static_cast<std::size_t>((length + options_.block_size - 1) / options_.block_size));
        std::iota(blocks.begin(), blocks.end(), 0);
        window_->block_table.groups.assign(static_cast<std::size_t>(options_.cache_groups), blocks);
        for (int at = 0; at < first_scored - 1; at += options_.max_batched_tokens) {
            const int count = std::min(options_.max_batched_tokens, first_scored - 1 - at);
            model_.run({.copies = {}, .entries = {{.sequence = window_, .first = at, .count = count}}});
        }
        const int at_once = std::min(options_.max_batched_tokens, options_.max_scored);
        for (int at = first_scored - 1; at < length - 1; at += at_once)
            score_step(at, std::min(at_once, length - 1 - at), score);
    }

  private:
    template <class Score>
    void score_step(int first, int count, const Score& score) {
        batch step;
        for (int i = 0; i < count; ++i)
            step.entries.push_back({.sequence = window_, .first = first + i, .count = 1, .samples = true});
        model_.run(step);
        const std::vector<float> logits = model_.last_logits();
        const auto vocabulary = static_cast<std::size_t>(vocab_size_);
        for (int i = 0; i < count; ++i) {
            const std::span<const float> row(&logits[static_cast<std::size_t>(i) * vocabulary], vocabulary);
            score(minus_log_probability(row, window_->tokens[static_cast<std::size_t>(first + i + 1)]));
        }
    }

    runner& model_;
    int vocab_size_;
    const perplexity_options& options_;
    std::shared_ptr<sequence> window_;
};

}  // namespace

double perplexity_result::perplexity() const {
    return std::exp(mean);
}

double perplexity_result::standard_error() const {
    return tokens > 1 ? perplexity() * deviation / std::sqrt(static_cast<double>(tokens - 1)) : 0;
}

perplexity_result perplexity_of(runner& model, std::span<const int> text, int vocab_size,
                                const perplexity_options& options, const perplexity_progress& progress) {
    const std::size_t own = std::min(static_cast<std::size_t>(options.window) - options.prefix.size(), text.size());
    require(static_cast<std::size_t>(options.window) > options.prefix.size() && own >= 2, "perplexity: a window of ",
            options.window, " tokens, ", options.prefix.size(), " of them a prefix, and a text of ", text.size(),
            "; a window needs two tokens of the text");
    for (const int token : text)
        require(token >= 0 && token < vocab_size, "perplexity: token ", token, "; the model has ", vocab_size);
    const std::size_t windows = text.size() / own, scored = own - own / 2;
    window_scorer scorer(model, vocab_size, options);
    perplexity_result result;
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < windows; ++i) {
        const std::span<const int> part = text.subspan(i * own, own);
        std::vector<int> tokens = options.prefix;
        tokens.insert(tokens.end(), part.begin(), part.end());
        const int first_scored = static_cast<int>(tokens.size() - scored);
        scorer.run(std::move(tokens), first_scored, [&](double value) {
            sum += value, squares += value * value;
            ++result.tokens;
        });
        if (progress && !progress(result.tokens, static_cast<std::int64_t>(windows * scored))) break;
    }
    const auto count = static_cast<double>(result.tokens);
    result.mean = sum / count;
    result.deviation = std::sqrt(std::max(0.0, squares / count - result.mean * result.mean));
    return result;
}

}  // namespace imbrex::engine
