"""A' diag(c) A in float64 on a CUDA device, in one sweep over A: rows are scaled where they are multiplied.

Written to memory and read again, scaled rows take as long as the products with them where A has few columns. The
products are made by blocks on and above the diagonal, for several parts of the rows at once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

BLOCK, STEP, WARPS, STAGES = 64, 16, 4, 3  # columns of a block, rows of one product, and how it is pipelined
WAVES = 8  # blocks for each processor of a device
TENSOR_CORES = ((8, 0), (9, 0))  # kinds of devices whose products in float64 have circuits of their own


@triton.jit
def kernel(A, c, out, m, d, down, along, share, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Adds one block of A' diag(c) A over one part of the rows to those of `out`.

    Triton reads these annotations, and knows no others.
    """
    i, j, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if j < i:
        return
    left, right = i * BLOCK + tl.arange(0, BLOCK), j * BLOCK + tl.arange(0, BLOCK)
    begin = part.to(tl.int64) * share
    end = tl.minimum(begin + share, m)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float64)
    for first in range(begin, end, STEP):
        rows = first + tl.arange(0, STEP)
        here = rows < end
        places = A + rows[:, None] * down
        a = tl.load(places + left[None, :] * along, mask=here[:, None] & (left < d)[None, :], other=0.0)
        b = tl.load(places + right[None, :] * along, mask=here[:, None] & (right < d)[None, :], other=0.0)
        weights = tl.load(c + rows, mask=here, other=0.0)
        total = tl.dot(tl.trans(a), b * weights[:, None], total, out_dtype=tl.float64)
    sums = out + part * d * d + left[:, None] * d + right[None, :]
    inside = (left < d)[:, None] & (right < d)[None, :]
    tl.store(sums, total + tl.load(sums, mask=inside, other=0.0), mask=inside)


def parts_of(d: int, device: Any) -> int:
    """Into how many parts the rows are cut, so that a device is busy."""
    tiles = -(-d // BLOCK)
    return max(1, WAVES * torch.cuda.get_device_properties(device).multi_processor_count // (tiles * (tiles + 1) // 2))


def add_gram(total: Any, A: Any, c: Any) -> Any:
    """total[p] + A' diag(c) A over part p of the rows, on and above the diagonal; None is nothing."""
    (m, d), tiles = A.shape, -(-A.shape[1] // BLOCK)
    parts = parts_of(d, A.device)
    total = torch.zeros((parts, d, d), dtype=torch.float64, device=A.device) if total is None else total
    share = -(-m // (parts * STEP)) * STEP
    blocks = {"BLOCK": BLOCK, "STEP": STEP, "num_warps": WARPS, "num_stages": STAGES}
    kernel[(tiles, tiles, parts)](A, c.contiguous(), total, m, d, *A.stride(), share, **blocks)
    return total


def whole(total: Any) -> Any:
    """The sum of the parts, with what is below the diagonal."""
    G = total.sum(0).triu()
    return G + G.triu(1).T


@cache
def serves(device: Any) -> bool:
    """Whether this device makes such products fast, and Triton can be used there: a small one is made and checked."""
    if torch.cuda.get_device_capability(device) not in TENSOR_CORES:
        return False
    A = torch.arange(60.0, dtype=torch.float64, device=device).view(20, 3)
    try:
        made = whole(add_gram(None, A, A[:, 0].contiguous()))
    except Exception:  # no compiler here, or none for float64: cuBLAS serves everywhere
        return False
    return bool(torch.allclose(made, A.T @ (A[:, :1] * A)))
