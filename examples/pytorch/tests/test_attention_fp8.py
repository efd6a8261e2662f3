import math

import pytest
import torch

import imbrex_torch
import reference
from imbrex_torch import attention_fp8, quantize_fp8
from reference import relative_error

FP8 = torch.float8_e4m3fn


def random_qkv(device, batch=2, seqlen_q=70, seqlen_k=150, heads=4, kv_heads=2, head_dim=64):
    def one(rows, count):
        return torch.randn(batch, rows, count, head_dim, device=device)

    return one(seqlen_q, heads), one(seqlen_k, kv_heads), one(seqlen_k, kv_heads)


def quantised(x, granularity="head"):
    """e4m3 and scales by torch: per tensor, per batch entry and head, or per block of rows."""
    if granularity == "tensor":
        scale = x.abs().amax() / 448
        return (x / scale).to(FP8), scale
    if granularity == "head":
        scale = x.abs().amax((1, 3)) / 448
        return (x / scale[:, None, :, None]).to(FP8), scale
    blocks = x.split(granularity, dim=1)
    parts, scales = zip(*(quantised(block) for block in blocks))
    return torch.cat([p.float() for p in parts], 1).to(FP8), torch.stack(scales, dim=2)


def dequantised(x, scale, block_rows=None):
    scale = torch.as_tensor(scale, device=x.device, dtype=torch.float64)
    if scale.dim() >= 2:
        scale = scale.repeat_interleave(x.shape[2] // scale.shape[1], 1)
    if scale.dim() == 3:
        scale = scale.repeat_interleave(block_rows, 2)[..., : x.shape[1]].transpose(1, 2)
    elif scale.dim() == 2:
        scale = scale[:, None]
    return x.double() * (scale[..., None] if scale.dim() else scale)


def require_close(out, lse, exact, exact_lse):
    """The probabilities are rounded to e4m3, which has 4 significant bits."""
    assert relative_error(out, exact) < 0.04
    seen = exact_lse > -math.inf
    assert torch.equal(lse > -math.inf, seen)
    assert ((lse - exact_lse)[seen].abs() < 2e-3).all()


CASES = {
    "causal, scales per head": {"causal": True},
    "causal, scales per tensor": {"causal": True, "granularity": "tensor"},
    "more queries": {"causal": True, "seqlen_k": 40},
    "window, softcap, sinks, scale": {"causal": True, "window": 20, "softcap": 5.0, "sinks": True, "scale": 0.2},
    "fast, scales per block": {"granularity": "block", "accumulation": "fast"},
}


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("case", CASES)
def test_out_and_lse(device, case, head_dim):
    if device.type == "cpu" and head_dim != 64:
        pytest.skip("few variants are compiled for the CPU")
    options = dict(CASES[case])
    granularity = options.pop("granularity", "head")
    inputs = random_qkv(device, seqlen_k=options.pop("seqlen_k", 150), head_dim=head_dim)
    blocks = (64, 128, 128) if granularity == "block" else (granularity,) * 3
    (q, q_scale), (k, k_scale), (v, v_scale) = (quantised(x, g) for x, g in zip(inputs, blocks))
    if "sinks" in options:
        options["sinks"] = torch.randn(4, device=device)
    out, lse = attention_fp8(q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=True, **options)
    options.pop("accumulation", None)
    if "window" in options:
        options["window"] = (options["window"], 0)
    exact = [dequantised(x, s, b) for x, s, b in zip((q, k, v), (q_scale, k_scale, v_scale), blocks)]
    require_close(out, lse, *reference.attention(*exact, **options))


def test_numbers_and_scales_that_heads_share(device):
    (q, _), (k, _), (v, v_scale) = (quantised(x) for x in random_qkv(device))
    of_kv_heads = 0.01 * (1 + torch.rand(2, 2, device=device))
    out, lse = attention_fp8(q, k, v, q_scale=of_kv_heads, k_scale=0.02, v_scale=v_scale, causal=True, return_lse=True)
    exact = dequantised(q, of_kv_heads), dequantised(k, 0.02), dequantised(v, v_scale)
    require_close(out, lse, *reference.attention(*exact, causal=True))
    ones = attention_fp8(q, k, v, causal=True)
    assert torch.equal(ones, attention_fp8(q, k, v, q_scale=1.0, k_scale=1.0, v_scale=1.0, causal=True))


def test_lengths_of_a_padded_batch_and_varlen(device):
    (q, q_scale), (k, k_scale), (v, v_scale) = (quantised(x) for x in random_qkv(device, seqlen_k=70))
    scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    used = torch.tensor([70, 33], device=device, dtype=torch.int32)
    out = attention_fp8(q, k, v, seqused_k=used, causal=True, **scales)
    for i, length in enumerate((70, 33)):
        exact = [dequantised(x[i : i + 1], s[i : i + 1]) for x, s in ((q, q_scale), (k, k_scale), (v, v_scale))]
        expected = reference.attention(exact[0], exact[1][:, :length], exact[2][:, :length], causal=True)[0]
        assert relative_error(out[i], expected[0]) < 0.04
    starts = torch.tensor([0, 70, 140], device=device, dtype=torch.int32)
    packed = [t.flatten(0, 1) for t in (q, k, v)]
    out, lse = attention_fp8(*packed, cu_seqlens_q=starts, cu_seqlens_k=starts, causal=True, return_lse=True, **scales)
    padded, padded_lse = attention_fp8(q, k, v, causal=True, return_lse=True, **scales)
    assert torch.equal(out.view_as(padded), padded)
    assert torch.equal(lse.view(4, 2, 70).transpose(0, 1), padded_lse)


@pytest.mark.parametrize("dtype", [torch.float16, FP8], ids=str)
def test_other_outputs(device, dtype):
    if device.type == "cpu" and dtype == torch.float16:
        pytest.skip("few variants are compiled for the CPU")
    inputs = [quantised(x) for x in random_qkv(device)]
    scales = {f"{name}_scale": scale for name, (_, scale) in zip("qkv", inputs)}
    more = {"out_scale": 0.005} if dtype == FP8 else {}
    out = attention_fp8(*(x for x, _ in inputs), causal=True, out_dtype=dtype, **scales, **more)
    assert out.dtype == dtype
    exact = reference.attention(*(dequantised(x, s) for x, s in inputs), causal=True)[0]
    assert relative_error(out.double() * more.get("out_scale", 1), exact) < 0.05


def test_strided_and_empty_inputs(device):
    fused = torch.randn(2, 70, 8, 64, device=device).to(FP8)
    q, k, v = fused[:, :, :4], fused[:, :, 4:6], fused[:, :, 6:]
    expected = attention_fp8(q.contiguous(), k.contiguous(), v.contiguous(), causal=True)
    assert torch.equal(attention_fp8(q, k, v, causal=True), expected)
    columns_strided = [t.transpose(2, 3).contiguous().transpose(2, 3) for t in (q, k, v)]
    assert torch.equal(attention_fp8(*columns_strided, causal=True), expected)
    for sizes in ((0, 70, 70), (2, 0, 70), (2, 70, 0)):
        q, k, v = (x.to(FP8) for x in random_qkv(device, *sizes))
        out, lse = attention_fp8(q, k, v, causal=True, return_lse=True)
        assert out.shape == q.shape and (out == 0).all() and (lse == -math.inf).all()


@pytest.mark.parametrize("granularity", ["tensor", "head", 64, 128, 192])
def test_quantize(device, granularity):
    x = torch.randn(2, 200, 3, 64, device=device, dtype=torch.bfloat16)
    out, scale = quantize_fp8(x, granularity=granularity)
    expected, expected_scale = quantised(x.float(), granularity)
    assert scale.shape == expected_scale.shape and torch.allclose(scale, expected_scale, rtol=1e-6)
    assert relative_error(out.float(), expected.float()) < 0.005  # a value may lie between two elements
    given, same = quantize_fp8(x, granularity=granularity, scale=2 * scale)
    assert torch.equal(same, 2 * scale)
    error = dequantised(given, same, granularity) - x.double()
    assert error.norm() / x.double().norm() < 0.04


def test_quantize_strided_and_padded(device):
    fused = torch.randn(2, 100, 6, 64, device=device, dtype=torch.bfloat16)
    for x in (fused[:, :, 1:3], fused.transpose(2, 3).contiguous().transpose(2, 3), fused[:, ::2]):
        for one, other in zip(quantize_fp8(x, granularity="head"), quantize_fp8(x.contiguous(), granularity="head")):
            assert torch.equal(one.float(), other.float())
    used = torch.tensor([100, 0], device=device, dtype=torch.int32)
    fused[1] = math.nan
    out, scale = quantize_fp8(fused, granularity=64, seqused=used)
    expected, expected_scale = quantize_fp8(fused[:1].contiguous(), granularity=64)
    assert torch.equal(out[:1].float(), expected.float()) and torch.equal(scale[:1], expected_scale)
    assert scale.isfinite().all()
    starts = torch.tensor([0, 30, 100], device=device, dtype=torch.int32)
    out, scale = quantize_fp8(fused[0], granularity="head", cu_seqlens=starts)
    for i, rows in enumerate((slice(0, 30), slice(30, 100))):
        expected, expected_scale = quantize_fp8(fused[:1, rows].contiguous(), granularity="head")
        assert torch.equal(out[rows].float(), expected[0].float()) and torch.equal(scale[i], expected_scale[0])
    out, scale = quantize_fp8(fused[:0])
    assert out.shape == (0, 100, 6, 64) and scale.shape == () and scale == 1


def test_rope_and_rotation_of_outliers(device):
    """RoPE before quantisation; and outliers in one column, which the Hadamard rotation spreads."""
    q, k, v = (x.bfloat16() for x in random_qkv(device, seqlen_q=150))
    inv_freq = 10000.0 ** -(torch.arange(0, 64, 2, device=device) / 64)

    def rotated(x):
        angle = (torch.arange(150, device=device)[:, None] * inv_freq.double())[None, :, None]
        first, second = x.double().chunk(2, -1)
        return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)

    turned, scale = quantize_fp8(q, granularity="head", inv_freq=inv_freq)
    assert relative_error(dequantised(turned, scale), rotated(q)) < 0.04
    shifted, shifted_scale = quantize_fp8(q[:, 50:].contiguous(), granularity="head", inv_freq=inv_freq,
                                          positions=torch.arange(50, 150, device=device).int().expand(2, 100))
    assert relative_error(dequantised(shifted, shifted_scale), rotated(q)[:, 50:]) < 0.04
    q[..., 3] *= 60
    k[..., 3] *= 60
    exact = reference.attention(q.double(), k.double(), v.double(), causal=True, scale=0.001)[0]
    errors = {}
    for seed in (None, 1):
        (q8, q_scale), (k8, k_scale) = (quantize_fp8(x, hadamard_seed=seed) for x in (q, k))
        v8, v_scale = quantize_fp8(v)
        out = attention_fp8(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, causal=True, scale=0.001)
        errors[seed] = relative_error(out, exact)
    assert errors[1] < 0.06 and errors[1] < errors[None]


def test_errors(device):
    q, k, v = (x.to(FP8) for x in random_qkv(device))
    with pytest.raises(TypeError, match="q.dtype: BFloat16; must be Float8_e4m3fn"):
        attention_fp8(q.bfloat16(), k, v)
    with pytest.raises(TypeError, match="k.dtype: BFloat16; must be Float8_e4m3fn, that of q"):
        attention_fp8(q, k.bfloat16(), v)
    with pytest.raises(TypeError, match="q_scale.dtype: Half; must be Float"):
        attention_fp8(q, k, v, q_scale=torch.ones(2, 4, device=device).half())
    with pytest.raises(ValueError, match=r"k_scale: shape \[2, 4\]; one number or \[2, 2\] is needed"):
        attention_fp8(q, k, v, k_scale=torch.ones(2, 4, device=device), causal=True)
    with pytest.raises(ValueError, match=r"k_scale: shape \[\]; \[2, 2, 2\] is needed: one for each 128 rows"):
        attention_fp8(q, k, v, q_scale=torch.ones(2, 4, 2, device=device), k_scale=1.0, accumulation="fast")
    with pytest.raises(ValueError, match="accumulation: 'slow'; must be 'promoted' or 'fast'"):
        attention_fp8(q, k, v, accumulation="slow")
    with pytest.raises(TypeError, match="out_dtype: Float; must be BFloat16, Half or Float8_e4m3fn"):
        attention_fp8(q, k, v, out_dtype=torch.float32)
    with pytest.raises(ValueError, match="out_scale: given for BFloat16; only an output of Float8_e4m3fn has a scale"):
        attention_fp8(q, k, v, out_scale=1.0)
    x = torch.randn(2, 70, 4, 64, device=device, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="x.dtype: Float; must be BFloat16 or Half"):
        quantize_fp8(x.float())
    with pytest.raises(ValueError, match=r"x: shape \[70, 4, 64\]; \[batch, sequence, heads, head_dim\] is needed"):
        quantize_fp8(x[0])
    with pytest.raises(ValueError, match="granularity: 'row'; must be 'tensor', 'head' or a number of rows"):
        quantize_fp8(x, granularity="row")
    with pytest.raises(ValueError, match="granularity: 100; blocks of rows are a multiple of 64"):
        quantize_fp8(x, granularity=100)
    with pytest.raises(ValueError, match="positions: shape .70.; 140 elements are needed"):
        quantize_fp8(x, inv_freq=torch.ones(32, device=device), positions=torch.zeros(70, device=device).int())
    with pytest.raises(ValueError, match="rope.rotary_dim: 80; must be even and at most head_dim, 64"):
        quantize_fp8(x, inv_freq=torch.ones(40, device=device))
    if device.type == "cuda":
        with pytest.raises(TypeError, match="q_scale.device: cpu; must be cuda:0"):
            attention_fp8(q, k, v, q_scale=torch.ones(()))


# test_schema multiplies its arguments, which PyTorch cannot do in 8 bits.
CHECKS = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def test_opcheck(device):
    q, k, v = (x.to(FP8) for x in random_qkv(device))
    scale = torch.ones(2, 1, device=device)
    torch.library.opcheck(
        torch.ops.imbrex.attention_fp8.default,
        (q, k, v, scale, scale, scale, None, None, None, None, None, None, "causal_mask", [], [],
         "score_mod::identity", [], [], "promoted", torch.bfloat16), test_utils=CHECKS)
    x = torch.randn(2, 70, 4, 64, device=device, dtype=torch.bfloat16)
    inv_freq = imbrex_torch.fixed_point_inv_freq(torch.rand(32, device=device))
    for per_head, block_rows in ((False, 0), (True, 0), (True, 64)):
        torch.library.opcheck(torch.ops.imbrex.quantize_fp8.default,
                              (x, None, per_head, block_rows, None, None, inv_freq, "neox", 1.0, None, 1),
                              test_utils=CHECKS)
    torch.library.opcheck(torch.ops.imbrex.quantize_fp8.default,
                          (x, torch.ones((), device=device), False, 0, None, None, None, "neox", 1.0, None, None),
                          test_utils=CHECKS)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(device, dynamic):
    def step(q, k, v):
        (q8, q_scale), (k8, k_scale), (v8, v_scale) = (quantize_fp8(x * 2, granularity="head") for x in (q, k, v))
        return attention_fp8(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, causal=True) + 1

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for rows in (70, 50):
        inputs = [x.bfloat16() for x in random_qkv(device, seqlen_q=rows, seqlen_k=rows)]
        assert relative_error(compiled(*inputs), step(*inputs)) < 0.01


def test_check_finds_no_hazard():
    q, k, v = (x.to(FP8) for x in random_qkv("cpu", batch=1, seqlen_k=70, heads=1, kv_heads=1))
    assert imbrex_torch.check(attention_fp8, (q, k, v), {"causal": True}, schedules=5) is None
    x = torch.randn(1, 70, 2, 64, dtype=torch.bfloat16)
    for granularity in ("tensor", 64):
        options = {"granularity": granularity, "hadamard_seed": 1}
        assert imbrex_torch.check(quantize_fp8, (x,), options, schedules=5) is None


def test_streams_and_graphs(device):
    if device.type != "cuda":
        pytest.skip("streams and graphs are CUDA's")
    x = [t.bfloat16() for t in random_qkv(device, seqlen_q=512, seqlen_k=1024, head_dim=128)]

    def step():
        (q, q_scale), (k, k_scale), (v, v_scale) = (quantize_fp8(t) for t in x)
        return attention_fp8(q, k, v, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, causal=True)

    expected = step()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.equal(step(), expected)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(2):
        captured.zero_()
        graph.replay()
        assert torch.equal(captured, expected)
