"""Generates short tales from seeds: people, places and things, events, and questions at the end.

    python3 tales.py --seed 7                     # one tale
    python3 tales.py --seed 1 --count 100         # seeds 1 to 100, separated by lines of "---"

Every statement of a tale is true in its world (world.py): the generator chooses possible events and true statements, and applies
each sentence to the world.
"""

import argparse
import random

from check_tales import SEPARATOR
from grammar import Grammar, Sentence
from world import World

ARGUMENTS_OF_SLOT = {
    "at": ("place",),
    "new": ("thing", "colour"),
    "count": ("number", "kind"),
    "more": ("number", "kind"),
    "food": ("number", "kind"),
}
MOST_OF_A_KIND = 30

# Weights of events; impossible ones are skipped.
EVENTS = {
    "travel": 6,
    "take": 5,
    "drop": 2,
    "hand_over": 4,
    "gain": 4,
    "lose": 2,
    "share": 4,
    "remark": 4,
    "talk": 4,
    "aside": 1,
}


class Wordings:
    """Finds the patterns that take exactly the given arguments."""

    def __init__(self, grammar):
        self.grammar = grammar
        self.found = {}

    def of(self, meaning, arguments, spoken):
        is_food = arguments.get("kind") in self.grammar.food
        key = (meaning, spoken, is_food, *arguments)
        if key not in self.found:
            names = set(arguments)
            self.found[key] = [
                pattern
                for pattern in self.grammar.patterns[meaning]
                if names == {name for slot in pattern.slots for name in ARGUMENTS_OF_SLOT.get(slot, (slot,))}
                and spoken in (None, pattern.spoken)
                and (is_food or "food" not in pattern.slots)
            ]
        return self.found[key]


class Teller:
    """Generates one tale."""

    def __init__(self, grammar, wordings, seed):
        self.grammar, self.wordings = grammar, wordings
        self.random = random.Random(seed)
        self.world = World(grammar.pronoun)
        self.paragraphs = [[]]
        some = lambda words, least, most: self.random.sample(words, self.random.randint(least, most))
        self.people = some(grammar.people, 2, 4)
        self.places = some(grammar.places, 2, 4)
        self.things = some(grammar.things, 1, 3)
        self.kinds = some(grammar.kinds, 1, 2)

    def tale(self):
        self.open()
        for _ in range(self.random.randint(2, 4)):
            self.begin_paragraph()
            length = self.random.randint(3, 7)
            while len(self.paragraphs[-1]) < length:
                self.happen()
        self.begin_paragraph()
        self.close()
        return "\n".join(" ".join(sentences) for sentences in self.paragraphs) + "\n"

    def begin_paragraph(self):
        self.world.opening = False
        self.paragraphs.append([])

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, choices):
        return choices[int(self.random.random() * len(choices))]

    def say(self, meaning, spoken=None, opener=None, **arguments):
        """Adds a sentence; a repeated subject sometimes becomes a pronoun."""
        world, grammar = self.world, self.grammar
        pattern = self.pick(self.wordings.of(meaning, arguments, spoken))
        subject = arguments.get("subject")
        if subject and subject == world.subject and self.chance(0.6):
            arguments["subject"] = grammar.pronoun[subject]
        if opener is None:
            opener = self.pick(grammar.openers) if pattern.takes_opener and self.chance(0.15) else ""
        self.paragraphs[-1].append(pattern.fill(grammar, arguments, opener))
        told = world.tell(Sentence(meaning, arguments, pattern.spoken))
        assert told is not False, self.paragraphs

    # The first paragraph.

    def open(self):
        if self.chance(0.5):
            self.say("scene")
        people = list(self.people)
        while people:
            place = self.pick(self.places)
            if len(people) >= 2 and self.chance(0.2):
                self.say("pair_at", person=people.pop(), other=people.pop(), place=place, opener="")
            else:
                person = people.pop()
                self.say("person_at", spoken=False, subject=person, place=place, opener="")
                self.introduce_things_of(person, 0.4)
        for person in self.people:
            self.introduce_things_of(person, 0.15)
        for thing in self.things:
            if thing not in self.world.colour:
                self.say("new_thing_at", thing=thing, colour=self.pick(self.grammar.colours), place=self.pick(self.places))

    def introduce_things_of(self, person, probability):
        for kind in self.kinds:
            if (person, kind) not in self.world.counts and self.chance(probability):
                self.say(
                    "count_is", spoken=False, subject=person, number=self.random.randint(1, 12), kind=kind, opener=""
                )
        thing = self.pick(self.things)
        if thing not in self.world.colour and self.chance(probability):
            self.say("new_thing_of", subject=person, thing=thing, colour=self.pick(self.grammar.colours), opener="")

    # Events.

    def happen(self):
        """Tries events until one is possible. A subject often acts again."""
        names, weights = list(EVENTS), list(EVENTS.values())
        person = self.world.subject if self.world.subject and self.chance(0.4) else self.pick(self.people)
        while not getattr(self, self.random.choices(names, weights)[0])(person):
            person = self.pick(self.people)

    def others_at(self, place, person):
        return [other for other in self.people if other != person and self.world.place_of[other] == place]

    def here(self, person):
        return self.others_at(self.world.place_of[person], person)

    def lying_at(self, place):
        return [thing for thing, where in self.world.lies_at.items() if where == place]

    def held_by(self, person):
        return [thing for thing, holder in self.world.holder.items() if holder == person]

    def travel(self, person):
        place = self.pick([place for place in self.places if place != self.world.place_of[person]])
        companions, there = self.here(person), self.others_at(place, person)
        if companions and self.chance(0.25):
            self.say("pair_go", person=person, other=self.pick(companions), place=place)
            return True
        if there and self.chance(0.3):
            self.say("follow", subject=person, other=self.pick(there), place=place)
        else:
            self.say("go", subject=person, place=place)
        if self.chance(0.4):
            self.look_around(person)
        return True

    def look_around(self, person):
        others, things = self.here(person), self.lying_at(self.world.place_of[person])
        if others and (not things or self.chance(0.6)):
            self.say("near", subject=person, other=self.pick(others), opener="")
        elif things:
            self.say("sees", subject=person, thing=self.pick(things), opener="")
        else:
            self.say("alone", subject=person, opener="")

    def take(self, person):
        things = self.lying_at(self.world.place_of[person])
        if things:
            self.say("take", subject=person, thing=self.pick(things))
        return bool(things)

    def drop(self, person):
        things = self.held_by(person)
        if things:
            self.say("drop", subject=person, thing=self.pick(things))
        return bool(things)

    def hand_over(self, person):
        things, others = self.held_by(person), self.here(person)
        if not things or not others:
            return False
        thing, receiver = self.pick(things), self.pick(others)
        if self.chance(0.7):
            self.say("give", subject=person, thing=thing, other=receiver)
        else:
            self.say("take_from", subject=receiver, thing=thing, other=person)
        self.thank(person, receiver)
        return True

    def thank(self, giver, receiver):
        if self.chance(0.3):
            self.say("thanks", subject=receiver, other=giver, opener="")

    def gain(self, person):
        kind, number = self.pick(self.kinds), self.random.randint(1, 9)
        before = self.world.number_of(person, kind)
        if before + number > MOST_OF_A_KIND:
            return False
        self.say("gain_more" if before and self.chance(0.8) else "gain", subject=person, number=number, kind=kind)
        self.sum_up(person, kind)
        return True

    def lose(self, person):
        kind = self.pick(self.kinds)
        before = self.world.number_of(person, kind)
        if before:
            self.say("lose", subject=person, number=self.random.randint(1, before), kind=kind)
            self.sum_up(person, kind)
        return before > 0

    def share(self, person):
        kind, others = self.pick(self.kinds), self.here(person)
        before = self.world.number_of(person, kind)
        if not before or not others:
            return False
        receiver, number = self.pick(others), self.random.randint(1, before)
        if self.world.number_of(receiver, kind) + number > MOST_OF_A_KIND:
            return False
        self.say("give_count", subject=person, other=receiver, number=number, kind=kind)
        self.thank(person, receiver)
        self.sum_up(self.pick([person, receiver]), kind)
        return True

    def sum_up(self, person, kind):
        if self.chance(0.55):
            number = self.world.number_of(person, kind)
            self.say("count_is", spoken=False, opener="Now ", subject=person, number=number, kind=kind)

    def remark(self, person):
        """A true statement that requires tracking the tale."""
        world = self.world
        other = self.pick([other for other in self.people if other != person])
        kind, thing = self.pick(self.kinds), self.pick(self.things)
        choice = self.random.randrange(8)
        if choice == 0:
            self.say("person_at", spoken=False, subject=person, place=world.place_of[person])
        elif choice == 1 and other in self.here(person):
            self.say("pair_at", person=person, other=other, place=world.place_of[person])
        elif choice == 2:
            self.say("thing_at", spoken=False, thing=thing, place=world.thing_place(thing))
        elif choice == 3 and self.held_by(person):
            self.say("holds", spoken=False, subject=person, thing=self.pick(self.held_by(person)), opener="")
        elif choice == 4:
            self.say("count_is", spoken=False, subject=person, number=world.number_of(person, kind), kind=kind)
        elif choice == 5:
            self.say_together(person, other, kind)
        elif choice == 6 and world.number_of(person, kind) > world.number_of(other, kind):
            self.say("more_than", person=person, other=other, kind=kind, opener="")
        elif choice == 7:
            self.say("colour_is", thing=thing, colour=world.colour[thing])
        else:
            return False
        return True

    def say_together(self, person, other, kind):
        number = self.world.number_of(person, kind) + self.world.number_of(other, kind)
        self.say("together", person=person, other=other, number=number, kind=kind)

    def aside(self, person):
        if self.chance(0.3):
            self.say("aside", opener="")
        else:
            self.say("aside", subject=person, opener="")
        return True

    # Questions and answers.

    def talk(self, person):
        """A person asks another person at the same place who knows the answer."""
        others = self.here(person)
        if not others:
            return False
        world, other, thing = self.world, self.pick(others), self.pick(self.things)
        asking = {"subject": person, "other": other}
        choice = self.random.randrange(4)
        if choice == 0:
            kind = self.pick(self.kinds)
            self.say("ask_count", kind=kind, **asking)
            self.say("count_is", spoken=True, opener="", subject=other, number=world.number_of(other, kind), kind=kind)
        elif choice == 1:
            third = self.pick([third for third in self.people if third not in (person, other)] or [None])
            if not third:
                return False
            self.say("ask_person_at", person=third, **asking)
            self.say("person_at", spoken=True, opener="", subject=other, person=third, place=world.place_of[third])
        elif choice == 2:
            self.say("ask_thing_at", thing=thing, **asking)
            self.say("thing_at", spoken=True, opener="", subject=other, thing=thing, place=world.thing_place(thing))
        else:
            self.say("ask_holds", thing=thing, **asking)
            self.answer_who(thing, speaker=other)
        return True

    def answer_who(self, thing, speaker=None):
        holder = self.world.holder.get(thing)
        who = {}
        if speaker:
            who = {"subject": speaker, "person": holder} if holder and holder != speaker else {"subject": speaker}
        elif holder:
            who = {"subject": holder}
        self.say("holds" if holder else "nobody_holds", spoken=bool(speaker), opener="", thing=thing, **who)

    def close(self):
        """Questions about the final state, each a different one."""
        world = self.world
        questions = [("person_at", person) for person in self.people]
        questions += [(meaning, thing) for thing in self.things for meaning in ("thing_at", "holds", "colour_is")]
        questions += [("count_is", person, kind) for person in self.people for kind in self.kinds]
        questions += [("together", *self.random.sample(self.people, 2), kind) for kind in self.kinds]
        for meaning, about, *more in self.random.sample(questions, self.random.randint(1, 3)):
            if meaning == "person_at":
                self.say("ask_person_at", person=about)
                self.say(meaning, spoken=False, opener="", subject=about, place=world.place_of[about])
            elif meaning == "thing_at":
                self.say("ask_thing_at", thing=about)
                self.say(meaning, spoken=False, thing=about, place=world.thing_place(about))
            elif meaning == "holds":
                self.say("ask_holds", thing=about)
                self.answer_who(about)
            elif meaning == "colour_is":
                self.say("ask_colour", thing=about)
                self.say(meaning, thing=about, colour=world.colour[about])
            elif meaning == "count_is":
                self.say("ask_count", person=about, kind=more[0])
                number = world.number_of(about, more[0])
                self.say(meaning, spoken=False, opener="", subject=about, number=number, kind=more[0])
            else:
                self.say("ask_together", person=about, other=more[0], kind=more[1])
                self.say_together(about, *more)
        self.say("end")


def tales(first_seed, count, grammar=None):
    grammar = grammar or Grammar()
    wordings = Wordings(grammar)
    for seed in range(first_seed, first_seed + count):
        yield Teller(grammar, wordings, seed).tale()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seed", type=int, default=1, help="the seed of the first tale")
    arguments.add_argument("--count", type=int, default=1, help="how many tales")
    arguments.add_argument("--openings", action="store_true", help="only their first paragraphs, a line each")
    arguments = arguments.parse_args()
    told = tales(arguments.seed, arguments.count)
    if arguments.openings:
        print("".join(tale[: tale.index("\n") + 1] for tale in told), end="")
    else:
        print(f"{SEPARATOR}\n".join(told), end="")


if __name__ == "__main__":
    main()
