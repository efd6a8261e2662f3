"""Writes tests/engine/data/split_words.json: the lengths in bytes of the words of tricky texts, by pre-tokenizers of
Hugging Face's tokenizers.

    pip install tokenizers
    python3 tests/engine/tokenizer/split_words.py

The expressions are those of the models' tokenizer.json; each list stands for the names of tokenizer.ggml.pre beside it.
"""

import json
from pathlib import Path

from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
TEKKEN = (
    f"{BEFORE}{UPPER}*{LOWER}+|{BEFORE}{UPPER}+{LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    f"{BEFORE}{UPPER}*{LOWER}+{CONTRACTIONS}?|{BEFORE}{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CJK = "[一-龥\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NOT_SEPARATORS = " ?[^(\\s|.,!?…。，、।۔،)]+"
PATTERNS = {
    "gpt-2 olmo mpt": [GPT2],
    "llama-bpe falcon3 smaug-bpe dbrx glm4": [LLAMA3],
    "qwen2 stablelm2 deepseek-r1-qwen": [QWEN2],
    "qwen35": [
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "gpt-4o llama4": [O200K],
    "tekken": [TEKKEN],
    "smollm starcoder refact command-r": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, DEEPSEEK3],
    "bloom": [NOT_SEPARATORS],
    "viking": [NOT_SEPARATORS, r"\p{N}"],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "seed-coder": [
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
}
TEXTS = [
    "Hello, world! It's 1234567 o'clock; we'll've WON'T y'\u017f",
    "a   b  \n\n c \r\n\r\n\td\t\te   ",
    "  leading and trailing  ",
    "camelCase XMLHttpRequest HTTPServer snake_case kebab-case path/to//file.txt\n/x",
    "1 12 123 1234 12345.678,90 ½ ² ⅷ ١٢٣ ०१",
    "price: $5.99 + €10 = ~£15 <tag> a|b ^c` \"q\" 'r' (s) [t] {u}",
    "naïve café e\u0301a\u0308 Ünïcödé ǅungla ʰa ﬁ",
    "中文字符 日本語テキスト ひらがな 한국어 텍스트 العربية עברית हिन्दी ไทย",
    "мир ΑΒΓαβγ ԱԲ ა 𐐀𐐨 𝒳 ꙁ ª",
    "emoji 🙂🙃👨‍👩‍👧 flags 🇩🇪!🙂🙂",
    "def f(x):\n    return x**2  # comment\n\n\n    y = [1,2,3]\n",
    "。，、！？「」…—–-_—a—b",
    "\u00a0nbsp\u2003em\u3000wide\u2028line\u200bzero",
    "don't DON'T Don'T can'T it'S I'M they'RE'x",
    "x\u0301\u0302y \u0301z 9\u20e3 A\u0300B",
    "a.b,c!d?e f(g)h|i (ok)",
    "\n",
    " ",
    "",
]


def lengths(expressions, text):
    cuts = Sequence([Split(Regex(each), "isolated") for each in expressions])
    return [len(word.encode()) for word, _ in cuts.pre_tokenize_str(text)]


data = [{"names": names.split(), "words": [lengths(all, text) for text in TEXTS]} for names, all in PATTERNS.items()]
path = Path(__file__).parents[1] / "data/split_words.json"
lines = ",\n".join(json.dumps(each, ensure_ascii=True, separators=(",", ":")) for each in data)
path.write_text('{"texts":' + json.dumps(TEXTS) + ',\n"patterns":[\n' + lines + "]}\n")
