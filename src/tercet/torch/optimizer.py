"""`tercet.torch.STM`: the method as a `torch.optim.Optimizer` that takes a closure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tercet
from tercet.checks import positive
from tercet.control.sigma import Control
from tercet.frame import Reach
from tercet.methods.minimize import THIRD_ORDER_LIMIT, tolerances_of
from tercet.methods.parts import Parts
from tercet.methods.run import Run
from tercet.methods.state import Memory, State
from tercet.methods.step import begin, step
from tercet.objectives.base import NotFiniteError, Traits
from tercet.objectives.finite_sum import DENSE_LIMIT
from tercet.objectives.metered import EvaluationError, Meter
from tercet.records import Matrix, Rows, Status, Vector
from tercet.result import Row
from tercet.sampling import Full
from tercet.torch.graph import Graph, Latest, flatten, from_host, to_host
from tercet.torch.point import TorchPoint

FORMED_THIRD = 8  # up to this many variables the whole third derivative is formed


class STM(torch.optim.Optimizer):
    """The tensor method on whatever the closure returns: one iteration, at most `tries` trial steps, per `step`.

    `step(closure)` expands the loss at the parameters, f + g's + 1/2 s'Bs + 1/6 T[s]^3, minimizes the regularized
    model and moves if the loss falls. The closure returns the loss and does *not* call backward(): derivatives are
    taken through it. It is called at the start and at every trial point, and all calls of one step have to compute the
    same function: a mini-batch may change from one `step` to the next, not within it. Random numbers that the loss
    draws from PyTorch (dropout) are the same in all of them. A trial step that does not lower the loss is
    taken back and shortened; after `tries` of them the parameters stay as they are.

    `method` is a `tercet.STM` (the default) or `tercet.SCR`; its `sizes` do not matter, the closure is one term. Where
    the gradient is at most `tol`, the criticality of the point is looked at up to `order` (default 3 up to 3000
    variables, else 2), and a direction of descent of that order is followed where there is one. `last` tells what the
    last step did: a `tercet.result.Row`, or the `tercet.Status` that says why there was none. There is no learning rate
    and no scheduler, one group of parameters, and `.grad` is neither read nor written. Parameters that require no
    gradient are left out. With the parameters and `state_dict()` a run is continued bit for bit.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        method: tercet.STM | tercet.SCR | None = None,
        tries: int = 10,
        tol: float | None = None,
        order: int | None = None,
    ):
        method = tercet.STM() if method is None else method
        if not isinstance(method, tercet.STM | tercet.SCR):
            raise ValueError(f"STM(method={method!r}): give a tercet.STM(...) or a tercet.SCR(...).")
        if isinstance(tries, bool) or not isinstance(tries, int) or tries < 1:
            raise ValueError(f"STM(tries={tries!r}): tries is a positive number of trial steps.")
        if tol is not None:
            positive("STM", "tol", tol)
        if isinstance(order, bool) or order not in (None, 1, 2, 3):
            raise ValueError(f"STM(order={order!r}): order is 1, 2 or 3, or None to choose by the number of variables.")
        self.method = replace(method, sizes=Full())
        self.last: Row | Status | None = None
        self.batches = True  # found out at the first step
        super().__init__(params, {"method": repr(self.method), "tries": tries, "tol": tol, "order": order})

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "method": self.method, "last": self.last, "batches": self.batches}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """One group only: all variables make one model."""
        if self.param_groups:
            raise ValueError("STM(params=...): all parameters make one model; give one group, STM([*a, *b]).")
        super().add_param_group(param_group)
        for p in self.param_groups[0]["params"]:
            if p.dtype not in (torch.float32, torch.float64):
                raise ValueError(f"STM(params=...): a parameter has dtype {p.dtype}; give float32 or float64.")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Stand where `state_dict` was taken; a state of another method is refused."""
        groups = state_dict["param_groups"]
        saved = groups[0].get("method") if len(groups) == 1 else None
        if saved != repr(self.method):
            raise ValueError(f"STM.load_state_dict: the state is of {saved}, but this optimizer has {self.method!r}.")
        super().load_state_dict(state_dict)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One iteration from the parameters as they are; returns the loss there."""
        if closure is None:
            raise ValueError("STM.step(closure=None): give a function that returns the loss, without backward().")
        group = self.param_groups[0]
        leaves = [p for p in group["params"] if p.requires_grad and p.numel()]
        if not leaves:
            raise ValueError("STM.step: no parameter requires a gradient; there is nothing to vary.")
        objective = ClosureObjective(closure, leaves, self.batches)
        start = objective.x()
        order = group["order"] or (3 if len(start) <= THIRD_ORDER_LIMIT else 2)
        run = Run.of(objective, start, 0, tolerances_of(group["tol"], order, objective.traits.epsilon), Meter(1))
        saved = self.state[group["params"][0]]
        try:
            if self.last is None:
                with torch.enable_grad():
                    self.batches = objective.examine(start)
            reached, self.last = advance(run, Parts.of(self.method, run), recollect(saved), group["tries"])
        except NotFiniteError:
            reached, self.last = None, Status.NOT_FINITE
        except EvaluationError as error:
            objective.load(start)
            cause = error.__cause__ or error
            raise cause from cause.__cause__
        except BaseException:
            objective.load(start)
            raise
        objective.load(start if reached is None else reached.x)
        saved.update({} if reached is None else digested(reached.memory))
        if isinstance(self.last, Status) and self.last is not Status.CERTIFIED:
            warnings.warn(f"STM.step: {self.last.value}", RuntimeWarning, stacklevel=2)
        return objective.first


def advance(run: Run, parts: Parts, memory: Memory | None, tries: int) -> tuple[State, Row | Status]:
    """Iterate until a step is accepted, there is a reason to end, or the tries are used up."""
    state = begin(run, parts, memory)
    for _ in range(tries):
        state, outcome = step(run, parts, state)
        if isinstance(outcome, Status) or outcome.accepted:
            break
    return state, outcome


def digested(memory: Memory) -> dict[str, Any]:
    """What the next step needs of the past, in plain numbers: sigma, the radius, and what a quadratic left over."""
    c = memory.control
    return {
        "step": memory.iteration,
        "second": float(c.sigma2),
        "third": float(c.sigma3),
        "radius": float(c.radius),
        "length": float(memory.length),
        "unexplained": float(memory.unexplained),
        **{f"reach_{name}": torch.from_numpy(np.array(part)) for name, part in asdict(memory.reach).items()},
    }


def recollect(saved: dict[str, Any]) -> Memory | None:
    """The memory again; None before the first step. How stuck a run was is forgotten: the closure may have changed."""
    if not saved:
        return None
    control = Control(saved["second"], saved["third"], saved["radius"])
    reach = Reach(*(saved[f"reach_{field.name}"].double().cpu().numpy() for field in fields(Reach)))
    return Memory(control, reach, saved["step"], saved["length"], saved["unexplained"])


@dataclass(eq=False)
class ClosureObjective:
    """The closure as a function of the parameters: a sum of one term. The graph of the latest x is kept."""

    closure: Callable[[], Any]
    parameters: list[Tensor]
    batches: bool = True  # whether rows of a Hessian can be taken some at once
    n: int = 1
    terms: int = 1
    sampled: bool = False
    latest: Latest = field(default_factory=Latest)
    first: Tensor | None = None  # the loss at the first call

    def __post_init__(self) -> None:
        self.sizes = [p.numel() for p in self.parameters]
        self.d = sum(self.sizes)
        self.devices = sorted({p.device.index or 0 for p in self.parameters if p.device.type == "cuda"})
        self.luck = self.random_states()
        self.traits = Traits(
            dense=self.d <= DENSE_LIMIT,
            forms_third=self.d <= FORMED_THIRD,
            provenance="derivatives by PyTorch",
            epsilon=max(float(torch.finfo(p.dtype).eps) for p in self.parameters),
        )

    def random_states(self) -> list[Tensor]:
        """The states of the generators that the closure can draw from."""
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(k) for k in self.devices)]

    def replay(self) -> None:
        """The same random numbers as at the first call."""
        torch.set_rng_state(self.luck[0])
        for k, state in zip(self.devices, self.luck[1:], strict=True):
            torch.cuda.set_rng_state(state, k)

    def x(self) -> Vector:
        """The parameters as a flat vector."""
        return to_host(flatten([p.detach() for p in self.parameters]))

    def load(self, x: Vector) -> None:
        """Set the parameters, and let go of the graph."""
        self.latest = Latest()
        self.put(x)

    def put(self, x: Vector) -> None:
        """Set the parameters; a graph at the old ones is of no more use."""
        with torch.no_grad():
            for p, piece in zip(self.parameters, np.split(x, np.cumsum(self.sizes)[:-1]), strict=True):
                p.copy_(from_host(piece, p.dtype, p.device).view_as(p))

    def graph(self, x: Vector) -> Graph:
        """The loss at x."""
        return self.latest.graph(x, lambda: self.call(x))

    def call(self, x: Vector) -> Graph:
        """The closure at x."""
        self.put(x)
        self.replay()
        with torch.enable_grad():
            loss = check_loss(self.closure())
        self.first = loss.detach() if self.first is None else self.first
        return Graph(loss, self.parameters, self.batches)

    def examine(self, x: Vector) -> bool:
        """Refuse operations that have no three derivatives, and find out whether rows of B can be batched."""
        graph = self.graph(x)
        graph.check("STM.step(closure)")
        self.batches = graph.batches = not self.traits.dense or graph.can_batch()
        return self.batches

    def over(self, rows: Rows | None) -> ClosureObjective:
        """There is one term."""
        return self

    def at(self, x: Vector, carry: None = None) -> TorchPoint:
        """The loss at x."""
        return TorchPoint(self, x)

    def graphs(self, x: Vector) -> Iterator[Graph]:
        """The one graph."""
        yield self.graph(x)

    def value(self, x: Vector) -> float:
        """f(x)."""
        return float(self.graph(x).value.detach())

    def both(self, x: Vector) -> tuple[float, Vector]:
        """f(x) and its gradient."""
        return self.value(x), to_host(self.graph(x).gradient)

    def groups(self, x: Vector) -> tuple[float, Matrix]:
        """One group: there is no sample."""
        value, gradient = self.both(x)
        return value, gradient[None, :]


def check_loss(loss: Any) -> Tensor:
    """What a closure has to return: a real scalar that depends on the parameters by operations of PyTorch."""
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        what = f"a tensor of shape {tuple(loss.shape)}, {loss.dtype}" if isinstance(loss, Tensor) else repr(loss)
        raise ValueError(f"STM.step(closure): the closure returned {what}; return the loss as a scalar tensor.")
    if not loss.requires_grad:
        raise ValueError(
            "STM.step(closure): the loss does not depend on the parameters, or was detached from them; compute it from "
            "them with gradients enabled, and do not call item() or detach()."
        )
    return loss.reshape(())
