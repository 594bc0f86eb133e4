"""`Residuals`: a sum of squares, or of a robust loss, that is given by its residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.checks import plain_array, refuse_masked, whole
from tercet.objectives.base import Bound, as_start, digest, name_of
from tercet.objectives.jaxtools import flatten, import_jax, precision, told_at
from tercet.objectives.layers import Layers
from tercet.objectives.programs import compiled, traced
from tercet.objectives.residuals.calls import CallResiduals
from tercet.objectives.residuals.outer import Outer
from tercet.objectives.residuals.traced import ResidualKernels, TracedResiduals
from tercet.records import Vector
from tercet.shards import Shards


class Residuals:
    """f(params) = (1/n) sum_i w_i sum_k rho(r_k(params, *example_i)) for a JAX function `residual`.

    `residual(params, *example)` gives a number or an array for one example; `params` is any pytree, given as x0 to
    `minimize`, and `data` an array or a tuple (pytree) of arrays with the examples along the first axis. `loss` is rho:
    squares (1/2 r^2), or, with a `scale` c beyond which a residual counts less, cauchy, welsch, geman_mcclure, soft_l1,
    arctan (as SciPy has them) or huber (c^2 log cosh(r/c), which is smooth). `weights` of the examples are normalized
    to mean one. `Residuals.of` takes functions of the whole vector of residuals, as SciPy's `least_squares` does.

    What is known beyond f and its derivatives is the Jacobian J of the residuals: steps are taken from a QR
    factorization of it, which keeps the digits that J'J loses.

    With `Shards` in place of data, and no weights, it runs out of core: an example is a row and its target, weights are
    those of the shards, and `Residuals(residual, shards)` is a `tercet.objectives.sharded.ShardedResiduals`, which also
    takes `sample_bytes`.
    """

    def __new__(
        cls, residual: Any = None, data: Any = None, loss: str = "squares", weights: Any = None, **named: Any
    ) -> Any:
        """Data in memory, or shards."""
        if not isinstance(data, Shards):
            return super().__new__(cls)
        if weights is not None:
            raise ValueError("Residuals(residual, shards, weights=...): shards have their own; leave them out.")
        from tercet.objectives.sharded.residuals import ShardedResiduals

        return ShardedResiduals(residual, data, loss, **named)

    def __init__(
        self,
        residual: Callable[..., Any],
        data: Any,
        loss: str = "squares",
        weights: Any = None,
        *,
        scale: float = 1.0,
        l2: Any = 0.0,
        chunk: int = 2048,
    ):
        jax = import_jax("Residuals")
        if not callable(residual):
            raise ValueError(f"Residuals(residual={residual!r}): residual is a function residual(params, *example).")
        self.chunk = whole("Residuals", "chunk", chunk)
        self.residual, self.loss = residual, Outer.of("Residuals", loss, scale)
        self.data = data if isinstance(data, tuple) else (data,)
        leaves = [examples(leaf) for leaf in jax.tree_util.tree_leaves(self.data)]
        sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                f"Residuals(data=...): the arrays have {sorted(sizes)} examples along their first axis; "
                "all must have the same number, at least one."
            )
        self.n = sizes.pop()
        self.weights = np.ones(self.n) if weights is None else check_weights(weights, self.n)
        self.l2 = check_l2(l2)

    @staticmethod
    def of(
        fun: Callable[..., Any],
        jac: Callable[..., Any] | None = None,
        *,
        loss: str = "squares",
        scale: float = 1.0,
    ) -> ResidualVector:
        """f(x) = sum_i rho(r_i(x)) for a function that gives the whole vector r(x), and perhaps its Jacobian.

        Without `jac` the function is differentiated by JAX where JAX can trace it, else by central differences. With
        `jac` both are NumPy callables, and second derivatives of r are differences of jac; the certificate says so.
        """
        return ResidualVector(fun, jac, loss, scale)

    def fingerprint(self) -> dict[str, str]:
        """The residual's name and code, the loss, the weights and the data."""
        jax = import_jax("Residuals")
        return {
            "residual": name_of(self.residual),
            "loss": repr(self.loss),
            "weights": digest(self.weights),
            "l2": digest(*(np.asarray(leaf, dtype=float) for leaf in jax.tree_util.tree_leaves(self.l2))),
            "data": digest(*jax.tree_util.tree_leaves(self.data)),
        }

    def bind(self, x0: Any) -> Bound:
        """Check the residual on one example, and compile it for the structure of x0."""
        jax = import_jax("Residuals")
        if x0 is None:
            raise ValueError("minimize(x0=None): Residuals need their parameters; pass params0.")
        dtype = precision(x0)
        start, unravel, restore = flatten(x0, dtype)

        def cast(leaf: Any) -> Any:
            array = np.asarray(leaf)
            return array.astype(dtype) if array.dtype.kind == "f" else array

        with jax.enable_x64(dtype == np.float64):
            data = jax.tree_util.tree_map(cast, self.data)
            example = jax.tree_util.tree_map(lambda leaf: leaf[0], data)

        def residual(x: Any, *e: Any) -> Any:
            return self.residual(unravel(x), *e)

        call = "Residuals(residual=...)"
        means = told_at(jax, x0, self.residual)
        width, kernels = kernels_of(jax, call, residual, self.loss, start, dtype, example, means)
        size = min(self.chunk, self.n)
        l2 = penalties(self.l2, x0, start.size)
        objective = TracedResiduals(
            start.size, self.n, width, size, data, self.weights, self.loss, kernels, dtype, jax, l2
        )
        return Bound(objective, start, restore)


def kernels_of(
    jax: Any,
    call: str,
    residual: Callable[..., Any],
    loss: Outer,
    start: Vector,
    dtype: np.dtype[Any],
    example: Any,
    means: Any = None,
) -> tuple[int, ResidualKernels]:
    """How many residuals an example has, and the compiled functions, which serve for every program of the same text."""
    with jax.enable_x64(dtype == np.float64):
        x = jax.ShapeDtypeStruct(start.shape, dtype)
        try:
            program = traced(jax, residual, x, *example, means=means)
        except Exception as error:
            raise ValueError(f"{call}: JAX could not trace it, it raised {type(error).__name__}: {error}") from error
        shapes = program.closed.out_avals
        if len(shapes) != 1 or shapes[0].dtype.kind != "f" or 0 in shapes[0].shape:
            raise ValueError(f"{call}: it returns {shapes}, but a number or an array of reals is needed.")
        width, consts = int(np.prod(shapes[0].shape)), program.consts
        run = program.runner(jax)

        def make() -> ResidualKernels:
            layers = Layers.of(jax, program, start.size) if shapes[0].shape == () else None
            return ResidualKernels(jax, lambda p, *e: run(consts, p, *e), loss, width, start.size, layers)

        key = None if program.key is None else ("residuals", program.key, loss, str(dtype))
        return width, compiled(key, make)


class ResidualVector:
    """Residuals as one function of x, see `Residuals.of`."""

    def __init__(self, fun: Any, jac: Any, loss: str, scale: float, traced: bool = True):
        for name, call in (("fun", fun), ("jac", jac)):
            if not (callable(call) or (name == "jac" and call is None)):
                raise ValueError(f"Residuals.of({name}={call!r}): {name} is a function of x.")
        self.fun, self.jac, self.loss = fun, jac, Outer.of("Residuals.of", loss, scale)
        self.traced = traced and jac is None  # where JAX can

    def fingerprint(self) -> dict[str, str]:
        """The names of the functions and digests of their code, and the loss."""
        jac = {} if self.jac is None else {"jac": name_of(self.jac)}
        return {"fun": name_of(self.fun), **jac, "loss": repr(self.loss)}

    def bind(self, x0: Any) -> Bound:
        """By JAX where the function can be traced and no Jacobian is given, else by calls and differences."""
        if x0 is None:
            raise ValueError("minimize(x0=None): Residuals.of(...) needs a start; pass x0.")
        if self.traced:
            traced = self.trace(x0)
            if traced is not None:
                return traced
        x = np.atleast_1d(as_start(x0))
        if x.ndim != 1 or x.size == 0 or not np.all(np.isfinite(x)):
            raise ValueError(
                f"minimize(x0=...): x0 has shape {x.shape} and dtype {x.dtype}; "
                "with NumPy callables it must be a vector of finite numbers."
            )
        start = x.astype(np.float64)
        first = np.asarray(self.fun(start.copy()))
        if first.ndim > 1 or first.dtype.kind not in "fiub" or first.size == 0:
            raise ValueError(
                f"Residuals.of(fun=...): fun returned {first.dtype} of shape {first.shape}; "
                "a vector of reals is needed."
            )
        return Bound(CallResiduals(start.size, first.size, self.fun, self.jac, self.loss), start, lambda v: v)

    def trace(self, x0: Any) -> Bound | None:
        """The function under JAX, as one example; None where JAX is absent or cannot trace it."""
        try:
            jax = import_jax("Residuals.of without jac")
        except ImportError:
            return None
        tree = as_start(x0) if isinstance(x0, list | tuple | float | int) else x0
        dtype = precision(tree)
        start, unravel, restore = flatten(tree, dtype)
        try:
            one = (np.zeros(1, dtype=dtype),)
            width, kernels = kernels_of(
                jax,
                "Residuals.of(fun=...)",
                lambda x, _: self.fun(unravel(x)),
                self.loss,
                start,
                dtype,
                one,
                told_at(jax, tree, self.fun),
            )
        except ValueError:
            if isinstance(tree, np.ndarray):
                return None  # not a JAX function; if it is broken otherwise, its first call will tell
            raise
        data = (np.zeros((1, 1), dtype=dtype),)
        objective = TracedResiduals(
            start.size, 1, width, 1, data, np.ones(1), self.loss, kernels, dtype, jax, np.zeros(start.size)
        )
        return Bound(objective, start, restore)


def check_l2(l2: Any) -> Any:
    """A number or a structure of numbers, at least 0 and finite."""
    for leaf in import_jax("Residuals").tree_util.tree_leaves(l2):
        if not np.all(np.isfinite(np.asarray(leaf, dtype=float)) & (np.asarray(leaf, dtype=float) >= 0)):
            raise ValueError(f"Residuals(l2={l2!r}): give a number, or a structure like x0, at least 0 and finite.")
    return l2


def penalties(l2: Any, x0: Any, d: int) -> Vector:
    """l2 of each variable; ValueError where it is neither a number nor like x0."""
    tree = import_jax("Residuals").tree_util
    leaves, own = tree.tree_leaves(l2), tree.tree_leaves(x0)
    if np.ndim(l2) == 0 and len(leaves) == 1:
        return np.full(d, float(leaves[0]))
    alike = tree.tree_structure(l2) == tree.tree_structure(x0)
    if not alike or [np.shape(a) for a in leaves] != [np.shape(a) for a in own]:
        raise ValueError("Residuals(l2=...): l2 is a number or has the structure and the shapes of x0.")
    return np.concatenate([np.asarray(leaf, dtype=np.float64).ravel() for leaf in leaves])


def examples(leaf: Any) -> NDArray[Any]:
    """An array of data; ValueError for masked entries, for nan, and for what holds no numbers."""
    try:
        refuse_masked(leaf)
        array = np.asarray(leaf)
        array = array if array.dtype.kind == "c" else plain_array(array)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Residuals(data=...): this is no array of numbers ({error}).") from error
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise ValueError("Residuals(data=...): data holds nan or inf; drop or fill those entries first.")
    return array


def check_weights(weights: Any, n: int) -> Vector:
    """Weights of length n, at least 0 and not all 0, normalized to mean one."""
    try:
        w = plain_array(weights).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"Residuals(weights=...): weights are no array of real numbers ({error}).") from error
    if w.shape != (n,):
        raise ValueError(f"Residuals(weights=...): weights have shape {w.shape}; give one per example, shape ({n},).")
    if not np.all(np.isfinite(w)) or np.any(w < 0) or not np.any(w > 0):
        raise ValueError("Residuals(weights=...): weights must be finite, at least 0, and not all 0.")
    w = w / np.max(w)
    return w / np.mean(w)
