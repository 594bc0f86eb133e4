"""How a point of a model on a device was reached: margins that are known there, and the steps that led to them.

A look along a step has the margins z + t As. They are made a piece at a time, and as a whole only where a derivative is
asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.objectives.device.arrays import Array, Arrays
from tercet.objectives.device.formulas import largest
from tercet.objectives.linear.span import FAR, STEPS, Path
from tercet.records import Vector


@dataclass(frozen=True, eq=False)
class DevicePath:
    """The margins base + t ahead, where they are known, the last steps with their images, and what rounding adds up."""

    on: Arrays
    rows: Any  # of which A has these images; None: all
    steps: tuple[Vector, ...] = ()
    images: tuple[Array, ...] = ()
    base: Array | None = None  # None: the margins are to be computed
    ahead: Array | None = None  # None: they are the base
    t: float = 1.0
    age: int = 0  # steps since the margins were computed
    moved: float = 0.0  # by how much these changed them
    total: float | None = None  # sum w l at these margins, where that is known

    @property
    def margins(self) -> Array | None:
        """Ax as one array."""
        return self.base if self.base is None or self.ahead is None else self.on.along(self.base, self.t, self.ahead)

    def onward(self, s: Vector, As: Array) -> DevicePath:
        """After a step s, which is remembered."""
        steps, images, there = (*self.steps, s)[-STEPS:], (*self.images, As)[-STEPS:], self.margins + As
        size, now = self.on.host(largest(self.on, As), largest(self.on, there))
        moved = self.moved + float(size)
        if moved > FAR * float(now):
            return DevicePath(self.on, self.rows, steps, images)
        return DevicePath(self.on, self.rows, steps, images, there, None, 1.0, self.age + 1, moved)

    def standing(self, margins: Array, computed: bool) -> DevicePath:
        """The same steps with these margins, which may have been computed anew."""
        age, moved = (0, 0.0) if computed else (self.age, self.moved)
        return replace(self, base=margins, ahead=None, t=1.0, age=age, moved=moved, total=None)

    def without(self) -> DevicePath:
        """The same, and its margins are to be had elsewhere."""
        return replace(self, base=None, ahead=None)

    def again(self) -> DevicePath:
        """The same steps, with margins to be computed."""
        return DevicePath(self.on, self.rows, self.steps, self.images)

    def exact(self) -> DevicePath:
        """The same steps, with margins to be computed."""
        return self.again()

    def arrays(self) -> dict[str, Any]:
        """As arrays on the host."""
        images = [self.on.host(image)[0] for image in self.images]
        steps = {"steps": np.array(self.steps), "images": np.array(images), "age": self.age, "moved": self.moved}
        return steps if self.margins is None else {**steps, "margins": self.on.host(self.margins)[0]}

    @staticmethod
    def of(on: Arrays, rows: Any, arrays: dict[str, Any], shape: tuple[int, int]) -> DevicePath:
        """From arrays, over a table of this shape; ValueError where they cannot be those of a path."""
        path = Path.of(None, arrays, shape)
        base = None if path.margins is None else on.put(path.margins)
        images = tuple(on.put(image) for image in path.images)
        return DevicePath(on, rows, path.steps, images, base, None, 1.0, path.age, path.moved)


@dataclass(frozen=True, eq=False)
class DeviceAhead:
    """The margins along a step, z + t As, made when they are needed."""

    path: DevicePath  # to x, with its margins
    As: Array
    total: float  # sum w l at x + s
    here: float  # the largest margin at x
    ahead: float  # the largest change of one

    def at(self, t: float) -> DevicePath:
        """To x + ts."""
        path, moved = self.path, self.path.moved + abs(t) * self.ahead
        total = self.total if t == 1.0 else None
        there = replace(path, steps=(), images=(), ahead=self.As, t=t, age=path.age + 1, moved=moved, total=total)
        if moved > FAR * abs(self.here - abs(t) * self.ahead):  # only then have the margins themselves to tell
            now = float(path.on.host(largest(path.on, there.margins))[0])
            there = DevicePath(path.on, path.rows) if moved > FAR * now else there
        return there
