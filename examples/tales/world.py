"""The state of a tale: places, possession, counts. `World.tell` takes a sentence, returns whether it is right, and applies its
effect.

A sentence is right if it is true or possible: Mia cannot give away a kite that she does not hold, nor to a person at another
place. A wrong sentence has no effect. Some sentences are not counted: asides, finding or buying, and introductions of people
and things, which only the first paragraph may have. A pronoun refers to the subject of the previous sentence. A question must be
answered by the next sentence, a spoken one by the person asked.
"""

NOT_COUNTED = None
HIGHEST_NUMBER = 99

# The answer of each question, and the arguments that must agree.
ANSWERS = {
    "ask_person_at": (("person_at",), ("who",)),
    "ask_thing_at": (("thing_at",), ("thing",)),
    "ask_holds": (("holds", "nobody_holds"), ("thing",)),
    "ask_count": (("count_is",), ("who", "kind")),
    "ask_colour": (("colour_is",), ("thing",)),
    "ask_together": (("together",), ("person", "other", "kind")),
}


class World:
    def __init__(self, pronoun):
        self.pronoun = pronoun  # name -> he, she
        self.place_of = {}  # name -> place
        self.lies_at = {}  # thing -> place, if not held
        self.holder = {}  # thing -> name
        self.colour = {}  # thing -> colour
        self.counts = {}  # (name, kind) -> number
        self.opening = True  # during the first paragraph
        self.subject = None  # of the previous sentence
        self.question = None  # question of the previous sentence: meaning and arguments
        self.last_gift = None  # (giver, receiver)

    def tell(self, sentence):
        """True: right. False: wrong. NOT_COUNTED: there is nothing to check."""
        meaning, said = sentence.meaning, dict(sentence.arguments)
        pronoun_fits = True
        if said.get("subject") in ("he", "she"):
            pronoun_fits = self.subject is not None and self.pronoun[self.subject] == said["subject"]
            said["subject"] = self.subject
        self.subject = said.get("subject") if pronoun_fits else None
        said["who"] = said.get("person", said.get("subject"))  # a quotation may be about another person

        question, self.question = self.question, None
        if question and not self.is_answer(question, sentence, said):
            return False
        if meaning in ("scene", "aside", "end"):
            return NOT_COUNTED
        names = [said[slot] for slot in ("subject", "person", "other") if slot in said]
        if not pronoun_fits or len(set(names)) < len(names):
            return False
        if self.opening and not sentence.spoken and self.introduce(meaning, said):
            return NOT_COUNTED
        if not all(name in self.place_of for name in names) or ("thing" in said and said["thing"] not in self.colour):
            return False
        if meaning in ANSWERS:
            return self.ask(meaning, said)
        return getattr(self, meaning)(said)

    def is_answer(self, question, sentence, said):
        meanings, shared = ANSWERS[question[0]]
        asked = question[1]
        speaker_fits = sentence.spoken and said["subject"] == asked["other"] if "subject" in asked else not sentence.spoken
        return sentence.meaning in meanings and speaker_fits and all(said.get(slot) == asked[slot] for slot in shared)

    def ask(self, meaning, said):
        self.question = (meaning, said)
        if "subject" not in said:
            return NOT_COUNTED
        if meaning == "ask_count":  # "How many figs do you have?"
            said["who"] = said["other"]
        return self.are_together(said["subject"], said["other"])

    def introduce(self, meaning, said):
        """Introduces a new person or thing, if the sentence does; returns whether."""
        if meaning == "person_at" and said["who"] not in self.place_of:
            self.place_of[said["who"]] = said["place"]
        elif meaning == "pair_at" and said["person"] not in self.place_of and said["other"] not in self.place_of:
            self.place_of[said["person"]] = self.place_of[said["other"]] = said["place"]
        elif meaning == "new_thing_at" and said["thing"] not in self.colour:
            self.colour[said["thing"]] = said["colour"]
            self.lies_at[said["thing"]] = said["place"]
        elif meaning == "new_thing_of" and said["thing"] not in self.colour and said["subject"] in self.place_of:
            self.colour[said["thing"]] = said["colour"]
            self.holder[said["thing"]] = said["subject"]
        elif meaning == "count_is" and (said["who"], said["kind"]) not in self.counts and said["who"] in self.place_of:
            self.counts[said["who"], said["kind"]] = said["number"]
        else:
            return False
        return True

    def are_together(self, one, other):
        return self.place_of[one] == self.place_of[other]

    def number_of(self, name, kind):
        return self.counts.get((name, kind), 0)

    def change(self, name, kind, by):
        """Changes a count if it stays in range; returns whether."""
        number = self.number_of(name, kind) + by
        if by == 0 or not 0 <= number <= HIGHEST_NUMBER:
            return False
        self.counts[name, kind] = number
        return True

    # Events.

    def go(self, said):
        return self.move((said["subject"],), said["place"])

    def pair_go(self, said):
        pair = said["person"], said["other"]
        return self.are_together(*pair) and self.move(pair, said["place"])

    def follow(self, said):
        return self.place_of[said["other"]] == said["place"] and self.move((said["subject"],), said["place"])

    def move(self, names, place):
        if self.place_of[names[0]] == place:
            return False
        for name in names:
            self.place_of[name] = place
        return True

    def take(self, said):
        if not self.sees(said):
            return False
        del self.lies_at[said["thing"]]
        self.holder[said["thing"]] = said["subject"]
        return True

    def drop(self, said):
        if not self.holds(said):
            return False
        del self.holder[said["thing"]]
        self.lies_at[said["thing"]] = self.place_of[said["subject"]]
        return True

    def give(self, said):
        return self.hand_over(said["thing"], said["subject"], said["other"])

    def take_from(self, said):
        return self.hand_over(said["thing"], said["other"], said["subject"])

    def hand_over(self, thing, giver, receiver):
        if self.holder.get(thing) != giver or not self.are_together(giver, receiver):
            return False
        self.holder[thing] = receiver
        self.last_gift = (giver, receiver)
        return True

    def gain(self, said):
        return NOT_COUNTED if self.change(said["subject"], said["kind"], said["number"]) else False

    def gain_more(self, said):
        return self.number_of(said["subject"], said["kind"]) > 0 and self.change(
            said["subject"], said["kind"], said["number"]
        )

    def lose(self, said):
        return self.change(said["subject"], said["kind"], -said["number"])

    def give_count(self, said):
        giver, receiver, kind, number = said["subject"], said["other"], said["kind"], said["number"]
        if not self.are_together(giver, receiver) or self.number_of(receiver, kind) + number > HIGHEST_NUMBER:
            return False
        if not self.change(giver, kind, -number):
            return False
        self.change(receiver, kind, number)
        self.last_gift = (giver, receiver)
        return True

    # Statements.

    def person_at(self, said):
        return self.place_of[said["who"]] == said["place"]

    def pair_at(self, said):
        return self.place_of[said["person"]] == self.place_of[said["other"]] == said["place"]

    def new_thing_at(self, said):
        return False  # already known, or after the first paragraph

    new_thing_of = new_thing_at

    def count_is(self, said):
        return self.number_of(said["who"], said["kind"]) == said["number"]

    def near(self, said):
        return self.are_together(said["subject"], said["other"])

    def alone(self, said):
        return list(self.place_of.values()).count(self.place_of[said["subject"]]) == 1

    def sees(self, said):
        return self.lies_at.get(said["thing"]) == self.place_of[said["subject"]]

    def holds(self, said):
        return self.holder.get(said["thing"]) == said["who"]

    def nobody_holds(self, said):
        return said["thing"] in self.lies_at

    def thing_at(self, said):
        return self.thing_place(said["thing"]) == said["place"]

    def thing_place(self, thing):
        return self.lies_at[thing] if thing in self.lies_at else self.place_of[self.holder[thing]]

    def colour_is(self, said):
        return self.colour[said["thing"]] == said["colour"]

    def together(self, said):
        return self.number_of(said["person"], said["kind"]) + self.number_of(said["other"], said["kind"]) == said["number"]

    def more_than(self, said):
        return self.number_of(said["person"], said["kind"]) > self.number_of(said["other"], said["kind"])

    def thanks(self, said):
        return self.last_gift == (said["other"], said["subject"])
