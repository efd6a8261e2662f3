"""Writes golden.json beside a model: prompts, their ids, the ids of the greedy continuation, and the highest logits at the
first and last prompt position, computed in fp32 from the saved bf16 weights. An engine must reproduce them. `least_margin`
is the smallest difference of best and second-best logit: an engine with a larger error may choose another token.

    python3 golden.py model
"""

import argparse
import json
from pathlib import Path

import torch

from evaluate import beginnings
from llama import generate, load
from tokenizer import Tokenizer

PROMPTS = [
    "",
    "Mia was in the kitchen. She had 3 apples.",
    "Once upon a time there was a little village. Tom and Anna were by the river. Tom had a red kite.\n",
]
NEW_TOKENS = 64


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model", type=Path, help="a folder with config.json, model.safetensors and tokenizer.json")
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load(arguments.model), Tokenizer(arguments.model / "tokenizer.json")
    entries = []
    for prompt in PROMPTS + beginnings(tokenizer, 3)[0]:
        ids = [tokenizer.begin, *tokenizer.encode(prompt)]
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0]
        whole = generate(model, [ids], tokenizer.end, temperature=0.0)[0]
        continuation = (whole[len(ids) :] + [tokenizer.end])[:NEW_TOKENS]
        with torch.no_grad():
            chosen = model(torch.tensor([ids + continuation]))[0, len(ids) - 1 : -1].topk(2).values
        first, last = logits[0].topk(8), logits[-1].topk(8)
        entries.append(
            {
                "prompt": prompt,
                "prompt_ids": ids,
                "greedy_ids": continuation,
                "greedy_text": tokenizer.decode(continuation),
                "least_margin": round((chosen[:, 0] - chosen[:, 1]).min().item(), 5),
                "first_best_ids": first.indices.tolist(),
                "first_best_logits": [round(value, 5) for value in first.values.tolist()],
                "last_best_ids": last.indices.tolist(),
                "last_best_logits": [round(value, 5) for value in last.values.tolist()],
            }
        )
    note = "Greedy continuations and logits in fp32 from the bf16 weights; golden.py makes this file."
    text = json.dumps({"note": note, "entries": entries}, indent=1)
    (arguments.model / "golden.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
