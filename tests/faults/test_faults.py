"""A matrix of faults: every method on every kind of objective, each broken in one way.

Whatever the objective does, a call of `minimize` is refused with a ValueError before work, or it comes back in time
with a Result whose status is true, whose `fun` is the objective at its `x` and no more than at the start, and which
claims success only where a gradient recomputed here in plain NumPy is next to nothing, or where Newton's step from
derivatives recomputed here says that x has six digits.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit

import tercet
from tercet import Status

jax = pytest.importorskip("jax")
jnp = jax.numpy

TOL = 1e-8  # a gradient that is next to nothing, on problems whose numbers are near one
DIGITS = 1e-6  # what success means by default: each x_j to 1.5e-8 of its size, or as close as rounding lets it come
SECONDS = 5.0

RULES = {
    "progressive": lambda: tercet.Progressive(),
    "full": lambda: tercet.Full(),
    "fixed": lambda: tercet.Fixed(0.2, 0.2, 0.2),
    "growing": lambda: tercet.Growing(),
    "adaptive": lambda: tercet.Adaptive(),
}
METHODS: dict[str, Callable[[], Any]] = {
    **{f"STM {name}": (lambda rule=rule: tercet.STM(sizes=rule())) for name, rule in RULES.items()},
    **{f"SCR {name}": (lambda rule=rule: tercet.SCR(sizes=rule())) for name, rule in RULES.items()},
    "SGD": tercet.SGD,
}
every_method = pytest.mark.parametrize("method", METHODS)

ENDS = {Status.CERTIFIED, Status.MAX_ITERATIONS, Status.MAX_SECONDS}
STUCK = {Status.ROUNDING, Status.NOT_CERTIFIED}
ERROR = {Status.FUNCTION_ERROR}
LOST = {Status.NOT_FINITE}
FALL = {Status.UNBOUNDED}


@dataclass
class Truth:
    """The objective as given, recomputed in plain NumPy; `slack` is how much its own noise may move a value."""

    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]
    start: np.ndarray
    slack: float = 0.0
    noise: float = 0.0  # of the gradient
    hessian: Callable[[np.ndarray], np.ndarray] | None = None

    def error(self, x: np.ndarray) -> float:
        """The largest |s_j| beside |x_j + s_j|, s Newton's step; 0 where what it promises is lost in the rounding of f.

        B is scaled to a diagonal of ones first, so that units do not matter.
        """
        if self.hessian is None:
            return np.inf
        g, B = self.gradient(x), self.hessian(x)
        E = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(B)), np.finfo(float).tiny))
        s = E * np.linalg.solve(B * np.outer(E, E), -E * g)
        if 0.5 * abs(g @ s) <= 16 * np.finfo(float).eps * abs(self.value(x)):
            return 0.0
        return float(np.max(np.abs(s) / np.maximum(np.abs(x + s), np.finfo(float).tiny)))


@dataclass(frozen=True, eq=False)
class RaisedAtStart:
    """What the objective raised at x0, which came to the caller: there was nothing yet that could be lost."""

    x: np.ndarray
    error: Exception
    fun: float = np.nan
    success: bool = False
    status: Status = Status.FUNCTION_ERROR

    @property
    def message(self) -> str:
        return f"It raised {type(self.error).__name__}: {self.error}"


def run(problem: Any, start: Any, method: str, step: float = 0.1, **options: Any) -> Any:
    """`minimize` within its time; what it raises but for the objective at x0 is a failure of the test, and so is an
    overrun."""
    began = time.perf_counter()
    limit = 60 if method == "SGD" else 150
    chosen = tercet.SGD(batch=0.2, step=step) if method == "SGD" else METHODS[method]()
    try:
        result: Any = tercet.minimize(
            problem, start, **{"method": chosen, "max_seconds": SECONDS, "max_iterations": limit, **options}
        )
    except Exception as error:
        if not any("at x0" in note for note in getattr(error, "__notes__", ())):
            raise
        result = RaisedAtStart(np.array(start, dtype=np.float64), error)
    assert time.perf_counter() - began < SECONDS + 3.0
    return result


def assert_true(result: Any, truth: Truth, method: str, allowed: set[Status], tol: float | None = None) -> None:
    """Status, point, value and success of a Result agree with the objective, seen from outside."""
    if isinstance(result, RaisedAtStart):
        assert result.status in allowed
        return
    x = np.asarray(result.x, dtype=np.float64)
    with np.errstate(all="ignore"):
        f0, f = truth.value(truth.start), truth.value(x)
    assert isinstance(result, tercet.Result)
    assert x.shape == truth.start.shape
    assert np.all(np.isfinite(x))
    assert isinstance(result.fun, float)
    noisy = {Status.NOISE} if "full" not in method and method != "SGD" else set()
    lost = LOST if method == "SGD" and allowed & (FALL | STUCK) else set()  # a constant step may run off to infinity
    assert result.status in allowed | noisy | lost, f"{result.status}: {result.message} {result.error!r}"
    assert result.message.startswith(result.status.value)
    assert result.success == (result.status is Status.CERTIFIED) == (result.success and result.certificate.holds)
    assert (result.error is not None) == (result.status is Status.FUNCTION_ERROR)
    if result.status is Status.MAX_SECONDS:
        assert result.seconds >= SECONDS
    if np.isfinite(f0):
        same = np.array_equal(x, truth.start)
        # nan is a value that could not be computed, and then nothing but the start is known not to be worse
        assert np.isfinite(result.fun) or (np.isnan(result.fun) and same), f"fun={result.fun} at x={x}"
        room = truth.slack + 1e-12 * max(abs(f), abs(f0))
        assert np.isnan(result.fun) or abs(result.fun - f) <= room
        assert f <= f0 + 2 * room
    if result.success:
        with np.errstate(all="ignore"):
            size = float(np.linalg.norm(truth.gradient(x)))
            small = size <= (tol or TOL) * (1 + 1e-6) + truth.noise
            error = 0.0 if small else np.inf if tol else truth.error(x)
        assert error <= DIGITS, f"success with a gradient of {size}, x off by {error} of its size"


# linear models with a loss of the user's own --------------------------------------------------------------------------

RNG = np.random.default_rng(7)
N, D, L2 = 120, 3, 1e-2
X = RNG.standard_normal((N, D))
Y = (X @ [1.0, -2.0, 0.5] + RNG.standard_normal(N) > 0).astype(float)
START = np.full(D, 2.0)

Four = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def logistic(z: np.ndarray, y: np.ndarray) -> Four:
    p = expit(z)
    q = p * (1 - p)
    return np.logaddexp(0.0, z) - y * z, p - y, q, q * (1 - 2 * p)


class OwnLoss:
    """A user's loss; `call` gets the number of the call, z and y."""

    def __init__(self, call: Callable[[int, np.ndarray, np.ndarray], Any]):
        self.call, self.number = call, 0

    def derivatives(self, z: np.ndarray, y: np.ndarray) -> Any:
        self.number += 1
        return self.call(self.number, z, y)


def linear_truth(four: Callable[..., Any], data: Any = X, targets: Any = Y, l2: float = L2, **more: Any) -> Truth:
    """mean l(Ax, y) + l2/2 |x|^2 and its gradient, of the losses as they are."""

    def value(x: np.ndarray) -> float:
        return float(np.mean(np.asarray(four(data @ x, targets)[0], dtype=float))) + 0.5 * l2 * float(x @ x)

    def gradient(x: np.ndarray) -> np.ndarray:
        return data.T @ four(data @ x, targets)[1] / data.shape[0] + l2 * x

    def hessian(x: np.ndarray) -> np.ndarray:
        bend = np.asarray(four(data @ x, targets)[2], dtype=float)
        return data.T @ (bend[:, None] * data) / data.shape[0] + l2 * np.eye(len(x))

    return Truth(value, gradient, more.pop("start", START), hessian=hessian, **more)


def where_large(bad: float) -> Callable[..., Four]:
    """Margins beyond the largest at the start have no loss."""
    edge = 1.01 * float(np.max(np.abs(X @ START)))
    return lambda z, y: tuple(np.where(np.abs(z) > edge, bad, part) for part in logistic(z, y))


def overshooting(bad: float) -> Callable[..., Four]:
    """log cosh(z - y) with no value where z < -6: steps from its flat flank leave the region where it is defined."""

    def four(z: np.ndarray, y: np.ndarray) -> Four:
        t = np.tanh(z - y)
        h = 1 - t * t
        parts = (np.logaddexp(z - y, y - z), t, h, -2 * t * h)
        return tuple(np.where(z < -6.0, bad, part) for part in parts)

    return four


def scaled(factor: float) -> Callable[..., Four]:
    return lambda z, y: tuple(factor * part for part in logistic(z, y))


def as_dtype(dtype: Any) -> Callable[..., Four]:
    return lambda z, y: tuple(part.astype(dtype) for part in logistic(z, y))


def squares(z: np.ndarray, y: np.ndarray) -> Four:
    r = z - y
    return 0.5 * r * r, r, np.ones_like(r), np.zeros_like(r)


def whole_numbers(z: np.ndarray, y: np.ndarray) -> Four:
    """Squares whose higher derivatives come as ints."""
    value, slope, *_ = squares(z, y)
    return value, slope, np.ones(len(z), dtype=np.int64), np.zeros(len(z), dtype=np.int32)


def floored(z: np.ndarray, y: np.ndarray) -> Four:
    value, *rest = logistic(z, y)
    return np.floor(4.0 * value) / 4.0, *rest


def constant(z: np.ndarray, y: np.ndarray) -> Four:
    return np.full_like(z, 3.0), np.zeros_like(z), np.zeros_like(z), np.zeros_like(z)


def straight(z: np.ndarray, y: np.ndarray) -> Four:
    return z.copy(), np.ones_like(z), np.zeros_like(z), np.zeros_like(z)


def falling(z: np.ndarray, y: np.ndarray) -> Four:
    return -(z**4), -4 * z**3, -12 * z**2, -24 * z


def concave(z: np.ndarray, y: np.ndarray) -> Four:
    return -(z**2), -2 * z, np.full_like(z, -2.0), np.zeros_like(z)


# name: the four derivatives, l2, and how a run may end beside its budgets and a certificate
SMOOTH = {
    "clean": (logistic, L2, set()),
    "nan beyond a radius": (where_large(np.nan), L2, set()),
    "inf beyond a radius": (where_large(np.inf), L2, set()),
    "-inf beyond a radius": (where_large(-np.inf), L2, set()),
    "nan where steps overshoot": (overshooting(np.nan), 1e-6, LOST | STUCK),
    "inf where steps overshoot": (overshooting(np.inf), 1e-6, LOST | STUCK),
    "-inf where steps overshoot": (overshooting(-np.inf), 1e-6, LOST | STUCK),
    "float32": (as_dtype(np.float32), L2, STUCK),
    "float16": (as_dtype(np.float16), L2, STUCK),
    "longdouble": (as_dtype(np.longdouble), L2, set()),
    "whole numbers": (whole_numbers, L2, set()),
    "floor": (floored, L2, STUCK),
    "constant": (constant, 0.0, set()),
    "constant with a penalty": (constant, L2, set()),
    "linear": (straight, 0.0, FALL),
    "linear with a penalty": (straight, L2, set()),
    "unbounded": (falling, 0.0, FALL),
    "concave": (concave, 0.0, FALL),
    "scale 1e12": (scaled(1e12), L2, STUCK),
    "scale 1e-12": (scaled(1e-12), 0.0, set()),
    "scale 1e-12 beside a penalty": (scaled(1e-12), L2, set()),
}


@every_method
@pytest.mark.parametrize("fault", SMOOTH)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_linear_model_whose_loss_is_odd_but_the_same_at_every_call(fault, method):
    four, l2, more = SMOOTH[fault]
    problem = tercet.LinearModel(X, Y, OwnLoss(lambda k, z, y: four(z, y)), l2=l2)
    result = run(problem, START, method)
    assert_true(result, linear_truth(four, l2=l2), method, ENDS | more)


class FaultError(Exception):
    """Raised by the user's function."""


@every_method
@pytest.mark.parametrize("on", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 13, 21])
def test_a_loss_that_raises_at_a_call(k, on, method):
    def call(number: int, z: np.ndarray, y: np.ndarray) -> Any:
        if number == k or (on and number > k):
            raise FaultError(f"call {number}")
        return logistic(z, y)

    loss = OwnLoss(call)
    result = run(tercet.LinearModel(X, Y, loss, l2=L2), START, method)
    assert_true(result, linear_truth(logistic), method, ENDS | ERROR)
    assert loss.number < k or result.success or result.status is Status.FUNCTION_ERROR or method == "SGD"
    if result.status is Status.FUNCTION_ERROR:
        assert isinstance(result.error, FaultError)
        assert "FaultError: call" in result.message


@every_method
@pytest.mark.parametrize("part", [0, 1, 2, 3], ids=["l", "l'", "l''", "l'''"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_nan_at_random(seed, part, method):
    rng = np.random.default_rng(seed)

    def call(number: int, z: np.ndarray, y: np.ndarray) -> Any:
        parts = list(logistic(z, y))
        if rng.random() < 0.05:
            parts[part] = np.where(np.arange(len(z)) == 0, np.nan, parts[part])
        return tuple(parts)

    result = run(tercet.LinearModel(X, Y, OwnLoss(call), l2=L2), START, method)
    assert_true(result, linear_truth(logistic), method, ENDS | LOST)


WRONG_SHAPES = {
    "three parts": lambda four: four[:3],
    "five parts": lambda four: (*four, four[0]),
    "one part": lambda four: four[0],
    "nothing": lambda four: None,
    "text": lambda four: ("a", "b", "c", "d"),
    "scalars": lambda four: tuple(float(np.mean(part)) for part in four),
    "columns": lambda four: tuple(part[:, None] for part in four),
    "rows": lambda four: tuple(part[None, :] for part in four),
    "one short": lambda four: tuple(part[:-1] for part in four),
    "one long": lambda four: tuple(np.append(part, 0.0) for part in four),
    "l is a scalar": lambda four: (float(np.mean(four[0])), *four[1:]),
    "l is a column": lambda four: (four[0][:, None], *four[1:]),
    "l' is a column": lambda four: (four[0], four[1][:, None], *four[2:]),
    "l'' is a column": lambda four: (*four[:2], four[2][:, None], four[3]),
    "l''' is a column": lambda four: (*four[:3], four[3][:, None]),
    "l' is a scalar": lambda four: (four[0], 0.0, *four[2:]),
    "l'' is a scalar": lambda four: (*four[:2], 0.25, four[3]),
    "l''' is a scalar": lambda four: (*four[:3], 0.0),
    "l' is a matrix": lambda four: (four[0], np.outer(four[1], np.ones(D)), *four[2:]),
    "l'' is a matrix": lambda four: (*four[:2], np.outer(four[2], np.ones(D)), four[3]),
}


@every_method
@pytest.mark.parametrize("fault", WRONG_SHAPES)
def test_a_loss_of_the_wrong_shape(fault, method):
    spoil = WRONG_SHAPES[fault]
    problem = tercet.LinearModel(X, Y, OwnLoss(lambda k, z, y: spoil(logistic(z, y))), l2=L2)
    result = run(problem, START, method)
    assert_true(result, linear_truth(logistic), method, ENDS | ERROR)
    # A scalar may stand for a vector that is constant; beside that, and beside parts that are not used, it is an error.
    unused = method == "SGD" or (method[:3] == "SCR" and ("'''" in fault or "three" in fault))
    tolerated = "scalar" in fault or "five" in fault or unused
    assert tolerated or result.status is Status.FUNCTION_ERROR


WRONG_DTYPES = {
    "complex": lambda four: tuple(part.astype(complex) + 1e-3j for part in four),
    "l is complex": lambda four: (four[0].astype(complex) + 1e-3j, *four[1:]),
    "l' is complex": lambda four: (four[0], four[1].astype(complex) + 1e-3j, *four[2:]),
    "l'' is complex": lambda four: (*four[:2], four[2].astype(complex) + 1e-3j, four[3]),
    "l''' is complex": lambda four: (*four[:3], four[3].astype(complex) + 1e-3j),
    "object": lambda four: tuple(part.astype(object) for part in four),
    "l' is of objects": lambda four: (four[0], four[1].astype(object), *four[2:]),
    "l'' is of objects": lambda four: (*four[:2], four[2].astype(object), four[3]),
    "l''' is of objects": lambda four: (*four[:3], four[3].astype(object)),
    "lists": lambda four: tuple(part.tolist() for part in four),
    "series": lambda four: tuple(pd.Series(part) for part in four),
    "text": lambda four: tuple(part.astype(str) for part in four),
    "masked": lambda four: tuple(np.ma.masked_array(part) for part in four),
    "matrix": lambda four: tuple(sp.csr_array(part[None, :]) for part in four),
}


@every_method
@pytest.mark.parametrize("fault", WRONG_DTYPES)
def test_a_loss_of_the_wrong_dtype(fault, method):
    """Numbers in another dress are taken, or refused by name; an imaginary part is never dropped."""
    spoil = WRONG_DTYPES[fault]
    problem = tercet.LinearModel(X, Y, OwnLoss(lambda k, z, y: spoil(logistic(z, y))), l2=L2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run(problem, START, method)
    assert_true(result, linear_truth(logistic), method, ENDS | ERROR)
    assert result.x.dtype == np.float64
    used = not ("'''" in fault and method[:3] != "STM") and not (method == "SGD" and "''" in fault)
    if "complex" in fault and used:
        assert result.status is Status.FUNCTION_ERROR


def same_runs(a: tercet.Result, b: tercet.Result) -> bool:
    """The same iterations bit for bit."""
    columns = ("f", "gradient_norm", "sigma", "accepted", "step_norm")
    return (
        a.status is b.status
        and np.array_equal(a.x, b.x)
        and all(np.array_equal(a.trace[c], b.trace[c], equal_nan=True) for c in columns)
    )


@every_method
def test_a_loss_that_returns_the_same_buffers_at_every_call(method):
    buffers: dict[int, Four] = {}

    def call(number: int, z: np.ndarray, y: np.ndarray) -> Any:
        kept = buffers.setdefault(len(z), tuple(np.empty(len(z)) for _ in range(4)))
        for buffer, part in zip(kept, logistic(z, y), strict=True):
            buffer[:] = part
        return kept

    clean = run(tercet.LinearModel(X, Y, OwnLoss(lambda k, z, y: logistic(z, y)), l2=L2), 3 * START, method)
    result = run(tercet.LinearModel(X, Y, OwnLoss(call), l2=L2), 3 * START, method)
    assert_true(result, linear_truth(logistic, start=3 * START), method, ENDS)
    assert same_runs(result, clean)


@every_method
def test_a_loss_that_writes_into_its_arguments(method):
    def call(number: int, z: np.ndarray, y: np.ndarray) -> Any:
        four = logistic(z, y)
        with contextlib.suppress(ValueError):  # read-only is a fair answer
            z[:], y[:] = np.nan, np.nan
        return four

    targets = Y.copy()
    clean = run(tercet.LinearModel(X, Y, OwnLoss(lambda k, z, y: logistic(z, y)), l2=L2), START, method)
    result = run(tercet.LinearModel(X, targets, OwnLoss(call), l2=L2), START, method)
    assert np.array_equal(targets, Y)
    assert_true(result, linear_truth(logistic), method, ENDS)
    assert same_runs(result, clean)


@every_method
@pytest.mark.parametrize("parts", [(0,), (1,), (2,), (3,), (0, 1, 2, 3)], ids=str)
def test_a_loss_that_changes_its_answer_from_call_to_call(parts, method):
    rng = np.random.default_rng(3)

    def call(number: int, z: np.ndarray, y: np.ndarray) -> Any:
        noise = 1e-6 * rng.uniform(-1.0, 1.0, size=4)
        return tuple(part + (noise[i] if i in parts else 0.0) for i, part in enumerate(logistic(z, y)))

    result = run(tercet.LinearModel(X, Y, OwnLoss(call), l2=L2), START, method)
    noise = 1e-6 * float(np.linalg.norm(np.mean(X, axis=0))) if 1 in parts else 0.0
    assert_true(result, linear_truth(logistic, slack=1e-6, noise=noise), method, ENDS | STUCK)


WRONG = {
    "sign flipped": lambda four: (four[0], -four[1], *four[2:]),
    "twice": lambda four: (four[0], 2 * four[1], *four[2:]),
    "half": lambda four: (four[0], 0.5 * four[1], *four[2:]),
    "thousandth": lambda four: (four[0], 1e-3 * four[1], *four[2:]),
    "curvature's sign flipped": lambda four: (*four[:2], -four[2], four[3]),
    "curvature a thousandth": lambda four: (*four[:2], 1e-3 * four[2], four[3]),
    "third's sign flipped": lambda four: (*four[:3], -four[3]),
    "third a thousandfold": lambda four: (*four[:3], 1e3 * four[3]),
}


@every_method
@pytest.mark.parametrize("fault", WRONG)
def test_a_loss_whose_derivatives_are_wrong(fault, method):
    """Wrong higher derivatives only slow a run down. A wrong gradient cannot be told from a right one at a point where
    it is small, so success is only asked not to contradict the gradient that was given."""
    spoil = WRONG[fault]
    problem = tercet.LinearModel(X, Y, OwnLoss(lambda k, z, y: spoil(logistic(z, y))), l2=L2)
    result = run(problem, START, method)
    given = linear_truth(lambda z, y: spoil(logistic(z, y)))
    assert_true(result, given, method, ENDS | STUCK)
    if fault.startswith(("curvature", "third")):
        assert_true(result, linear_truth(logistic), method, ENDS | STUCK)


# data of every shape and make -----------------------------------------------------------------------------------------


def cells(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((n, d))
    return data, (rng.random(n) < expit(data[:, 0])).astype(float)


def with_columns(*columns: np.ndarray) -> np.ndarray:
    return np.column_stack([X, *columns])


FRAME = pd.DataFrame(X, columns=list("abc"), index=np.arange(N)[::-1] + 1000)
WIDE, WIDE_Y = cells(12, 40)
DATA: dict[str, tuple[Any, Any]] = {
    "one row": cells(1, 3),
    "two rows": cells(2, 3),
    "one column": cells(60, 1),
    "one row, one column": cells(1, 1),
    "more columns than rows": (WIDE, WIDE_Y),
    "more columns than rows, sparse": (sp.csr_array(WIDE), WIDE_Y),
    "one class, 0": (X, np.zeros(N)),
    "one class, 1": (X, np.ones(N)),
    "constant column": (with_columns(np.full(N, 5.0)), Y),
    "zero column": (with_columns(np.zeros(N)), Y),
    "all zero": (np.zeros((N, 2)), Y),
    "duplicate column": (with_columns(X[:, 0], X[:, 0]), Y),
    "opposite columns": (with_columns(-X[:, 0]), Y),
    "duplicate rows": (np.repeat(X[:4], 30, axis=0), np.repeat(Y[:4], 30)),
    "float32": (X.astype(np.float32), Y.astype(np.float32)),
    "float16": (X.astype(np.float16), Y),
    "ints": (np.rint(3 * X).astype(np.int64), Y.astype(int)),
    "small ints": (np.rint(3 * X).astype(np.int8), Y.astype(np.uint8)),
    "booleans": (X > 0, Y > 0),
    "objects": (X.astype(object), Y.astype(object)),
    "lists": (X.tolist(), Y.tolist()),
    "strided": (np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2], np.repeat(Y, 3)[::3]),
    "backwards": (X[::-1, ::-1], Y[::-1]),
    "Fortran": (np.asfortranarray(X), Y),
    "other byte order": (X.astype(">f8"), Y.astype(">f8")),
    "read-only": (X.copy(), Y.copy()),
    "csr": (sp.csr_array(X), Y),
    "csr matrix": (sp.csr_matrix(X), Y),
    "csc": (sp.csc_array(X), Y),
    "coo": (sp.coo_array(X), Y),
    "coo with repeats": (sp.coo_array((np.r_[X.ravel(), X.ravel()], np.tile(np.indices((N, D)).reshape(2, -1), 2))), Y),
    "lil": (sp.lil_array(X), Y),
    "dok of ints": (sp.dok_array(np.rint(X).astype(int)), Y),
    "sparse float32": (sp.csr_array(X.astype(np.float32)), Y),
    "sparse of nothing": (sp.csr_array((N, 2)), Y),
    "frame": (FRAME, pd.Series(Y, index=FRAME.index)),
    "frame of ints and floats": (FRAME.assign(d=np.arange(N) % 3, e=Y > 0), pd.Series(Y).astype("int8")),
    "frame with nullable ints": (FRAME.assign(d=pd.array(np.arange(N) % 3, dtype="Int64")), pd.Series(Y)),
    "scale 1e12": (1e12 * X, Y),
    "scale 1e-12": (1e-12 * X, Y),
    "columns of scale 1e6 and 1e-6": (X * [1e6, 1.0, 1e-6], Y),
    "columns of scale 1e12 and 1e-12": (X * [1e12, 1.0, 1e-12], Y),
}
DATA["read-only"][0].setflags(write=False)
DATA["read-only"][1].setflags(write=False)
HARD_SCALES = {name for name in DATA if "scale" in name}


def plain(data: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    """The same numbers as a float64 matrix and vector."""
    matrix = data.toarray() if sp.issparse(data) else data
    return np.array(matrix, dtype=np.float64), np.array(targets, dtype=np.float64)


@every_method
@pytest.mark.parametrize("make", DATA)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_data_of_any_shape_and_make(make, method):
    data, targets = DATA[make]
    A, y = plain(data, targets)
    start = np.full(A.shape[1], 0.5)
    problem = tercet.LinearModel(data, targets, OwnLoss(lambda k, z, t: logistic(z, t)), l2=L2)
    result = run(problem, start, method)
    more = STUCK if make in HARD_SCALES else set()
    assert_true(result, linear_truth(logistic, A, y, start=start), method, ENDS | more)
    if make not in HARD_SCALES and "fixed" not in method and method != "SGD":
        assert result.success, result.message
    before = (X, Y) if make == "read-only" else DATA[make]
    assert np.array_equal(plain(*before)[0], A)


@pytest.mark.parametrize("make", DATA)
@pytest.mark.parametrize("loss", ["sigmoid_squares", "cauchy"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_data_of_any_shape_and_make_with_a_loss_that_is_not_convex(make, loss):
    data, targets = DATA[make]
    A, y = plain(data, targets)
    start = np.full(A.shape[1], 0.5)
    problem = tercet.LinearModel(data, targets, loss, l2=L2, intercept=False)
    result = run(problem, start, "STM progressive")
    losses = {"sigmoid_squares": tercet.objectives.losses.SigmoidSquares, "cauchy": tercet.objectives.losses.Cauchy}
    more = STUCK if make in HARD_SCALES else set()
    assert_true(result, linear_truth(losses[loss]().derivatives, A, y, start=start), "STM progressive", ENDS | more)


BAD_DATA = {
    "complex X": (X + 1e-3j, Y, {}),
    "complex y": (X, Y + 1e-3j, {}),
    "complex sparse X": (sp.csr_array(X + 1e-3j), Y, {}),
    "complex frame": (pd.DataFrame(X + 1e-3j), Y, {}),
    "complex weights": (X, Y, {"weights": np.ones(N) + 1e-3j}),
    "text": (X.astype(str).tolist()[0], Y, {}),
    "words": (np.full((N, D), "a"), Y, {}),
    "frame with words": (FRAME.assign(d="a"), Y, {}),
    "dates": (np.full((N, D), np.datetime64("2020-01-01")), Y, {}),
    "nan in X": (np.where(np.arange(N)[:, None] == 5, np.nan, X), Y, {}),
    "inf in sparse X": (sp.csr_array(np.where(np.arange(N)[:, None] == 5, np.inf, X)), Y, {}),
    "missing in a frame": (FRAME.assign(d=pd.array([None] * N, dtype="Int64")), Y, {}),
    "nan in y": (X, np.where(np.arange(N) == 5, np.nan, Y), {}),
    "inf in y": (X, np.where(np.arange(N) == 5, np.inf, Y), {}),
    "nan in weights": (X, Y, {"weights": np.where(np.arange(N) == 5, np.nan, 1.0)}),
    "negative weights": (X, Y, {"weights": -np.ones(N)}),
    "no weight at all": (X, Y, {"weights": np.zeros(N)}),
    "weights of another length": (X, Y, {"weights": np.ones(N - 1)}),
    "y of another length": (X, Y[:-1], {}),
    "y a column": (X, Y[:, None], {}),
    "y a sparse column": (X, sp.csr_array(Y[:, None]), {}),
    "X a vector": (X[:, 0], Y, {}),
    "X a cube": (X[:, :, None], Y, {}),
    "X a number": (3.0, Y, {}),
    "no rows": (X[:0], Y[:0], {}),
    "no columns": (X[:, :0], Y, {}),
    "ragged": ([[1.0], [1.0, 2.0]], [0.0, 1.0], {}),
    "none": (None, Y, {}),
    "y none": (X, None, {}),
    "l2 negative": (X, Y, {"l2": -1.0}),
    "l2 nan": (X, Y, {"l2": np.nan}),
    "alpha inf": (X, Y, {"alpha": np.inf}),
    "labels -1 and 1": (X, 2 * Y - 1, {}),
    "overflow": ([[10**400] * D] * N, Y, {}),
}


@pytest.mark.parametrize("make", BAD_DATA)
@pytest.mark.parametrize("strict", [True, False], ids=["warnings raise", "warnings pass"])
def test_bad_data_is_refused_before_work(make, strict):
    data, targets, options = BAD_DATA[make]
    with warnings.catch_warnings():
        warnings.simplefilter("error" if strict else "ignore")
        with pytest.raises(ValueError, match="LinearModel"):
            tercet.LinearModel(data, targets, "logistic", **options)


# plain functions with NumPy callables ---------------------------------------------------------------------------------

ROSEN_START = np.array([-1.2, 1.0])


def rosen(x: np.ndarray) -> float:
    return float(100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2)


def rosen_grad(x: np.ndarray) -> np.ndarray:
    bend = x[1] - x[0] ** 2
    return np.array([-400.0 * x[0] * bend - 2.0 * (1.0 - x[0]), 200.0 * bend])


def rosen_hess(x: np.ndarray) -> np.ndarray:
    return np.array([[1200.0 * x[0] ** 2 - 400.0 * x[1] + 2.0, -400.0 * x[0]], [-400.0 * x[0], 200.0]])


def rosen_tvp(x: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    mixed = u[0] * v[1] + u[1] * v[0]
    return np.array([2400.0 * x[0] * u[0] * v[0] - 400.0 * mixed, -400.0 * u[0] * v[0]])


ROSEN = {"fun": rosen, "grad": rosen_grad, "hess": rosen_hess, "tvp": rosen_tvp}
ROSEN_TRUTH = Truth(rosen, rosen_grad, ROSEN_START, hessian=rosen_hess)
GIVEN = {"f": ("fun",), "f, g": ("fun", "grad"), "f, g, B": ("fun", "grad", "hess"), "f, g, B, T": tuple(ROSEN)}
FEW = ("STM progressive", "STM full", "SCR full", "SCR adaptive", "SGD")
few_methods = pytest.mark.parametrize("method", FEW)


def call_run(calls: dict[str, Any], method: str, start: np.ndarray = ROSEN_START, **options: Any) -> Any:
    calls = dict(calls)
    return run(calls.pop("fun"), start, method, 1e-3, **calls, **options)


def picked(names: tuple[str, ...], **changed: Any) -> dict[str, Any]:
    return {name: changed.get(name, ROSEN[name]) for name in names}


def quadratic_family(factor: float) -> dict[str, Any]:
    return {
        "fun": lambda x: factor * float(np.sum((x - 1.0) ** 2)),
        "grad": lambda x: factor * 2 * (x - 1.0),
        "hess": lambda x: factor * 2 * np.eye(len(x)),
        "tvp": lambda x, u, v: np.zeros(len(x)),
    }


ZERO = {"grad": np.zeros_like, "hess": lambda x: np.zeros((len(x), len(x))), "tvp": lambda x, u, v: np.zeros(len(x))}


def beyond(bad: float) -> dict[str, Any]:
    """Rosenbrock's function, undefined above x_2 = 1.1 - x_1^2 / 4, beside the minimizer's own valley."""

    def out(x: np.ndarray) -> bool:
        return bool(x[1] > 1.2 or x[0] > 1.05)

    return {
        "fun": lambda x: bad if out(x) else rosen(x),
        "grad": lambda x: np.full(2, bad) if out(x) else rosen_grad(x),
        "hess": lambda x: np.full((2, 2), bad) if out(x) else rosen_hess(x),
        "tvp": lambda x, u, v: np.full(2, bad) if out(x) else rosen_tvp(x, u, v),
    }


FUNCTIONS: dict[str, tuple[dict[str, Any], np.ndarray, set[Status]]] = {
    "clean": (ROSEN, ROSEN_START, set()),
    "nan beyond a border": (beyond(np.nan), ROSEN_START, LOST | STUCK),
    "inf beyond a border": (beyond(np.inf), ROSEN_START, LOST | STUCK),
    "-inf beyond a border": (beyond(-np.inf), ROSEN_START, LOST | STUCK),
    "constant": ({"fun": lambda x: 3.0, **ZERO}, ROSEN_START, set()),
    "linear": ({"fun": lambda x: float(np.sum(x)), **ZERO, "grad": np.ones_like}, ROSEN_START, FALL),
    "unbounded": (
        {
            "fun": lambda x: float(-np.sum(x**4)),
            "grad": lambda x: -4 * x**3,
            "hess": lambda x: np.diag(-12 * x**2),
            "tvp": lambda x, u, v: -24 * x * u * v,
        },
        np.ones(2),
        FALL,
    ),
    "unbounded from a saddle": (
        {
            "fun": lambda x: float(-np.sum(x**2)),
            "grad": lambda x: -2 * x,
            "hess": lambda x: -2 * np.eye(len(x)),
            "tvp": lambda x, u, v: np.zeros(len(x)),
        },
        np.zeros(3),
        FALL,
    ),
    "scale 1e12": (quadratic_family(1e12), np.zeros(3), STUCK),
    "scale 1e-12": (quadratic_family(1e-12), np.zeros(3), set()),
    "far": (quadratic_family(1.0), np.full(3, 1e12), STUCK),
    "near": (quadratic_family(1.0), np.full(3, 1.0 + 1e-12), set()),
    "one variable": (quadratic_family(1.0), np.zeros(1), set()),
    "forty variables": (quadratic_family(1.0), np.zeros(40), set()),
}


@few_methods
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("fault", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_that_is_odd_but_the_same_at_every_call(fault, given, method):
    calls, start, more = FUNCTIONS[fault]
    differences = {Status.ROUNDING, Status.NOT_CERTIFIED} if "T" not in given else set()
    result = call_run({name: calls[name] for name in GIVEN[given]}, method, start)
    noise = 1e-4 * max(1.0, abs(calls["fun"](start))) if given == "f" else 0.0  # the gradient is made by differences
    truth = Truth(calls["fun"], calls["grad"], start, noise=noise, hessian=calls["hess"])
    assert_true(result, truth, method, ENDS | more | differences)
    if fault in ("linear", "unbounded", "unbounded from a saddle") and method != "SGD":
        assert not result.success
        assert result.fun < calls["fun"](start)


@few_methods
@pytest.mark.parametrize("given", ["f", "f, g, B, T"])
@pytest.mark.parametrize("steps", [1.0, 1e3], ids=["coarse", "fine"])
def test_a_function_with_jumps(given, steps, method):
    def fun(x: np.ndarray) -> float:
        return float(np.floor(steps * rosen(np.asarray(x, dtype=float))) / steps)

    result = call_run(picked(GIVEN[given], fun=fun), method)
    gradient = (lambda x: np.zeros(2)) if given == "f" else rosen_grad  # nearly everywhere; or as it was given
    assert_true(result, Truth(fun, gradient, ROSEN_START), method, ENDS | STUCK)


@few_methods
@pytest.mark.parametrize("name", ROSEN)
@pytest.mark.parametrize("on", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_a_function_that_raises_at_a_call(k, on, name, method):
    calls = {"number": 0}

    def failing(*arguments: Any) -> Any:
        calls["number"] += 1
        if calls["number"] == k or (on and calls["number"] > k):
            raise FaultError(f"call {calls['number']}")
        return ROSEN[name](*arguments)

    result = call_run(picked(tuple(ROSEN), **{name: failing}), method)
    assert_true(result, ROSEN_TRUTH, method, ENDS | ERROR)
    if calls["number"] >= k and not result.success and method != "SGD":
        assert result.status is Status.FUNCTION_ERROR


@few_methods
@pytest.mark.parametrize(
    "error", [ValueError, ArithmeticError, MemoryError, StopIteration, SystemError, RecursionError]
)
def test_a_function_that_raises_whatever_it_likes(error, method):
    def failing(x: np.ndarray) -> np.ndarray:
        if np.max(np.abs(x - ROSEN_START)) > 1e-3:
            raise error("as it likes")
        return rosen_grad(x)

    result = call_run(picked(tuple(ROSEN), grad=failing), method)
    assert_true(result, ROSEN_TRUTH, method, ERROR)
    assert isinstance(result.error, error)


@few_methods
@pytest.mark.parametrize("name", ROSEN)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_that_is_not_finite_at_random(seed, bad, name, method):
    rng = np.random.default_rng(seed)

    def failing(*arguments: Any) -> Any:
        return ROSEN[name](*arguments) + (bad if rng.random() < 0.05 else 0.0)

    result = call_run(picked(tuple(ROSEN), **{name: failing}), method)
    assert_true(result, ROSEN_TRUTH, method, ENDS | LOST)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("method", ["STM full", "SCR full"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_without_derivatives_that_is_nan_at_random(seed, method):
    rng = np.random.default_rng(seed)

    def failing(x: Any) -> float:
        return rosen(np.array(x, dtype=float)) if rng.random() > 0.05 else np.nan

    result = call_run({"fun": failing}, method)
    assert_true(result, Truth(rosen, rosen_grad, ROSEN_START, noise=1e-6), method, ENDS | LOST | STUCK)


SPOILT = {
    "one longer": lambda out: np.append(out, 0.0),
    "column": lambda out: np.reshape(out, (-1, 1)),
    "row": lambda out: np.reshape(out, (1, -1)),
    "three numbers": lambda out: (1.0, 2.0, 3.0),
    "nothing": lambda out: None,
    "text": lambda out: "one",
    "empty": lambda out: np.empty(0),
    "dictionary": lambda out: {"value": out},
    "complex": lambda out: np.asarray(out) + 1e-3j,
    "complex number": lambda out: complex(np.ravel(out)[0], 1.0),
    "complex with no imaginary part": lambda out: np.asarray(out) + 0j,
    "object": lambda out: np.asarray(out).astype(object),
    "list": lambda out: np.asarray(out).tolist(),
    "jax": lambda out: jnp.asarray(out),
    "sparse": lambda out: sp.csr_array(np.atleast_2d(out)),
    "float32": lambda out: np.asarray(out, dtype=np.float32),
    "longdouble": lambda out: np.asarray(out, dtype=np.longdouble),
    "0-d": lambda out: np.asarray(out)[()],
}
NUMBERS = ("list", "longdouble", "0-d")  # the same numbers in another dress
NO_NUMBERS = ("nothing", "text", "dictionary", "complex", "complex number", "sparse")


@pytest.mark.parametrize("method", ["STM full", "SCR full", "SGD"])
@pytest.mark.parametrize("name", ROSEN)
@pytest.mark.parametrize("fault", SPOILT)
def test_a_function_of_the_wrong_shape_or_dtype(fault, name, method):
    def spoilt(*arguments: Any) -> Any:
        return SPOILT[fault](ROSEN[name](*arguments))

    single = fault in ("float32", "jax")
    rough = Truth(rosen, rosen_grad, ROSEN_START, slack=1e-5 if single else 0.0, noise=1e-4 if single else 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = call_run(picked(tuple(ROSEN), **{name: spoilt}), method)
    assert_true(result, rough, method, ENDS | ERROR | (STUCK if single else set()))
    unused = {"SCR full": ("tvp",), "SGD": ("fun", "hess", "tvp")}.get(method, ())
    if fault in NO_NUMBERS and name not in unused:
        assert result.status is Status.FUNCTION_ERROR
    if fault in NUMBERS and method != "SGD":
        assert result.success
        assert result.fun == rosen(result.x)


@few_methods
@pytest.mark.parametrize("given", GIVEN)
def test_functions_that_return_the_same_buffer_at_every_call(given, method):
    buffers: dict[str, np.ndarray] = {}

    def reuse(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            out = np.asarray(ROSEN[name](*[np.array(a, dtype=float) for a in arguments]))
            kept = buffers.setdefault(name, np.empty(out.shape))
            kept[...] = out
            return kept

        return call

    result = call_run({name: reuse(name) for name in GIVEN[given]}, method)
    clean = call_run(
        picked(GIVEN[given]) if given != "f" else {"fun": lambda x: rosen(np.array(x, dtype=float))}, method
    )
    assert same_runs(result, clean)


@few_methods
@pytest.mark.parametrize("names", [("fun",), ("grad",), ("hess",), ("tvp",), tuple(ROSEN)], ids="+".join)
def test_functions_that_change_their_answer_from_call_to_call(names, method):
    rng = np.random.default_rng(5)

    def noisy(name: str) -> Any:
        return lambda *arguments: ROSEN[name](*arguments) + 1e-6 * rng.uniform(-1.0, 1.0)

    result = call_run(picked(tuple(ROSEN), **{name: noisy(name) for name in names}), method)
    noise = 1e-6 * np.sqrt(2.0) if "grad" in names else 0.0
    truth = Truth(rosen, rosen_grad, ROSEN_START, slack=1e-6 if "fun" in names else 0.0, noise=noise)
    assert_true(result, truth, method, ENDS | STUCK)


WRONG_CALLS = {
    "gradient's sign flipped": ("grad", lambda out: -out),
    "gradient doubled": ("grad", lambda out: 2.0 * out),
    "gradient a thousandth": ("grad", lambda out: 1e-3 * out),
    "gradient tiny": ("grad", lambda out: 1e-12 * out),
    "gradient zero": ("grad", lambda out: 0.0 * out),
    "gradient shifted": ("grad", lambda out: out + 1.0),
    "curvature's sign flipped": ("hess", lambda out: -out),
    "curvature a millionth": ("hess", lambda out: 1e-6 * out),
    "curvature zero": ("hess", lambda out: 0.0 * out),
    "curvature not symmetric": ("hess", lambda out: out + np.array([[0.0, 50.0], [-50.0, 0.0]])),
    "third's sign flipped": ("tvp", lambda out: -out),
    "third a thousandfold": ("tvp", lambda out: 1e3 * out),
}


@few_methods
@pytest.mark.parametrize("fault", WRONG_CALLS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_whose_derivatives_are_wrong(fault, method):
    """Success is claimed for the gradient as given; a wrong one at a point where it is small cannot be told apart."""
    name, spoil = WRONG_CALLS[fault]
    result = call_run(picked(tuple(ROSEN), **{name: lambda *arguments: spoil(ROSEN[name](*arguments))}), method)
    gradient = (lambda x: spoil(rosen_grad(x))) if name == "grad" else rosen_grad
    refused = {Status.FUNCTION_ERROR} if fault == "curvature not symmetric" else set()  # by methods that ask for it
    assert_true(result, Truth(rosen, gradient, ROSEN_START, hessian=rosen_hess), method, ENDS | STUCK | refused)


# finite sums over JAX -------------------------------------------------------------------------------------------------

TARGETS = np.random.default_rng(1).standard_normal((48, 2))


def well(p: Any, a: Any) -> Any:
    return jnp.sum((p - a) ** 2) + 0.1 * jnp.sum(p**4)


def sum_truth(term: Callable[..., Any], data: np.ndarray, start: Any, **more: Any) -> Truth:
    def mean(x: Any) -> Any:
        return jnp.mean(jax.vmap(lambda a: term(x, a))(jnp.asarray(data)))

    def value(x: np.ndarray) -> float:
        with jax.enable_x64(True):
            return float(mean(jnp.asarray(x)))

    def gradient(x: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(jax.grad(mean)(jnp.asarray(x)))

    def hessian(x: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(jax.hessian(mean)(jnp.asarray(x)))

    return Truth(value, gradient, np.asarray(start, dtype=float), hessian=hessian, **more)


SUMS: dict[str, tuple[Callable[..., Any], np.ndarray, Any, set[Status]]] = {
    "clean": (well, TARGETS, np.full(2, 2.0), set()),
    "nan beyond a radius": (
        lambda p, a: jnp.where(jnp.sum(p**2) > 9.0, jnp.nan, well(p, a)),
        TARGETS,
        np.full(2, 2.0),
        LOST | STUCK,
    ),
    "inf beyond a radius": (
        lambda p, a: jnp.where(jnp.sum(p**2) > 9.0, jnp.inf, well(p, a)),
        TARGETS,
        np.full(2, 2.0),
        LOST | STUCK,
    ),
    "floor": (lambda p, a: jnp.floor(8.0 * well(p, a)) / 8.0, TARGETS, np.full(2, 2.0), STUCK),
    "constant": (lambda p, a: 3.0 + 0.0 * jnp.sum(p), TARGETS, np.full(2, 2.0), set()),
    "linear": (lambda p, a: jnp.sum(p) + 0.0 * a[0], TARGETS, np.full(2, 2.0), FALL),
    "unbounded": (lambda p, a: -jnp.sum(p**4) + a[0], TARGETS, np.full(2, 2.0), FALL),
    "scale 1e12": (lambda p, a: 1e12 * well(p, a), TARGETS, np.full(2, 2.0), STUCK),
    "scale 1e-12": (lambda p, a: 1e-12 * well(p, a), TARGETS, np.full(2, 2.0), set()),
    "one example, one variable": (well, TARGETS[:1, :1], np.full(1, 2.0), set()),
    "more variables than examples": (well, np.ones((3, 5)), np.full(5, 2.0), set()),
    "ints": (well, np.rint(TARGETS).astype(np.int32), np.array([2, 2]), set()),
}


@pytest.mark.parametrize("fault", SUMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_finite_sum_that_is_odd_but_the_same_at_every_call(fault):
    """All methods in one test, so that they share what was compiled."""
    term, data, start, more = SUMS[fault]
    problem, truth = tercet.FiniteSum(term, data), sum_truth(term, data, start)
    for method in METHODS:
        try:
            assert_true(run(problem, start, method), truth, method, ENDS | more)
        except Exception as error:
            error.add_note(f"method: {method}")
            raise


def test_a_finite_sum_in_single_precision():
    data = TARGETS.astype(np.float32)
    problem, truth = tercet.FiniteSum(well, data), sum_truth(well, TARGETS, np.full(2, 2.0), slack=1e-4, noise=1e-4)
    for method in METHODS:
        result = run(problem, np.full(2, 2.0, dtype=np.float32), method, tol=1e-3)
        assert_true(result, truth, method, ENDS | STUCK, tol=1e-3)
        assert result.x.dtype == np.float32


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_a_finite_sum_whose_loss_raises_on_the_host_at_a_call(k):
    calls = {"number": 0}

    def host(z: np.ndarray) -> np.ndarray:
        calls["number"] += 1
        if calls["number"] >= k:
            raise FaultError("on the host")
        return np.asarray(z) ** 2

    @jax.custom_jvp
    def square(z: Any) -> Any:
        return jax.pure_callback(host, jax.ShapeDtypeStruct(z.shape, z.dtype), z, vmap_method="expand_dims")

    square.defjvp(lambda primals, tangents: (square(primals[0]), 2.0 * primals[0] * tangents[0]))
    data = np.linspace(-1.0, 1.0, 16)
    problem = tercet.FiniteSum(lambda p, a: square(p[0] - a) + p[0] ** 4, data)
    truth = sum_truth(lambda p, a: (p[0] - a) ** 2 + p[0] ** 4, data, np.array([2.0]))
    for method in ("STM full", "STM progressive", "SCR fixed", "SGD"):
        calls["number"] = 0
        assert_true(run(problem, np.array([2.0]), method), truth, method, ENDS | ERROR)


def raising(p: Any, a: Any) -> Any:
    raise FaultError("while it is traced")


BROKEN_SUMS = {
    "raises while it is traced": raising,
    "asks for a missing entry": lambda p, a: p["missing"],
    "asks Python for a truth value": lambda p, a: p[0] ** 2 if p[0] > 0 else -p[0],
    "too many arguments": lambda p, a, b: jnp.sum(p),
    "too few arguments": lambda p: jnp.sum(p),
    "a vector": lambda p, a: p - a,
    "a column": lambda p, a: jnp.sum((p - a) ** 2)[None],
    "a pair": lambda p, a: (jnp.sum(p), jnp.sum(a)),
    "nothing": lambda p, a: None,
    "complex": lambda p, a: jnp.sum((p - a) ** 2) * (1 + 1j),
    "NumPy on a tracer": lambda p, a: float(np.sum(np.asarray(p))),
}


@pytest.mark.parametrize("fault", BROKEN_SUMS)
def test_a_finite_sum_whose_loss_is_no_scalar_function_is_refused_or_an_outcome(fault):
    problem = tercet.FiniteSum(BROKEN_SUMS[fault], TARGETS)
    for method in ("STM full", "SGD"):
        try:
            result = run(problem, np.full(2, 2.0), method)
        except ValueError as error:
            message = str(error)
        else:
            message = result.message
            assert result.status is Status.FUNCTION_ERROR
            assert np.array_equal(result.x, np.full(2, 2.0))
        assert "loss" in message or "raised" in message


# steps into the infinite ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sgd_that_steps_to_where_the_value_is_not_finite_returns_a_finite_point(bad):
    def fun(x: np.ndarray) -> float:
        return float(x @ x) if np.all(x > -0.5) else bad

    result = tercet.minimize(
        fun, np.ones(2), grad=lambda x: 2 * x, method=tercet.SGD(batch=1.0, step=0.9), max_iterations=1
    )
    assert np.isfinite(result.fun), f"fun={result.fun} at x={result.x}, {result.status}"
    assert result.fun <= 2.0


@pytest.mark.parametrize("far", [1e20, 1e60, 1e80, 1e100, 1e150])
@pytest.mark.parametrize(
    "subsolver",
    [None, tercet.Dense(), tercet.Krylov(), tercet.GradientDescent(), tercet.Accelerated()],
    ids=lambda part: type(part).__name__,
)
@pytest.mark.parametrize("kind", [tercet.STM, tercet.SCR])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_start_so_far_out_that_powers_of_a_step_overflow(kind, subsolver, far):
    calls, start = dict(quadratic_family(1.0)), np.full(2, far)
    truth = Truth(calls["fun"], calls["grad"], start, hessian=calls["hess"])
    result = tercet.minimize(
        calls.pop("fun"), start, method=kind(subsolver=subsolver), **calls, max_iterations=150, max_seconds=SECONDS
    )
    assert_true(result, truth, "STM full", ENDS | STUCK | LOST)


@pytest.mark.parametrize("length", [1e-300, 1e-100, 1e-80, 1e80, 1e150, 1e300])
@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("value", [0.0, 1e-300, -1.0, 1.0, 1e300])
def test_an_estimate_of_sigma_from_a_step_whose_power_under_or_overflows_is_a_number(value, power, length):
    assert tercet.control.sigma.Miss(value, value).estimate(length, power) >= 0.0


# derivatives that are checked on request ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [fault for fault in WRONG_CALLS if "symmetric" not in fault])
def test_the_check_of_derivatives_finds_every_wrong_one_of_a_function(fault):
    """But for a skew part of the Hessian, which is taken off before it is used."""
    name, spoil = WRONG_CALLS[fault]
    calls = picked(tuple(ROSEN), **{name: lambda *arguments: spoil(ROSEN[name](*arguments))})
    order = {"grad": "gradient", "hess": "Hessian|third", "tvp": "third"}[name]
    with pytest.raises(ValueError, match=order):
        call_run(calls, "STM full", check_derivatives=True)


@pytest.mark.parametrize("fault", WRONG)
def test_the_check_of_derivatives_finds_every_wrong_one_of_a_loss(fault):
    spoil = WRONG[fault]
    problem = tercet.LinearModel(X, Y, OwnLoss(lambda k, z, y: spoil(logistic(z, y))), l2=L2)
    with pytest.raises(ValueError, match=r"gradient|Hessian|third"):
        run(problem, START, "STM full", check_derivatives=True)


@pytest.mark.parametrize("k", [1, 2, 5, 9, 14])
@pytest.mark.parametrize("name", ROSEN)
def test_a_function_that_raises_while_its_derivatives_are_checked_is_refused_or_an_outcome(name, k):
    calls = {"number": 0}

    def failing(*arguments: Any) -> Any:
        calls["number"] += 1
        if calls["number"] >= k:
            raise FaultError(f"call {k}")
        return ROSEN[name](*arguments)

    try:
        result = call_run(picked(tuple(ROSEN), **{name: failing}), "STM full", check_derivatives=True)
    except ValueError as error:
        message = str(error)
    else:
        message = result.message
        assert result.status is Status.FUNCTION_ERROR
    assert "FaultError" in message
