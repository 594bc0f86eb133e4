"""The few things in which array libraries differ; every formula above is written once against what they share.

    elementwise arithmetic, `@`, slices, exp, log1p, abs, where, sqrt, sum, max, concat, stack

`Arrays` is a library together with a device and two precisions: that of the data, and the one sums are made in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from tercet.objectives.device.formulas import Formulas
    from tercet.objectives.device.losses import DeviceLoss

Array = Any  # of the user's library
ROWS = 1 << 20  # rows whose elementwise work is done at once: its temporaries are small beside the data
BUFFER = 1 << 26  # bytes of rows that are made at once, where the data is not dense
SHARE = 0.01  # of dense data this fraction is scaled or widened at once, or
LEAST = 1 << 24  # as many bytes, where that is more
BATCHES = 64  # products of pieces of rows that are made at once, where d x d alone would not fill a device
TILE = 128  # columns that one block of a matrix product has

LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "jaxlib": "JAX", "cupy": "CuPy", "cupyx": "CuPy"}


def library_of(X: Any) -> str | None:
    """The library of an array that is not NumPy's: torch, jax, cupy, or any with `__array_namespace__`; else None."""
    name = type(X).__module__.split(".")[0]
    if name in LIBRARIES:
        return {"jaxlib": "jax", "cupyx": "cupy"}.get(name, name)
    is_other = hasattr(X, "__array_namespace__") and not isinstance(X, np.ndarray | np.generic)
    return "other" if is_other and hasattr(X, "shape") else None


class Arrays(Protocol):
    """A library, a device, and precisions."""

    xp: Any  # the namespace of the library
    whole: bool  # elementwise formulas are compiled, or scattered over devices, and take all rows at once
    swept: float  # columns up to which a Gram matrix needs no second copy of the rows
    mixed: bool  # products take rows as they are stored, also where sums are wider
    accelerated: bool  # other processors than the host's do the work
    device: str  # in words
    data: np.dtype[Any]  # of X
    kind: np.dtype[Any]  # of sums, margins and coefficients

    def put(self, values: Any) -> Array:
        """A host array on the device, in the precision of sums."""
        ...

    def host(self, *arrays: Array) -> list[Any]:
        """Float64 NumPy arrays, all by one transfer."""
        ...

    def widen(self, A: Array) -> Array:
        """In the precision of sums; A itself where it is."""
        ...

    def times(self, A: Array, v: Array) -> Array:
        """Av in the precision of sums."""
        ...

    def weigh(self, c: Array, A: Array) -> Array:
        """A'c in the precision of sums."""
        ...

    def along(self, base: Array, t: float, ahead: Array) -> Array:
        """base + t ahead."""
        ...

    def rows(self, A: Array, rows: Any) -> Array:
        """Some rows of A, or entries of a vector, in the order given."""
        ...

    def numbers(self, rows: Any) -> Array:
        """Row numbers on the device."""
        ...

    def shuffled(self, n: int, seed: int) -> Array:
        """A random order of n rows; the same seed gives the same order on the same kind of device."""
        ...

    def expit(self, v: Array) -> Array:
        """1 / (1 + exp(-v))."""
        ...

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """work(number, *arrays), compiled for each number by a library that does so."""
        ...

    def total(self, v: Array) -> Array:
        """The sum of a vector, made in float64 where the library has it."""
        ...

    def join(self, parts: Sequence[Array]) -> Array:
        """Vectors one after the other."""
        ...

    def dealt(self, c: Array, A: Array, K: int) -> Array:
        """A'c split into K groups, to which the rows are dealt in turn: the sums over rows k, k + K, ... as row k."""
        ...

    def add_gram(self, total: Array | None, A: Array, c: Array) -> Array:
        """total + A' diag(c) A in batches, which `whole_gram` adds up; None is nothing."""
        ...

    def whole_gram(self, total: Array) -> Array:
        """The sum of the batches."""
        ...

    def kernels(self, loss: DeviceLoss) -> Formulas | None:
        """A kernel for each formula of a loss, where the device has a compiler that makes them; else None."""
        ...

    def free(self) -> int | None:
        """Bytes that can be had on the device; None: not known."""
        ...


def batches_of(d: int) -> int:
    """How many d x d products make a device busy."""
    return int(np.clip(4 * BATCHES // (-(-d // TILE)) ** 2, 1, BATCHES))


def fused_products(device: Any) -> Any:
    """The module that makes Gram matrices in one sweep, where a device of PyTorch is made for it; else None."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    from tercet.objectives.device import fused

    return fused if fused.serves(device) else None


def triton_formulas(device: Any, kind: Any, loss: DeviceLoss) -> Formulas | None:
    """The formulas of a loss as kernels for a device of PyTorch, where they can be made; else None."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    from tercet.objectives.device.rowwise import RowKernels

    return RowKernels.of(device, kind, loss.part)


class PlainArrays:
    """Any library that has the array API's `__array_namespace__`; also what the others are measured by."""

    whole = mixed = False
    swept = 0.0
    accelerated = False  # as far as is known

    def __init__(self, xp: Any, device: Any, data: Any, kind: Any):
        self.xp, self.place, self.device = xp, device, str(device)
        self.data, self.kind = np.dtype(data), np.dtype(kind)
        self.wide = getattr(xp, self.kind.name)

    def put(self, values: Any) -> Array:
        """A host array on the device, in the precision of sums."""
        return self.xp.asarray(np.asarray(values, dtype=self.kind), dtype=self.wide, device=self.place)

    def host(self, *arrays: Array) -> list[Any]:
        """Float64 NumPy arrays."""
        return [np.array(np.from_dlpack(a), dtype=np.float64) for a in arrays]

    def widen(self, A: Array) -> Array:
        """In the precision of sums."""
        return A if self.data == self.kind else self.xp.astype(A, self.wide)

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
        return self.xp.take(A, rows, axis=0)

    def numbers(self, rows: Any) -> Array:
        """Row numbers on the device."""
        return self.xp.asarray(np.asarray(rows, dtype=np.int64), device=self.place)

    def shuffled(self, n: int, seed: int) -> Array:
        """A random order of n rows."""
        return self.numbers(np.random.default_rng([seed, 0]).permutation(n))

    def expit(self, v: Array) -> Array:
        """1 / (1 + exp(-v)); where the exponential is beyond all numbers, 0."""
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + self.xp.exp(-v))

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself."""
        return work

    def total(self, v: Array) -> Array:
        """The sum of a vector, made in float64."""
        return self.xp.sum(v, dtype=self.xp.float64)

    def join(self, parts: Sequence[Array]) -> Array:
        """Vectors one after the other."""
        return self.xp.concat(list(parts))

    def dealt(self, c: Array, A: Array, K: int) -> Array:
        """A'c split into K groups."""
        starts = [min(k, int(c.shape[0])) for k in range(K)]
        return self.xp.stack([c[k::K] @ A[k::K, :] for k in starts])

    def add_gram(self, total: Array | None, A: Array, c: Array) -> Array:
        """total + A' diag(c) A."""
        G = A.T @ (A * c[:, None])
        return G if total is None else total + G

    def whole_gram(self, total: Array) -> Array:
        """It is whole."""
        return total

    def kernels(self, loss: DeviceLoss) -> Formulas | None:
        """There are none."""
        return None

    def free(self) -> int | None:
        """Not known."""
        return None


class TorchArrays:
    """PyTorch tensors, on any of its devices. Scaled rows go to one buffer, and products of them are batched."""

    whole = False

    def __init__(self, device: Any, data: Any, kind: Any):
        import torch

        self.xp: Any = torch
        self.place, self.device = device, str(device)
        self.data, self.kind = np.dtype(data), np.dtype(kind)
        self.wide = getattr(torch, self.kind.name)
        self.expit = torch.sigmoid
        self.accelerated = device.type != "cpu"
        self.sweep: Any = fused_products(device) if self.kind == np.float64 else None
        self.mixed = self.sweep is not None
        self.swept = np.inf if self.mixed else 0.0
        self.buffer: Any = None

    def put(self, values: Any) -> Array:
        """A host array on the device, in the precision of sums."""
        return self.xp.from_numpy(np.array(values, dtype=self.kind)).to(self.place)

    def host(self, *arrays: Array) -> list[Any]:
        """Float64 NumPy arrays, all by one transfer."""
        if len(arrays) == 1:
            return [arrays[0].to("cpu", self.xp.float64).numpy()]
        flat = self.xp.cat([a.reshape(-1).to(self.xp.float64) for a in arrays]).cpu().numpy()
        ends = np.cumsum([a.numel() for a in arrays])[:-1]
        return [part.reshape(tuple(a.shape)) for part, a in zip(np.split(flat, ends), arrays, strict=True)]

    def widen(self, A: Array) -> Array:
        """In the precision of sums."""
        return A.to(self.wide)

    def times(self, A: Array, v: Array) -> Array:
        """Av in the precision of sums."""
        return A @ v if A.dtype == v.dtype else self.sweep.times(A, v)

    def weigh(self, c: Array, A: Array) -> Array:
        """A'c in the precision of sums."""
        return c @ A if A.dtype == c.dtype else self.sweep.weigh(c, A)

    def along(self, base: Array, t: float, ahead: Array) -> Array:
        """base + t ahead."""
        return self.xp.add(base, ahead, alpha=t)

    def rows(self, A: Array, rows: Any) -> Array:
        """Some rows of A, or entries of a vector."""
        return self.xp.index_select(A, 0, rows)

    def numbers(self, rows: Any) -> Array:
        """Row numbers on the device."""
        return rows if self.xp.is_tensor(rows) else self.xp.from_numpy(np.array(rows, dtype=np.int64)).to(self.place)

    def shuffled(self, n: int, seed: int) -> Array:
        """A random order of n rows, by PyTorch's generator of the device."""
        stream = self.xp.Generator(device=self.place).manual_seed(seed)
        kind = self.xp.int32 if n < 2**31 else self.xp.int64
        return self.xp.randperm(n, generator=stream, device=self.place, dtype=kind)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself."""
        return work

    def total(self, v: Array) -> Array:
        """The sum of a vector, made in float64."""
        return self.xp.sum(v, dtype=self.xp.float64)

    def join(self, parts: Sequence[Array]) -> Array:
        """Vectors one after the other."""
        return self.xp.cat(list(parts))

    def dealt(self, c: Array, A: Array, K: int) -> Array:
        """A'c split into K groups."""
        q, d = len(c) // K, A.shape[1]
        left, right = c[: q * K].view(q, K).T[:, None, :], A[: q * K].view(q, K, d).transpose(0, 1)
        sums = self.xp.bmm(left, right)[:, 0, :]
        rest = len(c) - q * K
        if rest:
            sums[:rest] += c[q * K :, None] * A[q * K :]
        return sums

    def add_gram(self, total: Array | None, A: Array, c: Array) -> Array:
        """total + A' diag(c) A: d x d matrices of as many parts of the rows as make a device busy."""
        if self.sweep is not None:
            return self.sweep.add_gram(total, A, c)
        xp, (m, d), b = self.xp, A.shape, batches_of(A.shape[1]) if self.accelerated else 1
        total = xp.zeros((b, d, d), dtype=self.wide, device=self.place) if total is None else total
        k, rest = m // b, m % b
        scaled = xp.mul(A, c[:, None], out=self.room(m, d))
        if k:
            left, right = scaled[: b * k].view(b, k, d), A[: b * k].reshape(b, k, d)
            xp.baddbmm(total, left.transpose(1, 2), right, out=total)
        if rest:
            total[0].addmm_(scaled[b * k :].T, A[b * k :])
        return total

    def room(self, m: int, d: int) -> Array:
        """m x d numbers of the buffer, which is made once."""
        if self.buffer is None or self.buffer.numel() < m * d:
            self.buffer = None  # the old one goes before the new one comes
            self.buffer = self.xp.empty(m * d, dtype=self.wide, device=self.place)
        return self.buffer[: m * d].view(m, d)

    def whole_gram(self, total: Array) -> Array:
        """The sum of the batches."""
        return total.sum(0)

    def kernels(self, loss: DeviceLoss) -> Formulas | None:
        """In Triton."""
        return triton_formulas(self.place, self.wide, loss)

    def free(self) -> int | None:
        """What the driver says, and what PyTorch keeps in reserve."""
        if self.place.type != "cuda":
            return None
        cuda = self.xp.cuda
        reserve = cuda.memory_reserved(self.place) - cuda.memory_allocated(self.place)
        return int(cuda.mem_get_info(self.place)[0] + reserve)


class DeviceShuffle:
    """A shuffled order of n rows that lies on the device; nested samples are its beginnings."""

    def __init__(self, on: Arrays, n: int, seed: int):
        self.on, self.n, self.seed = on, n, seed
        self.order: Array | None = None

    def beginning(self, m: int) -> Array | None:
        """The first m rows of the order; None for all."""
        if m >= self.n:
            return None
        if self.order is None:
            self.order = self.on.shuffled(self.n, self.seed)
        return self.order[:m]

    def rest(self) -> None:
        """Let go of it; it is made again if it is asked for."""
        self.order = None
