// The state of a tale: places, possession, counts. `tell` takes a sentence, returns whether it is right, and applies
// its effect.
//
// A sentence is right if it is true or possible: Mia cannot give away a kite that she does not hold, nor to a person at
// another place. A wrong sentence has no effect. Some sentences are not counted: asides, finding or buying, and
// introductions of people and things, which only the first paragraph may have. A pronoun refers to the subject of the
// previous sentence. A question must be answered by the next sentence, a spoken one by the person asked.
// examples/tales/world.py is the Python counterpart for the generator.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace imbrex::engine {

// In the order of the grammar file: introductions first, unchecked sentences last.
enum class tale_meaning {
    person_at,
    pair_at,
    new_thing_at,
    new_thing_of,
    count_is,
    go,
    pair_go,
    follow,
    take,
    drop,
    give,
    take_from,
    gain,
    gain_more,
    lose,
    give_count,
    near,
    alone,
    sees,
    holds,
    nobody_holds,
    thing_at,
    colour_is,
    together,
    more_than,
    thanks,
    ask_person_at,
    ask_thing_at,
    ask_holds,
    ask_count,
    ask_colour,
    ask_together,
    scene,
    aside,
    end,
};

std::optional<tale_meaning> tale_meaning_of(std::string_view name);

// The meaning of a sentence; unused fields are empty. A subject is a name, "he" or "she", and the speaker of a
// quotation. Kinds of goods are in the plural ("figs").
struct tale_sentence {
    tale_meaning meaning = tale_meaning::aside;
    bool spoken = false;
    std::string subject, person, other, place, thing, colour, kind;
    int number = 0;
};

enum class tale_truth { right, wrong, not_counted };

class tale_world {
  public:
    using names = std::map<std::string, std::string, std::less<>>;

    // Maps names to pronouns; the names must outlive the world.
    explicit tale_world(const names& pronouns) : pronouns_(pronouns) {}

    tale_truth tell(const tale_sentence& sentence);
    void end_opening() { opening_ = false; }  // ends the first paragraph
    void misunderstand();                     // an unparsed sentence: pronouns and answers do not refer across it

  private:
    bool known(const tale_sentence& said) const;
    bool answers(const tale_sentence& question, const tale_sentence& said) const;
    tale_truth ask(const tale_sentence& said);
    bool introduces(const tale_sentence& said);
    bool happens(const tale_sentence& said);
    bool is_true(const tale_sentence& said) const;

    bool together(const std::string& one, const std::string& other) const;
    bool holds(const std::string& name, const std::string& thing) const;
    bool lies_where(const std::string& thing, const std::string& name) const;
    int number_of(const std::string& name, const std::string& kind) const;
    bool change(const std::string& name, const std::string& kind, int by);
    bool move(const std::string& name, const std::string& place);
    bool hand_over(const std::string& thing, const std::string& giver, const std::string& receiver);
    bool give_count(const tale_sentence& said);

    const names& pronouns_;
    names place_of_;                                             // name -> place
    names lies_at_;                                              // thing -> place, if not held
    names holder_;                                               // thing -> name
    names colour_;                                               // thing -> colour
    std::map<std::pair<std::string, std::string>, int> counts_;  // name and kind -> number
    std::pair<std::string, std::string> last_gift_;              // giver, receiver
    std::string subject_;                                        // of the previous sentence; empty: none
    std::optional<tale_sentence> question_;                      // the previous sentence, if a question
    bool opening_ = true;
};

}  // namespace imbrex::engine
