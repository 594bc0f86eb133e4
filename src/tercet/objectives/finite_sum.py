"""`FiniteSum`: the mean over examples of any JAX function of parameters and one example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tercet.checks import plain_array, refuse_masked, whole
from tercet.objectives.base import Bound, Traits, digest, name_of
from tercet.objectives.jaxtools import flatten, import_jax, precision, told_at
from tercet.objectives.layers import Layers
from tercet.objectives.programs import compiled, traced
from tercet.once import once
from tercet.records import Matrix, Rows, Tensor, Vector
from tercet.shards import Shards

GROUPS = 16  # gradients come in this many groups of examples, whose spread is the sampling error
DENSE_LIMIT = 200
CPU_CHUNK, DEVICE_CHUNK = 1024, 1 << 16  # examples: a device is busy with many
COLUMNS, DEVICE_COLUMNS = (
    1 << 14,
    1 << 24,
)  # numbers of a Hessian's columns over a chunk: those of a CPU stay in its cache


class FiniteSum:
    """f(params) = (1/n) sum_i loss(params, *example_i) for a JAX function `loss` that returns a scalar.

    `params` is any pytree, given as x0 to `minimize`; `data` is an array or a tuple (pytree) of arrays with the
    examples along the first axis. Sums run over chunks of `chunk` examples, so that memory stays bounded and one
    compiled function serves every sample size (default: 1024 on a CPU, 65536 elsewhere). Arrays of JAX stay where they
    are. The precision is that of x0: float32 where it is float32, else float64.

    With `Shards` in place of data it runs out of core: an example is a row, its target and, where the shards have them,
    its weight, and `FiniteSum(loss, shards)` is a `tercet.objectives.sharded.ShardedFiniteSum`, which also takes
    `sample_bytes`.
    """

    def __new__(cls, loss: Any = None, data: Any = None, *settings: Any, **named: Any) -> Any:
        """Data in memory, or shards."""
        if not isinstance(data, Shards):
            return super().__new__(cls)
        from tercet.objectives.sharded.finite_sum import ShardedFiniteSum

        return ShardedFiniteSum(loss, data, *settings, **named)

    def __init__(self, loss: Callable[..., Any], data: Any, *, chunk: int | None = None):
        jax = import_jax("FiniteSum")
        if not callable(loss):
            raise ValueError(f"FiniteSum(loss={loss!r}): loss is a function loss(params, *example).")
        self.loss = loss
        self.data = data if isinstance(data, tuple) else (data,)
        self.on_cpu = platform_of(jax, self.data) == "cpu"
        default = CPU_CHUNK if self.on_cpu else DEVICE_CHUNK
        chunk = default if chunk is None else whole("FiniteSum", "chunk", chunk)
        leaves = [examples(leaf) for leaf in jax.tree_util.tree_leaves(self.data)]
        sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                f"FiniteSum(data=...): the arrays have {sorted(sizes)} examples along their first axis; "
                "all must have the same number, at least one."
            )
        for leaf in leaves:
            if leaf.dtype.kind == "f" and not all_finite(jax, leaf):
                raise ValueError("FiniteSum(data=...): data holds nan or inf; drop or fill those entries first.")
        self.n = sizes.pop()
        groups = -(-min(chunk, self.n) // GROUPS)
        self.chunk = GROUPS * groups
        self._compiled: dict[Any, tuple[Any, ChunkedKernels]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_compiled": {}}  # another process compiles for itself

    def fingerprint(self) -> dict[str, str]:
        """The loss's name and code, and the data."""
        jax = import_jax("FiniteSum")
        return {"loss": name_of(self.loss), "data": digest(*jax.tree_util.tree_leaves(self.data))}

    def bind(self, x0: Any) -> Bound:
        """Check the loss on one example, and compile it for the structure of x0."""
        jax = import_jax("FiniteSum")
        if x0 is None:
            raise ValueError("minimize(x0=None): a FiniteSum needs its parameters; pass params0.")
        dtype = precision(x0)
        start, unravel, restore = flatten(x0, dtype)
        structure = (jax.tree_util.tree_structure(x0), tuple(np.shape(a) for a in jax.tree_util.tree_leaves(x0)), dtype)
        if structure not in self._compiled:
            self._compiled[structure] = self.compile(unravel, start, dtype, told_at(jax, x0, self.loss))
        data, kernels = self._compiled[structure]
        return Bound(SumObjective(start.size, self.n, self.chunk, data, kernels, dtype, jax), start, restore)

    def compile(
        self, unravel: Callable[[Any], Any], start: Vector, dtype: np.dtype[Any], means: Any
    ) -> tuple[Any, ChunkedKernels]:
        """The data on the device and the compiled sums, for one structure of parameters."""
        jax = import_jax("FiniteSum")
        with jax.enable_x64(dtype == np.float64):
            data = jax.tree_util.tree_map(lambda leaf: jax.numpy.asarray(as_precision(leaf, dtype)), self.data)
            example = jax.tree_util.tree_map(lambda leaf: leaf[0], data)
            few = COLUMNS if self.on_cpu else DEVICE_COLUMNS
            loss = lambda x, *e: self.loss(unravel(x), *e)  # noqa: E731 (of a flat x)
            return data, kernels_of(jax, loss, start.size, dtype, example, self.chunk, few, means)


def kernels_of(
    jax: Any,
    loss: Callable[..., Any],
    d: int,
    dtype: np.dtype[Any],
    example: Any,
    chunk: int,
    columns: int,
    means: Any = None,
) -> ChunkedKernels:
    """The compiled sums of a loss of a flat x and one example, which serve for every program of the same text;
    ValueError where JAX cannot trace it, or where it gives no scalar."""
    x = jax.ShapeDtypeStruct((d,), dtype)
    try:
        program = traced(jax, loss, x, *example, means=means)
    except Exception as error:
        raise ValueError(
            "FiniteSum(loss=...): JAX could not trace loss(params, *example), "
            f"which raised {type(error).__name__}: {error}"
        ) from error
    shapes = [str(shape) for shape in program.closed.out_avals]
    if [shape.shape for shape in program.closed.out_avals] != [()]:
        raise ValueError(f"FiniteSum(loss=...): loss returns {shapes}, but one scalar per example is needed.")
    run, consts = program.runner(jax), program.consts
    key = None if program.key is None else ("sum", program.key, str(dtype), chunk, columns)
    return compiled(
        key,
        lambda: ChunkedKernels(jax, lambda x, *e: run(consts, x, *e), chunk, d, columns, Layers.of(jax, program, d)),
    )


def platform_of(jax: Any, data: Any) -> str:
    """Where the data is, or will be: cpu, gpu, ..."""
    own = [leaf for leaf in jax.tree_util.tree_leaves(data) if isinstance(leaf, jax.Array)]
    return next(iter(own[0].devices())).platform if own else jax.default_backend()


def all_finite(jax: Any, leaf: Any) -> bool:
    """Whether every entry is a number; of an array on a device found out there."""
    if not isinstance(leaf, jax.Array):
        return bool(np.all(np.isfinite(leaf)))
    return leaf.size == 0 or bool(np.isfinite(float(leaf.min())) and np.isfinite(float(leaf.max())))


def examples(leaf: Any) -> Any:
    """An array of data, complex ones too; ValueError for masked entries and for what holds no numbers."""
    if hasattr(leaf, "devices") and hasattr(leaf, "sharding") and leaf.dtype.kind in "fiubc":  # of JAX
        return leaf
    try:
        refuse_masked(leaf)
        array = np.asarray(leaf)
        return array if array.dtype.kind == "c" else plain_array(array)
    except (TypeError, ValueError) as error:
        raise ValueError(f"FiniteSum(data=...): this is no array of numbers ({error}).") from error


def as_precision(leaf: Any, dtype: np.dtype[Any]) -> Any:
    """Floating data in the precision of the parameters; integers stay as they are."""
    array = leaf if hasattr(leaf, "sharding") else np.asarray(leaf)
    return array.astype(dtype) if array.dtype.kind == "f" else array


class ChunkedKernels:
    """Compiled sums over index lists: value, value with gradient, Hessian and products, one compilation each.

    The index list always has the length of the padded data; how many of its chunks count is an argument, so that a
    growing sample compiles nothing new. Hessians take smaller chunks, whose d columns stay in the cache.
    """

    def __init__(
        self, jax: Any, loss: Callable[..., Any], chunk: int, d: int, columns: int, layers: Layers | None = None
    ):
        np_ = jax.numpy

        def chunk_sum(x: Any, batch: Any, mask: Any) -> Any:
            terms = jax.vmap(lambda *e: loss(x, *e))(*batch)
            return np_.sum(np_.where(mask, terms, 0.0))

        first = jax.value_and_grad(chunk_sum)

        def grouped(x: Any, batch: Any, mask: Any) -> Any:
            def fold(leaf: Any) -> Any:
                return leaf.reshape((chunk // GROUPS, GROUPS, *leaf.shape[1:])).swapaxes(0, 1)

            parts = jax.tree_util.tree_map(fold, batch)
            values, gradients = jax.vmap(lambda b, m: first(x, b, m))(parts, fold(mask))
            return np_.sum(values), gradients

        def hvp(x: Any, batch: Any, mask: Any, v: Any) -> Any:
            return jax.jvp(lambda p: jax.grad(chunk_sum)(p, batch, mask), (x,), (v,))[1]

        def tvp(x: Any, batch: Any, mask: Any, u: Any, v: Any) -> Any:
            return jax.jvp(lambda p: hvp(p, batch, mask, v), (x,), (u,))[1]

        def tensor(x: Any, batch: Any, mask: Any, V: Any) -> Any:
            zero = np_.zeros(V.shape[1], dtype=x.dtype)
            return jax.jacfwd(jax.hessian(lambda z: chunk_sum(x + V @ z, batch, mask)))(zero)

        add, zeros = partial(jax.tree_util.tree_map, np_.add), np_.zeros

        def summed(part: Callable[..., Any], start: Callable[..., Any], chunk: int = chunk) -> Any:
            def total(x: Any, data: Any, rows: Any, m: Any, *more: Any) -> Any:
                def body(k: Any, acc: Any) -> Any:
                    place = k * chunk + np_.arange(chunk)
                    index = jax.lax.dynamic_slice(rows, (k * chunk,), (chunk,))
                    batch = jax.tree_util.tree_map(lambda leaf: leaf[index], data)
                    return add(acc, part(x, batch, place < m, *more))

                return jax.lax.fori_loop(0, (m + chunk - 1) // chunk, body, start(x, *more))

            return jax.jit(total)

        self.value = summed(chunk_sum, lambda x: zeros((), x.dtype))
        self.first = summed(first, lambda x: (zeros((), x.dtype), zeros(d, x.dtype)))
        self.grouped = summed(grouped, lambda x: (zeros((), x.dtype), zeros((GROUPS, d), x.dtype)))
        if layers is None:
            few = small_chunk(chunk, d, columns)
            self.hessian = summed(jax.hessian(chunk_sum), lambda x: zeros((d, d), x.dtype), few)
        else:
            few = small_chunk(chunk, layers.units, columns)
            parts = summed(layers.sums, layers.nothing, few)
            self.hessian = jax.jit(lambda x, data, rows, m: layers.hessian(x, data, parts(x, data, rows, m)))
        self.hvp = summed(hvp, lambda x, v: zeros(d, x.dtype))
        self.tvp = summed(tvp, lambda x, u, v: zeros(d, x.dtype))
        self.scatter = summed(squares(jax, loss), lambda x: zeros((d, d), x.dtype))
        self.tensor = summed(tensor, lambda x, V: zeros((V.shape[1],) * 3, x.dtype))


def squares(jax: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of s_i s_i' over a chunk, s_i the gradient of one example."""

    def part(x: Any, batch: Any, mask: Any) -> Any:
        each = jax.vmap(lambda *e: jax.grad(loss)(x, *e))(*batch)
        kept = jax.numpy.where(mask[:, None], each, 0.0)
        return kept.T @ kept

    return part


def small_chunk(chunk: int, d: int, columns: int = COLUMNS) -> int:
    """The chunk halved, while it can be, until d columns of it are no more than so many numbers."""
    while chunk % 2 == 0 and chunk > GROUPS and chunk * d > columns:
        chunk //= 2
    return chunk


@dataclass(frozen=True, eq=False)
class SumObjective:
    """A finite sum over JAX of a flat vector."""

    d: int
    n: int
    chunk: int
    data: Any
    kernels: ChunkedKernels
    dtype: np.dtype[Any]
    jax: Any

    @property
    def traits(self) -> Traits:
        """A Hessian is a product for each variable, some of them at once."""
        of_any = sum_traits(self.d, "derivatives by JAX", float(np.finfo(self.dtype).eps))
        return replace(of_any, on_device=self.jax.default_backend() != "cpu")

    def over(self, rows: Rows | None) -> SumView:
        """The mean over the given examples."""
        index = np.arange(self.n) if rows is None else rows
        padded = np.zeros(-(-max(self.n, len(index)) // self.chunk) * self.chunk, dtype=np.int32)
        padded[: len(index)] = index
        with self.jax.enable_x64(self.dtype == np.float64):
            return SumView(self, self.jax.numpy.asarray(padded), len(index), rows is None)


def sum_traits(d: int, provenance: str, epsilon: float) -> Traits:
    """Of a sum by automatic differentiation: a Hessian is a product for each variable, some of them at once."""
    return Traits(dense=d <= DENSE_LIMIT, hessian_cost=max(2.0, d / 8), provenance=provenance, epsilon=epsilon)


@dataclass(frozen=True, eq=False)
class SumView:
    """The mean over some examples."""

    objective: SumObjective
    rows: Any
    terms: int
    whole: bool  # all examples, whose gradient has no sampling error

    def at(self, x: Vector, carry: None = None) -> SumPoint:
        """These examples at x."""
        return SumPoint(self, x)

    def call(self, name: str, x: Vector, *more: Any) -> Any:
        """One of the compiled sums, divided by the number of examples, as float64 NumPy."""
        o = self.objective
        with o.jax.enable_x64(o.dtype == np.float64):
            arrays = [np.asarray(a, dtype=o.dtype) for a in (x, *more)]
            total = getattr(o.kernels, name)(arrays[0], o.data, self.rows, self.terms, *arrays[1:])
            mean = [np.asarray(part, dtype=np.float64) / self.terms for part in o.jax.tree_util.tree_leaves(total)]
            return mean if len(mean) > 1 else mean[0]


@dataclass(frozen=True, eq=False)
class SumPoint:
    """A finite sum over some examples at one x."""

    view: SumView
    x: Vector

    @once
    def grouped(self) -> tuple[Any, Matrix]:
        """f(x), and sums of gradients over groups of examples, divided by the number of all."""
        value, gradients = self.view.call("grouped", self.x)
        return value, gradients

    def first(self) -> tuple[float, Vector]:
        """f(x) and its gradient: a value alone takes half as long, and nearly every point needs both."""
        if self.view.whole:
            value, gradient = self.view.call("first", self.x)
            return float(value), gradient
        return float(self.grouped[0]), np.sum(self.grouped[1], axis=0)

    def value(self) -> float:
        """f(x)."""
        return float(self.view.call("value", self.x))

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.first()[1]

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over the groups that are not empty."""
        m = self.view.terms
        return self.grouped[1][: min(GROUPS, m)] * m

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.view.call("hvp" if order == 2 else "tvp", self.x, *vectors)

    def hessian(self) -> Matrix:
        """hess f(x)."""
        return self.view.call("hessian", self.x)

    def scatter(self) -> Matrix:
        """The covariance of the gradients of single examples."""
        mean = self.gradient()
        return self.view.call("scatter", self.x) - np.outer(mean, mean)

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.view.call("tensor", self.x, V)
