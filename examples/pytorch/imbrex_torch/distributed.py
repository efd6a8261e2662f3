"""Context parallelism: attention over sequences whose tokens are spread over the ranks of a process group.

    torch.distributed.init_process_group()
    q, k, v = (shard(whole) for whole in (q, k, v))     # or compute them from the rank's own tokens
    out = ring_attention(q, k, v, causal=True)          # of the rank's own queries, over the keys of all ranks
    out = unshard(out)

All ranks of the group call these functions with the same arguments and their own tokens. CUDA tensors need a group with
NCCL, CPU tensors one with gloo. `group` is a process group or a one-dimensional DeviceMesh; None is the default group.

A placement says which tokens a rank has, always in the order of positions. With 4 ranks and 16 tokens, the ranks are

    contiguous   0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3
    zigzag       0 0 1 1 2 2 3 3 3 3 2 2 1 1 0 0     the same work for all ranks under a causal mask
    striped      0 1 2 3 0 1 2 3 0 1 2 3 0 1 2 3

`shard(torch.arange(tokens), dim=0)` are the positions of a rank's tokens, for RoPE. `tokens` is the length of the
sequence; it is only needed if it is not a multiple of the number of ranks. Ranks then differ by at most one token.
"""

import math

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.distributed.device_mesh import DeviceMesh

from ._attention import _UNBOUNDED, _mask_of, _results, attention
from ._library import native  # noqa: F401  (registers the operators)

__all__ = ["ring_attention", "shard", "ulysses_attention", "unshard"]

def ring_attention(q, k, v, *, group=None, causal=False, window=None, softcap=None, sinks=None, scale=None,
                   placement="zigzag", tokens=None, q_chunks=1, deterministic=False, return_lse=False):
    """Attention of this rank's queries to the keys of all ranks, which travel around a ring; with a gradient.

    q, k and v are bf16 or fp16 [batch, the rank's tokens, heads, head_dim]. The other arguments are those of
    `attention`. While a rank attends to some keys, the next ones arrive. With q_chunks > 1, a divisor of the number of
    ranks, queries travel too, in groups of that many consecutive ranks: fewer bytes for many ranks. The gradient of
    sinks is over this rank's queries: add those of all ranks, as for other parameters.

    The first call with a shape compares the arguments of all ranks, which blocks the host, and raises on all if they
    differ. Every rank must run the backward pass.
    """
    mask, numbers = _mask_of(causal, window)
    left, right = numbers or (_UNBOUNDED, 0 if mask == "causal_mask" else _UNBOUNDED)
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap: {softcap}; a positive number is needed")
    group = _group_of(group)
    out, lse2 = torch.ops.imbrex.ring_attention_forward(
        q, k, v, sinks, scale, softcap, tokens, left, right, placement, q_chunks, deterministic, group.group_name)
    return _results(out, lse2.transpose(0, 1), return_lse)


def ulysses_attention(q, k, v, *, group=None, causal=False, window=None, softcap=None, sinks=None, scale=None,
                      placement="contiguous", tokens=None, deterministic=False, return_lse=False):
    """The same by all-to-all (DeepSpeed-Ulysses): each rank attends with some of the heads over the whole sequence.

    Fewer bytes than a ring, but communication does not overlap attention, and there can be at most as many ranks as
    heads of k. The gradient of sinks is that of this rank's heads, zero for others: add those of all ranks.

    The first call with a shape compares the shapes of all ranks, unless torch.compile has compiled it.
    """
    group = _group_of(group)
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    options = {"causal": causal, "window": window, "softcap": softcap, "scale": scale, "deterministic": deterministic,
               "return_lse": return_lse}
    if ranks == 1:
        return attention(q, k, v, sinks=sinks, **options)
    tokens = q.shape[1] * ranks if tokens is None else tokens
    heads, kv_heads = q.shape[2], k.shape[2]
    _require_same_on_all_ranks(group, batch=q.shape[0], tokens=tokens, heads=heads, kv_heads=kv_heads, dtype=q.dtype,
                               head_dim=q.shape[3], head_dim_v=v.shape[3], placement=placement)
    if kv_heads < ranks or heads % kv_heads != 0:
        raise ValueError(f"k: {kv_heads} heads; at least {ranks} are needed, one per rank, and a divisor of the "
                         f"{heads} heads of q. ring_attention runs on more ranks")
    counts = _tokens_of_ranks(tokens, ranks, placement)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _require_tokens(name, tensor.shape[1], counts, rank, placement)
    kv_split = [_even_split(kv_heads, ranks, number)[1] for number in range(ranks)]
    q_split = [count * (heads // kv_heads) for count in kv_split]
    if sinks is not None:
        sinks = sinks.split(q_split)[rank].contiguous()

    everywhere = (_heads_to_ranks(tensor, split, counts, rank, placement, group)
                  for tensor, split in ((q, q_split), (k, kv_split), (v, kv_split)))
    result = attention(*everywhere, sinks=sinks, **options)
    out, lse = result if return_lse else (result, None)
    out = _tokens_to_ranks(out, q_split, counts, rank, placement, group)
    if lse is None:
        return out
    lse = _tokens_to_ranks(lse.transpose(1, 2).unsqueeze(-1), q_split, counts, rank, placement, group)
    return out, lse.squeeze(-1).transpose(1, 2)


def shard(tensor, placement="zigzag", group=None, dim=1):
    """This rank's tokens of a tensor that has all tokens in dimension `dim`, which every rank has. A copy."""
    group = _group_of(group)
    ranges = _ranges_of(tensor.shape[dim], dist.get_world_size(group), dist.get_rank(group), placement)
    tensor = tensor.movedim(dim, 0)
    return torch.cat([tensor[first:first + count * stride:stride] for first, count, stride in ranges]).movedim(0, dim)


def unshard(tensor, placement="zigzag", group=None, dim=1, tokens=None):
    """All tokens of a tensor of which each rank has its own, on every rank. Its gradient is the sum over all ranks."""
    group = _group_of(group)
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    counts = _tokens_of_ranks(tensor.shape[dim] * ranks if tokens is None else tokens, ranks, placement)
    _require_tokens("tensor", tensor.shape[dim], counts, rank, placement)
    rows = tensor.movedim(dim, 0)
    if counts[rank] < max(counts):  # messages of one size
        rows = torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])])
    gathered = collectives.all_gather_tensor_autograd(rows.contiguous(), 0, group)
    chunks = [one[:count] for one, count in zip(gathered.chunk(ranks), counts)] if max(counts) > min(counts) else None
    return _in_position_order(gathered if chunks is None else torch.cat(chunks), ranks, placement).movedim(0, dim)


def _group_of(group):
    if isinstance(group, DeviceMesh):
        return group.get_group()
    if group is None:
        group = dist.group.WORLD
        if group is None:
            raise ValueError("group: None, and there is no default group; call torch.distributed.init_process_group")
    return group


_agreed = set()


def _require_same_on_all_ranks(group, **values):
    """Collective for values that are new to the group."""
    if torch.compiler.is_compiling():
        return
    key = (group.group_name, *values.values())
    if key in _agreed:
        return
    of_ranks = [None] * dist.get_world_size(group)
    dist.all_gather_object(of_ranks, values, group)
    for rank, theirs in enumerate(of_ranks):
        for name, first in of_ranks[0].items():
            if theirs[name] != first:
                raise RuntimeError(f"{name}: {theirs[name]} on rank {rank}, and {first} on rank 0; must be the same on "
                                   "all ranks")
    _agreed.add(key)


# The placements of comm/schedule/token_ranges.hpp.


def _even_split(count, pieces, number):
    """First element and size of a part; the first count % pieces parts have one element more."""
    shortest, longer = count // pieces, count % pieces  # torch.compile has no divmod
    return number * shortest + min(number, longer), shortest + (1 if number < longer else 0)


def _zigzag_pieces(ranks):
    """The pieces of 2 * ranks, in the order of ranks."""
    return [piece for rank in range(ranks) for piece in (rank, 2 * ranks - 1 - rank)]


def _ranges_of(tokens, ranks, rank, placement):
    """First token, number of tokens and stride of each range of a rank."""
    if placement == "striped":
        return [(rank, _even_split(tokens, ranks, rank)[1], ranks)]
    if placement == "contiguous":
        return [(*_even_split(tokens, ranks, rank), 1)]
    if placement == "zigzag":
        return [(*_even_split(tokens, 2 * ranks, piece), 1) for piece in (rank, 2 * ranks - 1 - rank)]
    raise ValueError(f"placement: {placement}; contiguous, zigzag and striped are allowed")


def _tokens_of_ranks(tokens, ranks, placement):
    return [sum([count for _, count, _ in _ranges_of(tokens, ranks, rank, placement)]) for rank in range(ranks)]


def _require_tokens(name, found, counts, rank, placement):
    if found != counts[rank]:
        raise ValueError(f"{name}: {found} tokens; rank {rank} of {len(counts)} has {counts[rank]} of {sum(counts)} "
                         f"tokens in {placement} placement")


def _in_rank_order(rows, ranks, placement):
    """Rows in the order of positions as those of rank 0, rank 1, ..."""
    if placement == "contiguous":
        return rows
    if placement == "zigzag":
        pieces = rows.split([_even_split(rows.shape[0], 2 * ranks, number)[1] for number in range(2 * ranks)])
        return torch.cat([pieces[number] for number in _zigzag_pieces(ranks)])
    shortest = rows.shape[0] // ranks
    of_all, last = rows.split([shortest * ranks, rows.shape[0] - shortest * ranks])
    chunks = of_all.unflatten(0, (shortest, ranks)).unbind(1)
    last = last.split(1) if last.shape[0] > 0 else ()
    return torch.cat([part for rank in range(ranks) for part in (chunks[rank], *last[rank:rank + 1])])


def _in_position_order(rows, ranks, placement):
    """The inverse of _in_rank_order."""
    if placement == "contiguous":
        return rows
    if placement == "zigzag":
        order = _zigzag_pieces(ranks)
        pieces = rows.split([_even_split(rows.shape[0], 2 * ranks, number)[1] for number in order])
        return torch.cat([pieces[order.index(number)] for number in range(2 * ranks)])
    shortest = rows.shape[0] // ranks
    chunks = rows.split(_tokens_of_ranks(rows.shape[0], ranks, placement))
    of_all = torch.stack([one[:shortest] for one in chunks], 1).flatten(0, 1)
    return torch.cat([of_all, *(one[shortest:] for one in chunks)])


# The two all-to-alls of Ulysses. A message is [the tokens of one rank, batch, the heads of the other, head_dim].


def _all_to_all(messages, received_sizes, group):
    sizes = [one.numel() for one in messages]
    sent = torch.cat([one.reshape(-1) for one in messages])
    return collectives.all_to_all_single_autograd(sent, received_sizes, sizes, group)


def _heads_to_ranks(tensor, split, counts, rank, placement, group):
    """[batch, own tokens, all heads, head_dim] to [batch, all tokens, own heads, head_dim]."""
    batch, _, _, head_dim = tensor.shape
    row = batch * split[rank] * head_dim
    received = _all_to_all(tensor.transpose(0, 1).split(split, 2), [count * row for count in counts], group)
    rows = received.view(sum(counts), batch, split[rank], head_dim)
    return _in_position_order(rows, len(counts), placement).transpose(0, 1)


def _tokens_to_ranks(tensor, split, counts, rank, placement, group):
    """[batch, all tokens, own heads, head_dim] to [batch, own tokens, all heads, head_dim]."""
    batch, _, _, head_dim = tensor.shape
    rows = _in_rank_order(tensor.transpose(0, 1), len(counts), placement)
    shapes = [(counts[rank], batch, heads, head_dim) for heads in split]
    sizes = [math.prod(shape) for shape in shapes]
    received = _all_to_all(rows.split(counts), sizes, group)
    parts = [part.view(shape).transpose(0, 1) for part, shape in zip(received.split(sizes), shapes)]
    return torch.cat(parts, 2)


@torch.library.register_fake("imbrex::ring_attention_forward")
def _(q, k, v, *more):
    batch, tokens, heads, _ = q.shape
    return q.new_empty((batch, tokens, heads, v.shape[-1])), q.new_empty((heads, batch, tokens), dtype=torch.float32)


@torch.library.register_fake("imbrex::ring_attention_backward")
def _(d_out, delta, q, k, v, lse2, sinks, *more):
    d_sinks = lse2.new_empty((0,)) if sinks is None else sinks.new_empty(sinks.shape)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), d_sinks


def _save(ctx, inputs, output):
    q, k, v, sinks, *ctx.more = inputs
    ctx.save_for_backward(q, k, v, sinks, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx, d_out, d_lse2):
    q, k, v, sinks, out, lse2 = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(out)
    delta = (d_out.float() * out).sum(-1).permute(2, 0, 1)
    if d_lse2 is not None:
        delta = delta - d_lse2 / math.log(2.0)
    d_q, d_k, d_v, d_sinks = torch.ops.imbrex.ring_attention_backward(
        d_out, delta.contiguous(), q, k, v, lse2, sinks, *ctx.more)
    return d_q, d_k, d_v, d_sinks if sinks is not None else None, *(None for _ in ctx.more)


torch.library.register_autograd("imbrex::ring_attention_forward", _backward, setup_context=_save)
