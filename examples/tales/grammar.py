"""Reads grammar.txt: generates a sentence from a meaning and its arguments, and parses sentences.

An argument is the value of a slot: a name, a place ("the mill"), a thing ("kite"), a colour, a kind of goods in the
plural ("figs"), a number. A sentence keeps its arguments under the slots' names, except that {at} gives `place`, {new}
gives `thing` and `colour`, and {count}, {more} and {food} give `number` and `kind`.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

SLOT = re.compile(r"\{(\w+)\}")
SENTENCE_END = re.compile(r'[.?!]"?(?=[ \n]|\Z)')


def any_of(words):
    return "|".join(words)


def raised(text):
    return text[:1].upper() + text[1:]


@dataclass
class Sentence:
    """The meaning of a sentence. `subject` is a name, "he" or "she", and the speaker if `spoken`."""

    meaning: str
    arguments: dict = field(default_factory=dict)
    spoken: bool = False


class Pattern:
    """One wording of a meaning. A slot begins with a capital letter at the start and after a quotation mark; an opener
    may come before a person only, who then is not the start any more."""

    def __init__(self, grammar, meaning, text):
        self.meaning = meaning
        self.spoken = 'said, "' in text
        self.takes_opener = text.startswith(("{subject}", "{person}"))
        parts = SLOT.split(text)
        self.literals, self.slots = parts[::2], parts[1::2]
        self.capital = [before.endswith('"') or (i == 0 and not before) for i, before in enumerate(self.literals)]
        self.expression = self.compile(grammar, self.capital)
        self.expression_after_opener = self.compile(grammar, [False] + self.capital[1:]) if self.takes_opener else None

    def compile(self, grammar, capital):
        text = re.escape(self.literals[0])
        for slot, is_capital, literal in zip(self.slots, capital, self.literals[1:]):
            text += grammar.slot_expression(slot, is_capital) + re.escape(literal)
        return re.compile(text + r"\Z")

    def fill(self, grammar, arguments, opener=""):
        text = opener + self.literals[0]
        for i, slot in enumerate(self.slots):
            words = grammar.words_of(slot, arguments)
            text += raised(words) if self.capital[i] and (i or not opener) else words
            text += self.literals[i + 1]
        return text


class Grammar:
    def __init__(self, path=Path(__file__).with_name("grammar.txt")):
        lists = {}
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                lists[line.strip("[]")] = words = []
            elif line and not line.startswith("#"):
                words.append(line)
        self.girls, self.boys = lists["girls"], lists["boys"]
        self.people = self.girls + self.boys
        self.pronoun = {name: "she" for name in self.girls} | {name: "he" for name in self.boys}
        self.at = {line.split(" ", 1)[1]: line for line in lists["places"]}  # "the mill" -> "at the mill"
        self.places = list(self.at)
        self.things, self.colours = lists["things"], lists["colours"]
        self.openers = [opener + " " for opener in lists["openers"]]
        self.food = [line.split()[1] for line in lists["food"]]
        self.kinds = self.food + [line.split()[1] for line in lists["goods"]]
        self.plural = dict(line.split() for line in lists["food"] + lists["goods"])
        self.singular = {many: one for one, many in self.plural.items()}
        self.patterns = {}  # meaning -> patterns
        for line in lists["sentences"]:
            meaning, text = line.split(": ", 1)
            self.patterns.setdefault(meaning, []).append(Pattern(self, meaning, text))

    def slot_expression(self, slot, capital):
        """The regular expression of a slot."""

        def of_number(numbers, more, kinds):
            one, many = any_of(self.singular[kind] for kind in kinds), any_of(kinds)
            return f"(?:(?P<number>{numbers}) {more}(?P<kind>{many})|1 {more}(?P<one>{one}))"

        people, things, colours = any_of(self.people), any_of(self.things), any_of(self.colours)
        the, a, pronouns = ("The", "A", "She|He") if capital else ("the", "a", "she|he")
        number = "[2-9]|[1-9][0-9]"
        return {
            "subject": f"(?P<subject>{people}|{pronouns})",
            "person": f"(?P<person>{people})",
            "other": f"(?P<other>{people})",
            "place": f"(?P<place>{any_of(self.places)})",
            "at": f"(?P<at>{any_of(self.at.values())})",
            "thing": f"{the} (?P<thing>{things})",
            "new": f"{a} (?P<colour>{colours}) (?P<thing>{things})",
            "colour": f"(?P<colour>{colours})",
            "count": of_number("no|" + number, "", self.kinds),
            "food": of_number(number, "", self.food),
            "more": of_number(number, "more ", self.kinds),
            "kind": f"(?P<kind>{any_of(self.kinds)})",
        }[slot]

    def words_of(self, slot, arguments):
        """The text of a slot."""
        if slot in ("subject", "person", "other", "place", "colour", "kind"):
            return arguments[slot]
        if slot == "at":
            return self.at[arguments["place"]]
        if slot == "thing":
            return "the " + arguments["thing"]
        if slot == "new":
            return f"a {arguments['colour']} {arguments['thing']}"
        number, kind = arguments["number"], arguments["kind"]
        more = "more " if slot == "more" else ""
        return f"1 {more}{self.singular[kind]}" if number == 1 else f"{number or 'no'} {more}{kind}"

    def parse(self, text):
        """Parses a sentence; None if it is not in the grammar."""
        opener = next((opener for opener in self.openers if text.startswith(opener)), "")
        rest = text[len(opener) :]
        for wordings in self.patterns.values():
            for pattern in wordings:
                expression = pattern.expression_after_opener if opener else pattern.expression
                match = expression and expression.match(rest)
                if match:
                    return Sentence(pattern.meaning, self.arguments_of(match), pattern.spoken)
        return None

    def arguments_of(self, match):
        arguments = {name: words for name, words in match.groupdict().items() if words is not None}
        if arguments.get("subject") in ("She", "He"):
            arguments["subject"] = arguments["subject"].lower()
        if "at" in arguments:
            arguments["place"] = arguments.pop("at").split(" ", 1)[1]
        if "one" in arguments:
            arguments |= {"number": 1, "kind": self.plural[arguments.pop("one")]}
        elif "number" in arguments:
            arguments["number"] = 0 if arguments["number"] == "no" else int(arguments["number"])
        return arguments
