"""A byte-level BPE tokenizer in the form of Hugging Face's tokenizer.json: its training, encoding and decoding.

    python3 tokenizer.py --tokens 768 --out model/tokenizer.json

Text is split into words by GPT-2's pattern, words into bytes, and bytes are merged in the order of the merges. Training counts
words once and repeatedly merges the most frequent pair (on ties the first in text order), so the same corpus always gives the
same tokenizer.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from tales import tales

BEGIN, END = "<|begin|>", "<|end|>"
# GPT-2's pattern; [^\W\d_] is \p{L} and \d is \p{N}, as far as the tales need them.
WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def byte_characters():
    """GPT-2's table: a printable character per byte, its own character if printable."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


CHARACTER_OF = byte_characters()
BYTE_OF = {character: byte for byte, character in CHARACTER_OF.items()}


def written(word):
    return "".join(CHARACTER_OF[byte] for byte in word.encode("utf-8"))


def join(parts, pair):
    joined, i = [], 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            joined.append(parts[i] + parts[i + 1])
            i += 2
        else:
            joined.append(parts[i])
            i += 1
    return joined


def train(texts, tokens):
    """Vocabulary and merges for a total number of tokens."""
    words = Counter(word for text in texts for word in WORD.findall(text))
    parts_of = {word: list(written(word)) for word in words}
    vocabulary = [CHARACTER_OF[byte] for byte in range(256)]
    merges = []
    while len(vocabulary) < tokens - 2:
        pairs = Counter()
        for word, parts in parts_of.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        vocabulary.append("".join(best))
        parts_of = {word: join(parts, best) for word, parts in parts_of.items()}
    return vocabulary + [BEGIN, END], merges


def as_json(vocabulary, merges):
    special = [len(vocabulary) - 2, len(vocabulary) - 1]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": vocabulary[i], "single_word": False, "lstrip": False, "rstrip": False}
            | {"normalized": False, "special": True}
            for i in special
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {  # adds BOS before each text, as Llama 3 does
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
            + [{"SpecialToken": {"id": BEGIN, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [special[0]], "tokens": [BEGIN]}},
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(vocabulary[: special[0]])},
            "merges": [list(pair) for pair in merges],
        },
    }


class Tokenizer:
    def __init__(self, path):
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        self.ids = data["model"]["vocab"] | {token["content"]: token["id"] for token in data["added_tokens"]}
        self.tokens = {i: token for token, i in self.ids.items()}
        self.rank = {tuple(pair): i for i, pair in enumerate(data["model"]["merges"])}
        self.begin, self.end = self.ids[BEGIN], self.ids[END]
        self.known = {}  # word -> ids: the tales have few words

    def encode_word(self, word):
        parts = list(written(word))
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda pair: self.rank.get(pair, len(self.rank)))
            if best not in self.rank:
                break
            parts = join(parts, best)
        return [self.ids[part] for part in parts]

    def encode(self, text):
        """The ids of a text, without BOS and EOS."""
        ids = []
        for word in WORD.findall(text):
            if word not in self.known:
                self.known[word] = self.encode_word(word)
            ids += self.known[word]
        return ids

    def decode(self, ids):
        """The text of ids, without BOS and EOS."""
        characters = "".join(self.tokens[i] for i in ids if i not in (self.begin, self.end))
        return bytes(BYTE_OF[character] for character in characters).decode("utf-8", errors="replace")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--tokens", type=int, default=768, help="how many tokens in all")
    arguments.add_argument("--tales", type=int, default=4000, help="how many tales to train on")
    arguments.add_argument("--out", type=Path, default=Path(__file__).with_name("model") / "tokenizer.json")
    arguments = arguments.parse_args()
    vocabulary, merges = train(tales(1, arguments.tales), arguments.tokens)
    arguments.out.parent.mkdir(exist_ok=True, parents=True)
    text = json.dumps(as_json(vocabulary, merges), ensure_ascii=False, indent=1)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(f"{arguments.out}: {len(vocabulary)} tokens, {len(merges)} merges")


if __name__ == "__main__":
    main()
