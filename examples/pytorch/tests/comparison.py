"""What several tests share: comparisons with float64, and runs on other streams and in CUDA graphs."""

import pytest
import torch


def assert_rounded_once(result, reference):
    """The result is the float64 reference, computed in fp32 and then rounded to its dtype."""
    error = (result.double() - reference).abs()
    scale = reference.abs().amax() if reference.numel() else torch.zeros(())
    allowed = 0.501 * torch.finfo(result.dtype).eps * reference.abs() + 2e-6 * scale
    assert result.shape == reference.shape
    assert (error <= allowed).all(), f"error {error.max():.3g}, {(error / allowed).max():.3g} times what is allowed"


def assert_close(result, reference, tolerance=None):
    """The largest error, relative to the largest element of the float64 reference."""
    tolerance = 4 * torch.finfo(result.dtype).eps if tolerance is None else tolerance
    error = (result.double() - reference).abs().max() / reference.abs().max()
    assert result.shape == reference.shape
    assert error <= tolerance, f"error {error:.3g}; {tolerance:.3g} is allowed"


def assert_follows_stream_and_graph(op, *tensors):
    """op(*tensors) on another stream, and captured in a CUDA graph that is replayed with other values."""
    if not tensors[0].is_cuda:
        pytest.skip("streams and graphs are those of CUDA")
    expected = op(*tensors)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        copies = [one.clone() for one in tensors]
        results = op(*copies)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(results, expected, rtol=0, atol=0)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = op(*copies)
    for one in copies:
        one.copy_(one.flip(0))
    graph.replay()
    torch.testing.assert_close(results, op(*copies), rtol=0, atol=0)
