"""Fixtures of the tests: they run on the CPU (host world) and, where there is one, on a GPU."""

import pytest
import torch


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    torch.manual_seed(0)
    return torch.device(request.param)
