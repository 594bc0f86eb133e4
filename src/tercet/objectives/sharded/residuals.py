"""`ShardedResiduals`: what `Residuals(residual, shards)` gives. Losses of residuals summed over shards, and their J."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import numpy as np

from tercet.checks import whole
from tercet.objectives.base import Bound, Priced, Traits, digest, name_of
from tercet.objectives.jaxtools import flatten, import_jax, precision
from tercet.objectives.residuals.linearized import Curve, Linearized
from tercet.objectives.residuals.outer import Outer
from tercet.objectives.residuals.points import LargePoint
from tercet.objectives.residuals.problem import check_l2, kernels_of, penalties
from tercet.objectives.residuals.traced import TracedResiduals, residual_traits
from tercet.objectives.sharded.driver import SAMPLE, Driver
from tercet.objectives.sharded.engine import Engine, Local
from tercet.objectives.sharded.sums import Gradient, Sum, remembered
from tercet.objectives.sharded.survey import Drawn
from tercet.objectives.sharded.traced import (
    Bend,
    Inspect,
    Means,
    Rest,
    Root,
    ShardedObjective,
    answers,
    check_dense,
    longest,
)
from tercet.records import Matrix, Tensor, Vector
from tercet.shards import Shards
from tercet.shards.layout import Block

BESIDE = 64  # up to this many variables a pass for f makes J, too, of which the gradient is made: QR takes d^2 a row


class ShardedResiduals:
    """f(params) = (1/n) sum_i w_i sum_k rho(r_k(params, x_i, y_i)) + 1/2 sum l2_j x_j^2 over the rows of `Shards`.

    `Residuals(residual, shards)` makes one. x_i is a row as a vector and y_i its target, both floating; weights are
    those of the shards, normalized to mean one. The other settings are those of `Residuals`. J is never kept: each
    block is reduced to a triangle by QR, and triangles are put together in the order of the shards.
    """

    def __init__(
        self,
        residual: Callable[..., Any],
        shards: Shards,
        loss: str = "squares",
        *,
        scale: float = 1.0,
        l2: Any = 0.0,
        chunk: int = 2048,
        sample_bytes: int = SAMPLE,
        engine: Engine | None = None,
    ):
        import_jax("Residuals")
        if not callable(residual):
            raise ValueError(f"Residuals(residual={residual!r}): residual is a function residual(params, x, y).")
        engine = Local(shards) if engine is None else engine
        check_dense("Residuals", engine.layout)
        self.chunk = min(whole("Residuals", "chunk", chunk), longest(engine.layout))
        self.residual, self.loss, self.l2 = residual, Outer.of("Residuals", loss, scale), check_l2(l2)
        self.driver = Driver.of("Residuals", engine, Inspect(weighs=True), sample_bytes)

    def fingerprint(self) -> dict[str, str]:
        """The residual's name and code, the loss, the penalty, digests of the shards, and the size of the sample."""
        leaves = import_jax("Residuals").tree_util.tree_leaves(self.l2)
        return {
            "residual": name_of(self.residual),
            "loss": repr(self.loss),
            "l2": digest(*(np.asarray(leaf, dtype=float) for leaf in leaves)),
            "data": self.driver.fingerprint(),
            "most": repr(self.driver.most),
        }

    def bind(self, x0: Any) -> Bound:
        """Check the residual on the shape of a row, and compile it for the structure of x0."""
        jax = import_jax("Residuals")
        if x0 is None:
            raise ValueError("minimize(x0=None): Residuals need their parameters; pass params0.")
        dtype = precision(x0)
        start, _, restore = flatten(x0, dtype)
        tree = jax.tree_util.tree_map(lambda leaf: np.zeros(np.shape(leaf), dtype), x0)
        recipe = ResidualRecipe(self.residual, tree, dtype, self.loss, self.chunk, self.driver.layout.columns)
        recipe.own()
        l2 = penalties(self.l2, x0, start.size)
        return Bound(ShardedObjective(start.size, self.driver.for_a_run(), ResidualKind(recipe, l2)), start, restore)


@dataclass(frozen=True, eq=False)
class ResidualRecipe:
    """How a block becomes sums of residuals, which a worker compiles for itself."""

    residual: Callable[..., Any]
    tree: Any  # parameters, for their structure
    dtype: np.dtype[Any]
    loss: Outer
    size: int  # rows of a batch
    columns: int
    factor: float = 1.0  # on the weights, so that their mean is one
    token: str = field(default_factory=lambda: uuid4().hex)

    def own(self) -> TracedResiduals:
        """The compiled functions of this process, without data."""
        return remembered(self.token, self.make)

    def make(self) -> TracedResiduals:
        """Trace the residual on the shape of a row; it is compiled when it is first used."""
        jax = import_jax("Residuals")
        start, unravel, _ = flatten(self.tree, self.dtype)
        example = tuple(jax.ShapeDtypeStruct(shape, self.dtype) for shape in ((self.columns,), ()))
        width, kernels = kernels_of(
            jax,
            "Residuals(residual=...)",
            lambda x, *e: self.residual(unravel(x), *e),
            self.loss,
            start,
            self.dtype,
            example,
        )
        d, none = start.size, np.zeros(0)
        return TracedResiduals(d, 0, width, self.size, None, none, self.loss, kernels, self.dtype, jax, np.zeros(d))

    def objective(self, rows: Block | Drawn) -> TracedResiduals:
        """Rows in memory as residuals, without a penalty."""
        weights = np.ones(len(rows.y)) if rows.w is None else self.factor * rows.w
        data = tuple(part.astype(self.dtype, copy=False) for part in (rows.X, rows.y))
        return replace(self.own(), data=data, weights=weights, n=len(rows.y))

    def sums(self, block: Block, x: Vector, sums: Sequence[Sum]) -> list[Any]:
        """Some sums at x over the rows of a block."""
        return answers(LargePoint(self.objective(block).over(None), x), block, sums)


@dataclass(frozen=True, eq=False)
class ResidualKind:
    """Residuals over shards with a penalty."""

    recipe: ResidualRecipe
    l2: Vector  # of each variable

    def traits(self, shards: int) -> Traits:
        """Those of residuals in memory."""
        how = f"derivatives of the residuals by JAX over {shards} shards"
        return residual_traits(len(self.l2), how, float(np.finfo(self.recipe.dtype).eps))

    def scales(self) -> None:
        """None: steps are measured by J."""

    def weighed(self, driver: Driver) -> ResidualRecipe:
        """The recipe, once the weights are known."""
        return replace(self.recipe, factor=driver.factor())

    def of_drawn(self, driver: Driver, drawn: Drawn) -> TracedResiduals:
        """Rows that were gathered, with the penalty."""
        return replace(self.weighed(driver).objective(drawn), l2=self.l2)

    def at(self, driver: Driver, x: Vector) -> ShardedResidualPoint:
        """All rows at x."""
        own = replace(self.recipe.own(), l2=self.l2)
        return ShardedResidualPoint(own, x, Means(driver, lambda: self.weighed(driver), x, self.l2))


@dataclass(eq=False)
class ShardedResidualPoint:
    """Residuals over all rows of shards at one x. What a pass found is remembered."""

    own: TracedResiduals  # with the penalty, without data
    x: Vector
    means: Means
    lines: Linearized | None = None  # once they are known, and so below
    remainder: Matrix | None = None

    def together(self, *sums: Sum) -> list[Any]:
        """Means of some sums (`tercet.objectives.sharded.traced`) in one pass, without the penalty."""
        return self.means.together(*sums)

    def value(self) -> float:
        """f(x)."""
        return self.means.value() + 0.5 * float((self.own.l2 * self.x) @ self.x)

    def first(self) -> tuple[float, Vector]:
        """f(x) and grad f(x); of few variables from J, which gives the step, too."""
        if self.own.d <= BESIDE:
            lines = self.root()
            return self.value(), lines.rows[:, :-1].T @ lines.rows[:, -1]
        gradient = self.means.beside_f(Gradient())[0]
        return self.value(), gradient + self.own.l2 * self.x

    def gradient(self) -> Priced[Vector]:
        """grad f(x); free where J is known, of which it is made."""
        free = self.lines is not None and self.own.d <= BESIDE
        return Priced(self.first()[1], gradient=0 if free else self.means.driver.layout.n)

    def lined(self, triangle: Any) -> Linearized:
        """With rows of the penalty."""
        return self.own.lines(triangle.rows, self.x)

    def root(self) -> Linearized:
        """A root of the Gauss-Newton matrix."""
        if self.lines is None:
            self.lines = self.lined(self.means.beside_f(Root())[0])
        return self.lines

    def linear(self, paid: bool = False) -> Priced[Linearized]:
        """The same; a gradient of each row, unless that was made of it."""
        free = self.lines is not None or (paid and self.own.d <= BESIDE)
        return Priced(self.root(), gradient=0 if free else self.means.driver.layout.n)

    def rest(self) -> Priced[Matrix]:
        """hess f(x) - root'root; one Hessian of each row, once, and J where it is not known."""
        n = self.means.driver.layout.n
        known, price = self.remainder is not None, 0 if self.lines is not None else n
        if self.remainder is None and self.lines is None:
            triangle, rest = self.means.beside_f(Root(), Rest())
            self.lines, self.remainder = self.lined(triangle), 0.5 * (rest + rest.T)
        elif self.remainder is None:
            rest = self.means.beside_f(Rest())[0]
            self.remainder = 0.5 * (rest + rest.T)
        return Priced(np.asarray(self.remainder), hessian=0 if known else n, gradient=price)

    def hessian(self) -> Priced[Matrix]:
        """hess f(x)."""
        rest = self.rest()
        return replace(rest, result=self.root().gram + rest.result)

    def curve(self, s: Vector) -> Curve:
        """r''[s, s]; one pass."""
        both = self.means.beside_f(Bend(s))[0]
        return Curve(both[:-2], float(both[-2]), float(both[-1]))

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        bent = self.means.product(order, vectors)
        return bent + self.own.l2 * vectors[0] if order == 2 else bent

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.means.third_tensor(V)
