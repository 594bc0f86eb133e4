"""A point of a PyTorch objective: the mean over some terms at one x, with the derivatives that its graphs give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tercet.once import once
from tercet.records import Matrix, Tensor, Vector
from tercet.torch.graph import Graph, from_host, to_host


class Source(Protocol):
    """A mean over terms as a function of x, which comes as graphs of the sums over pieces of it."""

    @property
    def terms(self) -> int:
        """The number of terms."""
        ...

    @property
    def sampled(self) -> bool:
        """Whether these are some of the terms, so that their gradient has a sampling error."""
        ...

    def value(self, x: Vector) -> float:
        """The mean at x."""
        ...

    def both(self, x: Vector) -> tuple[float, Vector]:
        """The mean and its gradient."""
        ...

    def groups(self, x: Vector) -> tuple[float, Matrix]:
        """The mean, and sums of gradients over groups of the terms, from one pass."""
        ...

    def graphs(self, x: Vector) -> Iterator[Graph]:
        """The sums over pieces of the terms."""
        ...


@dataclass(frozen=True, eq=False)
class TorchPoint:
    """A mean over some terms at one x."""

    source: Source
    x: Vector

    @once
    def grouped(self) -> tuple[float, Matrix]:
        """f(x), and sums of gradients over groups of the terms."""
        with torch.enable_grad():  # here and below: also where the caller has switched gradients off
            return self.source.groups(self.x)

    def value(self) -> float:
        """f(x)."""
        return self.source.value(self.x)

    def first(self) -> tuple[float, Vector]:
        """f(x) and its gradient: nearly every point needs both. Those of a sample are made of its groups."""
        if self.source.sampled:
            value, sums = self.grouped
            return value, sums.sum(axis=0) / self.source.terms
        with torch.enable_grad():
            return self.source.both(self.x)

    def gradient(self) -> Vector:
        """grad f(x)."""
        return self.first()[1]

    @property
    def group_sums(self) -> Matrix:
        """Sums of gradients over groups of the terms."""
        return self.grouped[1]

    def product(self, order: int, *vectors: Vector) -> Vector:
        """hess f(x) v or third f(x)[u, v]."""
        return self.mean("product" if order == 2 else "third", *vectors)

    def hessian(self) -> Matrix:
        """hess f(x)."""
        return self.mean("hessian")

    def third_tensor(self, V: Matrix) -> Tensor:
        """third f(x) over the columns of V."""
        return self.mean("cube", V)

    def mean(self, name: str, *arrays: Any) -> Any:
        """One of the derivatives, summed over the pieces and divided by the number of terms."""
        total: Any = 0.0
        with torch.enable_grad():
            for graph in self.source.graphs(self.x):
                g = graph.gradient
                total = total + getattr(graph, name)(*(from_host(a, g.dtype, g.device) for a in arrays))
        return to_host(total) / self.source.terms
