"""How much of a sum is done at once: examples of one graph, rows of a Hessian, gradients over groups.

On a device a launch costs as much as the arithmetic of thousands of examples, so chunks are as large as the memory lets
them be; on a CPU they stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tercet.objectives.finite_sum import GROUPS

CPU_CHUNK = 4096  # examples
CPU_ROWS = 16  # of a Hessian: more only fill the cache
MOST_ROWS = 64
SHARE = 0.2  # of the free memory, for the graph of one chunk
TRIED = 4096  # examples by which a graph is measured

Losses = Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Room:
    """Bytes that graphs may take, and what the graph of one example takes with its second derivatives."""

    budget: float
    example: float

    def chunk(self, n: int) -> int:
        """Examples of one graph: a multiple of the groups."""
        fits = min(max(int(self.budget / self.example), GROUPS), n)
        return GROUPS * -(-fits // GROUPS)

    def rows(self, m: int) -> int:
        """Rows of a Hessian over m examples that are taken at once."""
        return max(1, min(MOST_ROWS, int(self.budget / (self.example * m))))


def free_memory(device: torch.device) -> float:
    """Bytes that can still be had on a CUDA device."""
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + reserve)


def room_of(losses: Losses, leaves: Sequence[Tensor], data: Sequence[Tensor]) -> Room | None:
    """The room on the device of the data, by the graph over some examples; None on a CPU."""
    device = data[0].device
    if device.type != "cuda":
        return None
    few = [t[:TRIED] for t in data]
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    total = losses(leaves, few).sum()
    slopes = torch.autograd.grad(total, leaves, create_graph=True, materialize_grads=True)
    bend = sum((slope * slope.detach()).sum() for slope in slopes)
    if isinstance(bend, Tensor) and bend.requires_grad:
        torch.autograd.grad(bend, leaves, materialize_grads=True)
    used = torch.cuda.max_memory_allocated(device) - before
    return Room(SHARE * free_memory(device), max(64.0, used / len(few[0])))


def sums_by_group(losses: Losses, leaves: Sequence[Tensor], batch: Sequence[Tensor], K: int) -> Tensor:
    """Sums of losses and of gradients over K groups, a row each: [sum of losses, its gradient].

    Examples are dealt out in turn. Each group has variables of its own with the same numbers, so that all gradients
    come from one graph.
    """
    m = len(batch[0])
    q = m // K
    rows = [dealt(losses, leaves, [t[: q * K] for t in batch], K)] if q else []
    if m % K:  # one more for each of the first groups
        rest = dealt(losses, leaves, [t[q * K :] for t in batch], m % K)
        rows.append(torch.cat([rest, rest.new_zeros((K - m % K, rest.shape[1]))]))
    return rows[0] if len(rows) == 1 else rows[0] + rows[1]


def dealt(losses: Losses, leaves: Sequence[Tensor], batch: Sequence[Tensor], K: int) -> Tensor:
    """The same for K groups of equal size."""
    q = len(batch[0]) // K
    parts = [t.reshape(q, K, *t.shape[1:]).transpose(0, 1) for t in batch]
    own = [leaf.detach().expand(K, *leaf.shape).clone().requires_grad_() for leaf in leaves]
    each = torch.func.vmap(lambda x, b: losses(x, b).sum(), randomness="error")(own, parts)
    slopes = torch.autograd.grad(each.sum(), own, materialize_grads=True)
    return torch.cat([each.detach()[:, None], *(slope.reshape(K, -1).to(each) for slope in slopes)], dim=1)


def can_group(losses: Losses, leaves: Sequence[Tensor], few: Sequence[Tensor]) -> bool:
    """Whether `sums_by_group` gives what gradients one after the other give: not every loss can be mapped over."""
    K = min(2, len(few[0]))
    try:
        together = sums_by_group(losses, leaves, few, K)
    except (RuntimeError, ValueError, TypeError):
        return False
    for k in range(K):
        total = losses(leaves, [t[k::K] for t in few]).sum()
        if not total.requires_grad:
            return False
        slopes = torch.autograd.grad(total, leaves, materialize_grads=True)
        alone = torch.cat([total.detach().reshape(1), *(slope.reshape(-1).to(total) for slope in slopes)])
        scale = torch.finfo(alone.dtype).eps ** 0.5 * (1.0 + float(alone.abs().max()))
        if not torch.allclose(together[k], alone, rtol=0.0, atol=scale):
            return False
    return True
