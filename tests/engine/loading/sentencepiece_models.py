"""Writes small models of SentencePiece and the ids that SentencePiece gives: tests/engine/data/sentencepiece.

    pip install sentencepiece tokenizers
    python3 tests/engine/loading/sentencepiece_models.py

unigram.model       unigram, spaces collapsed, characters replaced by rules (a map of characters)
unigram_bytes.model unigram with byte fallback, spaces kept
bpe.model           BPE with byte fallback and user-defined pieces, spaces kept, as Llama and Gemma
unigram.json        the first as tokenizer.json, with the ids of Hugging Face's tokenizers
"""

import base64
import io
import json
from pathlib import Path

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer

TEXT = (
    "The quick brown fox jumps over the lazy dog. It was the first day of spring, and Ella was on the bridge. "
    "She had a grey hammer; Rosa was at the school. Clara was on the bridge too. How many days are there in spring? "
    "Felix and Max were in the attic, where the hammer lay. naive cafe 1234567890 (yes) [no] don't won't it's"
)
TEXTS = [
    "The dog was on the bridge.",
    "  two  spaces   and\nnewline\t",
    "caf\u00e9 \ufb01ne \uff21\uff22\uff23",
    "unknown \u4e2d\u6587 and \U0001f642\U0001f642 here",
    "aaaaaaaaaaaa thethethethe",
    "",
    " ",
    "x",
    "\u2581under\u2581score",
    "price: $5.99 don't <sep> a<sep>b",
]
# What the map of characters puts for others: code points in hexadecimal.
RULES = "FB01\t66 69\nFF21\t41\nFF22\t42\nFF23\t43\nE9\t65\nE8\t65\nA\t20\n9\t20\n"

out = Path(__file__).parents[1] / "data/sentencepiece"
out.mkdir(parents=True, exist_ok=True)


def train(name, **options):
    written = io.BytesIO()
    lines = [sentence.strip() for sentence in TEXT.split(".") for _ in range(20)]
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, minloglevel=2, hard_vocab_limit=False, **options
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(written.getvalue())
    model.normalizer_spec.normalization_rule_tsv = ""
    (out / f"{name}.model").write_bytes(model.SerializeToString())
    processor = spm.SentencePieceProcessor(model_proto=model.SerializeToString())
    return model, [processor.encode(text) for text in TEXTS]


rules = out / "rules.tsv"
rules.write_text(RULES)
ids = {}
unigram, ids["unigram"] = train("unigram", vocab_size=150, model_type="unigram", normalization_rule_tsv=str(rules))
rules.unlink()
kept = dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True)
_, ids["unigram_bytes"] = train("unigram_bytes", vocab_size=400, model_type="unigram", **kept)
_, ids["bpe"] = train("bpe", vocab_size=420, model_type="bpe", user_defined_symbols=["<sep>"], **kept)

pipeline = {
    "version": "1.0",
    "added_tokens": [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, text in enumerate(["<unk>", "<s>", "</s>"])
    ],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(unigram.normalizer_spec.precompiled_charsmap).decode()},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ],
    },
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        ],
    },
    "model": {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [[piece.piece, piece.score] for piece in unigram.pieces],
        "byte_fallback": False,
    },
}
text = json.dumps(pipeline, separators=(",", ":"))
(out / "unigram.json").write_text(text + "\n")
ids["unigram.json"] = [Tokenizer.from_str(text).encode(each, add_special_tokens=False).ids for each in TEXTS]
lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(all, separators=(',', ':'))}" for name, all in ids.items())
(out / "ids.json").write_text('{"texts":' + json.dumps(TEXTS) + ',\n"ids":{\n' + lines + "}}\n")
