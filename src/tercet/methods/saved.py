"""Can a run have written this checkpoint? Field by field, and by one look at f and its gradient where it says to stand.

A checksum tells damage, not a file that was edited. What a run cannot have written is refused; what it may have written
is compared with the problem as it is now, so that no number of the file ends up in a certificate unseen.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from math import inf, isfinite, isnan
from typing import Any

import numpy as np

from tercet.checks import number
from tercet.methods.checkpoint import Checkpoint, CheckpointError
from tercet.methods.run import Kernel, Run
from tercet.methods.state import Memory, State
from tercet.objectives.metered import EvaluationError, Meter, Metered, MeteredPoint
from tercet.records import ORDERS
from tercet.result import Row
from tercet.sampling.draws import Stream
from tercet.storage import UNREADABLE

CLOSE = 1e-6  # f and its gradient may differ by this fraction, and by a thousandth of it of the largest along the run

MOST = 2**53  # evaluations of single terms; a count is kept in 64 bits while a run goes on


def recall(path: Any, past: Checkpoint, run: Run, kernel: Kernel) -> State:
    """The state of a checkpoint, checked and compared with the problem; CheckpointError where it cannot be one."""
    try:
        check(past, run)
        state = kernel.resume(run, past.state)
    except UNREADABLE as error:
        raise CheckpointError(f"resume({str(path)!r}): not a usable checkpoint ({error}).") from error
    try:
        compare(past, run, state)
    except EvaluationError as error:
        raise (error.__cause__ or error) from None
    except ValueError as error:
        raise CheckpointError(f"resume({str(path)!r}): the checkpoint is not of this problem ({error}).") from error
    return state


def check(past: Checkpoint, run: Run) -> None:
    """ValueError, or another of UNREADABLE, where a field is not what a run writes."""
    state = past.state
    need(past.n == run.n, f"it is of {past.n} terms, and the problem has {run.n}")
    names = {"x", "point", "origin", "sizes", "memory", "stream", "sampled", "scale", "before"}
    need(isinstance(state, dict) and set(state) - {"extra"} == names, "its state has other parts")
    need(isinstance(state.get("extra", {}), dict), "what its method keeps is no record")
    for name, x in (("x", state["x"]), ("the x before", state["before"])):
        if x is not None or name == "x":
            vector(name, x, run.d)
            need(np.array_equal(run.domain.project(x), x), f"{name} is outside its bounds")
    need(isinstance(state["sampled"], bool), "sampled is no truth value")
    need(0 <= number(state["scale"]) < inf, "its scale is no size")
    need(state["origin"] is None or not isnan(number(state["origin"])), "f at its start is no number")
    check_point(state["point"], run)
    check_rows(past.trace, run.n)
    last = past.trace[-1] if past.trace else None
    need(last is not None and state["sizes"] == asdict(last.sizes), "its samples are not those of its last row")
    check_memory(state["memory"], len(past.trace), run.d)
    check_stream(state["stream"], run.seed)
    need(set(past.tally) == set(ORDERS), "its counts have other names")
    need(last is not None and all(past.tally[name] >= getattr(last.counts, name) for name in ORDERS), "its counts fell")
    need(all(past.tally[name] <= MOST for name in ORDERS), "its counts are more than can be counted")
    need(last is not None and past.seconds == last.seconds, "its seconds are not those of its last row")


def need(holds: bool, otherwise: str) -> None:
    """ValueError where something does not hold."""
    if not holds:
        raise ValueError(otherwise)


def vector(name: str, v: Any, *shape: int) -> None:
    """An array of finite float64 numbers of this shape."""
    good = isinstance(v, np.ndarray) and v.dtype == np.float64 and v.shape == shape
    need(good and bool(np.isfinite(v).all()), f"{name} is no array of {shape} finite numbers")


def check_point(point: Any, run: Run) -> None:
    """What is known at x: nothing, or f, perhaps the gradient, and what the point owes to its past."""
    need(isinstance(point, dict), "what it knows at x is no record")
    if not point:
        return
    need(set(point) - {"gradient"} == {"value", "carry"}, "what it knows at x has other parts")
    need(isfinite(number(point["value"])), "f at x is not finite")
    if "gradient" in point:
        g = point["gradient"]
        need(isinstance(g, np.ndarray) and g.dtype == np.float64 and g.shape == (run.d,), "its gradient is no vector")
    need(isinstance(point["carry"], dict) and set(point["carry"]) <= {"formed", "engine"}, "its carry has other parts")
    rows = (point["carry"].get("engine") or {}).get("rows")
    need(rows is None or bool(np.all((rows >= 0) & (rows < run.n))), "it owes something to rows that are none")
    formed = point["carry"].get("formed")
    if formed is not None:
        need(set(formed) == {"terms", "hessian"} and type(formed["terms"]) is int, "its Hessian has other parts")
        need(1 <= formed["terms"] <= run.n, "its Hessian is over other terms")
        vector("its Hessian", formed["hessian"], run.d, run.d)


def check_rows(rows: list[Row], n: int) -> None:
    """The trace counts up: iterations one by one, evaluations and seconds never back, samples within the terms."""
    need(bool(rows), "it has no rows")
    before = dict.fromkeys(ORDERS, 0)
    seconds = 0.0
    for k, row in enumerate(rows):
        need(row.iteration == k, f"row {k} is of iteration {row.iteration}")
        need(all(0 <= size <= n for size in asdict(row.sizes).values()), f"row {k} has samples of more than {n} terms")
        need(row.sizes.value >= 1 and row.sizes.gradient >= 1, f"row {k} has samples of no terms")
        counts = {name: getattr(row.counts, name) for name in ORDERS}
        need(all(counts[name] >= before[name] for name in ORDERS), f"the counts of row {k} fell")
        need(seconds <= row.seconds < inf, f"the seconds of row {k} fell")
        need(isnan(row.failure) or row.failure >= 0, f"row {k} has no probability")
        before, seconds = counts, row.seconds


def check_memory(memory: Any, rows: int, d: int) -> None:
    """Every field of `Memory`, by the kind of its default; sigma is not negative, and the radius is positive."""
    known = {field.name: field.default for field in fields(Memory)}
    need(isinstance(memory, dict) and set(memory) == set(known), "its memory has other fields")
    need(memory["iteration"] == rows, f"it is at iteration {memory['iteration']!r} after {rows} rows")
    for name, default in known.items():
        value = memory[name]
        if isinstance(default, bool):
            good = isinstance(value, bool)
        elif isinstance(default, int):
            good = type(value) is int and value >= 0
        elif isinstance(default, float):
            good = isinstance(value, float | int) and not isinstance(value, bool) and not value < 0
        elif isinstance(default, tuple):
            good = (
                isinstance(value, list) and len(value) == 3 and all(isinstance(v, float) and not v < 0 for v in value)
            )
        else:
            continue
        need(good, f"{name}={value!r} is nothing that a run remembers")
    need(0 < memory["closer"] <= 1, f"closer={memory['closer']!r} is no fraction")
    reach = memory["reach"]
    need(isinstance(reach, dict) and set(reach) == {"size", "moved", "bend"}, "its reach has other fields")
    for name, part in reach.items():
        vector(f"the {name} of its reach", part, *((d,) if name != "bend" or np.size(part) else (0,)))
        need(bool(np.all(part >= 0)), f"the {name} of its reach is negative")
    control = memory["control"]
    need(isinstance(control, dict) and set(control) == {"sigma2", "sigma3", "radius"}, "its control has other fields")
    need(all(0 <= number(control[name]) < inf for name in ("sigma2", "sigma3")), "a sigma is negative or not finite")
    need(number(control["radius"]) > 0, "its radius is not positive")


def check_stream(saved: Any, seed: int) -> None:
    """A state of the generator that the seed gives."""
    ours = Stream.of(seed).state
    need(isinstance(saved, dict) and set(saved) == set(ours), "its random stream has other parts")
    need(saved["bit_generator"] == ours["bit_generator"], "its random stream is of another kind")
    place = saved["state"]
    need(isinstance(place, dict) and place.get("inc") == ours["state"]["inc"], "its random stream is of another seed")
    limits = ((place.get("state"), 2**128), (saved["has_uint32"], 2), (saved["uinteger"], 2**32))
    need(set(place) == {"state", "inc"}, "its random stream has other parts")
    need(all(type(value) is int and 0 <= value < most for value, most in limits), "its random stream has no such state")


def compare(past: Checkpoint, run: Run, state: State) -> None:
    """f and its gradient at x, and f at x0, as the file has them and as the problem gives them now; not counted.

    Rounding may tell them apart, on another machine say: then what was computed now is taken, so that nothing of the
    file is certified. A point that owes something to its past is computed anew before it is certified anyway.
    """
    own, point = Metered.of(run.objective.objective, Meter(run.n)), state.point
    sizes = [abs(row.f) for row in past.trace if isfinite(row.f)]
    largest = max(sizes, default=0.0)
    origin = state.origin
    if origin.known.value is not None and origin is not point:
        value = own.over(None).at(run.x0).value()
        agree("f at x0", [origin.known.value], [value], largest)
        origin.known.value = value
    if point.known.value is None:
        return
    fresh = point.view.counted(own).at(point.x)
    agree("f at x", [point.known.value], [fresh.value()], largest)
    gradients = max((row.gradient_norm for row in past.trace if isfinite(row.gradient_norm)), default=0.0)
    if point.known.gradient is not None:
        # One of forward differences is compared with the same: central ones differ by more than rounding.
        alike = fresh if point.inexact != 1 else MeteredPoint(fresh.view, point.x, point.given)
        agree("the gradient at x", point.known.gradient, alike.gradient(), gradients)
    if point.inexact > 1:
        point.known.value = fresh.value()
        if point.known.gradient is not None:
            point.known.gradient = fresh.gradient()
        return
    at = MeteredPoint(fresh.view, point.x, point.given)  # from what the file says of the past
    agree("f at x by the steps before", [at.value()], [fresh.value()], largest)


def agree(name: str, saved: Any, now: Any, largest: float) -> None:
    """ValueError where two vectors differ by more than rounding."""
    one, other = np.asarray(saved, dtype=np.float64), np.asarray(now, dtype=np.float64)
    finite = np.isfinite(one) & np.isfinite(other)
    same = bool(np.array_equal(one[~finite], other[~finite], equal_nan=True))
    with np.errstate(all="ignore"):
        off, size = np.linalg.norm((one - other)[finite]), np.linalg.norm(other[finite])
    need(same and off <= CLOSE * (size + 1e-3 * largest), f"{name} is not what the problem gives")
