"""Checks tales: parses each sentence, tracks the state of the tale, and reports which sentences are right.

    python3 tales.py --count 100 | python3 check_tales.py                      # summary
    python3 check_tales.py --verdicts < tales.txt                              # with the verdict of each sentence

Tales are separated by a line of "---". A verdict is one letter: r right, w wrong, . nothing to check, ? not a sentence of
the grammar. A sentence that does not parse counts neither as right nor as wrong; the share that parses is reported separately.
A tale is wholly right if each sentence parses, none is wrong, and only the last one is "The end."
"""

import argparse
import sys
from dataclasses import dataclass, field

from grammar import SENTENCE_END, Grammar
from world import World

RIGHT, WRONG, NOT_COUNTED, NOT_PARSED = "rw.?"
SEPARATOR = "---"


def sentences_of(text):
    """(offset, sentence, whether it begins a paragraph). Text after the last full stop is a sentence too."""
    begin, new_paragraph = 0, False
    while begin < len(text):
        if text[begin] in " \n":
            new_paragraph |= text[begin] == "\n"
            begin += 1
            continue
        end = SENTENCE_END.search(text, begin)
        stop = end.end() if end else len(text)
        yield begin, text[begin:stop], new_paragraph
        begin, new_paragraph = stop, False


@dataclass
class Verdict:
    """One tale, counted from an offset on; the text before is context."""

    letters: str = ""  # one per sentence
    wholly_right: bool = False


@dataclass
class Figures:
    """Many tales."""

    tales: int = 0
    wholly_right: int = 0
    letters: dict = field(default_factory=lambda: dict.fromkeys((RIGHT, WRONG, NOT_COUNTED, NOT_PARSED), 0))

    def add(self, verdict):
        self.tales += 1
        self.wholly_right += verdict.wholly_right
        for letter in verdict.letters:
            self.letters[letter] += 1

    def __str__(self):
        def share(part, whole):
            return f"{100 * part / whole:.2f}% ({part} of {whole})" if whole else "none"

        right, wrong = self.letters[RIGHT], self.letters[WRONG]
        sentences = sum(self.letters.values())
        return (
            f"statements right {share(right, right + wrong)}, tales wholly right {share(self.wholly_right, self.tales)}, "
            f"sentences that parse {share(sentences - self.letters[NOT_PARSED], sentences)}"
        )


LETTERS = {True: RIGHT, False: WRONG, None: NOT_COUNTED}


def check(grammar, text, begin=0):
    world = World(grammar.pronoun)
    verdict, meanings = Verdict(), []
    for place, text_of_sentence, new_paragraph in sentences_of(text):
        if new_paragraph and meanings:
            world.opening = False
        sentence = grammar.parse(text_of_sentence)
        meanings.append(sentence.meaning if sentence else None)
        letter = LETTERS[world.tell(sentence)] if sentence else NOT_PARSED
        if not sentence:
            world.subject = world.question = None
        if place >= begin:
            verdict.letters += letter
    ends = bool(meanings) and meanings[-1] == "end" and meanings.count("end") == 1
    verdict.wholly_right = ends and WRONG not in verdict.letters and NOT_PARSED not in verdict.letters
    return verdict


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--verdicts", action="store_true", help="print the verdicts of each tale's sentences")
    arguments = arguments.parse_args()
    grammar, figures = Grammar(), Figures()
    for tale in sys.stdin.read().split(f"\n{SEPARATOR}\n"):
        if not tale.strip():
            continue
        verdict = check(grammar, tale)
        figures.add(verdict)
        if arguments.verdicts:
            print(verdict.letters, "right" if verdict.wholly_right else "wrong")
    print(figures, file=sys.stderr if arguments.verdicts else sys.stdout)


if __name__ == "__main__":
    main()
