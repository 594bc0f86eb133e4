"""Functions with NumPy callables for the derivatives that the user has; the others are made by central differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tercet.checks import plain_array
from tercet.domain import EVERYWHERE, Domain
from tercet.objectives.base import Priced, Traits, tensor_from_products
from tercet.objectives.differences import Differences, leads
from tercet.objectives.lengths import CENTRAL, EPS, Units, suspects
from tercet.objectives.secant import Secant, Seed, diagonal, recalled
from tercet.once import known, once
from tercet.records import Matrix, Rows, Tensor, Vector

FORMED_THIRD = 64  # up to this many variables the whole third derivative of a plain function is formed
DENSE_LIMIT = 1000
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
    told: Units | None = None  # of the variables, for differences
    n: int = 1
    terms: int = 1

    @property
    def traits(self) -> Traits:
        """What is formed, and which derivatives were given."""
        made = [kind for kind, names in KINDS.items() if not self.has(*names)]
        return Traits(
            dense=self.d <= DENSE_LIMIT and not (self.has("hvp") and self.d > FORMED_THIRD),
            forms_third=self.has("third") or (not self.secants and self.d <= FORMED_THIRD // 4),
            buys_third=not self.secants or self.has("third", "tvp"),
            blur=10.0 * EPS ** (2 / 3 if self.has("grad") else 1 / 2) if self.secants else 0.0,
            provenance="derivatives as given"
            + (f"; {', '.join(made)} by differences, good to fewer digits" if made else ""),
        )

    def clocked(self, look: Callable[[], None]) -> CallObjective:
        """Differences make many calls, and each of them looks at the clock."""
        return replace(self, look=look)

    def within(self, domain: Domain) -> CallObjective:
        """Differences call it in the domain only."""
        return replace(self, domain=domain)

    def knowing(self, units: Units) -> CallObjective:
        """Differences are measured in these units."""
        return replace(self, told=units)

    def over(self, rows: Rows | None) -> CallObjective:
        """There is one term."""
        return self

    @property
    def units(self) -> Vector:
        """Of the variables, for differences."""
        return np.ones(self.d) if self.told is None else self.told.units

    @property
    def secants(self) -> bool:
        """Whether B is made of gradients, save for certificates."""
        return self.d <= DENSE_LIMIT and not self.has("hess", "hvp")

    def seed(self) -> Seed | None:
        """For the first point of a run."""
        return Seed() if self.secants else None

    def recall(self, arrays: dict[str, Any]) -> Seed | Secant | Units:
        """The carry that gave these arrays."""
        return recalled(arrays)

    def at(self, x: Vector, carry: Seed | Secant | Units | None = None) -> CallPoint:
        """The function at x."""
        return CallPoint(self, x, None if isinstance(carry, Units) else carry)

    def has(self, *names: str) -> bool:
        """Whether the user gave one of these derivatives."""
        return not self.derivatives.keys().isdisjoint(names)

    def ask(self, name: str, x: Vector, *more: Vector, shape: tuple[int, ...]) -> Any:
        """One call of the user's function on copies, checked for its shape and copied before a buffer is used again."""
        self.look()
        call = self.fun if name == "fun" else self.derivatives[name]
        answer = call(x.copy(), *[v.copy() for v in more])
        if name not in SYMMETRIC and plainly(answer, shape):
            return answer if type(answer) is float else answer.copy()
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


def plainly(answer: Any, shape: tuple[int, ...]) -> bool:
    """Whether an answer needs no second look, as most: a float, or an array of them in the shape that is needed."""
    if type(answer) is float:
        return shape == ()
    return type(answer) is np.ndarray and answer.dtype == np.float64 and answer.shape == shape != ()


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

    def __init__(self, objective: CallObjective, x: Vector, given: Seed | Secant | None = None):
        self.objective, self.x, self.given = objective, x, given
        self.differences = Differences(objective)
        self.tensor: Tensor | None = None  # as the user gave it
        self.bend: Vector | None = None  # of f along the axes, where the gradient was made of values
        self.wider: dict[bytes, Vector | None] = {}  # products with B over longer differences, by what they are with

    def value(self) -> float | Priced[float]:
        """f(x)."""
        return Priced(self.f, value=0) if known(self, "f") else self.f

    @once
    def f(self) -> float:
        """f(x), asked for once."""
        return float(self.objective.ask("fun", self.x, shape=()))

    @once
    def g(self) -> Vector:
        """grad f(x): by forward differences where what was given tells that they are good enough."""
        o, given, make = self.objective, self.given, self.differences
        if o.has("grad"):
            return make.gradient(self.x)
        if self.leads:
            assert isinstance(given, Secant)
            return make.forward(self.x, self.paid("f"), np.diag(given.B))
        if not o.domain.bounded and (isinstance(given, Seed) or (given is None and known(self, "f"))):
            g, self.bend = make.bends(self.x, self.paid("f"), given is not None)
            return g
        return make.gradient(self.x)

    def know(self, value: float | None, gradient: Vector | None) -> None:
        """f(x) and its gradient, where they were paid for already."""
        for name, answer in (("f", value), ("g", gradient)):
            if answer is not None:
                setattr(self, name, answer)

    @once
    def leads(self) -> bool:
        """Whether the gradient is one of forward differences."""
        given, o = self.given, self.objective
        if not isinstance(given, Secant) or o.has("grad"):
            return False
        return leads(self.differences.sizes(self.x), given.f, given.g, np.diag(given.B))

    def gradient(self) -> Priced[Vector]:
        """grad f(x)."""
        new = not known(self, "g")
        return self.differences.priced(self.g.copy(), "gradient", int(new))

    @property
    def inexact(self) -> int:
        """The gradient where it is one of forward differences, else B where that is one of secants."""
        return 4 if self.given is None else 1 if self.leads else 2

    @property
    def carry(self) -> Seed | Secant | None:
        """B for a point nearby, where it is known or costs nothing."""
        if not self.objective.secants:
            return None
        if known(self, "f") and known(self, "g") and (isinstance(self.given, Secant) or known(self, "B")):
            return Secant(self.x, self.f, self.g, self.B, self.differences.told)
        return self.given or Seed()

    @once
    def B(self) -> Matrix:
        """hess f(x): of secants where something was given, else as the user has it, or by differences."""
        d, o, given = self.objective.d, self.objective, self.given
        if isinstance(given, Secant):
            return given.hessian(self.x, self.g)
        if given is not None:
            return begun(self)
        B = o.ask("hess", self.x, shape=(d, d)) if o.has("hess") else self.formed()
        return 0.5 * (B + B.T)

    def formed(self) -> Matrix:
        """hess f(x) by differences, exact as far as these go."""
        o, make = self.objective, self.differences
        return make.products(self.x) if o.has("grad", "hvp") else make.hessian(self.x, self.paid("f"))

    @property
    def strides(self) -> Vector:
        """To either side, those of the central differences that made the gradient; none where it is given."""
        return np.zeros(0) if self.objective.has("grad") else CENTRAL * self.differences.sizes(self.x)

    def drift(self, v: Vector) -> Vector:
        """By how much a Hessian of differences may be off, times v: what longer ones, of which third f(x)[v, v] was
        made, say of it, the shorter the less; 0 where none were."""
        wider = self.wider.get(v.tobytes())
        return np.zeros(len(v)) if wider is None else (wider - self.B @ v) * self.differences.shorter

    def paid(self, name: str) -> Any:
        """f or grad f(x), counted where nobody has asked for it before."""
        if not known(self, name) and (name == "f" or self.objective.has("grad")):
            self.differences.made["value" if name == "f" else "gradient"] += 1
        return getattr(self, name)

    def product(self, order: int, *vectors: Vector) -> Priced[Vector]:
        """hess f(x) v or third f(x)[u, v]."""
        if order == 3:
            return self.differences.priced(Third(self).along(*vectors), "third")
        (v,) = vectors
        if self.given is not None:
            return self.differences.priced(self.B @ v, "hessian", 0)
        Bv = self.B @ v if self.objective.has("hess") else self.differences.product(self.x, v)
        return self.differences.priced(Bv, "hessian")

    def hessian(self) -> Priced[Matrix]:
        """hess f(x); one of secants evaluates nothing."""
        return self.differences.priced(self.B.copy(), "hessian", 1 if self.given is None else 0)

    def third_tensor(self, V: Matrix) -> Priced[Tensor]:
        """third f(x) over the columns of V."""
        k = V.shape[1]
        return self.differences.priced(Third(self).over(V), "third", k * (k + 1) // 2)


def begun(point: CallPoint) -> Matrix:
    """B at the start of a run: from the values that made the gradient, or as strong as f bends along the gradient,
    which takes another one."""
    g, o = point.g, point.objective
    if point.bend is None and not o.has("grad") and not o.domain.bounded:  # the gradient was recalled
        point.bend = point.differences.bends(point.x, point.paid("f"), True)[1]
    make, x = point.differences, point.x
    if point.bend is None and o.has("grad") and suspects(point.paid("f"), np.abs(g) * make.sizes(x)).any():
        point.bend = np.array([make.search(x, j) for j in range(o.d)])
    if point.bend is not None:
        return diagonal(point.bend, make.sizes(x))
    s = -g * (CENTRAL * max(1.0, float(np.linalg.norm(x))) / max(float(np.linalg.norm(g)), 1e-300))
    s = o.domain.project(x + s) - x
    if not np.any(s):
        return np.eye(o.d)
    y = (make.counted("gradient", make.gradient) if o.has("grad") else make.gradient)(x + s) - g
    return diagonal(np.full(o.d, float(np.linalg.norm(y)) / float(np.linalg.norm(s))), np.ones(o.d))


@dataclass(frozen=True, eq=False)
class Third:
    """The third derivative at a point, as given or by differences."""

    point: CallPoint

    @property
    def given(self) -> Tensor:
        """third f(x) as the user has it, asked for once."""
        point = self.point
        if point.tensor is None:
            point.tensor = point.objective.ask("third", point.x, shape=(point.objective.d,) * 3)
        return point.tensor

    def along(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v]: as given, or the difference of Hessian products along u."""
        o = self.point.objective
        if o.has("tvp"):
            return o.ask("tvp", self.point.x, u, v, shape=(o.d,))
        if o.has("third"):
            return (self.given @ v) @ u
        if np.array_equal(u, v) and not o.has("hess", "hvp"):
            return self.square(u)
        return self.point.differences.third(self.point.x, u, v)

    def square(self, u: Vector) -> Vector:
        """third f(x)[u, u] by differences of gradients."""
        point = self.point
        bend, point.wider[u.tobytes()] = point.differences.square(point.x, point.paid("g"), u)
        return bend

    def polarized(self) -> Callable[[Vector, Vector], Vector]:
        """third f(x)[u, v] for many u and v: by T[u + v, u + v] = T[u, u] + 2 T[u, v] + T[v, v] where T is made of
        gradients."""
        if self.point.objective.has("hess", "hvp", "tvp"):
            return self.along
        squares: dict[bytes, Vector] = {}

        def square(u: Vector) -> Vector:
            if u.tobytes() not in squares:
                squares[u.tobytes()] = self.square(u)
            return squares[u.tobytes()]

        def product(u: Vector, v: Vector) -> Vector:
            return square(u) if np.array_equal(u, v) else 0.5 * (self.square(u + v) - square(u) - square(v))

        return product

    def over(self, V: Matrix) -> Tensor:
        """third f(x)[v_i, v_j, v_k] over the columns of V."""
        o = self.point.objective
        by_hessians = o.has("hess") and not o.has("tvp")
        if o.has("third"):
            return np.asarray(np.einsum("abc,ai,bj,ck->ijk", self.given, V, V, V, optimize=True))
        T = self.point.differences.tensor(self.point.x, V) if by_hessians else tensor_from_products(self.polarized(), V)
        return (T + T.transpose(1, 2, 0) + T.transpose(2, 0, 1)) / 3  # differences are symmetric only in part
