import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from jax.sharding import Mesh, PartitionSpec

from imbrex_jax import attention, check, compiled_variants


def random_arrays(batch=2, seqlen_q=70, seqlen_k=70, heads=4, kv_heads=2, head_dim=64, dtype=jnp.bfloat16):
    draw = np.random.default_rng(0)
    shapes = [(batch, seqlen_q, heads, head_dim), *[(batch, seqlen_k, kv_heads, head_dim)] * 2]
    return [jnp.asarray(draw.standard_normal(shape), dtype) for shape in shapes]


def require_close(found, exact, limit=0.01):
    found, exact = np.asarray(found, np.float64), np.asarray(exact, np.float64)
    assert found.shape == exact.shape
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - exact) <= limit * np.linalg.norm(exact)


def pullback(inputs, **options):
    """Results, gradients of them drawn at random (0 for rows that see no key), and gradients of the inputs."""
    (out, lse), pull = jax.vjp(lambda *qkv: attention(*qkv, return_lse=True, **options), *inputs)
    draw = np.random.default_rng(1)
    d_out = jnp.asarray(draw.standard_normal(out.shape), out.dtype)
    d_lse = jnp.where(lse > -jnp.inf, jnp.asarray(draw.standard_normal(lse.shape), jnp.float32), 0)
    return (out, lse), (d_out, d_lse), pull((d_out, d_lse))


CASES = {
    "causal": {"causal": True},
    "more keys": {"causal": True, "seqlen_k": 100},
    "more queries": {"causal": True, "seqlen_q": 100},
    "window": {"window": (20, 5)},
    "causal window": {"causal": True, "window": (20, 0)},
    "softcap": {"softcap": 2.0, "window": (30, None)},
    "scale, smaller head_dim": {"causal": True, "scale": 0.3, "head_dim": 48},
    "fp16": {"causal": True, "dtype": jnp.float16},
}


@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients(device, case):
    options = dict(CASES[case])
    sizes = {name: options.pop(name) for name in ("seqlen_q", "seqlen_k", "head_dim", "dtype") if name in options}
    inputs = random_arrays(**sizes)
    (out, lse), given, gradients = pullback(inputs, **options)
    exact_out, exact_lse, *exact_gradients = reference.attention(*inputs, *given, **options)
    assert out.dtype == inputs[0].dtype and lse.dtype == jnp.float32
    require_close(out, exact_out)
    seen = exact_lse > -np.inf
    assert (np.asarray(lse > -jnp.inf) == seen).all()
    assert np.abs(np.asarray(lse)[seen] - exact_lse[seen]).max() < 0.01
    for found, exact in zip(gradients, exact_gradients):
        require_close(found, exact, limit=0.015)


def test_window_of_one_number(device):
    q, k, v = random_arrays()
    assert (attention(q, k, v, window=9) == attention(q, k, v, window=(9, 9))).all()
    assert (attention(q, k, v, window=9, causal=True) == attention(q, k, v, window=(9, 0))).all()


def loss(q, k, v):
    return (attention(q, k, v, causal=True).astype(jnp.float32) ** 2).sum()


def test_jit(device):
    inputs = random_arrays()
    assert (jax.jit(lambda *qkv: attention(*qkv, causal=True))(*inputs) == attention(*inputs, causal=True)).all()
    for found, exact in zip(jax.jit(jax.grad(loss, (0, 1, 2)))(*inputs), jax.grad(loss, (0, 1, 2))(*inputs)):
        require_close(found, exact, limit=0.005)


def test_gradient_with_rematerialisation(device):
    inputs = random_arrays()
    for found, exact in zip(jax.grad(jax.checkpoint(loss), (0, 1, 2))(*inputs), jax.grad(loss, (0, 1, 2))(*inputs)):
        require_close(found, exact, limit=0.005)


def test_transposed_and_sliced_inputs(device):
    q, k, v = random_arrays()
    stored = [jnp.swapaxes(array, 1, 2) for array in (q, k, v)]

    @jax.jit
    def of_stored(q, k, v):
        q, k, v = (jnp.swapaxes(array, 1, 2) for array in (q, k, v))
        return jnp.swapaxes(attention(q[:, 10:], k, v, causal=True), 1, 2)

    require_close(of_stored(*stored), jnp.swapaxes(attention(q[:, 10:], k, v, causal=True), 1, 2), limit=1e-6)


def test_vmap(device):
    q, k, v = random_arrays(batch=6)
    parts = [array.reshape(3, 2, *array.shape[1:]) for array in (q, k, v)]
    found = jax.vmap(lambda *qkv: attention(*qkv, causal=True))(*parts)
    assert (found.reshape(q.shape) == attention(q, k, v, causal=True)).all()
    for found, exact in zip(jax.vmap(jax.grad(loss, (0, 1, 2)))(*parts), jax.grad(loss, (0, 1, 2))(q, k, v)):
        require_close(found.reshape(exact.shape), exact, limit=0.005)


def test_vmap_with_shared_keys(device):
    q, k, v = random_arrays(batch=1)
    queries = jnp.stack([q, 2 * q, -q])
    found = jax.vmap(attention, in_axes=(0, None, None))(queries, k, v)
    for i in range(3):
        assert (found[i] == attention(queries[i], k, v)).all()


def test_nested_vmap(device):
    q, k, v = random_arrays(batch=4)
    parts = [array.reshape(2, 2, 1, *array.shape[1:]) for array in (q, k, v)]
    found, lse = jax.vmap(jax.vmap(lambda *qkv: attention(*qkv, return_lse=True)))(*parts)
    assert (found.reshape(q.shape) == attention(q, k, v)).all()
    assert lse.shape == (2, 2, 1, 4, 70)


def test_shard_map():
    devices = jax.devices("cpu")
    mesh, batch = Mesh(np.array(devices[:2]), ("batch",)), PartitionSpec("batch")
    q, k, v = random_arrays()
    sharded = jax.jit(jax.shard_map(attention, mesh=mesh, in_specs=batch, out_specs=batch))
    assert len(devices) == 2
    assert (sharded(q, k, v) == attention(q, k, v)).all()


def test_deterministic(device):
    inputs = random_arrays(seqlen_q=200, seqlen_k=300, head_dim=64)
    first, second = (pullback(inputs, causal=True, deterministic=True)[2] for _ in range(2))
    for a, b in zip(first, second):
        assert (a == b).all()


@pytest.mark.parametrize("shape", [{"batch": 0}, {"seqlen_q": 0}, {"seqlen_k": 0}])
def test_empty(device, shape):
    inputs = random_arrays(**shape)
    (out, lse), pull = jax.vjp(lambda *qkv: attention(*qkv, causal=True, return_lse=True), *inputs)
    assert out.shape == inputs[0].shape and not out.any()
    assert (lse == -jnp.inf).all()
    for gradient, array in zip(pull((out, jnp.zeros_like(lse))), inputs):
        assert gradient.shape == array.shape and not gradient.any()


def test_second_derivative_is_refused(device):
    q, k, v = random_arrays()
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda q: jax.grad(loss)(q, k, v).sum().astype(jnp.float32))(q)


def test_wrong_types(device):
    q, k, v = random_arrays()
    with pytest.raises(TypeError, match=r"^q\.dtype: float32; must be bfloat16 or float16"):
        attention(q.astype(jnp.float32), k, v)
    with pytest.raises(TypeError, match=r"^v\.dtype: float16; must be bfloat16 or float16, that of q"):
        attention(q, k, v.astype(jnp.float16))


@pytest.mark.parametrize("wrong, message", [
    (lambda q, k, v: (q[0], k, v), r"^q\.shape: \(70, 4, 64\); \[batch, sequence, heads, head_dim\] is needed"),
    (lambda q, k, v: (q, k[:1], v), r"^k\.shape\[0\]: 1; must be 2, the batch size of q"),
    (lambda q, k, v: (q, k, v[:, 1:]), r"^v\.shape: \(2, 69, 2, 64\); k has 70 rows of 2 heads, and so must it"),
    (lambda q, k, v: (q[:, :, :3], k, v), r"^k\.shape\[2\]: 2 heads; the 3 heads of q must be a multiple of that"),
    (lambda q, k, v: (q, k[..., :48], v), r"^k\.shape\[3\]: 48; must be 64, the head_dim of q"),
    (lambda q, k, v: (q[..., :40], k[..., :40], v), r"^q\.shape\[3\]: 40; head_dim is a multiple of 16 from 16 to 256"),
])
def test_wrong_shapes(device, wrong, message):
    with pytest.raises(ValueError, match=message):
        attention(*wrong(*random_arrays()))


def test_wrong_options(device):
    q, k, v = random_arrays()
    with pytest.raises(ValueError, match="^window: -3; sides are numbers of keys"):
        attention(q, k, v, window=-3)
    with pytest.raises(ValueError, match="^softcap: -1; a positive number is needed"):
        attention(q, k, v, softcap=-1)
    with pytest.raises(ValueError, match="^scale: 0; a positive number is needed"):
        attention(q, k, v, scale=0)


def test_missing_compiler(device, monkeypatch, tmp_path):
    """What the native side throws arrives as an error of JAX."""
    monkeypatch.setenv("IMBREX_JAX_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("CUDACXX", "/no/nvcc")
    with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED: no (C..|CUDA) compiler: put"):
        jax.block_until_ready(attention(*random_arrays(head_dim=192), softcap=1.0))


def test_compiled_variants(device):
    attention(*random_arrays(), causal=True).block_until_ready()
    assert "attention_forward, bf16, 64, 64, causal_mask, score_mod::identity" in compiled_variants(device.platform)


def test_check_is_silent():
    inputs = random_arrays(batch=1)
    assert check(lambda *qkv: attention(*qkv, causal=True), *inputs, schedules=5) is None
    assert check(jax.jit(jax.grad(loss, (0, 1, 2))), *inputs, schedules=5) is None


def test_check_needs_a_kernel():
    with pytest.raises(ValueError, match="^function: it launched no kernel"):
        check(lambda x: 2 * x, jnp.ones(3))
    with pytest.raises(ValueError, match="^schedules: 0; at least 1 is needed"):
        check(loss, *random_arrays(), schedules=0)
