"""Plain functions of x: one term (n = 1), differentiated by JAX, or by the user and differences (`callables`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.objectives.base import Bound, Traits, as_start, digest, name_of
from tercet.objectives.callables import DENSE_LIMIT, FORMED_THIRD, CallObjective
from tercet.objectives.jaxtools import derivative_family, flatten, import_jax, precision, told_at
from tercet.objectives.programs import compiled, traced
from tercet.records import Matrix, Rows, Tensor, Vector


class Function:
    """A plain function f(x, *args), with the derivatives the user has; see `minimize`."""

    def __init__(self, fun: Callable[..., Any], args: Any = (), **derivatives: Callable[..., Any]):
        for name, call in derivatives.items():
            if not callable(call):
                raise ValueError(f"minimize({name}={call!r}): {name} must be a function.")
        for first, second in (("hess", "hvp"), ("third", "tvp")):
            if first in derivatives and second in derivatives:
                raise ValueError(f"minimize({first}=..., {second}=...): give one of the two, not both.")
        self.args = args if isinstance(args, tuple) else (args,)
        self.given = {"function": fun, **derivatives}
        self.fun, self.derivatives = fun, derivatives
        if self.args:
            self.fun = after(fun, self.args)
            self.derivatives = {name: after(call, self.args) for name, call in derivatives.items()}

    def fingerprint(self) -> dict[str, str]:
        """The names of the functions and digests of their code, and one of what they are called with beside x."""
        names = {name: name_of(call) for name, call in self.given.items()}
        return names | ({"args": f"{self.args!r:.200} {digest(*map(as_array, self.args))}"} if self.args else {})

    def bind(self, x0: Any) -> Bound:
        """By JAX where the function can be traced and no derivative is given, else by calls and differences."""
        if x0 is None:
            raise ValueError("minimize(x0=None): a plain function needs a start; pass x0.")
        if not self.derivatives:
            traced = self.trace(x0)
            if traced is not None:
                return traced
        x = as_start(x0)
        if x.ndim != 1 or x.size == 0 or not np.all(np.isfinite(x)):
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
        tree = as_start(x0) if isinstance(x0, list | tuple) else x0
        dtype = precision(tree)
        start, unravel, restore = flatten(tree, dtype)
        with jax.enable_x64(dtype == np.float64):
            try:
                flat = jax.ShapeDtypeStruct(start.shape, dtype)
                means = told_at(jax, tree, self.given["function"], *self.args)
                program = traced(jax, lambda x: self.fun(unravel(x)), flat, means=means)
            except Exception as error:
                if isinstance(tree, np.ndarray):
                    return None  # not a JAX function; if it is broken otherwise, its first call will tell
                raise ValueError(
                    f"minimize(problem=...): with x0 of type {type(x0).__name__} the function has to be one that "
                    f"JAX can trace, but it raised {type(error).__name__}: {error}"
                ) from error
        shapes = program.closed.out_avals
        if [shape.shape for shape in shapes] != [()]:
            given = ", ".join(str(shape) for shape in shapes)
            raise ValueError(f"minimize(problem=...): the function returns {given}, but a scalar is needed.")
        run = program.runner(jax)
        key = None if program.text is None else ("function", program.text, str(dtype))
        family = compiled(key, lambda: derivative_family(jax, lambda x, consts: run(consts, x)))
        return Bound(JaxObjective(start.size, family, program.consts, dtype, jax), start, restore)


def after(call: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """A function whose last arguments are settled."""
    return lambda *vectors: call(*vectors, *args)


def as_array(value: Any) -> Any:
    """What a digest is made of: an array of numbers, or of the characters of what it is called."""
    array = np.asarray(value)
    return array if array.dtype.kind in "biufc" else np.frombuffer(repr(value).encode(), dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class JaxObjective:
    """A JAX-traceable function as a sum of one term, which is its own view."""

    d: int
    family: dict[str, Callable[..., Any]]
    consts: tuple[Any, ...]  # the arrays that the function closes over
    dtype: np.dtype[Any]
    jax: Any
    n: int = 1
    terms: int = 1

    @property
    def traits(self) -> Traits:
        """B is formed up to a thousand variables, T up to 64."""
        formed = self.d <= FORMED_THIRD
        return Traits(
            dense=self.d <= DENSE_LIMIT,
            forms_third=formed,
            provenance="derivatives by JAX",
            epsilon=float(np.finfo(self.dtype).eps),
        )

    def over(self, rows: Rows | None) -> JaxObjective:
        """There is one term."""
        return self

    def at(self, x: Vector, carry: None = None) -> JaxPoint:
        """The function at x."""
        return JaxPoint(self, x)

    def call(self, name: str, *arrays: Any) -> Any:
        """One of the compiled functions, in the user's precision, as float64 NumPy."""
        with self.jax.enable_x64(self.dtype == np.float64):
            out = self.family[name](*(np.asarray(a, dtype=self.dtype) for a in arrays), self.consts)
            return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class JaxPoint:
    """A JAX function at one x."""

    objective: JaxObjective
    x: Vector

    def value(self) -> float:
        """f(x)."""
        return float(self.objective.call("value", self.x))

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.objective.call("gradient", self.x)

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.objective.call("hvp" if order == 2 else "tvp", self.x, *vectors)

    def hessian(self) -> Matrix:
        """hess f(x)."""
        return self.objective.call("hessian", self.x)

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.objective.call("tensor", self.x, V)
