// Correct tales, tales with one wrong statement, and texts outside the grammar.
#include "tales/tale_checker.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "engine/support.hpp"

using imbrex::engine::tale_checker;
using imbrex::engine::tale_figures;
namespace test = imbrex::engine::test;

namespace {

std::string grammar_text() {
    return test::content(std::filesystem::path(__FILE__).parent_path() / "../../examples/tales/grammar.txt");
}

const tale_checker& checker() {
    static const tale_checker the_checker(grammar_text());
    return the_checker;
}

std::string letters(const std::string& tale) {
    return checker().check(tale).letters;
}

const std::string opening =
    "It was a cold day. Mia was at the mill. She had 3 figs. Tom and Ben were in the garden. Ben carried a red kite. "
    "A blue drum lay at the mill.\n";
const std::string introduced = "......";

}  // namespace

TEST_CASE("Accepts a correct tale") {
    const auto verdict = checker().check(
        opening +
        "Tom went to the mill. He met Mia there. Mia found 4 more figs. Now she had 7 figs. Mia gave Tom 2 figs. "
        "Tom said, \"Thank you, Mia!\" Mia had more figs than Tom. Mia picked up the drum.\n"
        "Ben was alone there. Then Ben and Tom were in the garden.\n"
        "Where was the drum? The drum was at the mill. The end.\n");
    CHECK(verdict.letters == introduced + "rrrrrrrr" + "rw" + ".r.");
    CHECK_FALSE(verdict.wholly_right);
    CHECK(checker().check(opening + "Where was Ben? Ben was in the garden. The end.\n").wholly_right);
}

TEST_CASE("Checks places") {
    CHECK(letters(opening + "Mia went to the mill.") == introduced + "w");  // she is there
    CHECK(letters(opening + "Mia walked to the garden. Mia was at the mill. She was in the garden.") ==
          introduced + "rwr");
    CHECK(letters(opening + "Mia followed Tom to the garden.") == introduced + "r");
    CHECK(letters(opening + "Mia followed Tom to the lake.") == introduced + "w");
    CHECK(letters(opening + "Mia and Tom went to the lake.") == introduced + "w");
    CHECK(letters(opening + "Tom and Ben walked to the lake together. Ben was by the lake.") == introduced + "rr");
    CHECK(letters(opening + "Mia was alone there. Tom was alone there.") == introduced + "rw");
    CHECK(letters(opening + "Tom met Ben there. Tom saw Mia there. Ben said, \"Good morning, Tom!\"") ==
          introduced + "rwr");
    CHECK(letters(opening + "Anna was at the mill.") == introduced + "w");  // unknown name
    CHECK(letters(opening + "Mia gave Mia 1 fig.") == introduced + "w");
}

TEST_CASE("Checks possession") {
    CHECK(letters(opening + "Mia found the drum and took it. She still had the drum.") == introduced + "rr");
    CHECK(letters(opening + "Tom picked up the drum.") == introduced + "w");
    CHECK(letters(opening + "Mia picked up the kite.") == introduced + "w");
    CHECK(letters(opening + "Ben gave the kite to Tom. Ben had the kite. Tom had the kite.") == introduced + "rwr");
    CHECK(letters(opening + "Ben gave Mia the kite.") == introduced + "w");  // she is at another place
    CHECK(letters(opening + "Tom got the kite from Ben. Ben put down the kite.") == introduced + "rw");
    CHECK(letters(opening + "Ben left the kite there. Nobody had the kite. Tom saw the kite there.") ==
          introduced + "rrr");
    CHECK(letters(opening + "Ben went to the lake. The kite was by the lake.") == introduced + "rr");
    CHECK(letters(opening + "The kite was red. The drum was red.") == introduced + "rw");
    CHECK(letters(opening + "Mia had a red bell.") == introduced + "w");  // introduced after the first paragraph
    CHECK(letters(opening + "Ben gave Tom the kite. Tom said, \"Thank you, Mia!\"") == introduced + "rw");
}

TEST_CASE("Checks counts") {
    CHECK(letters(opening + "Mia got 5 more figs. Now she had 8 figs.") == introduced + "rr");
    CHECK(letters(opening + "Mia got 5 more figs. Now she had 9 figs.") == introduced + "rw");
    CHECK(letters(opening + "Tom got 5 more figs.") == introduced + "w");  // he had none
    CHECK(letters(opening + "Tom bought 5 figs. Together, Mia and Tom had 8 figs.") == introduced + ".r");
    CHECK(letters(opening + "Mia ate 3 figs. Mia had no figs. She lost 1 fig.") == introduced + "rrw");
    CHECK(letters(opening + "Tom had more figs than Mia.") == introduced + "w");
    CHECK(letters(opening + "Mia gave 1 fig to Tom.") == introduced + "w");
    CHECK(letters(opening + "Mia found no figs.") == introduced + "w");
}

TEST_CASE("Resolves pronouns to the subject of the previous sentence") {
    CHECK(letters(opening + "Mia smiled. She ate 1 fig.") == introduced + ".r");
    CHECK(letters(opening + "Tom smiled. She ate 1 fig.") == introduced + ".w");
    CHECK(letters(opening + "The birds sang. She ate 1 fig.") == introduced + ".w");
    CHECK(letters(opening + "Mia smiled. Then she ate 1 fig. Soon She ate 1 fig.") == introduced + ".r?");
}

TEST_CASE("Requires an answer in the next sentence, by the person asked") {
    CHECK(letters(opening + "Who had the kite? Ben had the kite.") == introduced + ".r");
    CHECK(letters(opening + "Who had the drum? Nobody had the drum.") == introduced + ".r");
    CHECK(letters(opening + "Who had the drum? Ben had the kite.") == introduced + ".w");
    CHECK(letters(opening + "Who had the kite? The birds sang.") == introduced + ".w");
    CHECK(letters(opening + "How many figs did Mia have? Mia had 3 figs.") == introduced + ".r");
    CHECK(letters(opening + "What colour was the drum? The drum was red.") == introduced + ".w");
    CHECK(letters(opening + "How many figs did Mia and Tom have together? Together, Mia and Tom had 3 figs.") ==
          introduced + ".r");
    const std::string asks = opening + "Tom asked Ben, \"Where is Mia?\" ";
    CHECK(letters(asks + "Ben said, \"Mia is at the mill.\"") == introduced + "rr");
    CHECK(letters(asks + "Ben said, \"Mia is by the lake.\"") == introduced + "rw");
    CHECK(letters(asks + "Tom said, \"Mia is at the mill.\"") == introduced + "rw");
    CHECK(letters(asks + "Mia was at the mill.") == introduced + "rw");
    CHECK(letters(opening + "Tom asked Mia, \"Who has the kite?\"") == introduced + "w");  // she cannot hear him
    CHECK(letters(opening + "Tom asked Ben, \"How many figs do you have?\" Ben said, \"I have no figs.\"") ==
          introduced + "rr");
}

TEST_CASE("Does not count sentences outside the grammar") {
    CHECK(letters("Mia was in the mill. mia was at the mill. Mia was at the mill") == "???");
    CHECK(letters("Mia was at the mill. Mia had 1 figs. Mia had 2 fig. Mia had 03 figs. Mia had 100 figs.") == ".????");
    CHECK(letters("") == "");
    CHECK(letters("\xff\xfe. ?\"") == "??");
    CHECK_FALSE(checker().check("").wholly_right);
    CHECK_FALSE(checker().check("Mia was at the mill.").wholly_right);
    CHECK_FALSE(checker().check("Mia was at the mill. The end. The end.").wholly_right);

    tale_figures figures;
    CHECK(figures.statements_right() == 0);
    figures.add(checker().check(opening + "Tom smiled. The kite was red. The kite was blue. The kite sang. The end."));
    figures.add(checker().check(opening + "The end."));
    CHECK(figures.statements_right() == 0.5);
    CHECK(figures.tales_wholly_right() == 0.5);
    CHECK(figures.sentences_parsed() == doctest::Approx(17.0 / 18));
}

TEST_CASE("Counts only sentences after the given prefix") {
    const std::string tale = opening + "The kite was blue. The kite was red. The end.";
    CHECK(checker().check(tale, opening.size()).letters == "wr.");
    CHECK(checker().check(tale, opening.size() + 1).letters == "r.");
    CHECK(checker().check(tale, tale.size()).letters == "");
}

TEST_CASE("Rejects an unknown grammar") {
    const auto refused_with = [](const std::string& text, const std::string& part) {
        test::check_error_message(part, [&] { tale_checker{text}; });
    };
    refused_with("Mia\n", "is in no list");
    refused_with("[boys]\nTom\n", "there is no list [girls]");
    refused_with(grammar_text() + "The end.\n", "\"meaning: wording\" is needed");
    refused_with(grammar_text() + "fly: {subject} flew.\n", "a meaning that the checker does not know");
    refused_with(grammar_text() + "go: {subject} flew {how}.\n", "a slot that the checker does not know");
    refused_with(grammar_text() + "go: {subject} flew to {place\n", "a slot that does not end");
}
