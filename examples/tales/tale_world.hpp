// What is true in a tale: who is where, who holds what, how many of each kind everybody has. `tell` takes a sentence, says
// whether it is right, and lets happen what it says.
//
// A sentence is right if it is true, or can happen: Mia cannot give away a kite that she does not hold, nor to somebody who
// is elsewhere. Otherwise it is wrong, and nothing happens. Some sentences cannot be wrong and are not counted: asides, finding
// or buying, and what brings people and things into the tale, which only the first paragraph may do. A pronoun stands for the
// subject of the sentence before. A question must be answered by the next sentence, and a spoken one by the person who was
// asked. examples/tales/world.py is the same in Python, for the generator of tales.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace imbrex::engine {

// In the order of the grammar's file: first what may bring something new, last what may not be checked.
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

// What a sentence says; what it does not speak of is empty. A subject is a name, "he" or "she"; what is spoken is said by the
// subject. A kind of goods is in the plural ("figs").
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

    // Takes each name's pronoun; the names must outlive the world.
    explicit tale_world(const names& pronouns) : pronouns_(pronouns) {}

    tale_truth tell(const tale_sentence& sentence);
    void end_opening() { opening_ = false; }  // the first paragraph is over
    void misunderstand();  // a sentence was not understood: no pronoun and no answer goes back beyond it

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
    names lies_at_;                                              // thing -> place, while nobody holds it
    names holder_;                                               // thing -> name
    names colour_;                                               // thing -> colour
    std::map<std::pair<std::string, std::string>, int> counts_;  // name and kind -> number
    std::pair<std::string, std::string> last_gift_;              // giver, receiver
    std::string subject_;                                        // of the sentence before; empty: none
    std::optional<tale_sentence> question_;                      // the sentence before, if it was one
    bool opening_ = true;
};

}  // namespace imbrex::engine
