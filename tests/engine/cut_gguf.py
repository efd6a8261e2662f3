"""Writes the first layers of a GGUF model: a small file with the weights of a real one, for tests on a GPU.

    pip install gguf
    python3 tests/engine/cut_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf 4 smollm2_4.gguf
    python3 tests/engine/smollm2_reference.py smollm2_4.gguf smollm2_4.json
    IMBREX_SMOLLM2=smollm2_4.gguf IMBREX_SMOLLM2_REFERENCE=smollm2_4.json imbrex_engine_tests -tc="SmolLM2*"

All keys but the number of layers stay; tensors are copied as they are.
"""

import sys

import gguf


def layer_of(name):
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blk" else -1


def main():
    source, layers, target = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        value = layers if field.name == f"{architecture}.block_count" else field.contents()
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, kind, element)
    for tensor in reader.tensors:
        if layer_of(tensor.name) < layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
