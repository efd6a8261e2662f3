"""Ring attention: a sequence that is spread over several processes, each of which has some of its tokens.

    torchrun --nproc-per-node 2 examples/pytorch/examples/ring_attention.py

With a GPU for each process they use NCCL, otherwise gloo on the CPU. Every rank makes the same sequence here and keeps
its own tokens, to compare the result with attention on one rank. A training loop would read only the rank's own tokens,
and shard only their positions, for RoPE.
"""

import argparse
import os

import torch
import torch.distributed as dist

from imbrex_torch import attention
from imbrex_torch.distributed import ring_attention, shard, unshard

parser = argparse.ArgumentParser(description="Ring attention beside attention on one rank.")
parser.add_argument("--tokens", type=int, default=512, help="of the sequence, a multiple of the number of ranks")
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--kv-heads", type=int, default=2)
parser.add_argument("--head-dim", type=int, default=64)
options = parser.parse_args()

local_rank = int(os.environ["LOCAL_RANK"])
if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
else:
    device = torch.device("cpu")
    dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
whole = [torch.randn(1, options.tokens, heads, options.head_dim).to(device, torch.bfloat16)
         for heads in (options.heads, options.kv_heads, options.kv_heads)]

# The zigzag placement gives a rank one chunk of the first half and one of the second half, so that all ranks have the
# same work under the causal mask.
positions = shard(torch.arange(options.tokens), dim=0)
q, k, v = (shard(tensor).requires_grad_() for tensor in whole)
print(f"rank {rank} of {ranks} on {device}: {len(positions)} tokens from {positions[0]} to {positions[-1]}", flush=True)

out = ring_attention(q, k, v, causal=True)  # keys and values of all ranks pass by
out.float().square().sum().backward()       # and their gradients return

# The same on one rank.
whole = [tensor.requires_grad_() for tensor in whole]
expected = attention(*whole, causal=True)
expected.float().square().sum().backward()


def largest_difference(own, other):
    return (unshard(own).float() - other.float()).abs().max().item()


differences = {"out": largest_difference(out.detach(), expected.detach())}
for name, one, other in zip(("dq", "dk", "dv"), (q, k, v), whole):
    differences[name] = largest_difference(one.grad, other.grad)
if rank == 0:
    print("largest differences from one rank:", ", ".join(f"{name} {value:.4f}" for name, value in differences.items()))
    assert max(differences.values()) < 0.1
dist.destroy_process_group()
