import pytest
import torch

import imbrex_torch
from imbrex_torch import sample


def random_logits(device, rows=6, vocabulary=1000, dtype=torch.float32):
    return 3 * torch.randn(rows, vocabulary, device=device, dtype=dtype)


def kept(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """The probabilities of one row after the filters, and which tokens they keep."""
    probabilities = (logits.double() / temperature).softmax(-1)
    order = probabilities.argsort(descending=True, stable=True)
    keep = torch.zeros_like(probabilities, dtype=torch.bool)
    keep[order[: top_k or len(order)]] = True
    of_kept = torch.where(keep, probabilities, 0)
    before = of_kept[order].cumsum(0) - of_kept[order]
    keep[order[before >= top_p * of_kept.sum()]] = False
    keep &= probabilities >= min_p * probabilities.max()
    return torch.where(keep, probabilities, 0), keep


FILTERS = [{}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.1}, {"temperature": 0.5, "top_k": 20, "top_p": 0.8, "min_p": 0.02}]


@pytest.mark.parametrize("options", FILTERS, ids=str)
def test_frequencies_of_the_tokens_kept(device, options):
    """4,000 draws from one row, one for each position: only tokens that the filters keep, as often as their probability."""
    logits = random_logits(device, 1, 40).expand(4000, 40)
    tokens = sample(logits, seed=torch.full((4000,), 7, device=device),
                    position=torch.arange(4000, device=device), **options)
    assert tokens.shape == (4000,) and tokens.dtype == torch.int32
    probabilities, keep = kept(logits[0], **options)
    counts = tokens.bincount(minlength=40)
    assert (counts[~keep] == 0).all()
    expected = probabilities / probabilities.sum() * 4000
    assert ((counts - expected).abs() <= 5 * expected.sqrt() + 5).all()


def test_options_of_each_row(device):
    logits = random_logits(device)
    temperature = torch.tensor([0, 1, 1, 1, 0.5, 2], device=device)
    top_k = torch.tensor([0, 1, 0, 0, 3, 0], device=device)
    top_p = torch.tensor([1, 1, 1e-6, 1, 1, 0.5], device=device)
    min_p = torch.tensor([0, 0, 0, 1, 0.5, 0], device=device)
    seeds = torch.arange(6, device=device)
    all_options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seeds}
    tokens = sample(logits, **all_options)
    assert torch.equal(tokens[:4], logits[:4].argmax(-1).int())
    for row in range(6):
        alone = sample(logits[row : row + 1], **{name: t[row : row + 1] for name, t in all_options.items()})
        assert alone == tokens[row]
        numbers = {name: t[row].item() for name, t in all_options.items()}
        assert sample(logits[row], **numbers) == tokens[row]


def test_greedy(device):
    logits = random_logits(device)
    logits[0, 300:] = logits[0].max() + 1
    expected = logits.argmax(-1).int()
    expected[0] = 300  # the lowest of equals
    assert torch.equal(sample(logits, temperature=0), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_other_types(device, dtype):
    if device.type == "cpu" and dtype == torch.float16:
        pytest.skip("few variants are compiled for the CPU")
    logits = random_logits(device, dtype=dtype)
    assert torch.equal(sample(logits, seed=3), sample(logits.float(), seed=3))


def test_seeds_and_generators(device):
    logits = random_logits(device, 8, 100)
    assert torch.equal(sample(logits, seed=5), sample(logits, seed=5))
    draws = torch.stack([sample(logits, seed=seed) for seed in range(20)])
    assert len(draws.unique(dim=0)) == 20
    assert len(sample(torch.zeros(50, 100, device=device), seed=5).unique()) > 25  # rows have draws of their own
    assert not torch.equal(sample(logits, seed=5), sample(logits, seed=5, position=1))
    torch.manual_seed(1)
    first = sample(logits), sample(logits)
    torch.manual_seed(1)
    again = sample(logits), sample(logits)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1])
    generators = [torch.Generator(device).manual_seed(9) for _ in range(2)]
    assert torch.equal(*(sample(logits, generator=generator) for generator in generators))


def test_logprobs(device):
    logits = random_logits(device)
    exact = logits.double().log_softmax(-1)
    tokens, logprobs = sample(logits, temperature=2.0, seed=1, return_logprobs=True)
    assert torch.equal(tokens, sample(logits, temperature=2.0, seed=1))
    assert torch.allclose(logprobs.double(), exact.gather(1, tokens[:, None].long())[:, 0], atol=1e-5)
    _, _, top_ids, top = sample(logits.view(2, 3, -1), seed=1, num_top_logprobs=4)
    assert top_ids.shape == top.shape == (2, 3, 4)
    values, ids = exact.topk(4)
    assert torch.equal(top_ids.view(6, 4), ids.int()) and torch.allclose(top.view(6, 4).double(), values, atol=1e-5)


def test_strided_and_empty_inputs(device):
    logits = random_logits(device, 12, 1003)
    for view in (logits[::2], logits[:, 3:], logits.T.contiguous().T, logits.view(3, 4, 1003).transpose(0, 1)):
        assert torch.equal(sample(view, seed=5), sample(view.contiguous(), seed=5))
    assert sample(logits[:0], seed=5).shape == (0,)
    assert sample(logits[0], seed=5).shape == ()


def test_errors(device):
    logits = random_logits(device)
    with pytest.raises(TypeError, match="logits.dtype: Double; must be Float, BFloat16 or Half"):
        sample(logits.double())
    with pytest.raises(ValueError, match=r"logits: shape \[6, 0\]; \[..., vocabulary\] is needed"):
        sample(logits[:, :0])
    with pytest.raises(ValueError, match="temperature: -1; must be from 0 to"):
        sample(logits, temperature=-1)
    with pytest.raises(ValueError, match="top_k: -1; must be from 0 to 2147483647"):
        sample(logits, top_k=-1)
    with pytest.raises(ValueError, match="top_p: 0; must be greater than 0 and at most 1"):
        sample(logits, top_p=0)
    with pytest.raises(ValueError, match="top_p: 1.5; must be from 0 to 1"):
        sample(logits, top_p=1.5)
    with pytest.raises(ValueError, match=r"min_p: shape \[2\]; one for each row, \[6\], is needed"):
        sample(logits, min_p=torch.zeros(2, device=device))
    with pytest.raises(TypeError, match="top_k.dtype: torch.float32; must be an integer type"):
        sample(logits, top_k=torch.zeros(6, device=device))
    with pytest.raises(ValueError, match="seed, generator: both are given; at most one is allowed"):
        sample(logits, seed=1, generator=torch.Generator(device))
    with pytest.raises(ValueError, match="num_top_logprobs: 21; must be from 0 to 20"):
        sample(logits, num_top_logprobs=21)
    if device.type == "cpu":
        with pytest.raises(ValueError, match=r"options\[2\].top_p: 0; must be greater than 0 and at most 1"):
            sample(logits, top_p=torch.tensor([1, 1, 0, 1, 1, 1.0]))
    else:
        with pytest.raises(TypeError, match="temperature.device: cpu; must be cuda:0"):
            sample(logits, temperature=torch.ones(6))


def test_opcheck(device):
    logits = random_logits(device)
    ones = torch.ones(6, device=device)
    ints = ones.int()
    for count in (0, 3):
        torch.library.opcheck(torch.ops.imbrex.sample.default,
                              (logits, 1.0, ones, 0, ints, 1.0, ones, 0.0, ones, 0, ints.long(), 0, ints, True, count))
    torch.library.opcheck(torch.ops.imbrex.sample.default,
                          (logits, 1.0, None, 5, None, 0.9, None, 0.1, None, 3, None, 0, None, False, 0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_without_graph_breaks(device, dynamic):
    def step(logits, seeds):
        return sample(logits * 2, temperature=0.8, top_p=0.9, seed=seeds) + 1

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for rows in (6, 9):
        logits, seeds = random_logits(device, rows), torch.arange(rows, device=device)
        assert torch.equal(compiled(logits, seeds), step(logits, seeds))


def test_check_finds_no_hazard():
    logits = random_logits("cpu", 2, 3000)
    options = {"top_k": 50, "top_p": 0.9, "seed": 1}
    assert imbrex_torch.check(sample, (logits,), options, schedules=10) is None


def test_streams_and_graphs(device):
    """Each replay draws other tokens: seeds come from PyTorch's generator, which the graph advances."""
    if device.type != "cuda":
        pytest.skip("streams and graphs are CUDA's")
    logits = torch.zeros(4, 100_000, device=device)
    expected = sample(logits, seed=5)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.equal(sample(logits, seed=5), expected)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fixed, drawn = sample(logits, seed=5), sample(logits)
    draws = []
    for _ in range(3):
        graph.replay()
        assert torch.equal(fixed, expected)
        draws.append(drawn.clone())
    assert len(torch.stack(draws).unique(dim=0)) == 3
