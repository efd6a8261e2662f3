"""Tale accuracy of a saved model: it continues first paragraphs of held-out tales, and the checker counts correct statements.

    python3 evaluate.py model --tales 200                           # greedy, and at temperature 0.8
    python3 evaluate.py model --tales 200 --weights int4 --group 32
"""

import argparse
from pathlib import Path

import torch

from check_tales import Figures, check
from grammar import Grammar
from llama import generate, load
from tales import tales
from tokenizer import Tokenizer

FIRST_HELD_OUT_SEED = 2_000_000_000  # training seeds are far below


def beginnings(tokenizer, count):
    """First paragraphs of held-out tales: texts and ids."""
    texts = [tale[: tale.index("\n") + 1] for tale in tales(FIRST_HELD_OUT_SEED, count)]
    return texts, [[tokenizer.begin] + tokenizer.encode(text) for text in texts]


def tale_accuracy(model, tokenizer, count, temperature, seed=0):
    """The figures of the continuations, and one tale."""
    grammar, figures = Grammar(), Figures()
    texts, prompts = beginnings(tokenizer, count)
    tale = ""
    for prompt, ids in zip(texts, generate(model, prompts, tokenizer.end, temperature, seed)):
        tale = tokenizer.decode(ids)
        figures.add(check(grammar, tale, begin=len(prompt)))
    return figures, tale


def rounded(weight, form, group):
    """Weights quantised and dequantised, with a scale per row or per group of a row."""
    parts = weight.unflatten(-1, (-1, group)) if group else weight.unsqueeze(-2)
    largest = parts.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    highest = {"int4": 7.0, "int8": 127.0, "e4m3": 448.0}[form]
    scaled = parts * (highest / largest)
    scaled = scaled.to(torch.float8_e4m3fn).to(parts.dtype) if form == "e4m3" else scaled.round()
    return (scaled * (largest / highest)).reshape(weight.shape)


def matrices(model):
    """The quantised weights: all matrices of the layers. The tied embedding is not quantised."""
    return [parameter for name, parameter in model.named_parameters() if name.endswith("proj.weight")]


def quantise(model, form, group):
    for parameter in matrices(model):
        parameter.data = rounded(parameter.data, form, group)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model", type=Path, help="a folder with config.json, model.safetensors and tokenizer.json")
    arguments.add_argument("--tales", type=int, default=200)
    arguments.add_argument("--weights", choices=("bf16", "e4m3", "int8", "int4"), default="bf16")
    arguments.add_argument("--group", type=int, default=0, help="weights that share a scale; 0: a whole row")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--threads", type=int, default=0, help="0: as many as PyTorch takes")
    arguments = arguments.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model, tokenizer = load(arguments.model, arguments.device), Tokenizer(arguments.model / "tokenizer.json")
    if arguments.weights != "bf16":
        quantise(model, arguments.weights, arguments.group)
    for temperature in (0.0, 0.8):
        figures, _ = tale_accuracy(model, tokenizer, arguments.tales, temperature)
        print(f"temperature {temperature}: {figures}", flush=True)


if __name__ == "__main__":
    main()
