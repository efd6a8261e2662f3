"""Writes tests/engine/data/ggml_blocks.gguf: blocks of every ggml type that the engine reads, and their values.

    pip install gguf
    python3 tests/engine/ggml_blocks.py

Tensor NAME has blocks of random bytes; the first blocks have extreme scales: the smallest subnormal, the largest number,
negative ones. Tensor NAME.values has the values as f32, by gguf.quants.dequantize, which is independent of the engine.
"""

from pathlib import Path

import gguf
import numpy
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES

# The bytes of the fp16 scales in a block.
SCALES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q2_K: [80, 82],
    Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.IQ4_NL: [0], Type.IQ4_XS: [0],
    Type.MXFP4: [],
}
EXTREME = numpy.array([0x0001, 0x7BFF, 0xFBFF, 0x8001, 0x0000, 0x0400], numpy.uint16).view(numpy.float16)


def blocks_of(kind: Type, random: numpy.random.Generator) -> numpy.ndarray:
    elements, size = GGML_QUANT_SIZES[kind]
    count = 8 if elements == 32 else 3
    extreme = min(count - 1, len(EXTREME))
    blocks = random.integers(0, 256, (count, size), numpy.uint8)
    for place in SCALES[kind]:
        scales = random.standard_normal(count).astype(numpy.float16)
        scales[:extreme] = random.permutation(EXTREME)[:extreme]
        blocks[:, place : place + 2] = scales.view(numpy.uint8).reshape(count, 2)
    if kind == Type.MXFP4:
        blocks[:4, 0] = [0, 1, 2, 252]  # the exponent
        blocks[4:, 0] = random.integers(100, 150, count - 4)
    return blocks


def main() -> None:
    random = numpy.random.default_rng(1)
    path = Path(__file__).parent / "data" / "ggml_blocks.gguf"
    writer = gguf.GGUFWriter(path, "none")
    for kind in SCALES:
        blocks = blocks_of(kind, random).reshape(1, -1)
        values = gguf.quants.dequantize(blocks, kind).astype(numpy.float32)
        assert numpy.isfinite(values).all()
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        writer.add_tensor(kind.name + ".values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
