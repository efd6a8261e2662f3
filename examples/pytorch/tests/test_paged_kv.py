import math

import pytest
import torch

import imbrex_torch
import reference
from reference import relative_error


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


def require_decoded(out, lse, q, cache, k, v, **options):
    """Compares with the formula; k and v are the cache in a floating point type."""
    for sequence in range(len(cache.lengths)):
        keys, values = (cache.of(t, sequence).double() for t in (k, v))
        exact, exact_lse = reference.attention(q[sequence : sequence + 1].double(), keys, values, **options)
        if exact.abs().max() == 0:
            assert (out[sequence] == 0).all()
        else:
            assert relative_error(out[sequence], exact[0]) < 0.01
        seen = exact_lse[0] > -math.inf
        assert torch.equal(lse[sequence] > -math.inf, seen)
        assert ((lse[sequence] - exact_lse[0])[seen].abs() < 1e-2).all()


CASES = {
    "one token": {"tokens": 1},
    "tokens": {"tokens": 3},
    "many rows": {"tokens": 20},
    "larger pages": {"tokens": 1, "page_size": 48},
    "other keys": {"tokens": 2, "causal": False},
    "window, softcap, sinks, scale": {"tokens": 2, "window": 20, "softcap": 5.0, "sinks": True, "scale": 0.3},
}


@pytest.mark.parametrize("case", CASES)
def test_decode(device, case):
    options = dict(CASES[case])
    tokens, page_size = options.pop("tokens"), options.pop("page_size", 16)
    cache = Cache(device, [100, 16, 1, 0], page_size=page_size)
    q = torch.randn(4, tokens, 4, 64, device=device, dtype=torch.bfloat16)
    if "sinks" in options:
        options["sinks"] = torch.randn(4, device=device)
    out, lse = imbrex_torch.paged_decode(q, *cache.arguments(), return_lse=True, **options)
    options.setdefault("causal", True)
    if "window" in options:
        options["window"] = (options["window"], 0)
    require_decoded(out, lse, q, cache, cache.k, cache.v, **options)


@pytest.mark.parametrize("dtype,head_dim", [(torch.bfloat16, 128), (torch.float16, 64), (torch.float16, 128)])
def test_decode_of_other_types(device, dtype, head_dim):
    if device.type == "cpu":
        pytest.skip("few variants are compiled for the CPU")
    cache = Cache(device, [700, 16, 1, 2000], kv_heads=2, head_dim=head_dim, dtype=dtype)
    q = torch.randn(4, 1, 8, head_dim, device=device, dtype=dtype)
    out, lse = imbrex_torch.paged_decode(q, *cache.arguments(), return_lse=True)
    require_decoded(out, lse, q, cache, cache.k, cache.v, causal=True)


def test_one_token_without_its_dimension(device):
    cache = Cache(device, [40, 3])
    q = torch.randn(2, 4, 64, device=device, dtype=torch.bfloat16)
    out, lse = imbrex_torch.paged_decode(q, *cache.arguments(), return_lse=True)
    expected, expected_lse = imbrex_torch.paged_decode(q[:, None], *cache.arguments(), return_lse=True)
    assert out.shape == (2, 4, 64) and torch.equal(out, expected[:, 0])
    assert lse.shape == (2, 4) and torch.equal(lse, expected_lse[..., 0])


def test_varlen_queries(device):
    cache = Cache(device, [40, 3, 25])
    q = torch.randn(6, 4, 64, device=device, dtype=torch.bfloat16)
    starts = torch.tensor([0, 2, 2, 6], device=device, dtype=torch.int32)
    out, lse = imbrex_torch.paged_decode(q, *cache.arguments(), cu_seqlens_q=starts, return_lse=True)
    assert out.shape == q.shape and lse.shape == (4, 6)
    for sequence, rows in ((0, slice(0, 2)), (2, slice(2, 6))):
        k, v = (cache.of(t, sequence).double() for t in (cache.k, cache.v))
        exact, exact_lse = reference.attention(q[None, rows].double(), k, v, causal=True)
        assert relative_error(out[rows], exact[0]) < 0.01
        assert (lse[:, rows] - exact_lse[0]).abs().max() < 1e-2


def test_strided_caches_and_tables(device):
    """A cache with heads outside of rows, K and V in one tensor, a wider table and strided queries."""
    cache = Cache(device, [100, 33])
    q = torch.randn(2, 1, 4, 64, device=device, dtype=torch.bfloat16)
    expected = imbrex_torch.paged_decode(q, *cache.arguments())
    heads_outside = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (cache.k, cache.v)]
    assert torch.equal(imbrex_torch.paged_decode(q, *heads_outside, cache.table, cache.seqlens), expected)
    both = torch.stack([cache.k, cache.v], dim=1)
    assert torch.equal(imbrex_torch.paged_decode(q, both[:, 0], both[:, 1], cache.table, cache.seqlens), expected)
    wide = torch.full((2, 20), -1, device=device, dtype=torch.int32)
    wide[:, :7] = cache.table
    assert torch.equal(imbrex_torch.paged_decode(q, cache.k, cache.v, wide[:, :7], cache.seqlens), expected)
    columns_strided = q.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(imbrex_torch.paged_decode(columns_strided, *cache.arguments()), expected)


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


@pytest.mark.parametrize("kind", ["number", "per head", "per page"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_caches_of_8_bits(device, dtype, kind):
    cache = Cache(device, [100, 0, 1, 37])
    k_scales, v_scales = (factors(kind, dtype, cache.k.shape[0], 2, device) for _ in range(2))

    def of_rows(scales):
        scales = torch.as_tensor(scales, dtype=torch.float32, device=device)
        return scales[:, None, :, None] if scales.dim() == 2 else scales[..., None] if scales.dim() == 1 else scales

    k8, v8 = (quantised(t.nan_to_num(), of_rows(s), dtype) for t, s in ((cache.k, k_scales), (cache.v, v_scales)))
    k, v = (t.float() * of_rows(s) for t, s in ((k8, k_scales), (v8, v_scales)))
    for tokens in (1, 5):
        q = torch.randn(4, tokens, 4, 64, device=device, dtype=torch.bfloat16)
        out, lse = imbrex_torch.paged_decode(q, k8, v8, cache.table, cache.seqlens, k_scales=k_scales,
                                             v_scales=v_scales, return_lse=True)
        require_decoded(out, lse, q, cache, k, v, causal=True)


def test_a_workspace_that_is_kept(device):
    cache = Cache(device, [100, 16, 1])
    q = torch.randn(3, 1, 4, 64, device=device, dtype=torch.bfloat16)
    expected = imbrex_torch.paged_decode(q, *cache.arguments())
    workspace = imbrex_torch.paged_decode_workspace(q, *cache.arguments())
    for _ in range(3):
        assert torch.equal(imbrex_torch.paged_decode(q, *cache.arguments(), workspace=workspace), expected)
    more = Cache(device, [30] * 5)
    q = torch.randn(5, 1, 4, 64, device=device, dtype=torch.bfloat16)
    assert torch.equal(imbrex_torch.paged_decode(q, *more.arguments(), workspace=workspace),
                       imbrex_torch.paged_decode(q, *more.arguments()))
    with pytest.raises(ValueError, match="workspace: 16 bytes; .* are needed"):
        imbrex_torch.paged_decode(q, *more.arguments(), workspace=workspace[:16])


def test_results_of_a_sequence_do_not_depend_on_the_batch(device):
    cache = Cache(device, [300, 90, 5], room=300)
    q = torch.randn(3, 1, 4, 64, device=device, dtype=torch.bfloat16)
    together = imbrex_torch.paged_decode(q, *cache.arguments(), split_size=64)
    for i in range(3):
        alone = imbrex_torch.paged_decode(q[i : i + 1], cache.k, cache.v, cache.table[i : i + 1],
                                          cache.seqlens[i : i + 1], split_size=64)
        assert torch.equal(alone[0], together[i])


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"tokens": 0}, {"lengths": 0}], ids=str)
def test_empty_inputs(device, sizes):
    lengths = [sizes.get("lengths", 5)] * sizes.get("batch", 2)
    cache = Cache(device, lengths)
    q = torch.randn(len(lengths), sizes.get("tokens", 1), 4, 64, device=device, dtype=torch.bfloat16)
    out, lse = imbrex_torch.paged_decode(q, *cache.arguments(), return_lse=True)
    assert out.shape == q.shape and (out == 0).all() and (lse == -math.inf).all()
    k = torch.randn(len(lengths), sizes.get("tokens", 1), 2, 64, device=device, dtype=torch.bfloat16)
    before = cache.k.clone()
    imbrex_torch.paged_append(k, k, *cache.arguments())
    assert torch.equal(cache.k.isnan(), before.isnan())


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


def test_errors(device):
    cache = Cache(device, [40, 16])
    k_cache, v_cache, table, seqlens = cache.arguments()
    q = torch.randn(2, 1, 4, 64, device=device, dtype=torch.bfloat16)

    def decode(q=q, k_cache=k_cache, v_cache=v_cache, table=table, seqlens=seqlens, **options):
        imbrex_torch.paged_decode(q, k_cache, v_cache, table, seqlens, **options)

    with pytest.raises(TypeError, match="q.dtype: Float; must be BFloat16 or Half"):
        decode(q.float())
    with pytest.raises(TypeError, match="k_cache.dtype: Half; must be BFloat16, that of q, Float8_e4m3fn or Char"):
        decode(k_cache=k_cache.half())
    with pytest.raises(TypeError, match="v_cache.dtype: Char; must be BFloat16, that of k_cache"):
        decode(v_cache=v_cache.to(torch.int8))
    with pytest.raises(ValueError, match=r"q: shape \[2, 4\]; \[batch, tokens, heads, head_dim\] is needed"):
        decode(q[:, 0, :, 0])
    with pytest.raises(ValueError, match=r"k_cache: shape \[16, 2, 64\]; \[pages, rows in a page, kv_heads, head_dim\]"):
        decode(k_cache=k_cache[0])
    with pytest.raises(ValueError, match=r"k_cache.shape\[1\]: 8; the rows of a page are a multiple of 16"):
        decode(k_cache=k_cache[:, :8])
    with pytest.raises(ValueError, match="heads of q must be a multiple"):
        decode(q[:, :, :3])
    with pytest.raises(TypeError, match="block_table.dtype: Long; must be Int"):
        decode(table=table.long())
    with pytest.raises(ValueError, match=r"block_table: shape \[1, 3\]; \[2, blocks\] is needed"):
        decode(table=table[:1])
    with pytest.raises(ValueError, match=r"seqlens: shape \[1\]; \[2\] is needed"):
        decode(seqlens=seqlens[:1])
    with pytest.raises(ValueError, match="seqlens: None; the length of each sequence is needed"):
        decode(seqlens=None)
    with pytest.raises(ValueError, match="k_scales: shape .*; only caches of 8 bits have scales"):
        decode(k_scales=1.0)
    with pytest.raises(ValueError, match="split_size: 10; must be 0 or a multiple of 64"):
        decode(split_size=10)
    int8 = {"k_cache": torch.zeros_like(k_cache, dtype=torch.int8), "v_cache": torch.zeros_like(k_cache, dtype=torch.int8)}
    with pytest.raises(ValueError, match=r"k_scales: shape \[3\]; one number, \[2\] or \[7, 2\] is needed"):
        decode(**int8, k_scales=torch.ones(3, device=device))
    with pytest.raises(TypeError, match="k_scales.dtype: Half; must be Float"):
        decode(**int8, k_scales=torch.ones(2, device=device, dtype=torch.float16))
    if device.type == "cuda":
        with pytest.raises(TypeError, match="block_table.device: cpu; must be cuda:0"):
            decode(table=table.cpu())
    else:
        with pytest.raises(ValueError, match=r"seqused_k\[0\]: 50; the pages of a sequence have room for 48 keys"):
            decode(seqlens=seqlens + 10)
        with pytest.raises(ValueError, match=r"block_table\[0\]: 70; there are 7 pages"):
            decode(table=torch.full_like(table, 70))


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


def test_opcheck(device):
    cache = Cache(device, [40, 16])
    k_cache, v_cache, table, seqlens = cache.k.nan_to_num(), cache.v.nan_to_num(), cache.table, cache.seqlens
    q = torch.randn(2, 1, 4, 64, device=device, dtype=torch.bfloat16)
    k, v = (torch.randn(2, 1, 2, 64, device=device, dtype=torch.bfloat16) for _ in range(2))
    workspace = imbrex_torch.paged_decode_workspace(q, *cache.arguments())
    options = ("causal_mask", [], [], "score_mod::identity", [], [], 0, 0)
    for kept in (None, workspace):
        torch.library.opcheck(torch.ops.imbrex.paged_decode.default,
                              (q, k_cache, v_cache, table, None, None, None, None, None, None, seqlens, *options, kept))
    inv_freq = imbrex_torch.fixed_point_inv_freq(torch.rand(32, device=device))
    for queries in (None, q):
        torch.library.opcheck(
            torch.ops.imbrex.paged_append.default,
            (k, v, k_cache, v_cache, table, seqlens, None, queries, inv_freq, "neox", 1.0, None, None))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(device, dynamic):
    inv_freq = 10000.0 ** -(torch.arange(0, 64, 2, device=device) / 64)

    def step(q, k, v, k_cache, v_cache, table, seqlens):
        turned = imbrex_torch.paged_append(k, v, k_cache, v_cache, table, seqlens, q=q * 2, inv_freq=inv_freq)
        return imbrex_torch.paged_decode(turned, k_cache, v_cache, table, seqlens) + 1

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for batch in (2, 3):
        cache = Cache(device, [40, 16, 7][:batch])
        q, k, v = (torch.randn(batch, heads, 64, device=device, dtype=torch.bfloat16) for heads in (4, 2, 2))
        k_copy, v_copy = cache.k.clone(), cache.v.clone()
        expected = step(q, k, v, k_copy, v_copy, cache.table, cache.seqlens)
        assert torch.equal(compiled(q, k, v, *cache.arguments()), expected)
        assert torch.equal(cache.k.nan_to_num(), k_copy.nan_to_num())


def test_check_finds_no_hazard():
    cache = Cache("cpu", [40, 16])
    q, k = (torch.randn(2, 1, heads, 64, dtype=torch.bfloat16) for heads in (4, 2))
    assert imbrex_torch.check(imbrex_torch.paged_decode, (q, *cache.arguments()), schedules=10) is None
    assert imbrex_torch.check(imbrex_torch.paged_append, (k, k, *cache.arguments()), schedules=10) is None


def test_streams_and_graphs(device):
    """A graph is replayed with other lengths; with a kept workspace and without; on two streams at once."""
    if device.type != "cuda":
        pytest.skip("streams and graphs are CUDA's")
    cache = Cache(device, [2000, 1500, 700], kv_heads=2, head_dim=128)
    q = torch.randn(3, 1, 8, 128, device=device, dtype=torch.bfloat16)
    expected = imbrex_torch.paged_decode(q, *cache.arguments())
    shorter = cache.seqlens // 2
    expected_shorter = imbrex_torch.paged_decode(q, cache.k, cache.v, cache.table, shorter)
    seqlens = cache.seqlens.clone()
    for workspace in (None, imbrex_torch.paged_decode_workspace(q, *cache.arguments())):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs = [imbrex_torch.paged_decode(q, cache.k, cache.v, cache.table, seqlens, workspace=workspace)
                    for _ in range(3)]
        for lengths, result in ((cache.seqlens, expected), (shorter, expected_shorter), (cache.seqlens, expected)):
            seqlens.copy_(lengths)
            graph.replay()
            for out in outs:
                assert torch.equal(out, result)
    streams = [torch.cuda.Stream() for _ in range(2)]
    results = []
    torch.cuda.synchronize()
    for _ in range(10):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(imbrex_torch.paged_decode(q, *cache.arguments()))
    torch.cuda.synchronize()
    assert all(torch.equal(out, expected) for out in results)
