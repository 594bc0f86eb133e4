"""Tercet as a method of `scipy.optimize.minimize`:

    scipy.optimize.minimize(fun, x0, jac=g, hess=H, method=tercet.scipy.stm, options={"third": T})

`stm` and `scr` are the methods with their default parts; `Solver(tercet.STM(...))` is one with other parts.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult
from scipy.sparse import issparse

from tercet.checks import flag, valid_indices
from tercet.methods.certifying import certify as certify_point
from tercet.methods.minimize import minimize
from tercet.methods.run import Kernel, Method, Run
from tercet.methods.state import State
from tercet.methods.stm import SCR, STM
from tercet.objectives.base import Bound, check_length
from tercet.objectives.callables import DENSE_LIMIT, CallObjective
from tercet.objectives.metered import Known
from tercet.records import Certificate, Matrix, Status, Vector
from tercet.result import Info, Result, Row

__all__ = ["InterruptError", "Options", "Solver", "certify", "scr", "stm"]

CODES = {  # 0 to 3 and 99 mean what they mean for SciPy's own methods
    Status.CERTIFIED: 0, Status.MAX_ITERATIONS: 1, Status.ROUNDING: 2, Status.NOT_FINITE: 3, Status.NOT_CERTIFIED: 4,
    Status.UNBOUNDED: 5, Status.MAX_SECONDS: 6, Status.FUNCTION_ERROR: 7, Status.INTERRUPTED: 8, Status.NOISE: 9,
    Status.MAX_EPOCHS: 10, Status.FLAT: 11, Status.NOT_CONVEX: 12, Status.CALLBACK: 99,
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What `options` may hold, and `tol`, which SciPy hands on with them.

    `tol` is that of `tercet.minimize`, or 1e-5 (SciPy's own) where differences, which are good to fewer digits, make
    the gradient; `gtol` is the same under the name that SciPy's methods have for it, and goes before it; `maxiter`
    likewise is `max_iterations`. `third(x, *args)` is the d x d x d third derivative, or `tvp(x, u, v, *args)` =
    T[u, v]. `order`, `seed`, `max_seconds` and `check_derivatives` are those of `tercet.minimize`. `disp` prints the
    result, `return_all` keeps the points of all iterations as `allvecs`. Ctrl-C raises `InterruptError`, a
    KeyboardInterrupt with the best point so far as `result`; with `return_on_interrupt` that is returned instead.
    """

    tol: float | None = None
    gtol: float | None = None
    maxiter: int | None = None
    max_iterations: int | None = None
    max_seconds: float | None = None
    order: int | None = None
    seed: int = 0
    third: Callable[..., Any] | None = None
    tvp: Callable[..., Any] | None = None
    check_derivatives: bool = False
    disp: bool = False
    return_all: bool = False
    return_on_interrupt: bool = False

    def __post_init__(self) -> None:
        if self.maxiter is not None and self.max_iterations is not None:
            raise ValueError(
                f"minimize(options={{'maxiter': {self.maxiter!r}, 'max_iterations': {self.max_iterations!r}}}): "
                "both are the iteration budget; give one of them."
            )
        for name in ("check_derivatives", "disp", "return_all", "return_on_interrupt"):
            flag("minimize", f"options[{name!r}]", getattr(self, name))
        if self.third is not None and self.tvp is not None:
            raise ValueError("minimize(options={'third': ..., 'tvp': ...}): give one of the two, not both.")

    @staticmethod
    def of(given: dict[str, Any]) -> Options:
        """Options from a dictionary; one that is not known is refused with the names that are nearest."""
        known = [f.name for f in fields(Options)]
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, n=3, cutoff=0.5) or known
                raise ValueError(
                    f"minimize(options={{{name!r}: ...}}): no such option; did you mean {', '.join(near)}?"
                )
        return Options(**given)

    def asked(self, default: float | None) -> dict[str, Any]:
        """The options that `tercet.minimize` takes, under its names."""
        return {
            "tol": next((t for t in (self.gtol, self.tol) if t is not None), default),
            "order": self.order,
            "seed": self.seed,
            "max_iterations": self.maxiter if self.max_iterations is None else self.max_iterations,
            "max_seconds": self.max_seconds,
            "check_derivatives": self.check_derivatives,
        }


@dataclass(frozen=True)
class Solver:
    """A method of tercet that `scipy.optimize.minimize` takes as its `method`.

    `fun`, `jac`, `hess` and `hessp` are as for SciPy's own methods, and are called with float64 vectors. What is left
    out is made by central differences (also for the words '2-point' and '3-point'), and the message says so. The result
    has SciPy's fields, the `certificate`, and tercet's own result as `tercet`; `jac` and `hess` are those that the
    certificate is made of (`jac` is nan, and there is no `hess`, where the run ended without). `nfev`, `njev`, `nhev`
    and `ntev` count the calls of the functions that were given: value, gradient, Hessian or product with it, third
    derivative or product with it. With jac=True one function gives both, and `nfev` and `njev` both count its calls.

    `success` says that the certificate holds. `status` is 0 then, 1 for the iteration budget, 2 for rounding, 3 for
    values that are not finite, 99 where the callback raised StopIteration, else one of the other `CODES`. A function
    that raises after the first iteration ends the run with the best point so far and the status 7; see `tercet.error`.
    One that raises at x0 raises. Ctrl-C raises an `InterruptError`, once the best point so far is at hand.
    """

    method: Method

    def __call__(
        self,
        fun: Callable[..., Any],
        x0: Any,
        args: Any = (),
        jac: Any = None,
        hess: Any = None,
        hessp: Any = None,
        bounds: Any = None,
        constraints: Any = (),
        callback: Callable[..., Any] | None = None,
        **options: Any,
    ) -> OptimizeResult:
        """Minimize fun(x, *args) from x0; `scipy.optimize.minimize` calls it with what it was given."""
        refuse(constraints)
        settings = Options.of(options)
        calls = Calls(fun, jac, hess, hessp, settings, args if isinstance(args, tuple) else (args,))
        watched, points = Watched(self.method), [np.atleast_1d(np.asarray(x0))]
        see = observer(callback, points if settings.return_all else None)
        asked = settings.asked(calls.tolerance())
        result = minimize(calls, points[0], method=watched, bounds=bounds, callback=see, **asked)
        outcome = as_scipy(result, watched.known(result.x), calls)
        if settings.return_all:
            outcome["allvecs"] = points
        if result.status is Status.INTERRUPTED and not settings.return_on_interrupt:
            raise InterruptError(outcome) from result.error
        if settings.disp:
            print(summary(outcome))
        return outcome


class InterruptError(KeyboardInterrupt):
    """Ctrl-C during a run; `result` is what would have been returned, with the best point so far and the status 8."""

    def __init__(self, result: OptimizeResult):
        super().__init__(f"interrupted after {result.nit} iterations at f = {result.fun:.6g}; the point is in `result`")
        self.result = result


stm = Solver(STM())
scr = Solver(SCR())


def certify(
    result: Any,
    fun: Callable[..., Any],
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    *,
    args: Any = (),
    third: Callable[..., Any] | None = None,
    tvp: Callable[..., Any] | None = None,
    tol: float | None = None,
    order: int | None = None,
    bounds: Any = None,
) -> Certificate:
    """The certificate of a point that SciPy found: is it a minimum, a saddle, flat, and how many digits are right?

    `result` is what `scipy.optimize.minimize` returned, or a point; `fun` and its derivatives are those that it was
    given. What is left out is made by central differences; without `jac` the default tolerance is 1e-5, SciPy's own.
    """
    x = result.get("x") if isinstance(result, OptimizeResult) else result
    if x is None:
        raise ValueError("certify(result=...): it has no x; give what scipy.optimize.minimize returned, or a point.")
    calls = Calls(fun, jac, hess, hessp, Options(third=third, tvp=tvp), args if isinstance(args, tuple) else (args,))
    return certify_point(calls, x, tol=calls.tolerance() if tol is None else tol, order=order, bounds=bounds)


def refuse(constraints: Any) -> None:
    """ValueError where there are constraints, which tercet would not keep."""
    if not (constraints is None or (hasattr(constraints, "__len__") and len(constraints) == 0)):
        raise ValueError(
            f"minimize(constraints={constraints!r}): tercet minimizes without constraints; leave them out, add a "
            "penalty to fun, or use method='trust-constr'."
        )


class Calls:
    """The user's functions as a problem for `tercet.minimize`: of x alone, in SciPy's shapes, and every call counted.

    JAX never sees them: a function that is given to SciPy is called with NumPy vectors, as often as `nfev` says.
    """

    def __init__(self, fun: Any, jac: Any, hess: Any, hessp: Any, options: Options, args: tuple[Any, ...]):
        self.args, self.counts = args, Counter[str]()
        wrapped = type(fun).__name__ == "MemoizeJac"  # SciPy's own, where jac=True
        self.joint = wrapped or jac is True
        by_differences = isinstance(hess, str) and hess in ("2-point", "3-point")
        self.given = {
            "fun": fun.fun if wrapped else fun,
            "jac": None if self.joint else jac,
            "hess": None if by_differences else hess,
            "hessp": hessp if hess is None or by_differences else None,  # as SciPy has it, hess goes before hessp
            "third": options.third,
            "tvp": options.tvp,
        }
        for name, call in self.given.items():
            if not callable(call) and (name == "fun" or call is not None):
                remedy = "" if name == "fun" else ", or leave it out to have it made by central differences"
                raise ValueError(f"minimize({name}={call!r}): give a function{remedy}.")

    def fingerprint(self) -> dict[str, str]:
        """Empty: there are no checkpoints here."""
        return {}

    def bind(self, x0: Any) -> Bound:
        """The functions as an objective of a vector as long as x0."""
        start = check_length("x0", x0, np.size(x0))
        fun, derivatives = self.functions(len(start))
        return Bound(CallObjective(len(start), fun, derivatives), start)

    def functions(self, d: int) -> tuple[Callable[..., Any], dict[str, Callable[..., Any]]]:
        """The value, and the derivatives under tercet's names and in its shapes."""
        ask = self.ask
        derivatives: dict[str, Callable[..., Any]] = {
            "grad": lambda x: vector(ask("jac", x)),
            "hess": lambda x: dense(ask("hess", x), d),
            "hvp": lambda x, v: np.atleast_1d(ask("hessp", x, v)),
            "third": lambda x: ask("third", x),
            "tvp": lambda x, u, v: np.atleast_1d(ask("tvp", x, u, v)),
        }
        names = {"jac": "grad", "hess": "hess", "hessp": "hvp", "third": "third", "tvp": "tvp"}
        has = {ours: derivatives[ours] for name, ours in names.items() if self.given[name] is not None}
        if "hess" in has and d > DENSE_LIMIT:  # a sparse matrix or an operator is not made dense
            kept = Latest(lambda x: valid(ask("hess", x)))
            del has["hess"]
            has["hvp"] = lambda x, v: np.ravel(kept(x) @ v)
        if not self.joint:
            return lambda x: ask("fun", x), has
        both = Latest(lambda x: ask("fun", x))
        return lambda x: both(x)[0], {"grad": lambda x: vector(both(x)[1]), **has}

    def ask(self, name: str, *vectors: Vector) -> Any:
        """One call of a function that was given."""
        self.counts[name] += 1
        return self.given[name](*vectors, *self.args)

    def tolerance(self) -> float | None:
        """What `tol` is by default: what the gradient is good for."""
        return None if self.joint or self.given["jac"] is not None else 1e-5

    def evaluations(self) -> dict[str, int]:
        """How often each was called, under SciPy's names."""
        c = self.counts
        gradients = c["fun"] if self.joint else c["jac"]
        return {"nfev": c["fun"], "njev": gradients, "nhev": c["hess"] + c["hessp"], "ntev": c["third"] + c["tvp"]}


@dataclass(eq=False)
class Latest:
    """A function that remembers its latest answer, since it is asked again at the same x."""

    call: Callable[[Vector], Any]
    x: Vector | None = None
    answer: Any = None

    def __call__(self, x: Vector) -> Any:
        """call(x)."""
        if self.x is None or not np.array_equal(x, self.x):
            self.answer = self.call(x.copy())
            self.x = x
        return self.answer


def vector(g: Any) -> Any:
    """A gradient as SciPy's methods take it: a number where d = 1."""
    return g if isinstance(g, np.ndarray) and g.ndim == 1 else np.atleast_1d(g)


def valid(H: Any) -> Any:
    """A Hessian as it was given; ValueError where the indices of a sparse one point outside of it."""
    return valid_indices(H) if issparse(H) else H


def dense(H: Any, d: int) -> Any:
    """A Hessian as SciPy's methods take it (array, sparse matrix, operator, or a number where d = 1), as an array."""
    if issparse(H):
        return valid(H).toarray()
    return H @ np.eye(d) if hasattr(H, "matvec") else np.atleast_2d(H)


@dataclass(eq=False)
class Watched:
    """A method that keeps hold of its state, so that the derivatives at the last point need not be computed again."""

    method: Method
    inner: Kernel = field(init=False)
    state: State | None = field(init=False, default=None)

    def __repr__(self) -> str:
        return repr(self.method)

    def kernel(self, run: Run) -> Watched:
        """The method's own, watched."""
        self.inner = self.method.kernel(run)
        return self

    def begin(self, run: Run) -> State:
        """Stand at the start."""
        self.state = self.inner.begin(run)
        return self.state

    def resume(self, run: Run, arrays: dict[str, Any]) -> State:
        """Stand where a checkpoint was taken."""
        self.state = self.inner.resume(run, arrays)
        return self.state

    def step(self, run: Run, state: State) -> tuple[State, Row | Status]:
        """One iteration."""
        self.state, outcome = self.inner.step(run, state)
        return self.state, outcome

    def known(self, x: Vector) -> Known:
        """What the run knows of x: its last point, or its start."""
        points = () if self.state is None else (self.state.point, self.state.origin)
        return next((point.known for point in points if np.array_equal(point.x, x)), Known())


def observer(callback: Callable[..., Any] | None, points: list[Vector] | None) -> Callable[[Info], None] | None:
    """A callback of tercet that keeps the points and calls one of SciPy's: callback(xk) or, where its only parameter
    is named so, callback(intermediate_result=...). What it returns does not matter; StopIteration ends the run."""
    if callback is not None and not callable(callback):
        raise ValueError(f"minimize(callback={callback!r}): callback is a function of xk or of intermediate_result.")
    if callback is None and points is None:
        return None
    named = callback is not None and set(inspect.signature(callback).parameters) == {"intermediate_result"}

    def see(info: Info) -> None:
        if points is not None:
            points.append(info.x.copy())
        if callback is not None and named:
            callback(intermediate_result=OptimizeResult(x=info.x, fun=info.fun, nit=info.row.iteration + 1))
        elif callback is not None:
            callback(info.x)

    return see


def as_scipy(result: Result, known: Known, calls: Calls) -> OptimizeResult:
    """The result under SciPy's names."""
    hess: dict[str, Matrix] = {} if known.hessian is None else {"hess": known.hessian}
    stopped = "`callback` raised `StopIteration`. " if result.status is Status.CALLBACK else ""  # as SciPy says it
    return OptimizeResult(
        x=result.x,
        fun=result.fun,
        jac=np.full(len(result.x), np.nan) if known.gradient is None else known.gradient,
        **hess,
        **calls.evaluations(),
        nit=result.nit,
        status=CODES[result.status],
        success=result.success,
        message=stopped + result.message,
        certificate=result.certificate,
        tercet=result,
    )


def summary(outcome: OptimizeResult) -> str:
    """What `disp` prints, in the manner of SciPy's methods, with the certificate."""
    rows = {
        "Current function value": f"{outcome.fun:f}",
        "Iterations": outcome.nit,
        "Function evaluations": outcome.nfev,
        "Gradient evaluations": outcome.njev,
        "Hessian evaluations": outcome.nhev,
        "Third derivative evaluations": outcome.ntev,
    }
    lines = [f"         {name}: {value}" for name, value in rows.items()]
    certificate = [f"         {line}" for line in str(outcome.certificate).splitlines()]
    return "\n".join([outcome.message, *lines, *certificate])
