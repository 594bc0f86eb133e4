"""`ShardedFiniteSum`: what `FiniteSum(loss, shards)` gives. Any JAX function of a row, summed over shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np

from tercet.checks import whole
from tercet.objectives.base import Bound, Traits, name_of
from tercet.objectives.finite_sum import COLUMNS, CPU_CHUNK, GROUPS, SumObjective, kernels_of, sum_traits
from tercet.objectives.jaxtools import flatten, import_jax, precision
from tercet.objectives.sharded.driver import SAMPLE, Driver
from tercet.objectives.sharded.engine import Engine, Local
from tercet.objectives.sharded.sums import Gradient, Hessian, Scatter, Sum, remembered
from tercet.objectives.sharded.survey import Drawn
from tercet.objectives.sharded.traced import Inspect, Means, ShardedObjective, answers, check_dense, filled, longest
from tercet.records import Matrix, Tensor, Vector
from tercet.shards import Shards
from tercet.shards.layout import Block


class ShardedFiniteSum:
    """f(params) = (1/n) sum_i loss(params, x_i, y_i) over the rows of `Shards`, for a JAX function `loss`.

    `FiniteSum(loss, shards)` makes one. x_i is a row as a vector and y_i its target, both floating; where the shards
    have weights the loss takes the row's as a third argument. `params` is any pytree, given as x0 to `minimize`, and
    the precision is that of x0. f and what is asked with it take one pass over the shards; the sample on which a run
    begins is gathered in the first pass and is a `FiniteSum` in memory, of up to `sample_bytes`.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        shards: Shards,
        *,
        chunk: int | None = None,
        sample_bytes: int = SAMPLE,
        engine: Engine | None = None,
    ):
        import_jax("FiniteSum")
        if not callable(loss):
            raise ValueError(f"FiniteSum(loss={loss!r}): loss is a function loss(params, x, y).")
        engine = Local(shards) if engine is None else engine
        check_dense("FiniteSum", engine.layout)
        chunk = CPU_CHUNK if chunk is None else whole("FiniteSum", "chunk", chunk)
        self.chunk = GROUPS * -(-min(chunk, longest(engine.layout)) // GROUPS)
        self.loss = loss
        self.driver = Driver.of("FiniteSum", engine, Inspect(weighs=False), sample_bytes)

    def fingerprint(self) -> dict[str, str]:
        """The loss's name and code, digests of the shards, and the size of the sample."""
        return {"loss": name_of(self.loss), "data": self.driver.fingerprint(), "most": repr(self.driver.most)}

    def bind(self, x0: Any) -> Bound:
        """Check the loss on the shape of a row, and compile it for the structure of x0."""
        jax = import_jax("FiniteSum")
        if x0 is None:
            raise ValueError("minimize(x0=None): a FiniteSum needs its parameters; pass params0.")
        dtype = precision(x0)
        start, _, restore = flatten(x0, dtype)
        tree = jax.tree_util.tree_map(lambda leaf: np.zeros(np.shape(leaf), dtype), x0)
        layout = self.driver.layout
        size = self.chunk * -(-longest(layout) // self.chunk)
        recipe = SumRecipe(self.loss, tree, dtype, self.chunk, size, layout.columns, layout.weighted)
        recipe.own()
        return Bound(ShardedObjective(start.size, self.driver.for_a_run(), recipe), start, restore)


@dataclass(frozen=True, eq=False)
class SumRecipe:
    """How a block becomes sums of a JAX function, which a worker compiles for itself."""

    loss: Callable[..., Any]
    tree: Any  # parameters, for their structure
    dtype: np.dtype[Any]
    chunk: int
    size: int  # rows to which a block is filled up
    columns: int
    weighted: bool
    token: str = field(default_factory=lambda: uuid4().hex)

    def own(self) -> SumObjective:
        """The compiled sums of this process, without data."""
        return remembered(self.token, self.make)

    def make(self) -> SumObjective:
        """Trace the loss on the shape of a row; it is compiled when it is first used."""
        jax = import_jax("FiniteSum")
        start, unravel, _ = flatten(self.tree, self.dtype)
        with jax.enable_x64(self.dtype == np.float64):
            shapes = [(self.columns,), (), ()][: 3 if self.weighted else 2]
            example = [jax.ShapeDtypeStruct(shape, self.dtype) for shape in shapes]
            kernels = kernels_of(
                jax, lambda x, *e: self.loss(unravel(x), *e), start.size, self.dtype, example, self.chunk, COLUMNS
            )
        return SumObjective(start.size, self.size, self.chunk, None, kernels, self.dtype, jax)

    def objective(self, rows: Block | Drawn, size: int) -> SumObjective:
        """Rows in memory as a sum, filled up."""
        own = self.own()
        parts = [rows.X, rows.y] if rows.w is None else [rows.X, rows.y, rows.w]
        return replace(own, data=tuple(filled(part, size, self.dtype) for part in parts), n=size)

    def traits(self, shards: int) -> Traits:
        """Those of a sum in memory."""
        how = f"derivatives by JAX over {shards} shards"
        return sum_traits(self.own().d, how, float(np.finfo(self.dtype).eps))

    def scales(self) -> Vector:
        """x as it is given."""
        return np.ones(self.own().d)

    def at(self, driver: Driver, x: Vector) -> ShardedSumPoint:
        """All rows at x."""
        return ShardedSumPoint(Means(driver, lambda: self, x))

    def of_drawn(self, driver: Driver, drawn: Drawn) -> SumObjective:
        """Rows that were gathered, which stay where sums are made; few sizes are compiled."""
        m = len(drawn.y)
        step = max(self.chunk, (1 << m.bit_length()) // 16)  # filled up by an eighth at the most
        own = self.objective(drawn, step * -(-m // step))
        with own.jax.enable_x64(self.dtype == np.float64):
            return replace(own, data=own.jax.tree_util.tree_map(own.jax.numpy.asarray, own.data))

    def sums(self, block: Block, x: Vector, sums: Sequence[Sum]) -> list[Any]:
        """Some sums at x over the rows of a block."""
        objective = self.objective(block, self.size)
        view = replace(objective.over(np.arange(block.rows)), whole=True)
        return answers(view.at(x), block, sums)


@dataclass(frozen=True, eq=False)
class ShardedSumPoint:
    """A sum over all rows of shards at one x."""

    means: Means

    def together(self, *sums: Sum) -> list[Any]:
        """Means of some sums (`tercet.objectives.sharded.sums`) in one pass."""
        return self.means.together(*sums)

    def first(self) -> tuple[float, Vector]:
        """f(x) and grad f(x)."""
        gradient = self.means.beside_f(Gradient())[0]
        return self.value(), gradient

    def value(self) -> float:
        """f(x)."""
        return self.means.value()

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.first()[1]

    def hessian(self) -> Matrix:
        """hess f(x)."""
        return np.asarray(self.means.beside_f(Hessian())[0])

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.means.product(order, vectors)

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.means.third_tensor(V)

    def scatter(self) -> Matrix:
        """The covariance of the gradients of single rows."""
        squares, mean = self.means.beside_f(Scatter(), Gradient())
        return np.asarray(squares - np.outer(mean, mean))
