"""The formulas of a loss as kernels in Triton, for vectors of PyTorch on a CUDA device.

In plain operations each step of a formula reads and writes vectors with a number for each row, and takes a launch of
its own. Here margins, targets and weights are read once, and a sum writes nothing but a few numbers.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from tercet.objectives.device.losses import Part
from tercet.objectives.device.written import TRITON, written

BLOCK = 1024  # rows of one step
WAVES = 8  # programs for each processor of a device


@triton.jit
def look(base, ahead, y, w, out, t: tl.float64, m, FORMULA: tl.constexpr, AHEAD: tl.constexpr, WEIGHED: tl.constexpr,
         BLOCK: tl.constexpr):  # fmt: skip
    """For each program the sum of w l(base + t ahead), max |base| and max |ahead| over its rows."""
    total = tl.zeros((BLOCK,), dtype=tl.float64)
    here, there = tl.zeros((BLOCK,), dtype=tl.float64), tl.zeros((BLOCK,), dtype=tl.float64)
    for first in range(tl.program_id(0).to(tl.int64) * BLOCK, m, tl.num_programs(0) * BLOCK):
        rows = first + tl.arange(0, BLOCK)
        live = rows < m
        z = tl.load(base + rows, mask=live, other=0.0)
        here = tl.maximum(here, tl.abs(z).to(tl.float64))
        if AHEAD:
            change = tl.load(ahead + rows, mask=live, other=0.0)
            there = tl.maximum(there, tl.abs(change).to(tl.float64))
            z = z + (t * change).to(z.dtype)
        each = FORMULA(z, tl.load(y + rows, mask=live, other=0.0))
        if WEIGHED:
            each = each * tl.load(w + rows, mask=live, other=0.0)
        total += tl.where(live, each.to(tl.float64), 0.0)
    place = out + 3 * tl.program_id(0)
    tl.store(place, tl.sum(total, axis=0))
    tl.store(place + 1, tl.max(here, axis=0))
    tl.store(place + 2, tl.max(there, axis=0))


@triton.jit
def part(z, y, w, out, m, FORMULA: tl.constexpr, WEIGHED: tl.constexpr, BLOCK: tl.constexpr):
    """w l^(order)(z, y)."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = rows < m
    each = FORMULA(tl.load(z + rows, mask=live, other=0.0), tl.load(y + rows, mask=live, other=0.0))
    if WEIGHED:
        each = each * tl.load(w + rows, mask=live, other=0.0)
    tl.store(out + rows, each, mask=live)


@cache
def function_of(loss: Part, order: int) -> Any:
    """l^(order) as a function of Triton, which wants to read its source."""
    lines, value = written(loss, order, TRITON)
    source, name = f"def formula(z, y):\n{lines}    return {value}\n", f"<l^({order}) of {loss!r}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"tl": tl, "libdevice": libdevice}
    exec(compile(source, name, "exec"), space)
    return triton.jit(space["formula"])


@dataclass(frozen=True, eq=False)
class RowKernels:
    """One launch for each answer, over all rows."""

    loss: Part
    device: Any
    programs: int  # that make the device busy

    @staticmethod
    def of(device: Any, kind: Any, loss: Part) -> RowKernels | None:
        """None where Triton cannot make them there."""
        programs = WAVES * torch.cuda.get_device_properties(device).multi_processor_count
        kernels = RowKernels(loss, device, programs)
        z = torch.linspace(-1.0, 1.0, 5, dtype=kind, device=device)
        try:
            kernels.look(z, z, 0.5, z, z)
            kernels.part(0, z, z, None)
        except Exception:  # no compiler here: plain operations serve everywhere
            return None
        return kernels

    def part(self, order: int, z: Any, y: Any, w: Any) -> Any:
        """w l^(order)."""
        m, out = len(z), torch.empty_like(z)
        z, y, weights = z.contiguous(), y.contiguous(), y if w is None else w.contiguous()
        blocks = (triton.cdiv(m, BLOCK),)
        with torch.cuda.device(self.device):
            part[blocks](z, y, weights, out, m, function_of(self.loss, order), w is not None, BLOCK)
        return out

    def look(self, base: Any, ahead: Any, t: float, y: Any, w: Any, sizes: bool = False) -> Sequence[Any]:
        """Rows of three numbers, one for each program."""
        m, programs = len(base), min(self.programs, triton.cdiv(len(base), BLOCK))
        out = torch.empty((programs, 3), dtype=torch.float64, device=self.device)
        base, y, weights = base.contiguous(), y.contiguous(), y if w is None else w.contiguous()
        change = base if ahead is None else ahead.contiguous()
        formula, options = function_of(self.loss, 0), (ahead is not None, w is not None, BLOCK)
        with torch.cuda.device(self.device):
            look[(programs,)](base, change, y, weights, out, float(t), m, formula, *options)
        return (out,)
