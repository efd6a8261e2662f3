"""The checker, from Python."""

import jax

from ._library import native


def check(function, *args, schedules=100, first_seed=0):
    """Runs the kernels that function(*args) launches under the checker, on the CPU.

    Each kernel runs with `schedules` different orders of its asynchronous operations and warps. For the kernels of the
    backward pass check jax.grad of a function. Returns the report of the first hazard, or None. Choose small arrays: a
    schedule of an attention kernel takes milliseconds for each tile. Calls of other threads meanwhile are checked, too.
    """
    if schedules < 1:
        raise ValueError(f"schedules: {schedules}; at least 1 is needed")
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        args = jax.device_put(args, cpu)
        jax.block_until_ready(args)
        native.imbrex_jax_begin_check(schedules, first_seed)
        try:
            jax.block_until_ready(function(*args))
        finally:
            report = native.imbrex_jax_end_check().decode()
    if native.imbrex_jax_checked_calls() == 0:
        raise ValueError("function: it launched no kernel of imbrex_jax on the CPU; there is nothing to check")
    return report or None
