"""Plain functions of x: one term (n = 1), differentiated by JAX, by the user, or by differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.objectives.base import Bound, name_of, tensor_from_products
from tercet.objectives.jaxtools import derivative_family, flatten, import_jax, precision
from tercet.records import Matrix, Rows, Tensor, Vector

FORMED_THIRD = 64  # up to this many variables the whole third derivative of a plain function is formed
DENSE_LIMIT = 1000
EPS = float(np.finfo(float).eps)


class Function:
    """A plain function f(x), with the derivatives the user has; see `minimize`."""

    def __init__(self, fun: Callable[..., Any], **derivatives: Callable[..., Any]):
        for name, call in derivatives.items():
            if not callable(call):
                raise ValueError(f"minimize({name}={call!r}): {name} must be a function.")
        for first, second in (("hess", "hvp"), ("third", "tvp")):
            if first in derivatives and second in derivatives:
                raise ValueError(f"minimize({first}=..., {second}=...): give one of the two, not both.")
        self.fun, self.derivatives = fun, derivatives

    def fingerprint(self) -> dict[str, str]:
        """The names of the functions and digests of their code."""
        return {name: name_of(call) for name, call in {"function": self.fun, **self.derivatives}.items()}

    def bind(self, x0: Any) -> Bound:
        """By JAX where the function can be traced and no derivative is given, else by calls and differences."""
        if x0 is None:
            raise ValueError("minimize(x0=None): a plain function needs a start; pass x0.")
        if not self.derivatives:
            traced = self.trace(x0)
            if traced is not None:
                return traced
        x = as_array(x0)
        if x.ndim != 1 or x.size == 0 or x.dtype.kind not in "fiub" or not np.all(np.isfinite(x)):
            raise ValueError(
                f"minimize(x0=...): x0 has shape {x.shape} and dtype {x.dtype}; "
                "with NumPy callables it must be a vector of finite numbers."
            )
        start = x.astype(np.float64)
        return Bound(CallObjective(start.size, self.fun, self.derivatives), start, lambda v: v)

    def trace(self, x0: Any) -> Bound | None:
        """The function under JAX; None where JAX is absent or cannot trace it."""
        try:
            jax = import_jax("A plain function without derivatives")
        except ImportError:
            return None
        tree = as_array(x0) if isinstance(x0, list | tuple) else x0
        dtype = precision(tree)
        start, unravel, restore = flatten(tree, dtype)
        with jax.enable_x64(dtype == np.float64):
            try:
                shape = jax.eval_shape(lambda x: self.fun(unravel(x)), jax.ShapeDtypeStruct(start.shape, dtype))
            except Exception as error:
                if isinstance(tree, np.ndarray):
                    return None  # not a JAX function; if it is broken otherwise, its first call will tell
                raise ValueError(
                    f"minimize(problem=...): with x0 of type {type(x0).__name__} the function has to be one that "
                    f"JAX can trace, but it raised {type(error).__name__}: {error}"
                ) from error
        if getattr(shape, "shape", None) != ():
            raise ValueError(f"minimize(problem=...): the function returns {shape}, but a scalar is needed.")
        family = derivative_family(jax, lambda x: self.fun(unravel(x)))
        return Bound(JaxObjective(start.size, family, dtype, jax), start, restore)


def as_array(x0: Any) -> NDArray[Any]:
    """x0 as an array, or a ValueError that names it."""
    try:
        return np.asarray(x0)
    except ValueError as error:
        raise ValueError(f"minimize(x0={x0!r}): x0 is not a rectangular array of numbers.") from error


@dataclass(frozen=True, eq=False)
class JaxObjective:
    """A JAX-traceable function as a sum of one term."""

    d: int
    family: dict[str, Callable[..., Any]]
    dtype: np.dtype[Any]
    jax: Any
    n: int = 1
    how: str = "derivatives by JAX"
    hessian_cost: float = 2.0

    @property
    def dense(self) -> bool:
        """Whether the Hessian is formed."""
        return self.d <= DENSE_LIMIT

    @property
    def forms_third(self) -> bool:
        """Whether the third derivative is formed."""
        return self.d <= FORMED_THIRD

    def over(self, rows: Rows | None) -> JaxObjective:
        """There is one term."""
        return self

    def settle(self, x: Vector) -> Vector:
        """x itself: nothing is known of directions that do not matter."""
        return x

    def recall(self, x: Vector, memento: dict[str, Any]) -> JaxPoint:
        """The point at x."""
        return self.at(x)

    def at(self, x: Vector, near: Any = None) -> JaxPoint:
        """The function at x."""
        return JaxPoint(self, x)

    def call(self, name: str, *arrays: Any) -> Any:
        """One of the compiled functions, in the user's precision, as float64 NumPy."""
        with self.jax.enable_x64(self.dtype == np.float64):
            out = self.family[name](*(np.asarray(a, dtype=self.dtype) for a in arrays))
            return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class JaxPoint:
    """A JAX function at one x."""

    objective: JaxObjective
    x: Vector
    terms: int = 1

    def value(self) -> float:
        """f(x)."""
        return float(self.objective.call("value", self.x))

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.objective.call("gradient", self.x)

    def gradient_errors(self) -> Matrix:
        """None: there is nothing to sample."""
        return np.zeros((1, len(self.x)))

    def hessian(self) -> Matrix:
        """hess f(x)."""
        return self.objective.call("hessian", self.x)

    def hessian_price(self) -> int:
        """One."""
        return 1

    def hessian_product(self, v: Vector) -> Vector:
        """hess f(x) v."""
        return self.objective.call("hvp", self.x, v)

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v]."""
        return self.objective.call("tvp", self.x, u, v)

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s]."""
        return self.third_product(s, s)

    def third_square_price(self, s: Vector) -> int:
        """One."""
        return 1

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.objective.call("tensor", self.x, V)

    def memento(self) -> dict[str, Any]:
        """Nothing: the point stands alone."""
        return {}

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """None is known."""
        return np.inf


@dataclass(frozen=True, eq=False)
class CallObjective:
    """A function with NumPy callables for the derivatives that the user has."""

    d: int
    fun: Callable[..., Any]
    derivatives: dict[str, Callable[..., Any]]
    n: int = 1
    hessian_cost: float = 2.0

    @property
    def how(self) -> str:
        """Which derivatives were given, and which were made by differences."""
        has = self.derivatives
        made = [
            name
            for name, given in (
                ("gradient", "grad"),
                ("Hessian", ("hess", "hvp")),
                ("third derivative", ("third", "tvp")),
            )
            if not any(g in has for g in ([given] if isinstance(given, str) else given))
        ]
        return "derivatives as given" + (f"; {', '.join(made)} by differences, good to fewer digits" if made else "")

    @property
    def dense(self) -> bool:
        """Whether the Hessian is formed."""
        return self.d <= DENSE_LIMIT and not ("hvp" in self.derivatives and self.d > FORMED_THIRD)

    @property
    def forms_third(self) -> bool:
        """Whether the third derivative is formed: it is where the user gives it."""
        return "third" in self.derivatives or self.d <= FORMED_THIRD // 4

    def over(self, rows: Rows | None) -> CallObjective:
        """There is one term."""
        return self

    def settle(self, x: Vector) -> Vector:
        """x itself: nothing is known of directions that do not matter."""
        return x

    def recall(self, x: Vector, memento: dict[str, Any]) -> CallPoint:
        """The point at x."""
        return self.at(x)

    def at(self, x: Vector, near: Any = None) -> CallPoint:
        """The function at x."""
        return CallPoint(self, x)

    def ask(self, name: str, x: Vector, *more: Vector, shape: tuple[int, ...]) -> Any:
        """One call of the user's function on copies, checked for its shape and copied before a buffer is used again."""
        call = self.fun if name == "fun" else self.derivatives[name]
        answer = np.asarray(call(x.copy(), *(v.copy() for v in more)))
        if answer.dtype.kind not in "fiubO":
            raise ValueError(f"{name} returned {answer.dtype}, but real numbers are needed")
        # An array of objects is taken entry by entry, so that None is an error and not nan.
        numbers = [float(entry) for entry in answer.ravel()] if answer.dtype.kind == "O" else answer
        out = np.array(numbers, dtype=np.float64).reshape(answer.shape)
        if name == "fun" and out.size == 1:
            return float(out.reshape(()))
        if out.shape != shape:
            raise ValueError(f"{name} returned shape {out.shape}, but {shape} is needed")
        return out


@dataclass(frozen=True, eq=False)
class CallPoint:
    """A function with NumPy callables at one x; what the user left out is made by central differences."""

    objective: CallObjective
    x: Vector
    terms: int = 1
    made: Counter[str] = field(default_factory=Counter)  # evaluations spent on differences

    def watch(self, look: Callable[[], None]) -> None:
        """Have the clock looked at before each call of the user's function."""
        self.__dict__["look"] = look

    def ask(self, name: str, x: Vector, *more: Vector, shape: tuple[int, ...]) -> Any:
        """One call of the user's function, unless the time is up."""
        self.__dict__.get("look", lambda: None)()
        return self.objective.ask(name, x, *more, shape=shape)

    def extra(self) -> dict[str, int]:
        """Evaluations of lower order that differences took since the last call."""
        spent = dict(self.made)
        self.made.clear()
        return spent

    def has(self, *names: str) -> bool:
        """Whether the user gave one of these derivatives."""
        return any(name in self.objective.derivatives for name in names)

    def value(self) -> float:
        """f(x)."""
        return self.ask("fun", self.x, shape=())

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.gradient_at(self.x)

    def gradient_at(self, x: Vector) -> Vector:
        """grad f at any x: as given, or by central differences of f."""
        d = self.objective.d
        if self.has("grad"):
            return self.ask("grad", x, shape=(d,))
        self.made["value"] += 2 * d
        h = EPS ** (1 / 3) * np.maximum(1.0, np.abs(x))
        f = [[self.ask("fun", x + sign * e, shape=()) for sign in (1.0, -1.0)] for e in np.diag(h)]
        return np.array([(up - down) for up, down in f]) / (2 * h)

    def gradient_errors(self) -> Matrix:
        """None: there is nothing to sample."""
        return np.zeros((1, len(self.x)))

    @cached_property
    def formed(self) -> Matrix:
        """hess f(x) as given, from products, or by differences."""
        d = self.objective.d
        if self.has("hess"):
            B = self.ask("hess", self.x, shape=(d, d))
        else:
            self.made["hessian"] += d - 1 if self.has("hvp") else 0  # d products, of which one is counted already
            B = np.stack([self.product_at(self.x, e) for e in np.eye(d)])
        return 0.5 * (B + B.T)

    def hessian(self) -> Matrix:
        """hess f(x)."""
        return self.formed.copy()

    def hessian_price(self) -> int:
        """One."""
        return 1

    def hessian_product(self, v: Vector) -> Vector:
        """hess f(x) v."""
        return self.formed @ v if self.has("hess") else self.product_at(self.x, v)

    def product_at(self, x: Vector, v: Vector) -> Vector:
        """hess f v at any x: as given, or by differences of the gradient (of f, where that is all there is)."""
        d = self.objective.d
        if self.has("hvp"):
            return self.ask("hvp", x, v, shape=(d,))
        if self.has("hess"):
            self.made["hessian"] += 1
            return self.ask("hess", x, shape=(d, d)) @ v
        length = float(np.linalg.norm(v))
        if length == 0.0:
            return np.zeros(d)
        # A gradient that is itself a difference carries an error near EPS^(2/3), so the step is the wider one.
        h = (EPS ** (1 / 3) if self.has("grad") else EPS ** (1 / 5)) * max(1.0, float(np.linalg.norm(x))) / length
        self.made["gradient"] += 2 if self.has("grad") else 0
        return (self.gradient_at(x + h * v) - self.gradient_at(x - h * v)) / (2 * h)

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v]: as given, or the difference of Hessian products along u."""
        d = self.objective.d
        if self.has("tvp"):
            return self.ask("tvp", self.x, u, v, shape=(d,))
        if self.has("third"):
            return (self.tensor @ v) @ u
        length = float(np.linalg.norm(u))
        if length == 0.0:
            return np.zeros(d)
        h = (
            (EPS ** (1 / 3) if self.has("hess", "hvp") else EPS ** (1 / 5))
            * max(1.0, float(np.linalg.norm(self.x)))
            / length
        )
        self.made["hessian"] += 2 if self.has("hvp") else 0
        return (self.product_at(self.x + h * u, v) - self.product_at(self.x - h * u, v)) / (2 * h)

    @cached_property
    def tensor(self) -> Tensor:
        """third f(x) as given."""
        d = self.objective.d
        return self.ask("third", self.x, shape=(d, d, d))

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s]."""
        return self.third_product(s, s)

    def third_square_price(self, s: Vector) -> int:
        """One."""
        return 1

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        if self.has("third"):
            return np.einsum("abc,ai,bj,ck->ijk", self.tensor, V, V, V, optimize=True)
        made = self.has("hess") and not self.has("tvp")
        T = self.tensor_from_hessians(V) if made else tensor_from_products(self.third_product, V)
        return (T + T.transpose(1, 2, 0) + T.transpose(2, 0, 1)) / 3  # differences are symmetric only in part

    def tensor_from_hessians(self, V: Matrix) -> Tensor:
        """The same from central differences of Hessians, two for each column; products would take two for each pair."""
        d, h = self.objective.d, EPS ** (1 / 3) * max(1.0, float(np.linalg.norm(self.x)))
        self.made["hessian"] += 2 * V.shape[1]
        pairs = [[self.ask("hess", self.x + sign * h * v, shape=(d, d)) for sign in (1.0, -1.0)] for v in V.T]
        T = np.stack([V.T @ ((up - down) / (2 * h)) @ V for up, down in pairs])
        return (T + T.transpose(0, 2, 1)) / 2

    def memento(self) -> dict[str, Any]:
        """Nothing: the point stands alone."""
        return {}

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """None is known."""
        return np.inf
