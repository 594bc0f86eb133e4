"""Functions with NumPy callables for the derivatives that the user has; the others are made by central differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.checks import plain_array
from tercet.domain import EVERYWHERE, Domain
from tercet.objectives.base import Priced, Traits, tensor_from_products
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector

FORMED_THIRD = 64  # up to this many variables the whole third derivative of a plain function is formed
DENSE_LIMIT = 1000
EPS = float(np.finfo(float).eps)
SYMMETRIC = {"hess": 1e-3, "third": 1e-2}  # how far entries that are equal may differ, over the largest entry
KINDS = {"gradient": ("grad",), "Hessian": ("hess", "hvp"), "third derivative": ("third", "tvp")}


@dataclass(frozen=True, eq=False)
class CallObjective:
    """A function with callables as a sum of one term, which is its own view."""

    d: int
    fun: Callable[..., Any]
    derivatives: dict[str, Callable[..., Any]]
    look: Callable[[], None] = lambda: None  # at the clock, before each call
    domain: Domain = EVERYWHERE  # where it may be called
    n: int = 1
    terms: int = 1

    @property
    def traits(self) -> Traits:
        """What is formed, and which derivatives were given."""
        made = [kind for kind, names in KINDS.items() if not self.has(*names)]
        return Traits(
            dense=self.d <= DENSE_LIMIT and not (self.has("hvp") and self.d > FORMED_THIRD),
            forms_third=self.has("third") or self.d <= FORMED_THIRD // 4,
            provenance="derivatives as given"
            + (f"; {', '.join(made)} by differences, good to fewer digits" if made else ""),
        )

    def clocked(self, look: Callable[[], None]) -> CallObjective:
        """Differences make many calls, and each of them looks at the clock."""
        return replace(self, look=look)

    def within(self, domain: Domain) -> CallObjective:
        """Differences call it in the domain only."""
        return replace(self, domain=domain)

    def over(self, rows: Rows | None) -> CallObjective:
        """There is one term."""
        return self

    def at(self, x: Vector, carry: None = None) -> CallPoint:
        """The function at x."""
        return CallPoint(self, x)

    def has(self, *names: str) -> bool:
        """Whether the user gave one of these derivatives."""
        return any(name in self.derivatives for name in names)

    def ask(self, name: str, x: Vector, *more: Vector, shape: tuple[int, ...]) -> Any:
        """One call of the user's function on copies, checked for its shape and copied before a buffer is used again."""
        self.look()
        call = self.fun if name == "fun" else self.derivatives[name]
        answer = call(x.copy(), *(v.copy() for v in more))
        try:
            out = np.array(plain_array(answer), dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"{name} returned no array of real numbers ({error})") from error
        if name == "fun" and out.size == 1:
            return float(out.reshape(()))
        if out.shape != shape:
            raise ValueError(f"{name} returned shape {out.shape}, but {shape} is needed")
        if name in SYMMETRIC:
            check_symmetry(name, out)
        return out


def check_symmetry(name: str, D: Matrix | Tensor) -> None:
    """ValueError where a Hessian or a third derivative changes with the order of its indices, far above the rounding
    of formulas and differences. Entries that are not finite are left to who looks for them."""
    relative = SYMMETRIC[name]
    slack = relative * float(np.max(np.abs(D), initial=0.0)) + 0.01 * relative
    for axes in ((1, 0),) if D.ndim == 2 else ((1, 0, 2), (0, 2, 1)):
        with np.errstate(invalid="ignore", over="ignore"):
            off = np.abs(D - D.transpose(axes))
        if np.any(off > slack):  # never where slack is nan or inf
            place = np.unravel_index(int(np.argmax(off)), D.shape)
            other = tuple(int(place[axis]) for axis in axes)
            entry = tuple(int(i) for i in place)
            raise ValueError(
                f"{name} is not symmetric: entry {list(entry)} is {D[entry]:.6g}, but {list(other)} is {D[other]:.6g}"
            )


class CallPoint:
    """A function with callables at one x. An answer counts one of its order, and what differences took beside it."""

    def __init__(self, objective: CallObjective, x: Vector):
        self.objective, self.x = objective, x
        self.differences = Differences(objective)

    def value(self) -> float:
        """f(x)."""
        return self.objective.ask("fun", self.x, shape=())

    def gradient(self) -> Priced[Vector]:
        """grad f(x)."""
        return self.differences.priced(self.differences.gradient(self.x), "gradient")

    def product(self, order: int, *vectors: Vector) -> Priced[Vector]:
        """hess f(x) v or third f(x)[u, v]."""
        if order == 3:
            return self.differences.priced(self.third(*vectors), "third")
        (v,) = vectors
        Bv = self.formed @ v if self.objective.has("hess") else self.differences.product(self.x, v)
        return self.differences.priced(Bv, "hessian")

    @once
    def formed(self) -> Matrix:
        """hess f(x) as given, from products, or by differences."""
        d, o = self.objective.d, self.objective
        if o.has("hess"):
            B = o.ask("hess", self.x, shape=(d, d))
        else:
            B = np.stack([self.differences.product(self.x, e) for e in np.eye(d)])
            self.differences.made["hessian"] += d - 1 if o.has("hvp") else 0  # one of d products is counted already
        return 0.5 * (B + B.T)

    def hessian(self) -> Priced[Matrix]:
        """hess f(x)."""
        return self.differences.priced(self.formed.copy(), "hessian")

    @once
    def tensor(self) -> Tensor:
        """third f(x) as given."""
        return self.objective.ask("third", self.x, shape=(self.objective.d,) * 3)

    def third(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v]: as given, or the difference of Hessian products along u."""
        o = self.objective
        if o.has("tvp"):
            return o.ask("tvp", self.x, u, v, shape=(o.d,))
        return (self.tensor @ v) @ u if o.has("third") else self.differences.third(self.x, u, v)

    def third_tensor(self, V: Matrix) -> Priced[Tensor]:
        """third f(x) over the columns of V."""
        o, k = self.objective, V.shape[1]
        if o.has("third"):
            T = np.einsum("abc,ai,bj,ck->ijk", self.tensor, V, V, V, optimize=True)
        else:
            by_hessians = o.has("hess") and not o.has("tvp")
            T = self.differences.tensor(self.x, V) if by_hessians else tensor_from_products(self.third, V)
            T = (T + T.transpose(1, 2, 0) + T.transpose(2, 0, 1)) / 3  # differences are symmetric only in part
        return self.differences.priced(T, "third", k * (k + 1) // 2)


class Differences:
    """Derivatives by central differences of those that the user gave, at any x, and how many calls they took."""

    def __init__(self, objective: CallObjective):
        self.objective, self.made = objective, Counter[str]()

    def priced(self, result: Any, order: str, count: int = 1) -> Any:
        """A result that counts so many of its order, and what was made since the last one."""
        spent = self.made + Counter({order: count})
        self.made = Counter()
        return Priced(result, **spent)

    def gradient(self, x: Vector) -> Vector:
        """grad f: as given, or by differences of f."""
        o = self.objective
        if o.has("grad"):
            return o.ask("grad", x, shape=(o.d,))
        h = EPS ** (1 / 3) * np.maximum(1.0, np.abs(x))
        f = self.counted("value", lambda z: o.ask("fun", z, shape=()))
        return np.array([o.domain.difference(f, x, e, float(t)) for e, t in zip(np.eye(o.d), h, strict=True)])

    def counted(self, order: str, of: Callable[[Vector], Any]) -> Callable[[Vector], Any]:
        """A function whose calls count."""

        def call(z: Vector) -> Any:
            self.made[order] += 1
            return of(z)

        return call

    def product(self, x: Vector, v: Vector) -> Vector:
        """hess f v: as given, or by differences of the gradient (of f, where that is all there is)."""
        o = self.objective
        if o.has("hvp"):
            return o.ask("hvp", x, v, shape=(o.d,))
        if o.has("hess"):
            self.made["hessian"] += 1
            return o.ask("hess", x, shape=(o.d, o.d)) @ v
        length = float(np.linalg.norm(v))
        if length == 0.0:
            return np.zeros(o.d)
        # A gradient that is itself a difference carries an error near EPS^(2/3), so the step is the wider one.
        h = (EPS ** (1 / 3) if o.has("grad") else EPS ** (1 / 5)) * max(1.0, float(np.linalg.norm(x))) / length
        gradient = self.counted("gradient", self.gradient) if o.has("grad") else self.gradient
        return o.domain.difference(gradient, x, v, h)

    def third(self, x: Vector, u: Vector, v: Vector) -> Vector:
        """third f[u, v]: the difference of Hessian products along u."""
        o, length = self.objective, float(np.linalg.norm(u))
        if length == 0.0:
            return np.zeros(o.d)
        h = (EPS ** (1 / 3) if o.has("hess", "hvp") else EPS ** (1 / 5)) * max(1.0, float(np.linalg.norm(x))) / length

        def product(z: Vector) -> Vector:
            return self.product(z, v)

        return o.domain.difference(self.counted("hessian", product) if o.has("hvp") else product, x, u, h)

    def tensor(self, x: Vector, V: Matrix) -> Tensor:
        """third f over the columns of V by differences of Hessians, two for each; products would take two a pair."""
        o, h = self.objective, EPS ** (1 / 3) * max(1.0, float(np.linalg.norm(x)))
        hessian = self.counted("hessian", lambda z: o.ask("hess", z, shape=(o.d, o.d)))
        T = np.stack([V.T @ o.domain.difference(hessian, x, v, h) @ V for v in V.T])
        return (T + T.transpose(0, 2, 1)) / 2
