"""Writes tests/engine/data/quantised_checkpoints/: small matrices as GPTQ, AWQ, compressed-tensors and fp8 store them.

    pip install numpy
    python3 tests/engine/quantised_checkpoints.py

Each file has the tensors of one linear layer "m", its weight as f32 in "expected", and the quantization_config in the
metadata. The packing follows the definitions of AutoGPTQ, AutoAWQ and compressed-tensors, not the engine.
"""

import json
import struct
from pathlib import Path

import numpy

ROWS, COLUMNS, GROUP = 16, 128, 32
DTYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "int8": "I8"}
random = numpy.random.default_rng(1)


def bf16(values):
    """Floats rounded to bf16, and their bits."""
    bits = (values.astype(numpy.float32).view(numpy.uint32) + 0x8000 >> 16).astype(numpy.uint16)
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32), bits


def e4m3(bits):
    """The value of e4m3 bits, by definition."""
    sign, exponent, mantissa = bits >> 7, bits >> 3 & 15, bits & 7
    magnitude = numpy.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent.astype(float) - 10))
    return numpy.where(sign == 1, -magnitude, magnitude)


def write(name, config, expected, tensors):
    header, data = {"__metadata__": {"quantization_config": json.dumps(config)}}, b""
    tensors = dict(tensors, expected=expected.astype(numpy.float32))
    for key, value in tensors.items():
        dtype, values = value if isinstance(value, tuple) else (DTYPES[value.dtype.name], value)
        raw = numpy.ascontiguousarray(values).tobytes()
        full = key if key == "expected" else "m." + key
        header[full] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    folder = Path(__file__).parent / "data" / "quantised_checkpoints"
    folder.mkdir(exist_ok=True)
    (folder / (name + ".safetensors")).write_bytes(struct.pack("<Q", len(text)) + text + data)


def pack(values, bits, axis, order=None):
    """Words of 32 bits; value i of a word at bits * i, or with an order, value order[i]."""
    values = numpy.moveaxis(values.astype(numpy.uint32), axis, -1)
    each = 32 // bits
    words = numpy.zeros(values.shape[:-1] + (values.shape[-1] // each,), numpy.uint32)
    for i in range(each):
        words |= values[..., (order[i] if order else i) :: each] << (bits * i)
    return numpy.moveaxis(words, -1, axis).view(numpy.int32) if axis == -1 else numpy.ascontiguousarray(
        numpy.moveaxis(words, -1, axis)).view(numpy.int32)


def gptq(name, bits, symmetric, version="gptq", act_order=False):
    groups = COLUMNS // GROUP
    values = random.integers(0, 2**bits, (COLUMNS, ROWS))
    zeros = numpy.full((groups, ROWS), 2 ** (bits - 1)) if symmetric else random.integers(1, 2**bits, (groups, ROWS))
    scales = (random.random((groups, ROWS)) * 0.01 + 0.001).astype(numpy.float16)
    g_idx = numpy.arange(COLUMNS) // GROUP
    if act_order:
        g_idx = random.permutation(g_idx)
    expected = ((values - zeros[g_idx]) * scales[g_idx].astype(numpy.float32)).T
    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "checkpoint_format": version}
    stored = zeros - (0 if version == "gptq_v2" else 1)
    write(name, config, expected, {
        "qweight": pack(values, bits, 0), "qzeros": pack(stored, bits, -1), "scales": scales,
        "g_idx": g_idx.astype(numpy.int32)})


def awq():
    order, groups = [0, 2, 4, 6, 1, 3, 5, 7], COLUMNS // GROUP
    values = random.integers(0, 16, (COLUMNS, ROWS))
    zeros = random.integers(0, 16, (groups, ROWS))
    scales = (random.random((groups, ROWS)) * 0.01 + 0.001).astype(numpy.float16)
    group = numpy.arange(COLUMNS) // GROUP
    expected = ((values - zeros[group]) * scales[group].astype(numpy.float32)).T
    config = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
    write("awq", config, expected, {
        "qweight": pack(values, 4, -1, order), "qzeros": pack(zeros, 4, -1, order), "scales": scales})


def compressed_packed(name, bits, symmetric):
    half, groups = 2 ** (bits - 1), COLUMNS // GROUP
    values = random.integers(-half, half, (ROWS, COLUMNS))
    zeros = random.integers(-half, half, (ROWS, groups)) * (0 if symmetric else 1)
    scales, scale_bits = bf16(random.random((ROWS, groups)) * 0.01 + 0.001)
    group = numpy.arange(COLUMNS) // GROUP
    expected = (values - zeros[:, group]) * scales[:, group]
    tensors = {"weight_packed": pack(values + half, bits, -1), "weight_scale": ("BF16", scale_bits),
               "weight_shape": numpy.array([ROWS, COLUMNS])}
    if not symmetric:
        tensors["weight_zero_point"] = pack(zeros + half, bits, 0)
    write(name, {"quant_method": "compressed-tensors", "format": "pack-quantized"}, expected, tensors)


def compressed_int8():
    values = random.integers(-128, 128, (ROWS, COLUMNS)).astype(numpy.int8)
    scales, bits = bf16(random.random((ROWS, 1)) * 0.01 + 0.001)
    config = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    write("compressed_int8", config, values * scales, {"weight": values, "weight_scale": ("BF16", bits)})


def fp8(name, config, shape, blocks):
    values = random.integers(0, 256, (ROWS, COLUMNS)).astype(numpy.uint8)
    values[values & 127 == 127] = 0  # no NaN
    scales = (random.random(shape) * 0.01 + 0.001).astype(numpy.float32)
    rows, columns = numpy.arange(ROWS) // blocks[0], numpy.arange(COLUMNS) // blocks[1]
    table = scales.reshape(shape if len(shape) == 2 else (-1, 1))
    expected = e4m3(values.astype(int)) * table[rows][:, columns]
    key = "weight_scale_inv" if "weight_block_size" in config else "weight_scale"
    write(name, config, expected, {"weight": ("F8_E4M3", values), key: scales, "input_scale": numpy.float32([1])})


gptq("gptq_4", 4, True)
gptq("gptq_4_zeros", 4, False)
gptq("gptq_4_act_order", 4, True, act_order=True)
gptq("gptq_4_v2", 4, True, version="gptq_v2")
gptq("gptq_8", 8, True)
awq()
compressed_packed("compressed_4", 4, True)
compressed_packed("compressed_4_zeros", 4, False)
compressed_int8()
fp8("fp8_tensor", {"quant_method": "fp8"}, (), (ROWS, COLUMNS))
fp8("fp8_channel", {"quant_method": "compressed-tensors", "format": "float-quantized"}, (ROWS, 1), (1, COLUMNS))
fp8("fp8_block", {"quant_method": "fp8", "weight_block_size": [6, 48]}, (3, 3), (6, 48))
