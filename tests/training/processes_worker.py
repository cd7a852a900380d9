"""What each process of test_processes.py runs."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from vitruvius import spaces
from vitruvius.training.processes import agree, average
from vitruvius.training.strategies import Pass

dist.init_process_group("gloo")
rank = dist.get_rank()
space = spaces.load("vitas-nano")
device = torch.device("cpu")
same = [Pass(archs=(space.largest,), paths=(((0, 1, 2, 3, 4, 5),),))]
assert agree(0, same, True, device)
assert not agree(1, same, rank == 0, device)  # a loss that is not finite anywhere is so everywhere
tensors = [
    torch.nn.Parameter(torch.zeros(3)),
    torch.nn.Parameter(torch.zeros(2, 2)),
    torch.nn.Parameter(torch.zeros(1)),
]
tensors[0].grad, tensors[1].grad = torch.full((3,), float(rank)), torch.full((2, 2), 2.0 * rank)
average(p.grad for p in tensors if p.grad is not None)
assert torch.equal(tensors[0].grad, torch.full((3,), 0.5))
assert torch.equal(tensors[1].grad, torch.ones(2, 2))
assert tensors[2].grad is None
other = [Pass(archs=((space.largest, space.smallest)[rank],), paths=(((0,),),))]
with pytest.raises(RuntimeError, match="do not train the same architectures"):
    agree(2, other, True, device)
dist.destroy_process_group()
