"""What a run carries from one iteration to the next, all of it immutable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import nan
from typing import Any, Protocol

from tercet.control.sigma import Control
from tercet.frame import Frame, Reach
from tercet.methods.phases import DESCENT, Phase
from tercet.methods.run import Run
from tercet.objectives.metered import Known, MeteredPoint, MeteredView, saved
from tercet.records import Certificate, Sizes, Vector
from tercet.sampling.draws import Stream
from tercet.subsolvers.base import Taylor, Workspace

Three = tuple[float, float, float]
UNKNOWN = (nan, nan, nan)


@dataclass(frozen=True, eq=False)
class Memory:
    """What the next iteration needs to know of the past, beside where it stands."""

    control: Control
    reach: Reach
    iteration: int = 0
    length: float = nan  # |s| of the last accepted step
    unexplained: float = 1.0  # |grad f+ - (g + Bs)| / |g| at the last accepted step: what a quadratic left over
    missed: float = 0.0  # the same of the last step over these samples; inf where it was rejected
    noisy: bool = False  # the last step was rejected, and sampling error explains that
    noise_share: float = 0.0  # the decrease that sampling error can pretend, over the one that the gradient promises
    stuck: int = 0  # rejections in a row that noise or rounding explains
    hopeless: bool = False  # a point that was seen to be lower was not, when it was asked again
    closer: float = 1.0  # the certificate is asked for where x is this much closer than it was asked for
    rounding: float = 0.0  # of f, where a certificate has looked at it
    looked: bool = False  # x seemed to go away with nothing more to gain, and that was looked at
    spreads: Three = (1.0, 1.0, 1.0)  # how far one term's g, B and T stray from their means
    variances: Three = UNKNOWN  # of the terms of the last samples, for a rule that wants them

    @staticmethod
    def of(fields: dict[str, Any]) -> Memory:
        """From its fields as a checkpoint has them."""
        parts = {"control": Control(**fields["control"]), "reach": Reach(**fields["reach"])}
        return Memory(**{**fields, **parts, **{name: tuple(fields[name]) for name in ("spreads", "variances")}})


@dataclass(frozen=True, eq=False)
class Views:
    """The terms of f, B and T, where they are beginnings of the shuffled order; equal sizes share a view."""

    value: MeteredView
    hessian: MeteredView
    third: MeteredView

    @staticmethod
    def of(run: Run, sizes: Sizes, old: Views | None = None) -> Views:
        """The views of these sizes; those that are there already are not gathered again."""
        made = [] if old is None else [old.value, old.hessian, old.third]
        for m in (sizes.value, sizes.hessian, sizes.third):
            made.append(next((view for view in made if view.terms == min(m, run.n)), None) or run.sample(m))
        return Views(*made[-3:])

    @staticmethod
    def alone(view: MeteredView) -> Views:
        """One view for all: B and T are over these terms, or over others that are drawn when they are needed."""
        return Views(view, view, view)


@dataclass(frozen=True, eq=False)
class Model:
    """The Taylor polynomial at x in the coordinates of the step, and the sub-solver that is ready on it."""

    reach: Reach
    frame: Frame
    size: float  # |x|
    taylor: Taylor
    workspace: Workspace


@dataclass(frozen=True, eq=False)
class Expansion:
    """f, g, B and T at x over the samples of one iteration, and the model of them."""

    point: MeteredPoint  # x over the terms of f
    f: float
    g: Vector
    norm: float  # |g|
    slope: MeteredPoint  # x over the terms of g, and below over those of B and T
    B: MeteredPoint
    T: MeteredPoint  # nothing of it is computed before it is asked for
    consistent: bool  # f and g are averages over the same terms, so that a new gradient can be compared with a forecast
    model: Model
    rounding: float = 0.0  # of f, as far as the residuals tell


class Extra(Protocol):
    """What a method keeps beside the state that all of them have."""

    def arrays(self) -> dict[str, Any]:
        """As numbers and arrays, from which the method makes it again."""
        ...


def still(point: MeteredPoint) -> MeteredPoint:
    """The same point as a record of what is known of it now."""
    same = point.view.at(point.x, point.given)
    same.known = replace(point.known)
    return same


@dataclass(frozen=True, eq=False)
class State:
    """All that the next iteration depends on."""

    point: MeteredPoint  # x over the terms of f, which is known there
    origin: MeteredPoint  # x0 over all terms, to compare with
    sizes: Sizes
    views: Views
    memory: Memory
    stream: Stream
    phase: Phase = DESCENT
    sampled: bool = False  # some iterations looked at a sample of the values only
    scale: float = 1.0  # |f| at the start, to tell when f fell beyond any sensible value
    before: Vector | None = None  # the x that the last step began at, to go back to
    kept: Expansion | None = None  # the last one, which serves again after a rejection
    certificate: Certificate | None = None  # of x, where one was made
    extra: Extra | None = None  # what only this method keeps

    @property
    def x(self) -> Vector:
        """Where the run stands."""
        return self.point.x

    @property
    def settled(self) -> bool:
        """Whether `arrays` has all that the next iteration depends on: nothing is kept of the last but f and g at x."""
        if self.kept is not None or self.certificate is not None or self.point.known.hessian is not None:
            return False
        return self.phase is DESCENT

    @property
    def still(self) -> State:
        """The same with what is known now: what the run goes on to learn at these points is not added."""
        return replace(self, point=still(self.point), origin=still(self.origin))

    def arrays(self) -> dict[str, Any]:
        """As numbers and arrays, from which `from_arrays` makes the same state again."""
        return {
            "x": self.x,
            "point": saved(self.point) if self.point.known.value is not None else {},
            "origin": self.origin.known.value,
            "sizes": asdict(self.sizes),
            "memory": asdict(self.memory),
            "stream": self.stream.state,
            "sampled": self.sampled,
            "scale": self.scale,
            "before": self.before,
            **({} if self.extra is None else {"extra": self.extra.arrays()}),
        }

    @staticmethod
    def from_arrays(
        run: Run, views: Callable[[Sizes], Views], arrays: dict[str, Any], extra: Extra | None = None
    ) -> State:
        """The state that gave these arrays; what was paid for then is not paid for again."""
        sizes = Sizes(**arrays["sizes"])
        seen, start = views(sizes), arrays["origin"]
        known = Known(None if start is None else float(start))
        return State(
            seen.value.recall(arrays["x"], arrays["point"]) if arrays["point"] else seen.value.at(arrays["x"]),
            MeteredPoint(run.full, run.x0, known=known),
            sizes,
            seen,
            Memory.of(arrays["memory"]),
            Stream(arrays["stream"]),
            sampled=bool(arrays["sampled"]),
            scale=float(arrays["scale"]),
            before=arrays["before"],
            extra=extra,
        )
