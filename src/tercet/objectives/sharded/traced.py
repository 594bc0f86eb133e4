"""What sums of JAX functions over shards share. A block is itself an objective, of which a sum is m times the mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.objectives.base import Traits
from tercet.objectives.metered import DeadlineError
from tercet.objectives.residuals.linearized import reduced
from tercet.objectives.sharded.driver import Driver, Order
from tercet.objectives.sharded.engine import Traffic
from tercet.objectives.sharded.sums import (
    Gradient,
    Groups,
    Hessian,
    Product,
    Recipe,
    Scatter,
    Sum,
    ThirdTensor,
    Value,
    dealt,
)
from tercet.objectives.sharded.survey import Drawn, check, weight_of
from tercet.records import Matrix, Rows, Tensor, Vector
from tercet.shards.layout import Block, Layout, windows
from tercet.watch import Look

LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Weighed:
    """What the first pass finds: the sum of the weights."""

    weight: float

    def __add__(self, other: Weighed) -> Weighed:
        return Weighed(self.weight + other.weight)


@dataclass(frozen=True)
class Inspect:
    """What the first pass looks at for functions of single rows: every number is finite."""

    weighs: bool  # else a weight is a number like others, which the function takes

    def __call__(self, block: Block) -> Weighed:
        """ValueError that names the shard and the row."""
        check(block if self.weighs else Block(block.shard, block.start, block.X, block.y, None), LARGEST)
        if not self.weighs and block.w is not None and not np.isfinite(block.w).all():
            row = block.start + int(np.argmin(np.isfinite(block.w)))
            raise ValueError(f"shard {block.shard}, row {row}: weights is not finite; drop that row or fill it")
        return Weighed(weight_of(block) if self.weighs else float(block.rows))


def check_dense(call: str, layout: Layout) -> None:
    """ValueError for rows that JAX functions do not take."""
    if layout.sparse:
        raise ValueError(
            f"{call}(..., shards): the rows of these shards are CSR, but a JAX function takes dense rows; "
            "write them dense, or use LinearModel(shards, loss=...)."
        )


def longest(layout: Layout) -> int:
    """The most rows that a block of these shards has."""
    most = max(extent.rows for extent in layout.extents)
    return next(stop - start for start, stop in windows(most, layout.columns))


def filled(values: Any, rows: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A copy in some precision, filled up to so many rows with the first: what is compiled has one shape."""
    out = np.empty((rows, *values.shape[1:]), dtype)
    out[: len(values)], out[len(values) :] = values, values[0]
    return out


def places(rows: Rows) -> NDArray[np.intp]:
    """Where each of some rows is once they are ascending."""
    out = np.empty(len(rows), dtype=np.intp)
    out[np.argsort(rows, kind="stable")] = np.arange(len(rows))
    return out


# of residuals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Triangle:
    """Rows [root | image] of a Gauss-Newton matrix root'root, which add up and are multiplied as that matrix does."""

    rows: Matrix

    def __add__(self, other: Triangle) -> Triangle:
        return Triangle(reduced(np.concatenate([self.rows, other.rows])))

    def __mul__(self, times: float) -> Triangle:
        return Triangle(np.sqrt(times) * self.rows)

    __rmul__ = __mul__


@dataclass(frozen=True)
class Root:
    """J' diag(w h) J and J' w rho', by QR, so that no digit is lost."""

    def of(self, point: Any) -> Any:
        """Rows that were reduced."""
        return Triangle(point.passed[0].rows)


@dataclass(frozen=True)
class Rest:
    """The Hessian less that matrix."""

    def of(self, point: Any) -> Any:
        """The weighted Hessians of the residuals, and what the weights h leave out."""
        return point.remainder


@dataclass(frozen=True, eq=False)
class Bend:
    """With b = r''[s, s]: J' w h b, and below it b'w rho' and b'w h b."""

    s: Vector

    def of(self, point: Any) -> Any:
        """One vector."""
        curve = point.curve(self.s)
        return np.append(curve.slope, [curve.image, curve.square])


# answers --------------------------------------------------------------------------------------------------------------


def answers(point: Any, block: Block, sums: Sequence[Sum]) -> list[Any]:
    """Some sums over the rows of a block, from the means at their point. f and the gradient are taken at once."""
    kinds, first = {type(each) for each in sums}, None
    if Gradient in kinds:
        first = point.first()
    return [
        dealt(block, point.group_sums) if isinstance(each, Groups) else block.rows * mean_of(point, each, first)
        for each in sums
    ]


def mean_of(point: Any, each: Sum, first: Any) -> Any:
    """One of the means."""
    match each:
        case Value():
            return point.value() if first is None else first[0]
        case Gradient():
            return first[1]
        case Hessian():
            return point.hessian()
        case Product():
            return point.product(each.order, *each.vectors)
        case ThirdTensor():
            return point.third_tensor(each.V)
        case Scatter():
            mean = point.gradient() if first is None else first[1]
            return point.scatter() + np.outer(mean, mean)
        case Root() | Rest() | Bend():
            return each.of(point)
    raise TypeError(f"{type(each).__name__} is no sum over single rows of a JAX function.")


@dataclass(eq=False)
class Means:
    """Means over all rows at one x. f comes with whatever is asked first: a pass reads all rows anyway."""

    driver: Driver
    recipe: Callable[[], Recipe]
    x: Vector
    l2: Any = 0.0  # of each variable: left out of the means, but not of what is shown
    f: float | None = None  # once it is known

    def together(self, *sums: Sum) -> list[Any]:
        """Some of them in one pass."""
        totals = self.driver.sweep(self.recipe(), self.x, sums, lambda x: (0.5 * float((self.l2 * x) @ x), self.l2 * x))
        return [total * (1.0 / self.driver.layout.n) for total in totals]

    def beside_f(self, *sums: Sum) -> list[Any]:
        """The same, and f with them where it is not known yet."""
        if self.f is not None:
            return self.together(*sums)
        self.f, *rest = self.together(Value(), *sums)
        return rest

    def value(self) -> float:
        """f(x)."""
        if self.f is None:
            self.beside_f()
        assert self.f is not None
        return self.f

    def product(self, order: int, vectors: tuple[Vector, ...]) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return np.asarray(self.beside_f(Product(order, vectors))[0])

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return np.asarray(self.beside_f(ThirdTensor(V))[0])


@dataclass(eq=False)
class Held:
    """The objective that a sample is, kept until there is another sample. Written in place."""

    drawn: Drawn | None = None
    objective: Any = None

    def of(self, drawn: Drawn, make: Callable[[Drawn], Any]) -> Any:
        """The one of these rows."""
        if self.drawn is not drawn:
            self.drawn, self.objective = drawn, make(drawn)
        return self.objective


class Kind(Protocol):
    """What differs between sums of JAX functions: of a loss, or of residuals."""

    def traits(self, shards: int) -> Traits:
        """What a run may ask of it."""
        ...

    def scales(self) -> Vector | None:
        """The units of the variables, of which nothing is known."""
        ...

    def of_drawn(self, driver: Driver, drawn: Drawn) -> Any:
        """Rows in memory as an objective."""
        ...

    def at(self, driver: Driver, x: Vector) -> Any:
        """All rows at x, by passes."""
        ...


@dataclass(frozen=True, eq=False)
class ShardedObjective:
    """A sum of JAX functions over the rows of shards, of a flat vector: its sample lies in memory."""

    d: int
    driver: Driver
    kind: Kind
    held: Held = field(default_factory=Held)

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.driver.layout.n

    @property
    def traits(self) -> Traits:
        """Those in memory, and how large a sample is at hand."""
        return replace(self.kind.traits(len(self.driver.layout.extents)), in_memory=self.driver.in_memory)

    @property
    def traffic(self) -> Traffic:
        """What was read so far."""
        return self.driver.traffic

    @property
    def scales(self) -> Vector | None:
        """Nothing is known of units; but the numbers are looked at before the run."""
        with suppress(DeadlineError):
            self.driver.survey()
        return self.kind.scales()

    def shuffle(self, seed: int) -> Order:
        """The order of the rows by their keys."""
        return self.driver.shuffle(seed)

    def clocked(self, look: Look) -> ShardedObjective:
        """The same for one run, which looks at the clock between blocks."""
        return replace(self, driver=self.driver.clocked(look), held=Held())

    def over(self, rows: Rows | None) -> Any:
        """All rows, by passes; or some in memory: of the sample, if they are its beginning, or gathered."""
        if rows is None:
            return AllRows(self)
        sample = self.driver.beginning(rows)
        if sample is not None:
            return self.held.of(sample, lambda drawn: self.kind.of_drawn(self.driver, drawn)).over(np.arange(len(rows)))
        return self.kind.of_drawn(self.driver, self.driver.gather(rows)).over(places(rows))


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows of a sum over shards."""

    objective: ShardedObjective

    @property
    def terms(self) -> int:
        """The number of rows."""
        return self.objective.n

    def at(self, x: Vector, carry: None = None) -> Any:
        """All rows at x."""
        return self.objective.kind.at(self.objective.driver, x)
