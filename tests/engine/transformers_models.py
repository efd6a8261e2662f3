"""Makes small models with random weights in Hugging Face's transformers, and writes what it computes with them, so that
tests/engine/model/transformers.cpp can compare without Python.

    python3 tests/engine/transformers_models.py tests/engine/data/transformers

Each model is a folder as save_pretrained writes it, with these beside:

    logits.safetensors  "logits" [tokens, vocabulary], computed in float64 from the weights as they are saved
    expected.json       the tokens; how far transformers' own float32 and bfloat16 are from those logits; the versions

tests/engine/model/gguf_models.cpp converts the same models to GGUF. Larger ones are made with --scale, on a GPU with --device cuda; the
tests are led to their folder by the environment variable IMBREX_TRANSFORMERS_MODELS.
"""

import argparse
import json
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest import mock

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, Mxfp4Config, modeling_rope_utils

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
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 32}
DEEPSEEK_YARN = {**YARN, "beta_fast": 16, "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}
# 24 tokens are the whole context: transformers' frequencies depend on the length of the text, the engine's on the context.
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0, 1.25, 1.5, 2.0, 2.5, 3.0],
    "long_factor": [1.0, 2.0, 4.0, 5.0, 6.0, 8.0],
    "original_max_position_embeddings": 16,
    "partial_rotary_factor": 0.75,
}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
}
OLMO3_ROPE = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}
WINDOW = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
FOUR_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
EXPERTS = {"num_experts_per_tok": 3, "moe_intermediate_size": 20}
GPT_OSS = {**FOUR_HEADS, "num_local_experts": 6, "num_experts_per_tok": 3, "num_hidden_layers": 3, "sliding_window": 7,
           "layer_types": ALTERNATING, "attention_bias": True}
GEMMA = {"tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 20}

# Name, family, weight type, differences from SIZES. The place in the list is the seed.
MODELS = [
    ("llama", "llama", torch.float32, {"num_hidden_layers": 1}),
    ("llama_linear", "llama", torch.float16, {"rope_parameters": LINEAR, "tie_word_embeddings": True}),
    ("llama_3", "llama", torch.bfloat16, {"rope_parameters": LLAMA3}),
    ("qwen2", "qwen2", torch.bfloat16, {"tie_word_embeddings": True, **FOUR_HEADS}),
    ("qwen2_window", "qwen2", torch.float16, WINDOW),
    ("qwen3", "qwen3", torch.bfloat16, {"tie_word_embeddings": True, **FOUR_HEADS}),
    ("llama_dynamic", "llama", torch.bfloat16, {"rope_parameters": DYNAMIC, "max_position_embeddings": 8}),
    ("llama_yarn", "llama", torch.bfloat16, {"rope_parameters": YARN, "attention_bias": True}),
    ("qwen2_yarn", "qwen2", torch.bfloat16, {"rope_parameters": DEEPSEEK_YARN}),
    ("mistral", "mistral", torch.bfloat16, {"sliding_window": 7, **FOUR_HEADS}),
    ("ministral", "ministral", torch.bfloat16, {"sliding_window": 5, "layer_types": ALTERNATING, "num_hidden_layers": 3}),
    ("smollm3", "smollm3", torch.bfloat16, {"num_hidden_layers": 4, "pad_token_id": 0}),
    ("gemma", "gemma", torch.bfloat16, {"tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh"}),
    ("gemma2", "gemma2", torch.bfloat16, {**GEMMA, "sliding_window": 7, "attn_logit_softcapping": 5.0,
                                          "final_logit_softcapping": 3.0}),
    ("gemma3", "gemma3_text", torch.bfloat16, {**GEMMA, "sliding_window": 7, "layer_types": ALTERNATING,
                                               "num_hidden_layers": 3, "rope_parameters": GEMMA3_ROPE}),
    ("phi3", "phi3", torch.bfloat16, {"hidden_size": 32, "rope_parameters": LONGROPE, "sliding_window": 9,
                                      "pad_token_id": 0, "original_max_position_embeddings": 16}),
    ("granite", "granite", torch.bfloat16, {"embedding_multiplier": 12.0, "logits_scaling": 8.0,
                                            "residual_multiplier": 0.22, "attention_multiplier": 0.1}),
    ("olmo2", "olmo2", torch.bfloat16, {**FOUR_HEADS, "pad_token_id": 0}),
    ("stablelm", "stablelm", torch.bfloat16, {"hidden_size": 32, "use_qkv_bias": True, "layer_norm_eps": 1e-5,
                                              "rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.25}}),
    ("stablelm_parallel", "stablelm", torch.bfloat16, {"hidden_size": 32, "use_parallel_residual": True,
                                                       "layer_norm_eps": 1e-5}),
    ("olmo3", "olmo3", torch.bfloat16, {"pad_token_id": 0, "sliding_window": 7, "layer_types": ALTERNATING,
                                        "num_hidden_layers": 3, "rope_parameters": OLMO3_ROPE}),
    ("qwen3_moe", "qwen3_moe", torch.bfloat16, {**FOUR_HEADS, **EXPERTS, "num_experts": 7, "norm_topk_prob": True}),
    ("qwen3_moe_all", "qwen3_moe", torch.bfloat16, {**FOUR_HEADS, **EXPERTS, "num_experts": 5, "norm_topk_prob": False}),
    ("mixtral", "mixtral", torch.bfloat16, {"num_local_experts": 4, "num_experts_per_tok": 2}),
    # A ramp of YaRN that rounding would change.
    ("gpt_oss", "gpt_oss", torch.bfloat16, {**GPT_OSS, "rope_parameters": {**YARN, "truncate": False}}),
    ("gpt_oss_mxfp4", "gpt_oss", torch.bfloat16, {**GPT_OSS, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
                                                  "layer_types": ALTERNATING[:2],
                                                  "rope_parameters": {**YARN, "truncate": False}}),
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
# Scaled with the model; Phi-3 and StableLM have hidden_size / heads elements in a head.
SCALED = ("vocab_size", "hidden_size", "intermediate_size", "head_dim")
TOKENIZER = {
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}, "merges": []},
}


def offset_of_norms(model_type):
    """Gemma stores norm weights as differences from 1."""
    return 0 if model_type.startswith("gemma") else 1


@torch.no_grad()
def fill(model, random):
    """Weights for which every part matters: transformers initialises norms to 1, biases to 0 and weak attention."""
    for name, parameter in model.named_parameters():
        values = torch.empty_like(parameter, dtype=torch.float64).normal_(generator=random)
        if "norm" in name and name.endswith("weight"):
            values = offset_of_norms(model.config.model_type) + values / 4
        elif name.endswith(("bias", "sinks")):
            values = values / 2
        elif "embed_tokens" not in name:
            # Experts have a matrix each; in GPT-OSS they are multiplied from the right.
            inputs = 1 if parameter.dim() == 2 or model.config.model_type == "gpt_oss" else 2
            values = values / parameter.shape[inputs] ** 0.5
            if model.config.model_type == "gpt_oss" and "gate_up" in name:
                values = 6 * values  # beyond the limit of its SwiGLU, which GGUF files cannot change
        parameter.copy_(values)


def pack_experts(folder, random):
    """Replaces the matrices of the experts by random ones in MXFP4, with weights of about the size of those before."""
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        shape = (experts, outputs, inputs // 32)
        exponent = 125 if "gate_up" in name else 122
        tensors[name + "_blocks"] = torch.randint(256, (*shape, 16), generator=random, dtype=torch.uint8)
        tensors[name + "_scales"] = torch.randint(exponent - 1, exponent + 2, shape, generator=random, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


class TorchInFloat64:
    """torch with float32 replaced by float64: transformers computes norms and angles in float32 for every model type."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextmanager
def all_in_float64(model_class):
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        for module in (sys.modules[model_class.__module__], modeling_rope_utils):
            stack.enter_context(mock.patch.object(module, "torch", TorchInFloat64()))
        yield


@torch.no_grad()
def logits_in(model_class, folder, dtype, ids, device):
    with all_in_float64(model_class) if dtype == torch.float64 else nullcontext():
        if folder.name.endswith("mxfp4"):  # to bf16, which has their values
            unpacked = Mxfp4Config(dequantize=True)
            model = model_class.from_pretrained(folder, dtype=torch.bfloat16, quantization_config=unpacked).to(dtype)
        else:
            model = model_class.from_pretrained(folder, dtype=dtype)
        model.to(device)
        if getattr(model.config, "attn_logit_softcapping", None):
            model.set_attn_implementation("eager")  # the others ignore the softcap
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")  # the others do not have float64
        return model(ids.to(device)).logits[0].double().cpu()


def distance(logits, expected):
    """As in reference_model.hpp; the maximum over positions."""
    return ((logits - expected).abs().amax(-1) / expected.square().mean(-1).sqrt()).max().item()


def make(folder, family, dtype, settings, count, seed, device):
    config = AutoConfig.for_model(family, **settings)
    random = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    model_class = type(model)
    fill(model, random)
    model.to(dtype).save_pretrained(folder)
    if folder.name.endswith("mxfp4"):
        pack_experts(folder, random)
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
    arguments.add_argument("--only", nargs="*", help="the names of the models to make; default: all")
    arguments.add_argument("--device", default="cpu", help="what transformers computes on: cpu, cuda")
    arguments = arguments.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    for seed, (name, family, dtype, differences) in enumerate(MODELS):
        if arguments.only and name not in arguments.only:
            continue
        settings = {**SIZES, **differences}
        settings.update({key: settings[key] * arguments.scale for key in SCALED})
        folder = arguments.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, family, dtype, settings, arguments.tokens, seed, arguments.device)


if __name__ == "__main__":
    main()
