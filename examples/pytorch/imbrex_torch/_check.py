"""The checker, from Python."""

import torch

from ._library import native


def _on_cpu(value):
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(_on_cpu(one) for one in value)
    return value


def check(op, args=(), kwargs=None, *, schedules=100, first_seed=0, backward=False):
    """Runs the kernels that op(*args, **kwargs) would launch under the checker, on copies of its tensors on the CPU.

    Each kernel runs with `schedules` different orders of its asynchronous operations and warps. With backward=True also
    the kernels of the backward pass of the sum of the first result. Returns the report of the first hazard, or None.
    Choose small tensors: a schedule of an attention kernel takes milliseconds for each tile.
    """
    if schedules < 1:
        raise ValueError(f"schedules: {schedules}; at least 1 is needed")
    args, kwargs = _on_cpu(list(args)), {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
    threads = torch.get_num_threads()
    native.imbrex_torch_begin_check(schedules, first_seed)
    try:
        result = op(*args, **kwargs)
        if backward:
            first = result[0] if isinstance(result, (list, tuple)) else result
            first.float().sum().backward()
    finally:
        report = native.imbrex_torch_end_check().decode()
        torch.set_num_threads(threads)
    return report or None
