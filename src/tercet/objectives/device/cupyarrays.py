"""CuPy arrays: random orders and row numbers by CuPy itself, Gram matrices by a kernel or by its batched matmul."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.objectives.device import triangle
from tercet.objectives.device.arrays import Array, batches_of

if TYPE_CHECKING:
    from tercet.objectives.device.formulas import Formulas
    from tercet.objectives.device.losses import DeviceLoss


class CupyArrays:
    """CuPy arrays; row numbers and random orders by CuPy itself, batched products by its matmul."""

    whole = mixed = False
    accelerated = True

    def __init__(self, device: Any, data: Any, kind: Any):
        import cupy
        from cupyx.scipy.special import expit

        self.xp, self.place, self.device = cupy, device, f"cuda:{device.id}"
        self.data, self.kind, self.expit = np.dtype(data), np.dtype(kind), expit
        self.swept = float(triangle.MOST if kind == np.float64 and triangle.cupy_serves(device.id) else 0)
        self.buffer: Any = None

    def put(self, values: Any) -> Array:
        """A host array on the device, in the precision of sums."""
        with self.place:
            return self.xp.asarray(np.asarray(values, dtype=self.kind))

    def host(self, *arrays: Array) -> list[Any]:
        """Float64 NumPy arrays, all by one transfer."""
        flat = self.xp.concatenate([a.reshape(-1).astype(np.float64, copy=False) for a in arrays]).get()
        ends = np.cumsum([a.size for a in arrays])[:-1]
        return [part.reshape(a.shape) for part, a in zip(np.split(flat, ends), arrays, strict=True)]

    def widen(self, A: Array) -> Array:
        """In the precision of sums."""
        return A.astype(self.kind, copy=False)

    def times(self, A: Array, v: Array) -> Array:
        """Av."""
        return A @ v

    def weigh(self, c: Array, A: Array) -> Array:
        """A'c."""
        return c @ A

    def along(self, base: Array, t: float, ahead: Array) -> Array:
        """base + t ahead."""
        return base + t * ahead

    def rows(self, A: Array, rows: Any) -> Array:
        """Some rows of A, or entries of a vector."""
        return A[rows]

    def numbers(self, rows: Any) -> Array:
        """Row numbers on the device."""
        with self.place:
            return rows if isinstance(rows, self.xp.ndarray) else self.xp.asarray(np.asarray(rows, dtype=np.int64))

    def shuffled(self, n: int, seed: int) -> Array:
        """A random order of n rows, by CuPy's generator."""
        with self.place:
            return self.xp.random.RandomState(seed).permutation(n)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself."""
        return work

    def total(self, v: Array) -> Array:
        """The sum of a vector, made in float64."""
        return self.xp.sum(v, dtype=self.xp.float64)

    def join(self, parts: Sequence[Array]) -> Array:
        """Vectors one after the other."""
        return self.xp.concatenate(list(parts))

    def dealt(self, c: Array, A: Array, K: int) -> Array:
        """A'c split into K groups."""
        (m, d), xp = A.shape, self.xp
        q = m // K
        turns = (c[: q * K, None] * A[: q * K]).reshape(q, K * d)
        sums = xp.sum(turns, axis=0).reshape(K, d)
        if m > q * K:
            sums[: m - q * K] += c[q * K :, None] * A[q * K :]
        return sums

    def add_gram(self, total: Array | None, A: Array, c: Array) -> Array:
        """total + A' diag(c) A: d x d matrices of as many parts of the rows as make a device busy."""
        if A.shape[1] <= self.swept:
            return triangle.cupy_add_gram(total, A, c)
        (m, d), b = A.shape, batches_of(A.shape[1])
        k, rest = m // b, m % b
        if self.buffer is None or self.buffer.size < m * d:
            self.buffer = None  # the old one goes before the new one comes
            self.buffer = self.xp.empty(m * d, dtype=self.kind)
        scaled = self.xp.multiply(A, c[:, None], out=self.buffer[: m * d].reshape(m, d))
        parts = self.xp.matmul(scaled[: b * k].reshape(b, k, d).transpose(0, 2, 1), A[: b * k].reshape(b, k, d))
        if rest:
            parts[0] += scaled[b * k :].T @ A[b * k :]
        return parts if total is None else self.xp.add(total, parts, out=total)

    def whole_gram(self, total: Array) -> Array:
        """The sum of the batches."""
        return total.sum(axis=0)

    def kernels(self, loss: DeviceLoss) -> Formulas | None:
        """In CUDA."""
        from tercet.objectives.device.rawkernels import CupyKernels

        return CupyKernels.of(self.place, self.kind.name, loss.part)

    def free(self) -> int | None:
        """What the driver says, and what CuPy's pool keeps in reserve."""
        with self.place:
            return int(self.xp.cuda.runtime.memGetInfo()[0] + self.xp.get_default_memory_pool().free_bytes())
