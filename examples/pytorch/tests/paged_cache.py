"""A random paged KV cache, and 8-bit values and scales for it."""

import math

import torch


class Cache:
    """Random keys and values of sequences of these lengths, in shuffled pages; the rest of the cache is NaN."""

    def __init__(self, device, lengths, kv_heads=2, head_dim=64, page_size=16, dtype=torch.bfloat16, room=None):
        self.lengths, self.page_size = lengths, page_size
        blocks = max(1, -(-(room or max(lengths, default=0)) // page_size))
        pages = len(lengths) * blocks + 1
        shape = (pages, page_size, kv_heads, head_dim)
        self.k = torch.full(shape, math.nan, device=device, dtype=dtype)
        self.v = torch.full(shape, math.nan, device=device, dtype=dtype)
        table = torch.randperm(pages)[: len(lengths) * blocks].view(len(lengths), blocks)
        self.table = table.to(device, torch.int32)
        self.seqlens = torch.tensor(lengths, device=device, dtype=torch.int32)
        for sequence, length in enumerate(lengths):
            for cache in (self.k, self.v):
                self.put(cache, sequence, torch.randn(length, kv_heads, head_dim, device=device, dtype=dtype))

    def rows(self, sequence, positions):
        """Page and row in the page of each position."""
        positions = torch.as_tensor(positions, dtype=torch.long, device=self.table.device)
        return self.table[sequence, positions // self.page_size].long(), positions % self.page_size

    def put(self, cache, sequence, values):
        cache[self.rows(sequence, range(len(values)))] = values

    def of(self, cache, sequence):
        """The rows of a sequence, in order: [1, length, kv_heads, head_dim]."""
        return cache[self.rows(sequence, range(self.lengths[sequence]))][None]

    def arguments(self):
        return self.k, self.v, self.table, self.seqlens


def quantised(values, scale, dtype):
    """As paged_append stores values."""
    values = values.float() * (1 / torch.as_tensor(scale))
    if dtype == torch.int8:
        return values.round().clamp(-128, 127).to(dtype)
    return values.clamp(-448, 448).to(dtype)


def factors(kind, dtype, pages, kv_heads, device):
    base = 0.02 if dtype == torch.int8 else 0.01
    shape = {"number": (), "per head": (kv_heads,), "per page": (pages, kv_heads)}[kind]
    scales = base * (1 + torch.rand(shape, device=device))
    return scales.item() if kind == "number" else scales
