// The grammar of tales (examples/tales/grammar.txt documents the slots): word lists, sentence patterns, and a parser. A
// slot matches a word of a list, and no word of a list is a prefix of another, so a pattern matches without
// backtracking.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tales/tale_world.hpp"

namespace imbrex::engine {

class tale_grammar {
  public:
    explicit tale_grammar(std::string_view text);

    std::optional<tale_sentence> parse(std::string_view sentence) const;
    const tale_world::names& pronouns() const { return pronouns_; }

  private:
    enum class slot_kind { subject, person, other, place, at, thing, new_thing, colour, count, food, more, kind };
    struct slot {
        slot_kind kind;
        bool capital;         // begins a sentence or a quotation
        std::string literal;  // text after the slot
    };
    struct wording {
        tale_meaning meaning;
        bool spoken;
        bool takes_opener;  // begins with a person
        std::string literal;
        std::vector<slot> slots;
    };
    using words = std::vector<std::string>;
    struct counted {
        words one, many;
    };

    wording read_wording(std::string_view line) const;
    bool match(const wording& pattern, std::string_view text, bool after_opener, tale_sentence& said) const;
    bool match(slot_kind kind, bool capital, std::string_view& text, tale_sentence& said) const;
    bool match_subject(bool capital, std::string_view& text, tale_sentence& said) const;
    bool match_number(slot_kind kind, std::string_view& text, tale_sentence& said) const;

    std::map<std::string, words, std::less<>> lists_;
    words places_, people_;  // "the mill" of "at the mill"; girls and boys
    counted food_, goods_;   // goods: food and others
    tale_world::names pronouns_;
    std::vector<wording> wordings_;
};

}  // namespace imbrex::engine
