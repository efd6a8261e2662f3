#include "tales/tale_grammar.hpp"

#include <algorithm>
#include <imbrex/core/error.hpp>
#include <utility>

namespace imbrex::engine {

namespace {

bool take(std::string_view& text, std::string_view beginning) {
    if (!text.starts_with(beginning)) return false;
    text.remove_prefix(beginning.size());
    return true;
}

// The longest word of a list that is a prefix of the text, or nothing.
std::string_view take_word(std::string_view& text, const std::vector<std::string>& words) {
    std::string_view longest;
    for (const std::string& word : words)
        if (word.size() > longest.size() && text.starts_with(word)) longest = word;
    text.remove_prefix(longest.size());
    return longest;
}

// A number of one or two digits; 0 if there is none.
int take_number(std::string_view& text) {
    const auto is_digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
    if (!is_digit(0) || text[0] == '0') return 0;
    int number = 0;
    for (int digits = 0; digits < 2 && is_digit(0); ++digits) {
        number = number * 10 + (text[0] - '0');
        text.remove_prefix(1);
    }
    return number;
}

std::string_view before_space(std::string_view line) {
    return line.substr(0, line.find(' '));
}

std::string_view after_space(std::string_view line) {
    return line.substr(line.find(' ') + 1);
}

}  // namespace

tale_grammar::tale_grammar(std::string_view text) {
    words* list = nullptr;
    while (!text.empty()) {
        const std::size_t length = std::min(text.find('\n'), text.size());
        const std::string line(text.substr(0, length));
        text.remove_prefix(std::min(length + 1, text.size()));
        if (line.empty() || line[0] == '#') continue;
        if (line[0] == '[') {
            list = &lists_[line.substr(1, line.find(']') - 1)];
            continue;
        }
        require(list != nullptr, "grammar: \"", line, "\" is in no list; a line [name] begins one");
        list->push_back(line);
    }
    for (const char* name : {"girls", "boys", "places", "things", "colours", "food", "goods", "openers", "sentences"})
        require(lists_.contains(name), "grammar: there is no list [", name, "]");

    for (const auto& [name, pronoun] : {std::pair("girls", "she"), std::pair("boys", "he")}) {
        for (const std::string& person : lists_[name]) {
            people_.push_back(person);
            pronouns_[person] = pronoun;
        }
    }
    for (const std::string& place : lists_["places"]) places_.emplace_back(after_space(place));
    for (const char* name : {"food", "goods"}) {
        for (const std::string& line : lists_[name]) {
            require(line.find(' ') != std::string::npos, "grammar: \"", line, "\" in [", name,
                    "]; one and many are needed");
            goods_.one.emplace_back(before_space(line));
            goods_.many.emplace_back(after_space(line));
        }
        if (food_.one.empty()) food_ = goods_;
    }
    for (const std::string& line : lists_["sentences"]) wordings_.push_back(read_wording(line));
}

tale_grammar::wording tale_grammar::read_wording(std::string_view line) const {
    static constexpr std::pair<std::string_view, slot_kind> kinds[] = {
        {"subject", slot_kind::subject}, {"person", slot_kind::person}, {"other", slot_kind::other},
        {"place", slot_kind::place},     {"at", slot_kind::at},         {"thing", slot_kind::thing},
        {"new", slot_kind::new_thing},   {"colour", slot_kind::colour}, {"count", slot_kind::count},
        {"food", slot_kind::food},       {"more", slot_kind::more},     {"kind", slot_kind::kind}};
    const std::string whole(line);
    const std::size_t colon = line.find(": ");
    require(colon != std::string_view::npos, "grammar: sentence \"", whole, "\"; \"meaning: wording\" is needed");
    const auto meaning = tale_meaning_of(line.substr(0, colon));
    require(meaning.has_value(), "grammar: sentence \"", whole, "\" has a meaning that the checker does not know");
    line.remove_prefix(colon + 2);

    wording result{*meaning,
                   line.find("said, \"") != std::string_view::npos,
                   line.starts_with("{subject}") || line.starts_with("{person}"),
                   {},
                   {}};
    const auto next_literal = [&] {
        const std::string literal(line.substr(0, line.find('{')));
        line.remove_prefix(literal.size());
        return literal;
    };
    result.literal = next_literal();
    std::string before = result.literal;
    while (!line.empty()) {
        require(line.find('}') != std::string_view::npos, "grammar: sentence \"", whole,
                "\" has a slot that does not end");
        const std::string_view name = line.substr(1, line.find('}') - 1);
        const auto kind = std::ranges::find(kinds, name, &std::pair<std::string_view, slot_kind>::first);
        require(kind != std::end(kinds), "grammar: sentence \"", whole, "\" has a slot that the checker does not know");
        line.remove_prefix(name.size() + 2);
        const bool capital = before.ends_with('"') || (result.slots.empty() && before.empty());
        before = next_literal();
        result.slots.push_back({kind->second, capital, before});
    }
    return result;
}

std::optional<tale_sentence> tale_grammar::parse(std::string_view sentence) const {
    bool after_opener = false;
    for (const std::string& opener : lists_.find("openers")->second) {
        if (!sentence.starts_with(opener + " ")) continue;
        sentence.remove_prefix(opener.size() + 1);
        after_opener = true;
        break;
    }
    for (const wording& pattern : wordings_) {
        if (after_opener && !pattern.takes_opener) continue;
        tale_sentence said;
        said.meaning = pattern.meaning;
        said.spoken = pattern.spoken;
        if (match(pattern, sentence, after_opener, said)) return said;
    }
    return {};
}

bool tale_grammar::match(const wording& pattern, std::string_view text, bool after_opener, tale_sentence& said) const {
    if (!take(text, pattern.literal)) return false;
    for (std::size_t i = 0; i < pattern.slots.size(); ++i) {
        const slot& place = pattern.slots[i];
        const bool capital = place.capital && !(after_opener && i == 0);
        if (!match(place.kind, capital, text, said) || !take(text, place.literal)) return false;
    }
    return text.empty();
}

bool tale_grammar::match(slot_kind kind, bool capital, std::string_view& text, tale_sentence& said) const {
    const auto word_of = [&](std::string& to, const words& list) {
        to = take_word(text, list);
        return !to.empty();
    };
    switch (kind) {
        case slot_kind::subject:
            return match_subject(capital, text, said);
        case slot_kind::person:
            return word_of(said.person, people_);
        case slot_kind::other:
            return word_of(said.other, people_);
        case slot_kind::place:
            return word_of(said.place, places_);
        case slot_kind::at:
            if (!word_of(said.place, lists_.find("places")->second)) return false;
            said.place = std::string(after_space(said.place));
            return true;
        case slot_kind::thing:
            return take(text, capital ? "The " : "the ") && word_of(said.thing, lists_.find("things")->second);
        case slot_kind::new_thing:
            return take(text, capital ? "A " : "a ") && word_of(said.colour, lists_.find("colours")->second) &&
                   take(text, " ") && word_of(said.thing, lists_.find("things")->second);
        case slot_kind::colour:
            return word_of(said.colour, lists_.find("colours")->second);
        case slot_kind::kind:
            return word_of(said.kind, goods_.many);
        default:
            return match_number(kind, text, said);
    }
}

bool tale_grammar::match_subject(bool capital, std::string_view& text, tale_sentence& said) const {
    if (take(text, capital ? "She" : "she")) {
        said.subject = "she";
    } else if (take(text, capital ? "He" : "he")) {
        said.subject = "he";
    } else {
        said.subject = take_word(text, people_);
    }
    return !said.subject.empty();
}

bool tale_grammar::match_number(slot_kind kind, std::string_view& text, tale_sentence& said) const {
    const counted& goods = kind == slot_kind::food ? food_ : goods_;
    said.number = 0;
    if (kind != slot_kind::count || !take(text, "no")) {
        said.number = take_number(text);
        if (said.number == 0) return false;
    }
    if (!take(text, kind == slot_kind::more ? " more " : " ")) return false;
    const words& nouns = said.number == 1 ? goods.one : goods.many;
    const std::string_view noun = take_word(text, nouns);
    if (noun.empty()) return false;
    said.kind = goods.many[static_cast<std::size_t>(std::ranges::find(nouns, noun) - nouns.begin())];
    return true;
}

}  // namespace imbrex::engine
