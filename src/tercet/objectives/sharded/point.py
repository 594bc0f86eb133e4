"""A linear model over all rows of its shards at one x. Every answer is one pass; what is asked together is one, too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.objectives.base import Priced
from tercet.objectives.capabilities import Limits
from tercet.objectives.linear.bounds import GRAM_LIMIT, limits_of, steepest
from tercet.objectives.sharded.sums import (
    Gradient,
    Hessian,
    Limiting,
    Product,
    Scatter,
    Squares,
    Sum,
    ThirdRowSums,
    ThirdSpan,
    ThirdSpread,
    ThirdSquare,
    ThirdTensor,
    Value,
)
from tercet.records import Matrix, Tensor, Vector

if TYPE_CHECKING:
    from tercet.objectives.sharded.model import ShardedLinearModel


@dataclass(frozen=True, eq=False)
class ShardedView:
    """All rows of a sharded linear model."""

    model: ShardedLinearModel

    @property
    def terms(self) -> int:
        """The number of rows."""
        return self.model.n

    def at(self, x: Vector, carry: Any = None) -> ShardedPoint:
        """All rows at x."""
        return ShardedPoint(self.model, x)


@dataclass(eq=False)
class ShardedPoint:
    """A sharded linear model at one x. f comes with B and its products: a pass has the margins anyway."""

    model: ShardedLinearModel
    x: Vector
    mean: float | None = None  # of the loss, once it is known

    def together(self, *sums: Sum) -> list[Any]:
        """Means over all rows of some sums (`tercet.objectives.sharded.sums`), without the penalty, in one pass."""
        return [total / self.model.n for total in self.sweep(*sums)]

    def sweep(self, *sums: Sum) -> list[Any]:
        """Some sums over all rows."""
        model = self.model
        recipe = replace(model.recipe, factor=model.driver.factor())
        return model.driver.sweep(recipe, self.x, sums, lambda x: (model.penalty.value(x), model.penalty.gradient(x)))

    def beside_f(self, each: Sum) -> Any:
        """The mean of a sum, and with it, where it is not known yet, f."""
        if self.mean is not None:
            return self.together(each)[0]
        self.mean, answer = self.together(Value(), each)
        return answer

    def first(self) -> tuple[float, Vector]:
        """f(x) and grad f(x)."""
        gradient = self.beside_f(Gradient())
        return self.value(), gradient + self.model.penalty.gradient(self.x)

    def value(self) -> float:
        """(1/n) sum w_i l_i + penalty; at x = 0 it is known from the first pass."""
        if self.mean is None:
            self.mean = self.together(Value())[0] if self.x.any() else self.model.at_zero()
        return float(self.mean) + self.model.penalty.value(self.x)

    def gradient(self) -> Vector:
        """A'(w l')/n + p'."""
        return self.together(Gradient())[0] + self.model.penalty.gradient(self.x)

    def hessian(self) -> Matrix:
        """A' diag(w l'') A / n + diag(p'')."""
        B = self.beside_f(Hessian())
        B.ravel()[:: len(B) + 1] += self.model.penalty.curvature(self.x)
        return B

    def product(self, order: int, *vectors: Vector) -> Vector:
        """Bv, or T[u, v]."""
        penalty, (u, v) = self.model.penalty, (vectors[0], vectors[-1])
        rest = penalty.product(self.x, v) if order == 2 else penalty.third(self.x) * u * v
        return rest + self.beside_f(Product(order, vectors))

    def third_square(self, s: Vector) -> Priced[Vector]:
        """T[s, s] over the rows that bend along s."""
        sums = self.sweep(ThirdSquare(s))[0]
        rest = self.model.penalty.third(self.x) * s * s
        return Priced(sums[:-1] / self.model.n + rest, third=int(sums[-1]))

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        diagonal = self.model.penalty.third(self.x)
        return self.together(ThirdTensor(V))[0] + np.stack([V.T @ ((diagonal * v)[:, None] * V) for v in V.T])

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """A bound on |T[y]^3| over unit y in the span of V, from the lengths of the rows (`linear.bounds`)."""
        penalty = float(np.max(np.abs(self.model.penalty.third(self.x))))
        if V is None:
            return float(np.max(self.together(ThirdRowSums())[0])) + penalty
        if len(V) > GRAM_LIMIT:
            return float(np.linalg.norm(self.together(ThirdSpan(V))[0], 2)) + penalty
        gram = self.together(ThirdSpread(V @ V.T if tight else None))[0]
        return float(np.linalg.norm(V.T @ gram @ V, 2)) + penalty

    def limits(self, V: Matrix) -> Limits:
        """What holds of f for certain (`linear.bounds`); one pass."""
        model, top = self.model, steepest(self.model.recipe.own_loss())
        sums = self.sweep(Limiting(V, top))[0] if top < np.inf else None
        return limits_of(sums, model.n, model.penalty, self.x, V)

    def variance(self, order: int) -> float:
        """The variance of the terms' derivatives of one order (`linear.bounds`); one pass."""
        if order == 1:
            squares, mean = self.together(Squares(1), Gradient())
            return max(0.0, float(squares - mean @ mean))
        if order == 3:
            spread = self.together(Squares(3))[0]
        else:
            spread, B = self.together(Squares(2), Hessian())
            spread = spread - B @ B
        return max(0.0, float(np.linalg.eigvalsh((spread + spread.T) / 2)[-1]))

    def scatter(self) -> Matrix:
        """The covariance of the gradients of single rows."""
        squares, mean = self.together(Scatter(), Gradient())
        return squares - np.outer(mean, mean)
