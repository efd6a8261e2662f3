import pytest
import torch

import imbrex_torch
import reference
from paged_cache import Cache, factors, quantised
from reference import relative_error


def rotated(x, positions, inv_freq, style):
    """RoPE in double: x is [tokens, heads, head_dim]."""
    x, pairs = x.double(), len(inv_freq)
    angle = (positions[:, None].double() * inv_freq.double())[:, None]
    first, second = ((x[..., :pairs], x[..., pairs : 2 * pairs]) if style == "neox"
                     else (x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]))
    turned = [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()]
    together = torch.cat(turned, -1) if style == "neox" else torch.stack(turned, -1).flatten(-2)
    return torch.cat([together, x[..., 2 * pairs :]], -1)


@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_append_with_rope(device, style, tokens):
    cache = Cache(device, [40, 16, 3])
    k, v = (torch.randn(3, tokens, 2, 64, device=device, dtype=torch.bfloat16) for _ in range(2))
    q = torch.randn(3, tokens, 4, 64, device=device, dtype=torch.bfloat16)
    inv_freq = 10000.0 ** -(torch.arange(0, 48, 2, device=device) / 48)
    expected_k, expected_v = cache.k.clone(), cache.v.clone()
    turned = imbrex_torch.paged_append(k, v, *cache.arguments(), q=q, inv_freq=inv_freq, style=style)
    for i, length in enumerate(cache.lengths):
        positions = torch.arange(length - tokens, length, device=device)
        where = cache.rows(i, positions)
        expected_k[where] = rotated(k[i], positions, inv_freq, style).bfloat16()
        expected_v[where] = v[i]
        assert relative_error(turned[i], rotated(q[i], positions, inv_freq, style)) < 0.005
    assert torch.equal(cache.v.nan_to_num(), expected_v.nan_to_num())
    assert torch.equal(cache.k.isnan(), expected_k.isnan())
    assert relative_error(cache.k.nan_to_num(), expected_k.nan_to_num()) < 0.001
    again = imbrex_torch.paged_append(k, v, *cache.arguments(), q=q, style=style,
                                      inv_freq=imbrex_torch.fixed_point_inv_freq(inv_freq))
    assert torch.equal(again, turned)


def test_append_without_rope(device):
    """Of a varlen batch, with strided inputs; and of one token without its dimension."""
    cache = Cache(device, [40, 16, 3])
    fused = torch.randn(6, 4, 64, device=device, dtype=torch.bfloat16)
    k, v = fused[:, :2], fused[:, 2:]
    starts = torch.tensor([0, 1, 1, 4], device=device, dtype=torch.int32)  # the last two tokens belong to no sequence
    expected = cache.k.clone()
    expected[cache.rows(0, [39])] = k[:1]
    expected[cache.rows(2, [0, 1, 2])] = k[1:4]
    assert imbrex_torch.paged_append(k, v, *cache.arguments(), cu_seqlens_q=starts) is None
    assert torch.equal(cache.k.nan_to_num(), expected.nan_to_num())
    imbrex_torch.paged_append(k[3:], v[3:], *cache.arguments())
    for i, length in enumerate(cache.lengths):
        assert torch.equal(cache.v[cache.rows(i, [length - 1])][0], v[3 + i])


@pytest.mark.parametrize("kind", ["number", "per head", "per page"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_append_to_8_bits(device, dtype, kind):
    cache = Cache(device, [40, 17])
    k8, v8 = (torch.zeros(cache.k.shape, device=device, dtype=dtype) for _ in range(2))
    k_scales, v_scales = (factors(kind, dtype, k8.shape[0], 2, device) for _ in range(2))
    k, v = (4 * torch.randn(2, 2, 2, 64, device=device, dtype=torch.bfloat16) for _ in range(2))
    imbrex_torch.paged_append(k, v, k8, v8, cache.table, cache.seqlens, k_scales=k_scales, v_scales=v_scales)
    for i, length in enumerate(cache.lengths):
        where = cache.rows(i, [length - 2, length - 1])
        for stored, given, scales in ((k8, k, k_scales), (v8, v, v_scales)):
            scale = torch.as_tensor(scales, dtype=torch.float32)
            scale = scale[where[0]][..., None] if scale.dim() == 2 else scale[:, None] if scale.dim() == 1 else scale
            assert torch.equal(stored[where].float(), quantised(given[i], scale, dtype).float())


def test_append_then_decode_equals_attention(device):
    """A prompt and three steps, with RoPE."""
    cache = Cache(device, [0, 0], room=64)
    inv_freq = 10000.0 ** -(torch.arange(0, 64, 2, device=device) / 64)
    q, k, v = (torch.randn(2, 33, heads, 64, device=device, dtype=torch.bfloat16) for heads in (4, 2, 2))
    results = []
    for first, end in ((0, 30), (30, 31), (31, 32), (32, 33)):
        cache.seqlens.fill_(end)
        rows = slice(first, end)
        turned = imbrex_torch.paged_append(k[:, rows], v[:, rows], *cache.arguments(), q=q[:, rows], inv_freq=inv_freq)
        results.append(imbrex_torch.paged_decode(turned, *cache.arguments()))
    positions = torch.arange(33, device=device)
    q, k = (torch.stack([rotated(t, positions, inv_freq, "neox") for t in x]) for x in (q, k))
    exact = reference.attention(q, k, v.double(), causal=True)[0]
    assert relative_error(torch.cat(results, 1), exact) < 0.01


def test_errors_of_append(device):
    cache = Cache(device, [40, 16])
    k = torch.randn(2, 1, 2, 64, device=device, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="k.dtype: Double; must be BFloat16, Half or Float"):
        imbrex_torch.paged_append(k.double(), k.double(), *cache.arguments())
    with pytest.raises(TypeError, match="v.dtype: Half; must be BFloat16, that of k"):
        imbrex_torch.paged_append(k, k.half(), *cache.arguments())
    with pytest.raises(ValueError, match="style: llama; must be neox or gptj"):
        imbrex_torch.paged_append(k, k, *cache.arguments(), style="llama")
    with pytest.raises(ValueError, match="rope.rotary_dim: 80; must be even and at most the 64 columns of a key"):
        imbrex_torch.paged_append(k, k, *cache.arguments(), inv_freq=torch.ones(40, device=device))
    with pytest.raises(ValueError, match=r"k_cache.strides\[3\]: 2; the last dimension must be contiguous"):
        imbrex_torch.paged_append(k, k, torch.zeros(7, 16, 2, 128, device=device, dtype=k.dtype)[..., ::2], cache.v,
                                  cache.table, cache.seqlens)
