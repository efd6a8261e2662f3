#include "tales/tale_checker.hpp"

#include <algorithm>

namespace imbrex::engine {

namespace {

constexpr char right = 'r', wrong = 'w', not_counted = '.', not_parsed = '?';

bool is_space(char c) {
    return c == ' ' || c == '\n';
}

// The end of the sentence that begins here: after . ? or !, with an optional quotation mark, before a space; or the end
// of the text.
std::size_t end_of_sentence(std::string_view text, std::size_t begin) {
    for (std::size_t i = begin; i < text.size(); ++i) {
        if (text[i] != '.' && text[i] != '?' && text[i] != '!') continue;
        const std::size_t quote = i + 1 < text.size() && text[i + 1] == '"' ? 1 : 0;
        const std::size_t end = i + 1 + quote;
        if (end == text.size() || is_space(text[end])) return end;
    }
    return text.size();
}

double share(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

tale_verdict tale_checker::check(std::string_view tale, std::size_t begin) const {
    tale_world world(grammar_.pronouns());
    tale_verdict verdict;
    std::size_t sentences = 0, ends = 0;
    bool ended = false;
    for (std::size_t place = 0; place < tale.size();) {
        if (is_space(tale[place])) {
            if (tale[place] == '\n' && sentences > 0) world.end_opening();
            ++place;
            continue;
        }
        const std::size_t end = end_of_sentence(tale, place);
        const auto sentence = grammar_.parse(tale.substr(place, end - place));
        char letter = not_parsed;
        if (sentence) {
            const tale_truth truth = world.tell(*sentence);
            letter = truth == tale_truth::right ? right : truth == tale_truth::wrong ? wrong : not_counted;
        } else {
            world.misunderstand();
        }
        ended = sentence && sentence->meaning == tale_meaning::end;
        ends += ended ? 1 : 0;
        if (place >= begin) verdict.letters += letter;
        ++sentences;
        place = end;
    }
    verdict.wholly_right = ended && ends == 1 && verdict.letters.find_first_of("w?") == std::string::npos;
    return verdict;
}

void tale_figures::add(const tale_verdict& verdict) {
    const auto count = [&](char letter) { return std::ranges::count(verdict.letters, letter); };
    ++tales;
    tales_right += verdict.wholly_right ? 1 : 0;
    right += count(engine::right);
    wrong += count(engine::wrong);
    not_counted += count(engine::not_counted);
    not_parsed += count(engine::not_parsed);
}

double tale_figures::statements_right() const {
    return share(right, right + wrong);
}

double tale_figures::tales_wholly_right() const {
    return share(tales_right, tales);
}

double tale_figures::sentences_parsed() const {
    const std::int64_t parsed = right + wrong + not_counted;
    return share(parsed, parsed + not_parsed);
}

}  // namespace imbrex::engine
