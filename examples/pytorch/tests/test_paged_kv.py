import math

import pytest
import torch

import imbrex_torch
import reference
from paged_cache import Cache, factors, quantised
from reference import relative_error


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
