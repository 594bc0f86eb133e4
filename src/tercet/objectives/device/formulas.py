"""What each row brings to a sum, from margins: w l^(order)(z, y), and its sum where margins change along a step.

plain      any library, a piece of the rows at a time; compiled by a library that does so
one kernel where the formula can be written down (`tercet.objectives.device.written`) for a device
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from tercet.objectives.device.arrays import ROWS, Array, Arrays
from tercet.objectives.device.losses import DeviceLoss, Part
from tercet.objectives.tables import cut


class Formulas(Protocol):
    """A loss on a device. `w` is None where all weights are one; margins along a step are base + t ahead."""

    def part(self, order: int, z: Array, y: Array, w: Array | None) -> Array:
        """w l^(order)."""
        ...

    def look(
        self, base: Array, ahead: Array | None, t: float, y: Array, w: Array | None, sizes: bool = False
    ) -> Sequence[Array]:
        """On the device, for `told`: sum w l(base + t ahead), and with `sizes` max |base| and max |ahead|."""
        ...


def told(looks: Sequence[Any]) -> tuple[float, ...]:
    """What a look says, from its arrays on the host: the three numbers, or a row of three for each part of the rows."""
    if looks[0].ndim == 0:
        return tuple(float(each) for each in looks)
    return float(looks[0][:, 0].sum()), float(looks[0][:, 1].max()), float(looks[0][:, 2].max())


@dataclass(frozen=True, eq=False)
class PlainFormulas:
    """In the operations of a library."""

    parts: Callable[..., Array]  # (order, z, y, w)
    looks: Callable[..., Sequence[Array]]  # (sizes, base, ahead, t, y, w)

    @staticmethod
    def of(arrays: Arrays, loss: Part) -> PlainFormulas:
        """Of one loss."""

        def part(order: int, z: Array, y: Array, w: Array | None) -> Array:
            each = loss(arrays, order, z, y)
            return each if w is None else w * each

        def look(sizes: bool, base: Array, ahead: Array | None, t: float, y: Array, w: Array | None) -> Sequence[Array]:
            m, totals = base.shape[0], []
            for piece in cut(m, m if arrays.whole else ROWS):
                z = base[piece] if ahead is None else arrays.along(base[piece], t, ahead[piece])
                totals.append(arrays.total(part(0, z, y[piece], None if w is None else w[piece])))
            total = sum(totals[1:], totals[0])
            return (total, largest(arrays, base), largest(arrays, ahead)) if sizes else (total,)

        return PlainFormulas(arrays.compiled(part), arrays.compiled(look))

    def part(self, order: int, z: Array, y: Array, w: Array | None) -> Array:
        """w l^(order)."""
        return self.parts(order, z, y, w)

    def look(
        self, base: Array, ahead: Array | None, t: float, y: Array, w: Array | None, sizes: bool = False
    ) -> Sequence[Array]:
        """A piece of the rows at a time."""
        return self.looks(sizes, base, ahead, t, y, w)


@cache
def compiled_once(arrays: Any, loss: Part) -> PlainFormulas:
    """The formulas of a library that compiles, whose `Arrays` are equal where their precision is."""
    return PlainFormulas.of(arrays, loss)


def formulas_of(arrays: Any, loss: DeviceLoss) -> Formulas:
    """The best there are of a loss; what is compiled serves for every model with the same loss."""
    if arrays.whole:
        return compiled_once(arrays, loss.part)
    kernels = arrays.kernels(loss) if loss.writable else None
    return PlainFormulas.of(arrays, loss.part) if kernels is None else kernels


def largest(on: Arrays, v: Array) -> Array:
    """max |v_i|, on the device, without a second vector."""
    return on.xp.max(on.xp.stack([on.xp.max(v), -on.xp.min(v)]))
