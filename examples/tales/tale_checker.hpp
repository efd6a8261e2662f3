// Checks tales, which gives the engine a figure of quality: a tale says who is where, who holds what and how many, so each of
// its statements is right or wrong. The words and sentences are those of a grammar's text (examples/tales/grammar.txt); what
// the sentences mean is tale_world.hpp's matter. The verdicts are those of examples/tales/check_tales.py.
//
//     const tale_checker checker(grammar_text);
//     tale_figures figures;
//     figures.add(checker.check(tale));                     // or check(tale, n): the first n bytes are told, but not counted
//     std::cout << figures.statements_right();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tales/tale_grammar.hpp"

namespace imbrex::engine {

// Of one tale: a letter for each sentence (r right, w wrong, . nothing to check, ? not in the grammar), and whether each
// sentence is in the grammar, none is wrong, and the last one, and no other, is "The end."
struct tale_verdict {
    std::string letters;
    bool wholly_right = false;
};

// Of many tales. What is not in the grammar counts neither as right nor as wrong.
struct tale_figures {
    std::int64_t tales = 0, tales_right = 0, right = 0, wrong = 0, not_counted = 0, not_parsed = 0;

    void add(const tale_verdict& verdict);
    double statements_right() const;    // share of the statements that can be checked; 0 where there are none
    double tales_wholly_right() const;  // share of the tales
    double sentences_parsed() const;    // share of the sentences
};

class tale_checker {
  public:
    // Throws, with the line, where the text is not a grammar, or has a meaning or slot that the checker does not know.
    explicit tale_checker(std::string_view grammar_text) : grammar_(grammar_text) {}

    tale_verdict check(std::string_view tale, std::size_t begin = 0) const;

  private:
    tale_grammar grammar_;
};

}  // namespace imbrex::engine
