"""JAX arrays, on one device or scattered over a mesh: compiled functions of all rows at once.

Each is jit of plain operations on global arrays, so that XLA places sums where the rows lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from tercet.objectives.device.arrays import BUFFER, Array, batches_of


class JaxArrays:
    """JAX arrays; rows that lie on several devices stay there."""

    whole = True
    mixed = True
    swept = np.inf

    def __init__(self, X: Any, data: Any, kind: Any):
        import jax

        self.jax, self.xp = jax, jax.numpy
        self.expit, self.join = jax.nn.sigmoid, jax.numpy.concatenate
        self.data, self.kind = np.dtype(data), np.dtype(kind)
        self.devices = sorted(X.devices(), key=lambda each: each.id)
        self.parts = parts_of(X)
        names = sorted({each.platform for each in self.devices})
        self.accelerated = names != ["cpu"]
        self.device = f"{'/'.join(names)}:{','.join(str(each.id) for each in self.devices)}"
        self.gram, self.groups, self.times, self.weigh, self.along = compiled_sums(self.kind.name)

    def put(self, values: Any) -> Array:
        """A host array, wherever it is needed."""
        return self.jax.device_put(np.asarray(values, dtype=self.kind))

    def host(self, *arrays: Array) -> list[Any]:
        """Float64 NumPy arrays, all by one transfer."""
        return [np.array(a, dtype=np.float64) for a in self.jax.device_get(arrays)]

    def widen(self, A: Array) -> Array:
        """In the precision of sums."""
        return A.astype(self.kind)

    def rows(self, A: Array, rows: Any) -> Array:
        """Some rows of A, or entries of a vector."""
        return self.xp.take(A, rows, axis=0)

    def numbers(self, rows: Any) -> Array:
        """Row numbers on the device."""
        return rows if isinstance(rows, self.jax.Array) else self.xp.asarray(np.asarray(rows))

    def shuffled(self, n: int, seed: int) -> Array:
        """A random order of n rows, by JAX's generator."""
        return self.jax.random.permutation(self.jax.random.key(seed), n)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """work(number, *arrays), compiled for each number."""
        return self.jax.jit(work, static_argnums=0)

    def __hash__(self) -> int:
        return hash((JaxArrays, self.kind))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JaxArrays) and self.kind == other.kind

    def total(self, v: Array) -> Array:
        """The sum of a vector, made in float64 where that is switched on."""
        return self.xp.sum(v, dtype=np.float64 if self.jax.config.jax_enable_x64 else None)

    def dealt(self, c: Array, A: Array, K: int) -> Array:
        """A'c split into K groups."""
        return self.groups(c, A, K)

    def add_gram(self, total: Array | None, A: Array, c: Array) -> Array:
        """total + A' diag(c) A."""
        parts = self.parts if A.shape[0] % self.parts == 0 else 1
        several = parts if parts > 1 else min(batches_of(A.shape[1]), A.shape[0])
        G = self.gram(A, c, several, max(1, BUFFER // (8 * several * A.shape[1])))
        return G if total is None else total + G

    def whole_gram(self, total: Array) -> Array:
        """It is whole."""
        return total

    def kernels(self, loss: Any) -> None:
        """XLA makes them."""
        return None

    def free(self) -> int | None:
        """What the first device has left; None where it does not say."""
        stats = self.devices[0].memory_stats() or {}
        return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None


@cache
def compiled_sums(kind: str) -> tuple[Callable[..., Any], ...]:
    """`gram`, `groups`, the products with A and A', and `along`, compiled once for all models."""
    import jax

    np_ = jax.numpy
    by_steps = jax.jit(partial(gram, jax, np.dtype(kind)), static_argnums=(2, 3))
    by_groups = jax.jit(partial(groups, np_), static_argnums=2)
    return by_steps, by_groups, jax.jit(partial(times, np_)), jax.jit(partial(weigh, np_)), jax.jit(along)


def times(np_: Any, A: Any, v: Any) -> Any:
    """Av; narrow rows are widened within the sum, without a copy."""
    return A @ v if A.dtype == v.dtype else np_.sum(A.astype(v.dtype) * v, axis=1)


def weigh(np_: Any, c: Any, A: Any) -> Any:
    """A'c; narrow rows are widened within the sum, without a copy."""
    return c @ A if A.dtype == c.dtype else np_.sum(A.astype(c.dtype) * c[:, None], axis=0)


def parts_of(X: Any) -> int:
    """Into how many pieces of equal size the rows of X are dealt out to devices."""
    places = X.sharding.devices_indices_map(X.shape).values()
    return len({(place[0].start, place[0].stop) for place in places})


def gram(jax: Any, kind: np.dtype[Any], A: Any, c: Any, parts: int, step: int) -> Any:
    """A' diag(c) A; each of the parts of the rows in steps, so that no second array of the size of A is made."""
    np_, lax, (n, d) = jax.numpy, jax.lax, A.shape
    r = n // parts
    step = min(step, max(r, 1))
    whole, weights = A[: parts * r].reshape(parts, r, d), c[: parts * r].reshape(parts, r)

    def product(rows: Any, some: Any) -> Any:
        rows = rows.astype(kind)
        return np_.einsum("kij,kil->kjl", rows * some[..., None], rows)

    def add(i: Any, total: Any) -> Any:
        rows = lax.dynamic_slice_in_dim(whole, i * step, step, axis=1)
        return total + product(rows, lax.dynamic_slice_in_dim(weights, i * step, step, axis=1))

    done = (r // step) * step
    total = lax.fori_loop(0, r // step, add, np_.zeros((parts, d, d), dtype=kind))
    if done < r:
        total = total + product(whole[:, done:], weights[:, done:])
    G = np_.sum(total, axis=0)
    if parts * r < n:
        rest = A[parts * r :].astype(kind)
        G = G + (rest * c[parts * r :, None]).T @ rest
    return G


def groups(np_: Any, c: Any, A: Any, K: int) -> Any:
    """A'c split into K groups, to which the rows are dealt in turn."""
    q = c.shape[0] // K
    sums = np_.einsum("qk,qkd->kd", c[: q * K].reshape(q, K), A[: q * K].reshape(q, K, A.shape[1]))
    rest = c.shape[0] - q * K
    return sums.at[:rest].add(c[q * K :, None] * A[q * K :]) if rest else sums


def along(base: Any, t: Any, ahead: Any) -> Any:
    """base + t ahead."""
    return base + t * ahead
