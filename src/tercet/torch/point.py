"""A point of a PyTorch objective: the mean over some terms at one x, with the derivatives that its graphs give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from tercet.objectives.base import group_errors
from tercet.records import Matrix, Tensor, Vector
from tercet.torch.graph import Graph, from_host, to_host


class Source(Protocol):
    """A mean over terms as a function of x, which comes as graphs of the sums over pieces of it."""

    @property
    def terms(self) -> int:
        """The number of terms."""
        ...

    def value(self, x: Vector) -> float:
        """The mean at x."""
        ...

    def both(self, x: Vector) -> tuple[float, Vector]:
        """The mean and its gradient."""
        ...

    def groups(self, x: Vector) -> Matrix:
        """Sums of gradients over groups of the terms."""
        ...

    def graphs(self, x: Vector) -> Iterator[Graph]:
        """The sums over pieces of the terms."""
        ...


@dataclass(frozen=True, eq=False)
class TorchPoint:
    """A mean over some terms at one x."""

    source: Source
    x: Vector

    @property
    def terms(self) -> int:
        """The number of terms."""
        return self.source.terms

    @cached_property
    def both(self) -> tuple[float, Vector]:
        """f(x) and its gradient."""
        with torch.enable_grad():
            return self.source.both(self.x)

    def value(self) -> float:
        """f(x)."""
        return self.both[0] if "both" in self.__dict__ else self.source.value(self.x)

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.both[1]

    @cached_property
    def errors(self) -> Matrix:
        """From the spread of the groups' gradients."""
        with torch.enable_grad():
            return group_errors(self.source.groups(self.x), self.terms)

    def gradient_errors(self) -> Matrix:
        """Rows whose squares sum to the covariance of the gradient, from the spread of groups of the terms."""
        return self.errors

    def mean(self, name: str, *arrays: Any) -> Any:
        """One of the derivatives, summed over the pieces and divided by the number of terms."""
        total: Any = 0.0
        with torch.enable_grad():  # also where the caller has switched gradients off
            for graph in self.source.graphs(self.x):
                g = graph.gradient
                total = total + getattr(graph, name)(*(from_host(a, g.dtype, g.device) for a in arrays))
        return to_host(total) / self.terms

    def hessian(self) -> Matrix:
        """hess f(x)."""
        return self.mean("hessian")

    def hessian_price(self) -> int:
        """Every term."""
        return self.terms

    def hessian_product(self, v: Vector) -> Vector:
        """hess f(x) v."""
        return self.mean("product", v)

    def third_product(self, u: Vector, v: Vector) -> Vector:
        """third f(x)[u, v]."""
        return self.mean("third", u, v)

    def third_square(self, s: Vector) -> Vector:
        """third f(x)[s, s]."""
        return self.third_product(s, s)

    def third_square_price(self, s: Vector) -> int:
        """Every term."""
        return self.terms

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.mean("cube", V)

    def memento(self) -> dict[str, Any]:
        """Nothing: the point stands alone."""
        return {}

    def third_bound(self, V: Matrix | None, tight: bool = False) -> float:
        """None is known."""
        return np.inf
