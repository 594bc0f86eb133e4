"""Many fits of a JAX model together: JAX tells f and its derivatives, `tercet.fitting.steps` does the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.fitting import steps
from tercet.fitting.batch import LEAST, BatchKernels
from tercet.fitting.curve import Difference, Fit, numbers
from tercet.objectives.jaxtools import import_jax
from tercet.objectives.meaning import meaning
from tercet.objectives.programs import compiled, traced
from tercet.records import Matrix, Status, Tensor, Vector

DIGITS = 16.0
WELL = 1e-3  # a pivot of J'J with its diagonal scaled to 1: no more than six of sixteen digits are lost
TAIL = 32  # curves that are left over
AGAIN = 3  # steps of Newton's at the most
HELD = 1 << 22  # numbers of ydata that are fitted at a time


@dataclass(frozen=True, eq=False)
class Found:
    """What is known of each curve; filled in part by part."""

    popt: Matrix
    pcov: Tensor
    status: NDArray[np.object_]
    digits: Vector
    cost: Vector
    iterations: NDArray[np.intp]

    @staticmethod
    def blank(start: Matrix) -> Found:
        """Nothing yet."""
        (K, d), unknown = start.shape, np.full(len(start), np.nan)
        pcov, status = np.full((K, d, d), np.inf), np.full(K, Status.INTERRUPTED, dtype=object)
        return Found(start.copy(), pcov, status, unknown, unknown.copy(), np.zeros(K, np.intp))

    def one(self, k: int, fit: Fit) -> None:
        """A curve that was fitted alone."""
        self.popt[k], self.pcov[k], self.status[k] = fit.popt, fit.pcov, fit.result.status
        self.digits[k], self.cost[k] = fit.digits, fit.result.fun
        self.iterations[k] += fit.result.nit


@dataclass(frozen=True, eq=False)
class Batch:
    """A JAX model with many curves."""

    jax: Any
    kernels: BatchKernels
    x: Any
    y: Matrix
    weigh: Matrix

    @staticmethod
    def of(f: Callable[..., Any], x: Any, y: Matrix, weigh: Matrix, start: Matrix) -> Batch | None:
        """None where JAX is absent or cannot trace f."""
        if not numbers(x):
            return None
        d = start.shape[1]
        try:
            jax = import_jax("curve_fit_many")
            with jax.enable_x64(True):
                one = tuple(jax.ShapeDtypeStruct((), np.float64) for _ in range(d))
                first = (x, y[0], weigh[0] if weigh.ndim == 2 else weigh)
                program = traced(jax, Difference(f), one, *first, means=meaning(Difference(f)))
        except Exception:
            return None
        if [shape.shape for shape in program.closed.out_avals] != [y.shape[1:]]:
            return None
        run, consts = program.runner(jax), program.consts
        key = None if program.key is None else ("many", program.key)
        kernels = compiled(key, lambda: BatchKernels(jax, lambda p, *e: run(consts, p, *e), d, y.shape[1]))
        return Batch(jax, kernels, x, y, weigh)

    def run(self, out: Found, most: int, absolute: bool) -> bool:
        """As many curves at a time as memory holds; False where that was interrupted."""
        (K, m), size = self.y.shape, self.kernels.block
        held = max(size, HELD // m // size * size)
        with self.jax.enable_x64(True):
            for first in range(0, K, held):
                rows = slice(first, min(first + held, K))
                weigh = self.weigh[rows] if self.weigh.ndim == 2 else self.weigh
                part = Part.of(self, self.y[rows], weigh, out.popt[rows])
                try:
                    part.fill(out, rows, most, absolute)
                except KeyboardInterrupt:
                    part.leave(out, rows)
                    return False
        return True


@dataclass(frozen=True, eq=False)
class Part:
    """Curves that are fitted together: every array has a column for each, and some more: few sizes are compiled."""

    batch: Batch
    data: Any
    count: int
    start: Matrix
    p: Matrix  # where they are now
    known: Matrix  # f, g and J'J there

    @staticmethod
    def of(batch: Batch, y: Matrix, weigh: Matrix, start: Matrix) -> Part:
        """The data go to JAX once."""
        (K, d), size, put = start.shape, batch.kernels.block, batch.jax.device_put
        # A row more or less than a power of two, or the rows of an array would get in each other's way in the cache.
        columns = roomy(-(-K // size)) * size + LEAST
        fill = columns - K
        w = np.pad(weigh, ((0, fill), (0, 0)), mode="edge") if weigh.ndim == 2 else weigh
        shared = (put(batch.x), put(np.pad(y, ((0, fill), (0, 0)))), put(w))
        first = np.pad(start.T, ((0, 0), (0, fill)))
        return Part(batch, shared, K, first, first.copy(), np.full((1 + d + d * (d + 1) // 2, columns), np.nan))

    @property
    def d(self) -> int:
        """Parameters."""
        return len(self.p)

    def ask(self, call: Callable[..., Any], given: Matrix, index: NDArray[np.int32]) -> Matrix:
        """What a kernel tells of some curves, the first of `given`."""
        left, size = len(index), min(self.batch.kernels.block, given.shape[1])
        count = -(-left // size)
        full = np.zeros(given.shape[1], dtype=np.int32)
        full[:left] = index
        given[:, left : count * size] = given[:, :1]
        return np.asarray(call(count, given, full, self.data))

    def room(self, rows: int) -> Matrix:
        """Zeros."""
        return np.zeros((rows, self.p.shape[1]))

    def walk(self, most: int) -> NDArray[np.intp]:
        """Levenberg-Marquardt steps until there is nothing more to do; how many for each curve."""
        kernels, p, known, d = self.batch.kernels, self.p, self.known, self.d
        look = kernels.look
        trial, index, walk = p.copy(), np.arange(self.count, dtype=np.int32), self.room(d + 4)
        index = index[: steps.begin(self.ask(look, trial, index), index, known, walk)]
        index = index[: steps.advance(trial, trial, index, p, known, walk, True, most)]
        while index.size and most:
            looked = self.ask(look, trial, index)
            index = index[: steps.advance(trial, looked, index, p, known, walk, False, most)]
            if index.size <= TAIL < trial.shape[1]:  # the last ones have a kernel of their own, without so much room
                trial, look = trial[:, :TAIL].copy(), kernels.look_at_few
        return walk[d + 3, : self.count].astype(np.intp)

    def certify(self) -> Matrix:
        """Newton's steps, up to three, and what is certain of each curve then (`steps.conclude`)."""
        kernels, p, known, d = self.batch.kernels, self.p, self.known, self.d
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=d)
        found, index = self.room(4 + d * (d + 1) // 2), np.arange(self.count, dtype=np.int32)
        trial, beside, way, told = self.room(d), self.room(d), self.room(2 * d), self.room(4 + 5 * d + len(found))
        for _ in range(AGAIN):
            if not index.size:
                break
            trial[:, : index.size] = p[:, index]
            rest = self.ask(kernels.rest, trial, index).copy()
            steps.newton(index, p, known, rest, trial)
            looked = self.ask(kernels.look, trial, index)
            steps.arrive(trial, looked, index, p, known, rest, self.start, signs, beside)
            sloped = self.ask(kernels.look, beside, index)
            steps.survey(index, p, known, rest, beside, sloped, signs, way, told)
            bend = self.ask(kernels.bend, way, index)
            steps.conclude(index, p, known, told, beside, bend, self.start, found)
            index = index[found[1, index] > 0.0]
        return found[:, : self.count]

    def fill(self, out: Found, where: slice, most: int, absolute: bool) -> None:
        """The fits of these curves."""
        out.iterations[where] = self.walk(most)
        found = self.certify()
        self.leave(out, where)
        rows = np.flatnonzero(found[0])
        status = np.full(self.count, Status.NOT_CERTIFIED, dtype=object)
        status[out.iterations[where] >= most] = Status.MAX_ITERATIONS
        status[~np.isfinite(self.known[:, : self.count]).all(axis=0)] = Status.NOT_FINITE
        status[rows] = Status.CERTIFIED
        out.status[where], out.digits[where] = status, right_digits(found[2])
        out.pcov[where.start + rows] = self.covariances(found, rows, absolute)

    def leave(self, out: Found, where: slice) -> None:
        """As far as they came."""
        out.popt[where], out.cost[where] = self.p[:, : self.count].T, self.known[0, : self.count]

    def covariances(self, found: Matrix, rows: NDArray[np.intp], absolute: bool) -> Tensor:
        """s^2 (J'J)^-1; by the singular values of J where J'J would lose more than a few digits."""
        d, m = self.d, self.batch.y.shape[1]
        if m < d or (m == d and not absolute):
            return np.full((len(rows), d, d), np.inf)
        i, j = np.indices((d, d))
        high, low = np.maximum(i, j), np.minimum(i, j)
        inverse = found[4 + high * (high + 1) // 2 + low][..., rows]
        s2 = np.ones(len(rows)) if absolute else 2.0 * self.known[0, rows] / (m - d)
        made: Tensor = np.moveaxis(inverse, -1, 0) * s2[:, None, None]
        weak = np.flatnonzero(~(found[3, rows] > WELL))
        if weak.size:
            given = self.room(d)
            given[:, : weak.size] = self.p[:, rows[weak]]
            J = self.ask(self.batch.kernels.jacobian, given, rows[weak].astype(np.int32))[:, : weak.size]
            made[weak] = covariances(np.moveaxis(J.reshape(d, m, -1), -1, 0), s2[weak])
        return made


def covariances(Jt: Tensor, s2: Vector) -> Tensor:
    """s^2 (J'J)^-1 for many J', by singular values with the columns scaled; inf where the data do not tell it."""
    scale = np.linalg.norm(Jt, axis=2)
    good = np.isfinite(scale).all(axis=1) & (scale > 0.0).all(axis=1)
    units = np.where(good[:, None], scale, 1.0)
    U, q, _ = np.linalg.svd(np.where(good[:, None, None], Jt, 0.0) / units[:, :, None], full_matrices=False)
    good &= q[:, -1] > np.finfo(float).eps * max(Jt.shape[1:]) * q[:, 0]
    W = U / np.where(good[:, None], q, 1.0)[:, None, :] / units[:, :, None]
    made: Tensor = W @ np.swapaxes(W, 1, 2) * s2[:, None, None]
    return np.where(good[:, None, None], made, np.inf)


def right_digits(worst: Vector) -> Vector:
    """-log10 of an error beside its parameter."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.isfinite(worst), np.clip(-np.log10(worst), 0.0, DIGITS), np.nan)


def roomy(count: int) -> int:
    """The least number of three binary digits that is at least as large: few sizes are compiled."""
    unit = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // unit) * unit
