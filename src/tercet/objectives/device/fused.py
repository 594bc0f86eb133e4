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

from tercet.objectives.device import triangle

STEP, STAGES = 16, 3  # rows of one product, and how many of them are under way
WAVES = 8  # blocks for each processor of a device
LEAST = 4  # products in each
TENSOR_CORES = ((8, 0), (9, 0))  # kinds of devices whose products in float64 have circuits of their own


@triton.jit
def kernel(A, c, out, m, d, down, along, share, FRESH: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """One block of A' diag(c) A over one part of the rows, and the block on the other side of the diagonal.

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
        scaled = b.to(tl.float64) * weights[:, None]
        total = tl.dot(tl.trans(a.to(tl.float64)), scaled, total, out_dtype=tl.float64)
    sums = out + part * d * d + left[:, None] * d + right[None, :]
    inside = (left < d)[:, None] & (right < d)[None, :]
    if not FRESH:
        total += tl.load(sums, mask=inside, other=0.0)
    tl.store(sums, total, mask=inside)
    if i < j:
        tl.store(out + part * d * d + left[:, None] + right[None, :] * d, total, mask=inside)


@triton.jit
def product(A, v, out, m, d, down, along, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Av for some rows in float32, with sums in float64."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float64)
    for first in range(0, d, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        inside = (rows < m)[:, None] & (columns < d)[None, :]
        a = tl.load(A + rows[:, None] * down + columns[None, :] * along, mask=inside, other=0.0)
        total += a.to(tl.float64) * tl.load(v + columns, mask=columns < d, other=0.0)[None, :]
    tl.store(out + rows, tl.sum(total, axis=1), mask=rows < m)


@triton.jit
def transposed(A, c, out, m, d, down, along, share, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A'c for some columns over one part of the rows, which are in float32, with sums in float64."""
    columns, part = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    begin = part.to(tl.int64) * share
    end = tl.minimum(begin + share, m)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float64)
    for first in range(begin, end, ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < end)[:, None] & (columns < d)[None, :]
        a = tl.load(A + rows[:, None] * down + columns[None, :] * along, mask=inside, other=0.0)
        total += a.to(tl.float64) * tl.load(c + rows, mask=rows < end, other=0.0)[:, None]
    tl.store(out + part * d + columns, tl.sum(total, axis=0), mask=columns < d)


def block_of(d: int) -> tuple[int, int]:
    """Columns of a block, and the warps that work on it: large ones are read less often, small ones fit few columns."""
    return (32, 2) if d <= 32 else (64, 4) if d <= 512 else (128, 8)


def step_of(d: int) -> tuple[int, int]:
    """Rows and columns of one step of a product with a vector: long stretches, where rows are long."""
    return (32, 64) if d <= 256 else (16, 512)


def parts_of(d: int, device: Any) -> int:
    """Into how many parts the rows are cut, so that a device is busy."""
    tiles = -(-d // block_of(d)[0])
    return max(1, WAVES * processors(device) // (tiles * (tiles + 1) // 2))


def processors(device: Any) -> int:
    """How many a device has."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def add_gram(total: Any, A: Any, c: Any) -> Any:
    """total[p] + A' diag(c) A over part p of the rows; None is nothing."""
    m, d = A.shape
    block, warps = block_of(d)
    if block < d <= triangle.MOST and A.dtype == torch.float64 and triangle.torch_serves(A.device):
        return triangle.torch_add_gram(total, A, c)
    fresh, most, tiles = total is None, triton.cdiv(m, LEAST * STEP), triton.cdiv(d, block)
    parts = min(parts_of(d, A.device), most) if total is None else len(total)
    total = torch.empty((parts, d, d), dtype=torch.float64, device=A.device) if total is None else total
    share = STEP * triton.cdiv(m, parts * STEP)
    options = {"FRESH": fresh, "BLOCK": block, "STEP": STEP, "num_warps": warps, "num_stages": STAGES}
    with torch.cuda.device(A.device):
        kernel[(tiles, tiles, parts)](A, c.contiguous(), total, m, d, *A.stride(), share, **options)
    return total


def times(A: Any, v: Any) -> Any:
    """Av in float64 for rows in float32, which are widened as they are read."""
    (m, d), out = A.shape, torch.empty(len(A), dtype=torch.float64, device=A.device)
    rows, columns = step_of(d)
    with torch.cuda.device(A.device):
        product[(triton.cdiv(m, rows),)](A, v.contiguous(), out, m, d, *A.stride(), ROWS=rows, BLOCK=columns)
    return out


def weigh(c: Any, A: Any) -> Any:
    """A'c in float64 for rows in float32, which are widened as they are read."""
    m, d = A.shape
    rows, columns = step_of(d)
    across = triton.cdiv(d, columns)
    parts = max(1, min(WAVES * processors(A.device) // across, triton.cdiv(m, rows)))
    out, share = torch.empty((parts, d), dtype=torch.float64, device=A.device), rows * triton.cdiv(m, parts * rows)
    with torch.cuda.device(A.device):
        transposed[(across, parts)](A, c.contiguous(), out, m, d, *A.stride(), share, ROWS=rows, BLOCK=columns)
    return out.sum(0)


@cache
def serves(device: Any) -> bool:
    """Whether this device makes such products fast, and Triton can be used there: a small one is made and checked."""
    if torch.cuda.get_device_capability(device) not in TENSOR_CORES:
        return False
    A = torch.arange(60.0, dtype=torch.float64, device=device).view(20, 3)
    try:
        made = add_gram(None, A, A[:, 0].contiguous()).sum(0)
    except Exception:  # no compiler here, or none for float64: cuBLAS serves everywhere
        return False
    return bool(torch.allclose(made, A.T @ (A[:, :1] * A)))
