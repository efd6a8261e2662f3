// Unigram vocabularies (SentencePiece, T5): each token has a log-probability, and a text becomes the tokens of the
// greatest sum. Characters without a token cost more than any token, and become bytes or one unknown token.
#include <algorithm>
#include <limits>

#include "engine/tokenizer/tokenizer.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

constexpr float unknown_penalty = 10;

// The best way to each byte of the text.
struct best_path {
    float score = 0;
    int id = -1;  // of the last token; -1: unknown
    std::size_t start = 0;
    bool is_reached = false;
};

}  // namespace

void tokenizer::encode_unigram(std::string_view word, std::vector<int>& ids) const {
    std::vector<best_path> paths(word.size() + 1);
    paths[0].is_reached = true;
    const auto extend = [&](std::size_t start, std::size_t length, float score, int id) {
        best_path& end = paths[start + length];
        const float sum = paths[start].score + score;
        if (!end.is_reached || sum > end.score) end = {sum, id, start, true};
    };
    for (std::size_t start = 0; start < word.size();) {
        const auto one = static_cast<std::size_t>(first_code_point(word.substr(start)).length);
        bool has_one = false;
        const std::size_t most = std::min(longest_token_, word.size() - start);
        for (std::size_t length = one; length <= most;) {
            if (const int found = id_of_text(word.substr(start, length)); found != hash_index::none) {
                extend(start, length, at(found).score, found);
                has_one = has_one || length == one;
            }
            if (start + length == word.size()) break;
            length += static_cast<std::size_t>(first_code_point(word.substr(start + length)).length);
        }
        if (!has_one) extend(start, one, least_score_ - unknown_penalty, -1);
        start += one;
    }
    std::vector<best_path> steps;
    for (std::size_t end = word.size(); end > 0; end = steps.back().start) steps.push_back(paths[end]);
    std::ranges::reverse(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].id >= 0) {
            ids.push_back(steps[i].id);
            continue;
        }
        std::size_t last = i;  // adjacent unknown characters are one unknown token
        while (last + 1 < steps.size() && steps[last + 1].id < 0) ++last;
        const std::size_t end = last + 1 < steps.size() ? steps[last + 1].start : word.size();
        append_bytes(word.substr(steps[i].start, end - steps[i].start), ids);
        i = last;
    }
}

}  // namespace imbrex::engine
