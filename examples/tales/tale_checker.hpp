// Checks tales: a quality metric for the engine. A tale states places, possession and counts, so each statement is
// right or wrong. The sentences are those of a grammar (examples/tales/grammar.txt); tale_world.hpp has their meaning.
// The verdicts equal those of check_tales.py.
//
//     const tale_checker checker(grammar_text);
//     tale_figures figures;
//     figures.add(checker.check(tale));           // or check(tale, n): the first n bytes are context, not counted
//     std::cout << figures.statements_right();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tales/tale_grammar.hpp"

namespace imbrex::engine {

// One tale: a letter per sentence (r right, w wrong, . nothing to check, ? not in the grammar), and whether all
// sentences are in the grammar, none is wrong, and only the last one is "The end."
struct tale_verdict {
    std::string letters;
    bool wholly_right = false;
};

// Many tales. Sentences outside the grammar count neither as right nor as wrong.
struct tale_figures {
    std::int64_t tales = 0, tales_right = 0, right = 0, wrong = 0, not_counted = 0, not_parsed = 0;

    void add(const tale_verdict& verdict);
    double statements_right() const;    // share of the checkable statements; 0 if there are none
    double tales_wholly_right() const;  // share of the tales
    double sentences_parsed() const;    // share of the sentences
};

class tale_checker {
  public:
    // Throws with the line number if the text is not a grammar, or has an unknown meaning or slot.
    explicit tale_checker(std::string_view grammar_text) : grammar_(grammar_text) {}

    tale_verdict check(std::string_view tale, std::size_t begin = 0) const;

  private:
    tale_grammar grammar_;
};

}  // namespace imbrex::engine
