#include "tales/tale_world.hpp"

#include <algorithm>
#include <array>

namespace imbrex::engine {

namespace {

using enum tale_meaning;

constexpr int highest_number = 99;

constexpr std::pair<std::string_view, tale_meaning> meanings[] = {
    {"person_at", person_at},
    {"pair_at", pair_at},
    {"new_thing_at", new_thing_at},
    {"new_thing_of", new_thing_of},
    {"count_is", count_is},
    {"go", go},
    {"pair_go", pair_go},
    {"follow", follow},
    {"take", take},
    {"drop", drop},
    {"give", give},
    {"take_from", take_from},
    {"gain", gain},
    {"gain_more", gain_more},
    {"lose", lose},
    {"give_count", give_count},
    {"near", near},
    {"alone", alone},
    {"sees", sees},
    {"holds", holds},
    {"nobody_holds", nobody_holds},
    {"thing_at", thing_at},
    {"colour_is", colour_is},
    {"together", together},
    {"more_than", more_than},
    {"thanks", thanks},
    {"ask_person_at", ask_person_at},
    {"ask_thing_at", ask_thing_at},
    {"ask_holds", ask_holds},
    {"ask_count", ask_count},
    {"ask_colour", ask_colour},
    {"ask_together", ask_together},
    {"scene", scene},
    {"aside", aside},
    {"end", end},
};

// A sentence is about its subject; a quotation may be about another person.
const std::string& who(const tale_sentence& said) {
    return said.person.empty() ? said.subject : said.person;
}

bool is_event(tale_meaning meaning) {
    return go <= meaning && meaning <= give_count;
}

bool is_question(tale_meaning meaning) {
    return ask_person_at <= meaning && meaning <= ask_together;
}

bool one_named_twice(const tale_sentence& said) {
    const auto same = [](const std::string& one, const std::string& other) { return !one.empty() && one == other; };
    return same(said.subject, said.person) || same(said.subject, said.other) || same(said.person, said.other);
}

tale_truth truth_of(bool right) {
    return right ? tale_truth::right : tale_truth::wrong;
}

}  // namespace

std::optional<tale_meaning> tale_meaning_of(std::string_view name) {
    const auto found = std::ranges::find(meanings, name, &std::pair<std::string_view, tale_meaning>::first);
    if (found == std::end(meanings)) return {};
    return found->second;
}

tale_truth tale_world::tell(const tale_sentence& sentence) {
    tale_sentence said = sentence;
    bool pronoun_fits = true;
    if (said.subject == "he" || said.subject == "she") {
        pronoun_fits = !subject_.empty() && pronouns_.find(subject_)->second == said.subject;
        said.subject = subject_;
    }
    subject_ = pronoun_fits ? said.subject : "";

    const std::optional<tale_sentence> question = std::exchange(question_, {});
    if (question && !answers(*question, said)) return tale_truth::wrong;
    if (said.meaning >= scene) return tale_truth::not_counted;
    if (!pronoun_fits || one_named_twice(said)) return tale_truth::wrong;
    if (opening_ && !said.spoken && introduces(said)) return tale_truth::not_counted;
    if (!known(said)) return tale_truth::wrong;
    if (is_question(said.meaning)) return ask(said);
    if (!is_event(said.meaning)) return truth_of(is_true(said));
    const bool happened = happens(said);
    return said.meaning == gain && happened ? tale_truth::not_counted : truth_of(happened);
}

void tale_world::misunderstand() {
    subject_.clear();
    question_.reset();
}

bool tale_world::known(const tale_sentence& said) const {
    const auto is_here = [&](const std::string& name) { return name.empty() || place_of_.contains(name); };
    return is_here(said.subject) && is_here(said.person) && is_here(said.other) &&
           (said.thing.empty() || colour_.contains(said.thing));
}

bool tale_world::answers(const tale_sentence& question, const tale_sentence& said) const {
    const bool asked_aloud = !question.subject.empty();
    if (said.spoken != asked_aloud || (asked_aloud && said.subject != question.other)) return false;
    const bool same_thing = said.thing == question.thing;
    switch (question.meaning) {
        case ask_person_at:
            return said.meaning == person_at && who(said) == question.person;
        case ask_thing_at:
            return said.meaning == thing_at && same_thing;
        case ask_holds:
            return (said.meaning == tale_meaning::holds || said.meaning == nobody_holds) && same_thing;
        case ask_count:  // aloud: "How many figs do you have?"
            return said.meaning == count_is && who(said) == (asked_aloud ? question.other : question.person) &&
                   said.kind == question.kind;
        case ask_colour:
            return said.meaning == colour_is && same_thing;
        default:
            return said.meaning == tale_meaning::together && said.person == question.person &&
                   said.other == question.other && said.kind == question.kind;
    }
}

tale_truth tale_world::ask(const tale_sentence& said) {
    question_ = said;
    return said.subject.empty() ? tale_truth::not_counted : truth_of(together(said.subject, said.other));
}

// Introduces a new person or thing, if the sentence does; returns whether.
bool tale_world::introduces(const tale_sentence& said) {
    const bool new_thing = !colour_.contains(said.thing);
    switch (said.meaning) {
        case person_at:
            return place_of_.try_emplace(who(said), said.place).second;
        case pair_at:
            if (place_of_.contains(said.person) || place_of_.contains(said.other)) return false;
            place_of_[said.person] = place_of_[said.other] = said.place;
            return true;
        case new_thing_at:
            if (new_thing) lies_at_[said.thing] = said.place;
            break;
        case new_thing_of:
            if (!place_of_.contains(said.subject)) return false;
            if (new_thing) holder_[said.thing] = said.subject;
            break;
        case count_is:
            return place_of_.contains(who(said)) && counts_.try_emplace({who(said), said.kind}, said.number).second;
        default:
            return false;
    }
    if (new_thing) colour_[said.thing] = said.colour;
    return new_thing;
}

bool tale_world::happens(const tale_sentence& said) {
    switch (said.meaning) {
        case go:
            return move(said.subject, said.place);
        case pair_go:
            return together(said.person, said.other) && move(said.person, said.place) && move(said.other, said.place);
        case follow:
            return place_of_[said.other] == said.place && move(said.subject, said.place);
        case take:
            if (!lies_where(said.thing, said.subject)) return false;
            lies_at_.erase(said.thing);
            holder_[said.thing] = said.subject;
            return true;
        case drop:
            if (!holds(said.subject, said.thing)) return false;
            holder_.erase(said.thing);
            lies_at_[said.thing] = place_of_[said.subject];
            return true;
        case give:
            return hand_over(said.thing, said.subject, said.other);
        case take_from:
            return hand_over(said.thing, said.other, said.subject);
        case gain_more:
            if (number_of(said.subject, said.kind) == 0) return false;
            [[fallthrough]];
        case gain:
            return change(said.subject, said.kind, said.number);
        case lose:
            return change(said.subject, said.kind, -said.number);
        default:
            return give_count(said);
    }
}

bool tale_world::is_true(const tale_sentence& said) const {
    const auto place_of = [&](const std::string& name) { return place_of_.find(name)->second; };
    switch (said.meaning) {
        case person_at:
            return place_of(who(said)) == said.place;
        case pair_at:
            return place_of(said.person) == said.place && place_of(said.other) == said.place;
        case count_is:
            return number_of(who(said), said.kind) == said.number;
        case near:
            return together(said.subject, said.other);
        case alone:
            return std::ranges::count(place_of_, place_of(said.subject), &names::value_type::second) == 1;
        case sees:
            return lies_where(said.thing, said.subject);
        case tale_meaning::holds:
            return holds(who(said), said.thing);
        case nobody_holds:
            return lies_at_.contains(said.thing);
        case thing_at: {
            const auto lies = lies_at_.find(said.thing);
            return (lies != lies_at_.end() ? lies->second : place_of(holder_.find(said.thing)->second)) == said.place;
        }
        case colour_is:
            return colour_.find(said.thing)->second == said.colour;
        case tale_meaning::together:
            return number_of(said.person, said.kind) + number_of(said.other, said.kind) == said.number;
        case more_than:
            return number_of(said.person, said.kind) > number_of(said.other, said.kind);
        case thanks:
            return last_gift_ == std::pair(said.other, said.subject);
        default:  // an introduction of a known thing, or after the first paragraph
            return false;
    }
}

bool tale_world::together(const std::string& one, const std::string& other) const {
    return place_of_.find(one)->second == place_of_.find(other)->second;
}

bool tale_world::holds(const std::string& name, const std::string& thing) const {
    const auto found = holder_.find(thing);
    return found != holder_.end() && found->second == name;
}

bool tale_world::lies_where(const std::string& thing, const std::string& name) const {
    const auto found = lies_at_.find(thing);
    return found != lies_at_.end() && found->second == place_of_.find(name)->second;
}

int tale_world::number_of(const std::string& name, const std::string& kind) const {
    const auto found = counts_.find({name, kind});
    return found == counts_.end() ? 0 : found->second;
}

// Changes a count if it stays in range; returns whether.
bool tale_world::change(const std::string& name, const std::string& kind, int by) {
    const int number = number_of(name, kind) + by;
    if (by == 0 || number < 0 || number > highest_number) return false;
    counts_[{name, kind}] = number;
    return true;
}

bool tale_world::move(const std::string& name, const std::string& place) {
    return std::exchange(place_of_[name], place) != place;
}

bool tale_world::hand_over(const std::string& thing, const std::string& giver, const std::string& receiver) {
    if (!holds(giver, thing) || !together(giver, receiver)) return false;
    holder_[thing] = receiver;
    last_gift_ = {giver, receiver};
    return true;
}

bool tale_world::give_count(const tale_sentence& said) {
    if (!together(said.subject, said.other)) return false;
    if (number_of(said.other, said.kind) + said.number > highest_number) return false;
    if (!change(said.subject, said.kind, -said.number)) return false;
    last_gift_ = {said.subject, said.other};
    return change(said.other, said.kind, said.number);
}

}  // namespace imbrex::engine
