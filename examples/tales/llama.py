"""The tales model: a small Llama in PyTorch, with the names of Hugging Face's LlamaForCausalLM.

Also its files (config.json, model.safetensors in bf16) and generation with a KV cache.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


@dataclass
class Config:
    vocabulary: int = 768
    hidden: int = 192
    intermediate: int = 384
    layers: int = 7
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    context: int = 512
    rotary_base: float = 10000.0
    epsilon: float = 1e-5

    def as_json(self, begin, end):
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.context,
            "rope_theta": self.rotary_base,
            "rope_scaling": None,
            "rms_norm_eps": self.epsilon,
            "initializer_range": 0.02,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "use_cache": True,
            "bos_token_id": begin,
            "eos_token_id": end,
        }

    @staticmethod
    def from_json(data):
        names = {
            "vocabulary": "vocab_size",
            "hidden": "hidden_size",
            "intermediate": "intermediate_size",
            "layers": "num_hidden_layers",
            "heads": "num_attention_heads",
            "kv_heads": "num_key_value_heads",
            "head_dim": "head_dim",
            "context": "max_position_embeddings",
            "rotary_base": "rope_theta",
            "epsilon": "rms_norm_eps",
        }
        return Config(**{field: data[name] for field, name in names.items()})


def rotary_table(config, device):
    """RoPE cosine and sine per position and pair; element i is paired with i + head_dim / 2."""
    frequencies = config.rotary_base ** (-torch.arange(0, config.head_dim, 2, device=device) / config.head_dim)
    angles = torch.arange(config.context, device=device)[:, None] * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotated(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return (x * cosine + torch.cat([-second, first], dim=-1) * sine).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        return functional.rms_norm(x.float(), self.weight.shape, self.weight, self.epsilon)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        heads, kv_heads, depth = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(config.hidden, heads * depth, bias=False)
        self.k_proj = nn.Linear(config.hidden, kv_heads * depth, bias=False)
        self.v_proj = nn.Linear(config.hidden, kv_heads * depth, bias=False)
        self.o_proj = nn.Linear(heads * depth, config.hidden, bias=False)

    def forward(self, x, rotary, cache):
        """`cache` is (keys, values, position) to decode one token per row, or None for complete rows."""

        def heads_of(y):
            return y.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

        q, k, v = rotated(heads_of(self.q_proj(x)), *rotary), heads_of(self.k_proj(x)), heads_of(self.v_proj(x))
        k = rotated(k, *rotary)
        if cache:
            keys, values, position = cache
            keys[:, :, position], values[:, :, position] = k[:, :, 0], v[:, :, 0]
            k, v = keys[:, :, : position + 1], values[:, :, : position + 1]
        group = self.config.heads // self.config.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=not cache)
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class Gated(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden, config.epsilon)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden, config.epsilon)
        self.mlp = Gated(config)

    def forward(self, x, rotary, cache):
        x = x + self.self_attn(self.input_layernorm(x), rotary, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Inner(nn.Module):
    """Named `model` in Hugging Face, so that the weights have its names."""

    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.epsilon)


class Llama(nn.Module):
    def __init__(self, config, device="cpu"):
        super().__init__()
        self.config = config
        with torch.device(device):
            self.model = Inner(config)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * config.layers) ** 0.5 if into_residual else 0.02)
        self.rotary = rotary_table(config, device)

    def forward(self, ids, caches=None, position=0):
        """Logits of each position; with caches, of one token per row at a position."""
        rotary = [table[position : position + ids.shape[1]] for table in self.rotary]
        x = self.model.embed_tokens(ids)
        for i, layer in enumerate(self.model.layers):
            x = layer(x, rotary, (*caches[i], position) if caches else None)
        return functional.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def empty_caches(self, rows):
        config, weight = self.config, self.model.norm.weight
        shape = (rows, config.kv_heads, config.context, config.head_dim)
        return [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in range(config.layers)]


@torch.no_grad()
def generate(model, prompts, end, temperature, seed=0):
    """Continues lists of ids until `end` or the end of the context; returns the complete lists without `end`. All rows are at
    the same position: a row takes the prompt's token within its prompt, and the sampled token after it."""
    device = model.model.norm.weight.device
    random = torch.Generator(device=device).manual_seed(seed)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    ids = torch.full((len(prompts), model.config.context), end, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, device=device)
    caches = model.empty_caches(len(prompts))
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for position in range(model.config.context - 1):
        logits = model(ids[:, position : position + 1], caches=caches, position=position)[:, 0].float()
        if temperature > 0:
            chosen = torch.multinomial((logits / temperature).softmax(-1), 1, generator=random)[:, 0]
        else:
            chosen = logits.argmax(-1)
        in_prompt = position + 1 < lengths
        ended |= (chosen == end) & ~in_prompt
        ids[:, position + 1] = torch.where(in_prompt, ids[:, position + 1], torch.where(ended, end, chosen))
        if position % 16 == 0 and ended.all():
            break
    return [row[: row.index(end)] if end in row else row for row in ids.tolist()]


# Files.


def save_safetensors(path, tensors):
    """safetensors: header length in 8 bytes, JSON header, tensor data, here all bf16."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        values = tensor.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def load_safetensors(path):
    data = bytearray(Path(path).read_bytes())
    begin = 8 + struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            values = torch.frombuffer(data, dtype=torch.bfloat16, count=(last - first) // 2, offset=begin + first)
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def save(folder, model, begin, end):
    folder = Path(folder)
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(model.config.as_json(begin, end), indent=2) + "\n")
    save_safetensors(folder / "model.safetensors", model.state_dict())


def load(folder, device="cpu"):
    """Loads a saved model; the bf16 weights become fp32."""
    config = Config.from_json(json.loads((Path(folder) / "config.json").read_text()))
    model = Llama(config, device)
    model.load_state_dict(load_safetensors(Path(folder) / "model.safetensors"))
    return model.eval()
