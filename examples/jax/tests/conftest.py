"""Fixtures of the tests: they run on the CPU (host world) and, where there is one, on a GPU."""

import os

# Before JAX is imported: two devices, for the test of shard_map.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(params=["cpu", "gpu"])
def device(request):
    try:
        found = jax.devices(request.param)[0]
    except RuntimeError:
        pytest.skip("there is no GPU")
    with jax.default_device(found):
        yield found
