"""`tercet.torch.Residuals`: a sum of squares, or of a robust loss, given by residuals that PyTorch computes.

Values, gradients and products are those of the finite sum of the losses (`tercet.torch.FiniteSum`). Beside them stands
the Jacobian J of the residuals, by one reverse pass for each residual of an example, or one forward pass for each
variable where these are fewer, mapped over the examples of a chunk; and r''[s, s], a forward pass of a forward pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tercet.objectives.base import Bound, Priced, Traits, name_of
from tercet.objectives.capabilities import result_of
from tercet.objectives.residuals.linearized import Curve, Linearized, shares
from tercet.objectives.residuals.outer import Normal, Outer
from tercet.objectives.residuals.problem import check_weights
from tercet.objectives.residuals.traced import KEPT, residual_traits
from tercet.once import once
from tercet.records import Matrix, Rows, Vector
from tercet.records import Tensor as Cube
from tercet.torch.finite_sum import PROBED, FiniteSum, SumObjective, SumView, check_data
from tercet.torch.graph import from_host, to_host
from tercet.torch.point import TorchPoint


class Residuals:
    """f(params) = (1/n) sum_i w_i sum_k rho(r_k(params, *example_i)) for a PyTorch function `residual`.

    `residual(params, *example)` gives a number or a tensor for one example; with `batched=True` it takes a batch and
    gives its examples along the first axis. `params`, `data`, `module` and `chunk` are as for
    `tercet.torch.FiniteSum`; `loss` with its `scale`, and `weights`, as for `tercet.Residuals`. Steps are taken from a
    factorization of the Jacobian of the residuals. The operations of `residual` have to allow `torch.func.vmap` and
    forward derivatives; where they do not, use `FiniteSum`.
    """

    def __init__(
        self,
        residual: Callable[..., Any],
        data: Any,
        loss: str = "squares",
        weights: Any = None,
        *,
        scale: float = 1.0,
        batched: bool = False,
        module: torch.nn.Module | None = None,
        chunk: int | None = None,
    ):
        if not callable(residual):
            raise ValueError(f"Residuals(residual={residual!r}): residual is a function residual(params, *example).")
        if not isinstance(batched, bool):
            raise ValueError(f"Residuals(batched={batched!r}): batched is True or False.")
        self.residual, self.outer, self.batched = residual, Outer.of("Residuals", loss, scale), batched
        tensors = check_data(data)
        n = len(tensors[0])
        self.weights = np.ones(n) if weights is None else check_weights(weights, n)
        self.sum = FiniteSum(
            self.losses,
            (*tensors, torch.from_numpy(self.weights).to(tensors[0].device)),
            batched=batched,
            module=module,
            chunk=chunk,
        )

    def losses(self, params: Any, *example: Any) -> Tensor:
        """The loss of an example, or of each in a batch; the weight comes last."""
        *own, w = example
        r = self.residual(params, *own)
        each = self.outer.value(r, torch)
        return w * (each.reshape(len(w), -1).sum(dim=1) if self.batched else each.sum())

    def fingerprint(self) -> dict[str, str]:
        """The residual's name and code, the loss, and the data with the weights."""
        return {**self.sum.fingerprint(), "loss": repr(self.outer), "residual": name_of(self.residual)}

    def bind(self, x0: Any) -> Bound:
        """Check x0, and the residual with its derivatives on a few examples."""
        structure = self.sum.structure(x0)
        bound = self.sum.bind(x0)
        total: Any = bound.objective
        fixed = structure.fixed()

        def one(flat: Tensor, *example: Tensor) -> Tensor:
            pieces = torch.split(flat, structure.sizes)
            leaves = [p.view(structure.entries[name].shape) for name, p in zip(structure.owners, pieces, strict=True)]
            params = structure.assemble(leaves, fixed)
            if self.batched:
                return self.residual(params, *(part[None] for part in example))[0].reshape(-1)
            return self.residual(params, *example).reshape(-1)

        objective = TorchResiduals(total, one, self.outer, 0)
        few = [t[:PROBED] for t in total.data]
        try:
            x = from_host(bound.x0, structure.dtype, structure.device)
            width = objective.residuals(x, few).shape[1]
            objective = TorchResiduals(total, one, self.outer, width)
            objective.jacobian(x, few)
            with warnings.catch_warnings():  # PyTorch's own, when it first takes a forward derivative
                warnings.simplefilter("ignore", DeprecationWarning)
                objective.bend(x, x, few)
        except Exception as error:  # of PyTorch: it raises what it likes
            raise ValueError(
                f"Residuals(residual=...): its Jacobian or a forward derivative could not be taken ({error}); "
                "tercet.torch.FiniteSum with the loss asks less of the operations."
            ) from error
        return Bound(objective, bound.x0, bound.restore)


@dataclass(frozen=True, eq=False)
class TorchResiduals:
    """Residuals over PyTorch of a flat vector, beside the sum of their losses."""

    total: SumObjective
    one: Callable[..., Tensor]  # the residuals of one example as a function of a flat x
    outer: Outer
    width: int  # residuals of an example

    @property
    def n(self) -> int:
        """The number of examples."""
        return self.total.n

    @property
    def d(self) -> int:
        """The number of variables."""
        return self.total.d

    @property
    def traits(self) -> Traits:
        """As those of residuals by JAX."""
        total = self.total.traits
        of_any = residual_traits(self.d, "derivatives of the residuals by PyTorch", total.epsilon)
        return replace(of_any, on_device=total.on_device)

    def over(self, rows: Rows | None) -> ResidualView:
        """The mean over the given examples."""
        return ResidualView(self, self.total.over(rows))

    def likelihood(self, x: Vector) -> Normal | None:
        """Of the residuals, as normal errors."""
        halves = self.n * float(result_of(self.over(None).at(x).value()))
        return self.outer.likelihood(halves, self.n * self.width, self.d)

    def mapped(self, call: Callable[..., Any], batch: Sequence[Tensor]) -> Any:
        """A function of one example over a batch without its weights."""
        return torch.func.vmap(call, randomness="error")(*batch[:-1])

    def residuals(self, x: Tensor, batch: Sequence[Tensor]) -> Tensor:
        """r, a row for each example."""
        rows: Tensor = self.mapped(lambda *e: self.one(x, *e), batch)
        return rows

    def jacobian(self, x: Tensor, batch: Sequence[Tensor]) -> Tensor:
        """J, a matrix for each example."""
        mode = torch.func.jacrev if self.width < self.d else torch.func.jacfwd
        rows: Tensor = self.mapped(lambda *e: mode(lambda p: self.one(p, *e))(x), batch)
        return rows

    def bend(self, x: Tensor, s: Tensor, batch: Sequence[Tensor]) -> Tensor:
        """r''[s, s], a row for each example."""

        def along(p: Tensor) -> Tensor:
            slope: Tensor = torch.func.jvp(lambda q: self.residuals(q, batch), (p,), (s,))[1]
            return slope

        rows: Tensor = torch.func.jvp(along, (x,), (s,))[1]
        return rows

    def pull(self, x: Tensor, c: Tensor, batch: Sequence[Tensor]) -> Tensor:
        """J'c."""
        back = torch.func.vjp(lambda p: self.residuals(p, batch), x)[1]
        column: Tensor = back(c)[0]
        return column


@dataclass(frozen=True, eq=False)
class ResidualView:
    """The mean over some examples."""

    objective: TorchResiduals
    sum: SumView

    @property
    def terms(self) -> int:
        """The number of examples."""
        return self.sum.terms

    def at(self, x: Vector, carry: None = None) -> ResidualPoint:
        """These examples at x."""
        return ResidualPoint(self, x, self.sum.at(x))

    def tensor(self, x: Vector) -> Tensor:
        """A vector in the precision and on the device of the run."""
        place = self.objective.total.structure
        return from_host(x, place.dtype, place.device)


@dataclass(frozen=True, eq=False)
class ResidualPoint:
    """Residuals over some examples at one x."""

    view: ResidualView
    x: Vector
    sum: TorchPoint

    def value(self) -> float:
        """f(x)."""
        return self.sum.value()

    def first(self) -> tuple[float, Vector]:
        """f(x) and its gradient."""
        return self.sum.first()

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.sum.gradient()

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over groups of the examples."""
        return self.sum.group_sums

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.sum.product(order, *vectors)

    @once
    def formed(self) -> Matrix:
        """hess f(x), once."""
        return self.sum.hessian()

    def hessian(self) -> Priced[Matrix]:
        """hess f(x)."""
        known = "formed" in vars(self)
        return Priced(self.formed, hessian=0 if known else self.view.terms)

    @once
    def lines(self) -> Linearized:
        """Chunk by chunk, and reduced by QR where the rows so far are too many to be kept; a CUDA device reduces them
        before they come to the host."""
        v, o, x = self.view, self.view.objective, self.view.tensor(self.x)
        kept: list[Tensor] = []
        for batch in v.sum.batches():
            r, w = to_host(o.residuals(x, batch)).ravel(), np.repeat(to_host(batch[-1]), o.width)
            J = o.jacobian(x, batch).reshape(-1, o.d)
            J = J.to(J.device if J.is_cuda else "cpu", torch.float64)
            scale, image = (torch.from_numpy(each).to(J.device) for each in shares(r, w, o.outer, v.terms))
            kept.append(torch.cat([J * scale[:, None], image[:, None]], dim=1))
            if J.is_cuda or sum(rows.numel() for rows in kept) > KEPT:
                kept = [triangle(kept)]
        return Linearized(to_host(torch.cat(kept)))

    def linear(self, paid: bool = False) -> Priced[Linearized]:
        """A root of the Gauss-Newton matrix; one gradient of each example, once."""
        known = "lines" in vars(self)
        return Priced(self.lines, gradient=0 if known else self.view.terms)

    def rest(self) -> Priced[Matrix]:
        """B - root'root."""
        fresh = ("lines" not in vars(self), "formed" not in vars(self))
        m = self.view.terms
        return Priced(self.formed - self.lines.gram, gradient=m * fresh[0], hessian=m * fresh[1])

    def curve(self, s: Vector) -> Curve:
        """r''[s, s]."""
        v, o = self.view, self.view.objective
        x, along = v.tensor(self.x), v.tensor(s)
        slope, image, square = np.zeros(o.d), 0.0, 0.0
        for batch in v.sum.batches():
            r, b, w = (to_host(t) for t in (o.residuals(x, batch), o.bend(x, along, batch), batch[-1]))
            first, h = o.outer.weights(r)
            share = w[:, None] / v.terms
            slope += to_host(o.pull(x, v.tensor(share * h * b), batch))
            image += float(np.sum(share * first * b))
            square += float(np.sum(share * h * b * b))
        return Curve(slope, image, square)

    def third_tensor(self, V: Matrix) -> Cube:
        """third f(x) over the columns of V."""
        return self.sum.third_tensor(V)


def triangle(parts: Sequence[Tensor]) -> Tensor:
    """The triangle of a QR factorization of rows, where they lie, if that has fewer of them."""
    rows = torch.cat(tuple(parts))
    return rows if rows.shape[0] <= rows.shape[1] else torch.linalg.qr(rows, mode="r")[1]
