"""Makes small models with random weights in Hugging Face's transformers, and writes what it computes with them, so that
tests/engine/model/transformers.cpp can compare without Python.

    python3 tests/engine/transformers_models.py tests/engine/data/transformers

Each model is a folder as save_pretrained writes it, with these beside:

    logits.safetensors  "logits" [tokens, vocabulary], computed in float64 from the weights as they are saved
    expected.json       the tokens; how far transformers' own float32 and bfloat16 are from those logits; the versions

The models that are in the repository were made by torch 2.15.0 and transformers 5.22.2. Larger ones are made with --scale, on a GPU
with --device cuda; the test is led to their folder by the environment variable IMBREX_TRANSFORMERS_MODELS.
"""

import argparse
import json
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers import modeling_rope_utils
from transformers.models.llama import modeling_llama
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3

LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
# With this short original context one of eight frequencies is kept, two are on the ramp, the rest are divided.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
WINDOW = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
FOUR_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA, QWEN2, QWEN3 = (LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM), (Qwen3Config, Qwen3ForCausalLM)

# Name, family, weight type, differences from SIZES.
MODELS = [
    ("llama", LLAMA, torch.float32, {"num_hidden_layers": 1}),
    ("llama_linear", LLAMA, torch.float16, {"rope_parameters": LINEAR, "tie_word_embeddings": True}),
    ("llama_3", LLAMA, torch.bfloat16, {"rope_parameters": LLAMA3}),
    ("qwen2", QWEN2, torch.bfloat16, {"tie_word_embeddings": True, **FOUR_HEADS}),
    ("qwen2_window", QWEN2, torch.float16, WINDOW),
    ("qwen3", QWEN3, torch.bfloat16, {"tie_word_embeddings": True, **FOUR_HEADS}),
]
SIZES = {
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SCALED = ("vocab_size", "hidden_size", "intermediate_size", "head_dim")
TOKENIZER = {
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}, "merges": []},
}


@torch.no_grad()
def fill(model, random):
    """Weights for which every part matters: transformers initialises norms to 1, biases to 0 and weak attention."""
    for name, parameter in model.named_parameters():
        values = torch.empty_like(parameter, dtype=torch.float64).normal_(generator=random)
        if "norm" in name:
            values = 1 + values / 4
        elif name.endswith("bias"):
            values = values / 2
        elif "embed_tokens" not in name:
            values = values / parameter.shape[1] ** 0.5
        parameter.copy_(values)


class TorchInFloat64:
    """torch with float32 replaced by float64: transformers computes norms and angles in float32 for every model type."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextmanager
def all_in_float64():
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        modules = (modeling_llama, modeling_qwen2, modeling_qwen3, modeling_rope_utils)
        before = [module.torch for module in modules]
        for module in modules:
            module.torch = TorchInFloat64()
        yield
        for module, torch_before in zip(modules, before):
            module.torch = torch_before


@torch.no_grad()
def logits_in(model_class, folder, dtype, ids, device):
    with all_in_float64() if dtype == torch.float64 else nullcontext():
        model = model_class.from_pretrained(folder, dtype=dtype).to(device)
        return model(ids.to(device)).logits[0].double().cpu()


def distance(logits, expected):
    """As in reference_model.hpp; the maximum over positions."""
    return ((logits - expected).abs().amax(-1) / expected.square().mean(-1).sqrt()).max().item()


def make(folder, family, dtype, settings, count, seed, device):
    config_class, model_class = family
    random = torch.Generator().manual_seed(seed)
    model = model_class(config_class(**settings))
    fill(model, random)
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER) + "\n")

    ids = torch.randint(settings["vocab_size"], (1, count), generator=random)
    expected = logits_in(model_class, folder, torch.float64, ids, device)
    errors = {
        str(other).removeprefix("torch."): distance(logits_in(model_class, folder, other, ids, device), expected)
        for other in (torch.float32, torch.bfloat16)
    }
    save_file({"logits": expected.float().contiguous()}, folder / "logits.safetensors")
    versions = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    text = json.dumps({"tokens": ids[0].tolist(), "own_errors": errors, "versions": versions})
    (folder / "expected.json").write_text(text + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(folder.name, errors)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path, help="where a folder for each model is made")
    arguments.add_argument("--scale", type=int, default=1, help="how many times as large the models are")
    arguments.add_argument("--tokens", type=int, default=24, help="how many tokens are computed")
    arguments.add_argument("--device", default="cpu", help="what transformers computes on: cpu, cuda")
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    for seed, (name, family, dtype, differences) in enumerate(MODELS):
        settings = {**SIZES, **differences}
        settings.update({key: settings[key] * arguments.scale for key in SCALED})
        folder = arguments.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, family, dtype, settings, arguments.tokens, seed, arguments.device)


if __name__ == "__main__":
    main()
