"""Sampling of tokens."""

import torch

from ._library import native  # noqa: F401  (registers the operators)


def sample(logits, *, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0, seed=None, position=0, generator=None,
           return_logprobs=False, num_top_logprobs=0):
    """Draws a token from each row of logits [..., vocabulary], fp32, bf16 or fp16. Returns int32 ids [...].

    temperature divides the logits; 0 takes the most likely token. Of the tokens, top_k keeps the most likely ones (None or
    0: all), top_p of those the fewest whose probabilities reach this share of their sum, min_p of those the ones with at
    least this share of the highest probability. Each is a number, or a tensor with one for each row.

    The draw depends on the seed and the position only, not on the rest of the batch. An int seed gives each row draws of
    its own. In a tensor of seeds, int64 with one for each row, a row's draw does not depend on its index. position is the
    index of the token in its sequence, so that a sequence needs one seed only. Without a seed, seeds come from `generator`,
    or PyTorch's generator of the device.

    return_logprobs: returns (ids, logprobs), the log-softmax of the given logits at the ids. num_top_logprobs, up to 20:
    returns (ids, logprobs, top_ids, top_logprobs), the most likely tokens of each row [..., num_top_logprobs].
    """
    temperature, temperatures = _parameter("temperature", temperature, logits, torch.float32, 0,
                                           torch.finfo(torch.float32).max)
    top_k, top_ks = _parameter("top_k", 0 if top_k is None else top_k, logits, torch.int32, 0, 2**31 - 1)
    top_p, top_ps = _parameter("top_p", top_p, logits, torch.float32, 0, 1)
    if top_ps is None and top_p == 0:
        raise ValueError("top_p: 0; must be greater than 0 and at most 1")
    min_p, min_ps = _parameter("min_p", min_p, logits, torch.float32, 0, 1)
    position, positions = _parameter("position", position, logits, torch.int32, 0, 2**31 - 1)
    if seed is None:
        seed = 0 if temperatures is None and temperature == 0 else torch.randint(
            2**63 - 1, logits.shape[:-1], dtype=torch.int64, device=logits.device, generator=generator)
    elif generator is not None:
        raise ValueError("seed, generator: both are given; at most one is allowed")
    seed, seeds = _parameter("seed", seed, logits, torch.int64, -(2**63), 2**63 - 1)
    num_top_logprobs = int(num_top_logprobs)
    if not 0 <= num_top_logprobs <= 20:
        raise ValueError(f"num_top_logprobs: {num_top_logprobs}; must be from 0 to 20")
    tokens, logprobs, *top = torch.ops.imbrex.sample(
        logits, temperature, temperatures, top_k, top_ks, top_p, top_ps, min_p, min_ps, seed, seeds, position, positions,
        return_logprobs or num_top_logprobs > 0, num_top_logprobs)
    if num_top_logprobs:
        return tokens, logprobs, *top
    return (tokens, logprobs) if return_logprobs else tokens


def _parameter(name, value, logits, dtype, lowest, highest):
    """A number and None, or 0 and a tensor with one for each row."""
    if isinstance(value, torch.Tensor):
        if value.shape != logits.shape[:-1]:
            raise ValueError(f"{name}: shape {list(value.shape)}; one for each row, {list(logits.shape[:-1])}, is needed")
        if value.is_floating_point() and not dtype.is_floating_point:
            raise TypeError(f"{name}.dtype: {value.dtype}; must be an integer type")
        return 0, value.to(dtype).contiguous()
    if not lowest <= value <= highest:
        raise ValueError(f"{name}: {value}; must be from {lowest} to {highest}")
    return value, None


@torch.library.register_fake("imbrex::sample")
def _(logits, *more):
    return_logprobs, num_top_logprobs = more[-2:]
    rows = logits.shape[:-1]

    def empty(shape, dtype):
        return torch.empty(shape, dtype=dtype, device=logits.device)

    return (empty(rows, torch.int32), empty(rows if return_logprobs else (0,), torch.float32),
            empty((*rows, num_top_logprobs), torch.int32), empty((*rows, num_top_logprobs), torch.float32))
