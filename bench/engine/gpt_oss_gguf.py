"""Writes a GGUF file in the shape of GPT-OSS-20B with random weights: experts in MXFP4, other matrices in Q8_0. Any program that
reads GGUF can be measured with it. Its text is noise.

    python3 bench/engine/gpt_oss_gguf.py gpt-oss-20b.gguf              12.9 GB
    python3 bench/engine/gpt_oss_gguf.py small.gguf --layers 2         2.2 GB
"""

import argparse
import math
import os
import struct

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, VOCABULARY = 2880, 2880, 64, 8, 64, 32, 201088
F32, Q8_0, MXFP4 = 0, 8, 39
BLOCK_BYTES = {Q8_0: 34, MXFP4: 17}  # of 32 elements
POOL_BLOCKS = 40961  # random blocks that are repeated
ALIGNMENT = 32


def text(value):
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


class Metadata:
    def __init__(self):
        self.entries = []

    def add(self, key, kind, content):
        self.entries.append(text(key) + struct.pack("<I", kind) + content)

    def whole(self, key, value):
        self.add(key, 4, struct.pack("<I", value))

    def real(self, key, value):
        self.add(key, 6, struct.pack("<f", value))

    def string(self, key, value):
        self.add(key, 8, text(value))

    def strings(self, key, values):
        self.add(key, 9, struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values)))

    def wholes(self, key, values):
        self.add(key, 9, struct.pack(f"<IQ{len(values)}i", 5, len(values), *values))


def byte_level_letters():
    """The printable letters that byte-level BPE has for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def metadata(layers):
    made = Metadata()
    made.string("general.architecture", "gpt-oss")
    made.string("general.name", "random weights in the shape of GPT-OSS-20B")
    for key, value in {
        "block_count": layers,
        "context_length": 131072,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "expert_feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.sliding_window": 128,
        "expert_count": EXPERTS,
        "expert_used_count": 4,
        "rope.dimension_count": HEAD_DIM,
        "rope.scaling.original_context_length": 4096,
    }.items():
        made.whole("gpt-oss." + key, value)
    made.real("gpt-oss.rope.freq_base", 150000)
    made.real("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5)
    made.string("gpt-oss.rope.scaling.type", "yarn")
    made.real("gpt-oss.rope.scaling.factor", 32)
    tokens = byte_level_letters() + ["ab"]
    tokens += [f"t{i}" for i in range(len(tokens), VOCABULARY)]
    kinds = [1] * VOCABULARY
    for id, name in {199998: "<|startoftext|>", 199999: "<|endoftext|>", 200002: "<|return|>", 200005: "<|channel|>",
                     200006: "<|start|>", 200007: "<|end|>", 200008: "<|message|>", 200012: "<|call|>"}.items():
        tokens[id], kinds[id] = name, 3
    made.string("tokenizer.ggml.model", "gpt2")
    made.string("tokenizer.ggml.pre", "gpt-4o")
    made.strings("tokenizer.ggml.tokens", tokens)
    made.wholes("tokenizer.ggml.token_type", kinds)
    made.strings("tokenizer.ggml.merges", ["a b"])
    made.whole("tokenizer.ggml.bos_token_id", 199998)
    made.whole("tokenizer.ggml.eos_token_id", 200002)
    made.whole("tokenizer.ggml.padding_token_id", 199999)
    return made


def tensors(layers):
    """Name, dimensions from the innermost, type."""
    yield "token_embd.weight", (HIDDEN, VOCABULARY), Q8_0
    query, key = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for layer in range(layers):
        of = f"blk.{layer}."
        yield of + "attn_norm.weight", (HIDDEN,), F32
        for name, rows in {"q": query, "k": key, "v": key}.items():
            yield f"{of}attn_{name}.weight", (HIDDEN, rows), Q8_0
            yield f"{of}attn_{name}.bias", (rows,), F32
        yield of + "attn_output.weight", (query, HIDDEN), Q8_0
        yield of + "attn_output.bias", (HIDDEN,), F32
        yield of + "attn_sinks.weight", (HEADS,), F32
        yield of + "post_attention_norm.weight", (HIDDEN,), F32
        yield of + "ffn_gate_inp.weight", (HIDDEN, EXPERTS), F32
        yield of + "ffn_gate_inp.bias", (EXPERTS,), F32
        for name, columns, rows in (("gate", HIDDEN, FFN), ("up", HIDDEN, FFN), ("down", FFN, HIDDEN)):
            yield f"{of}ffn_{name}_exps.weight", (columns, rows, EXPERTS), MXFP4
            yield f"{of}ffn_{name}_exps.bias", (rows, EXPERTS), F32
    yield "output_norm.weight", (HIDDEN,), F32
    yield "output.weight", (HIDDEN, VOCABULARY), Q8_0


def byte_size(dimensions, kind):
    count = math.prod(dimensions)
    return 4 * count if kind == F32 else count // 32 * BLOCK_BYTES[kind]


def pool_of(kind):
    """Random blocks whose weights keep activations near 1: a deviation of 2880^-1/2."""
    pool = bytearray(os.urandom(POOL_BLOCKS * BLOCK_BYTES[kind]))
    if kind == MXFP4:
        pool[0 :: BLOCK_BYTES[kind]] = bytes([120]) * POOL_BLOCKS
    else:
        low, high = struct.pack("<e", 1 / (74 * math.sqrt(HIDDEN)))
        pool[0 :: BLOCK_BYTES[kind]] = bytes([low]) * POOL_BLOCKS
        pool[1 :: BLOCK_BYTES[kind]] = bytes([high]) * POOL_BLOCKS
    return bytes(pool)


def numbers(name, count):
    if name.endswith("norm.weight"):
        return struct.pack("<f", 1) * count
    if name.endswith("gate_inp.weight"):  # a router that chooses evenly
        words = struct.unpack(f"<{count}i", os.urandom(4 * count))
        return struct.pack(f"<{count}f", *(word / 2**31 * math.sqrt(3 / HIDDEN) for word in words))
    return bytes(4 * count)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("file")
    arguments.add_argument("--layers", type=int, default=24)
    arguments = arguments.parse_args()
    entries, all_tensors = metadata(arguments.layers).entries, list(tensors(arguments.layers))
    padded = lambda size: (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT  # noqa: E731
    header = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(entries)) + b"".join(entries)
    offset = 0
    for name, dimensions, kind in all_tensors:
        header += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)
        offset += padded(byte_size(dimensions, kind))
    pools = {kind: pool_of(kind) for kind in BLOCK_BYTES}
    with open(arguments.file, "wb") as file:
        file.write(header.ljust(padded(len(header)), b"\0"))
        for name, dimensions, kind in all_tensors:
            size = byte_size(dimensions, kind)
            if kind == F32:
                file.write(numbers(name, size // 4))
            else:
                whole, rest = divmod(size, len(pools[kind]))
                for _ in range(whole):
                    file.write(pools[kind])
                file.write(pools[kind][:rest])
            file.write(bytes(padded(size) - size))


main()
