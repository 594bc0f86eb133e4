"""The methods of a comparison by name, each with its family, its settings and the grid that it is tuned over."""

from __future__ import annotations

import difflib
import importlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tercet.control.sigma import PaperSigma
from tercet.experiments.averaged import Averaged
from tercet.experiments.baselines import SAGA, SVRC, SVRG
from tercet.experiments.dynamic import DynamicAccuracy
from tercet.experiments.hybrid import Hybrid
from tercet.experiments.interpolation import Interpolation, Persistent
from tercet.frame import Euclidean
from tercet.methods.checkpoint import describe
from tercet.methods.reduced import Reduced
from tercet.methods.sgd import SGD
from tercet.methods.stm import SCR, STM
from tercet.sampling import Fixed, Full

STEPS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # the paper's grid of step sizes
BATCHES = (0.01, 0.05, 0.10)  # and of mini-batches, for SGD
LARGEST_GRID = 1000

ONCE = (
    "The paper's counting: of each sample that is drawn, a derivative counts once in an iteration, however often used."
)
SAME = "Both countings agree: every value, gradient and Hessian is over all data and used once."


@dataclass(frozen=True)
class Plan:
    """A method in a comparison: its label, the entry of the catalogue or `module:attribute`, settings, and a grid.

    `kind` is "method" for an object with `kernel(run)` as tercet's own, and "scipy" for a function that
    `scipy.optimize.minimize(method=...)` takes.
    """

    label: str
    use: str
    settings: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    kind: str = "method"

    def choices(self) -> Iterator[Plan]:
        """One plan for each point of the grid, in its order, labeled by its settings; none without a grid."""
        names = list(self.grid)
        for values in itertools.product(*self.grid.values()) if names else ():
            point = dict(zip(names, values, strict=True))
            words = " ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                             for name, value in point.items())  # fmt: skip
            yield Plan(f"{self.label} {words}", self.use, {**self.settings, **point}, {}, self.kind)


@dataclass(frozen=True)
class SciPyMethod:
    """A method of scipy.optimize.minimize with our derivatives; `name` may be a function, as SciPy allows."""

    name: str | Callable[..., Any]
    options: dict[str, Any]
    hessian: bool = False


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue: the family, what makes the method from settings, its grid, and how it is counted."""

    family: str
    text: str
    make: Callable[..., Any]
    grid: dict[str, list[Any]] = field(default_factory=dict)
    counting: str = ONCE


def lbfgs(memory: int = 10) -> SciPyMethod:
    """SciPy's L-BFGS-B without bounds, to |g|_inf <= 1e-10."""
    options = {"gtol": 1e-10, "ftol": 0.0, "maxcor": memory, "maxiter": 10**6, "maxfun": 10**7}
    return SciPyMethod("L-BFGS-B", options)


def trust_exact() -> SciPyMethod:
    """SciPy's trust-exact, to |g| <= 1e-10."""
    return SciPyMethod("trust-exact", {"gtol": 1e-10, "maxiter": 10**5}, hessian=True)


def reduced(kind: Any, **settings: Any) -> Any:
    """STM or SCR with 5 % samples, the factors 0.8/1.2/2 and variance reduction."""
    return kind(Fixed(), sigma=PaperSigma(), policy=Reduced(), **settings)


def ar3_of_others(**settings: Any) -> STM:
    """Third order over all data, with interpolation updates and pre-rejection."""
    given = {"subsolver": Persistent(), "sigma": Interpolation(), **settings}
    return STM(Full(nested=False), worth=math.inf, noise_aware=False, units=Euclidean(), **given)


def dynamic(kind: Any, omega: float = 0.25, **settings: Any) -> Any:
    """STM or SCR with 5 % samples at first, which grow until a step is told well enough."""
    third = {"worth": math.inf} if kind is STM else {}
    return kind(Fixed(), policy=DynamicAccuracy(omega), **third, **settings)


STEP_GRID: dict[str, list[Any]] = {"step": list(STEPS)}
SIGMA_GRID: dict[str, list[Any]] = {"sigma": [1e-3, 1e-2, 1e-1, 1.0, 10.0]}
SVRC_GRID: dict[str, list[Any]] = {
    "gradient": [0.03, 0.1, 0.3],
    "penalty": [1e-2, 1e-1, 1.0],
    "decay": [0.0, 1.0],
}
CATALOGUE: dict[str, Entry] = {
    "STM": Entry("STM", "sub-sampled tensor method, this library's settings", STM),
    "STM-paper": Entry(
        "STM", "sub-sampled tensor method, the paper's settings; inner step size tuned", STM.paper, STEP_GRID
    ),
    "SCR": Entry("SCR", "sub-sampled cubic regularization, this library's settings", SCR),
    "SCR-paper": Entry(
        "SCR", "sub-sampled cubic regularization, the paper's settings; inner step size tuned", SCR.paper, STEP_GRID
    ),
    "AR3": Entry("AR3", "third order over all data", lambda **s: STM(Full(), **s)),
    "ARC": Entry("ARC", "second order over all data", lambda **s: SCR(Full(), **s)),
    "AR3-interpolation": Entry(
        "others", "AR3 with interpolation updates and pre-rejection (Cartis et al. 2025)", ar3_of_others
    ),
    "hybrid": Entry(
        "others", "cubic steps over all data, third order at degenerate points only (Anandkumar and Ge 2016)", Hybrid
    ),
    "STM-dynamic": Entry(
        "others", "samples sized by dynamic accuracy, third order (Bellavia et al. 2020)", partial(dynamic, STM)
    ),
    "SCR-dynamic": Entry(
        "others", "samples sized by dynamic accuracy, second order (Bellavia et al. 2020)", partial(dynamic, SCR)
    ),
    "STM-momentum": Entry(
        "others", "third-order steps of moving averages; sigma tuned", Averaged, SIGMA_GRID
    ),
    "SCR-momentum": Entry(
        "others", "stochastic cubic Newton with momentum (Chayti et al. 2025); sigma tuned", partial(Averaged, order=2),
        SIGMA_GRID,
    ),
    "SGD": Entry(
        "SGD", "constant steps; batch and step tuned over the paper's grid", SGD,
        {"batch": list(BATCHES), "step": list(STEPS)},
        "Both countings agree: each iteration takes one gradient of its batch and no function value.",
    ),
    "STM-reduced": Entry(
        "reduced", "the paper's samples and factors with variance reduction", partial(reduced, STM)
    ),
    "SCR-reduced": Entry(
        "reduced", "the same with the second-order model: the paper's samples and factors", partial(reduced, SCR)
    ),
    "SVRC": Entry(
        "SVRC", "variance-reduced cubic regularization, its own schedule (Zhou, Xu and Gu 2018); tuned", SVRC, SVRC_GRID
    ),
    "SVRG": Entry("SVRG", "variance-reduced gradient steps of constant length; tuned", SVRG, STEP_GRID),
    "SAGA": Entry("SAGA", "gradient steps with a table of gradients over blocks; tuned", SAGA, STEP_GRID),
    "L-BFGS": Entry("SciPy", "SciPy's L-BFGS-B", lbfgs, counting=SAME),
    "trust-exact": Entry("SciPy", "SciPy's trust-exact", trust_exact, counting=SAME),
}  # fmt: skip


def plan(name: str) -> Plan:
    """The plan of a method of the catalogue as it stands; ValueError with the nearest names for an unknown one."""
    known = nearest(name, CATALOGUE, "method")
    return Plan(name, name, grid=dict(CATALOGUE[known].grid))


def nearest(name: str, known: Any, what: str) -> str:
    """The name itself where it is known, else a ValueError that lists the nearest ones."""
    if name in known:
        return name
    lower = {key.lower(): key for key in known}
    near = [lower[key] for key in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    hint = f"the nearest are {', '.join(near)}" if near else "none is near"
    raise ValueError(f"unknown {what} {name!r}: {hint}; there are {', '.join(known)}")


def family(plan: Plan) -> str:
    """STM, SCR, SGD, AR3, ARC, SciPy, or own."""
    return CATALOGUE[plan.use].family if plan.use in CATALOGUE else "own"


def counting(plan: Plan) -> str:
    """How its evaluations are counted, in words."""
    return CATALOGUE[plan.use].counting if plan.use in CATALOGUE else ONCE


def make(plan: Plan) -> Any:
    """The method object of a plan; ValueError where its settings or the user's attribute do not give one."""
    try:
        if plan.use in CATALOGUE:
            return CATALOGUE[plan.use].make(**plan.settings)
        return make_own(plan, find_own(plan.use))
    except TypeError as error:
        raise ValueError(f"{plan.use}: its settings {plan.settings} do not fit ({error})") from error


def make_own(plan: Plan, found: Any) -> Any:
    """The user's method: the object itself, or what it returns for the settings."""
    if plan.kind == "scipy":
        return SciPyMethod(found, dict(plan.settings), hessian=True)
    method = found if hasattr(found, "kernel") and not isinstance(found, type) else found(**plan.settings)
    if not hasattr(method, "kernel"):
        raise ValueError(f"{plan.use} gives {method!r}, which has no kernel(run); see CONTRIBUTING for a method")
    return method


def find_own(use: str) -> Any:
    """What `module:attribute` names."""
    module, colon, attribute = use.partition(":")
    if not (colon and module and attribute):
        raise ValueError(f"{nearest(use, CATALOGUE, 'method')}; a method of your own is named 'module:attribute'")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{use!r}: the module {module!r} cannot be imported ({error})") from error
    for part in attribute.split("."):
        names = [name for name in dir(found) if not name.startswith("_")]
        found = getattr(found, part) if hasattr(found, part) else nearest(part, names, f"attribute of {module}")
    return found


def printable(plan: Plan, method: Any) -> dict[str, Any]:
    """The settings of a method as JSON."""
    if isinstance(method, SciPyMethod):
        name = method.name if isinstance(method.name, str) else plan.use
        return {"method": name, **in_words(method.options)}
    settings = describe(method)
    return in_words(settings if isinstance(settings, dict) else {"use": plan.use, **plan.settings})


def in_words(value: Any) -> Any:
    """Settings for JSON, which has no infinity."""
    if isinstance(value, dict):
        return {str(key): in_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [in_words(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "unbounded" if value > 0 else str(value)
    return value if isinstance(value, str | int | float | None) else repr(value)
