"""Derivatives up to order three of a scalar that PyTorch has computed, by repeated reverse mode.

    g = grad f,    B v = grad (g'v),    T[u, v] = grad ((B u)'v)

What they cost, in gradients, for a linear model, a perceptron and a small convolutional net, on one CPU thread and on
an H200 (`benchmarks/adaptor_torch.py`, PyTorch 2.11):

                                      CPU               H200
    B v                          1.7  2.3  2.8     3.5  2.7  3.6
    B v, graph of g at hand      0.7  1.4  2.0     1.3  1.5  2.4
    B v by jvp(grad)             3.3  3.0  2.6     9.4  4.7  4.4
    T[u, v]                      3.2  6.7  6.1     5.4  5.9  6.4
    T[u, v] by jvp(jvp(grad))    7.2  8.1  6.9    22.7 12.5 12.4
    T[u, v] by grad(jvp(jvp))    4.1  7.5  5.6    14.9 11.8 10.2

So reverse mode it is; it also covers more operations than forward mode, and works through a closure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tercet.once import once

REMEDIES = (
    (
        r"not implemented|not currently support|differentiate twice|[Dd]ouble backward|forward AD",
        "put an operation that has higher derivatives in its place (for attention, run the loss under "
        "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH); for recurrent nets on CUDA, under "
        "torch.backends.cudnn.flags(enabled=False))",
    ),
    (
        r"a second time|modified by an inplace operation",
        "return the loss without calling backward(), and do not change parameters in place while it is computed",
    ),
)

NORMALIZED = "PyTorch gets them wrong for {}, without an error; write the normalization in elementary operations"
SILENT = {  # by the name of the node, without its number; see PyTorch's issues 175754 and 186256
    "NativeLayerNormBackward": NORMALIZED.format("layer_norm"),
    "NativeBatchNormBackward": NORMALIZED.format("batch_norm in training mode and instance_norm"),
    "CudnnBatchNormBackward": NORMALIZED.format("batch_norm in training mode and instance_norm"),
    "WeightNormInterfaceBackward": NORMALIZED.format("weight_norm"),
    # This node is where derivatives end; it leads nowhere, so that zeros would come back.
    "torch::autograd::Error": "an operation has fewer, such as a torch.autograd.Function that is marked "
    "once_differentiable; write its backward in differentiable operations and take the mark away",
}


class NotDifferentiableError(ValueError):
    """A loss holds an operation that PyTorch cannot differentiate as often as is needed; the message names it."""


def flatten(parts: Sequence[Tensor]) -> Tensor:
    """The entries of all parts, one after the other, on the device of the first."""
    return torch.cat([part.reshape(-1).to(parts[0].device) for part in parts])


def to_host(values: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A float64 NumPy array."""
    return values.detach().cpu().double().numpy()


def from_host(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A NumPy array as a tensor that shares nothing with it."""
    return torch.from_numpy(np.array(values, dtype=np.float64, order="C")).to(dtype).to(device)


def differentiate(value: Tensor, leaves: Sequence[Tensor], *, keep: bool = True, again: bool = False) -> Tensor:
    """grad of a scalar with respect to the leaves, as one flat vector; zero where the scalar does not depend on them.

    `keep` leaves the graph of the scalar for further use; with `again` the gradient can be differentiated itself.
    """
    if not value.requires_grad:  # nothing of the leaves is left in it, as in the Hessian of a linear function
        return torch.zeros_like(flatten(leaves).detach())
    with naming():
        parts = torch.autograd.grad(value, leaves, retain_graph=keep, create_graph=again, materialize_grads=True)
    return flatten(parts)


@contextmanager
def naming() -> Iterator[None]:
    """A context in which PyTorch's complaint about an operation becomes a NotDifferentiableError with a remedy."""
    try:
        yield
    except RuntimeError as error:
        for pattern, remedy in REMEDIES:
            if re.search(pattern, str(error)):
                raise NotDifferentiableError(f"PyTorch says: {str(error).strip(' .')}; {remedy}.") from error
        raise


class Graph:
    """A scalar at its leaves, and products with its derivatives; g and its graph are kept.

    Rows of B are taken `at_once` where `batches`; not every operation allows that (`can_batch` tells).
    """

    def __init__(self, value: Tensor, leaves: Sequence[Tensor], batches: bool = True, at_once: int = 16):
        self.value, self.leaves, self.batches, self.at_once = value, leaves, batches, at_once

    @once
    def gradient(self) -> Tensor:
        """grad f, from which further derivatives can be taken."""
        return differentiate(self.value, self.leaves, again=True)

    def product(self, v: Tensor, again: bool = False) -> Tensor:
        """B v = grad (g'v)."""
        return differentiate(self.gradient @ v, self.leaves, again=again)

    def third(self, u: Tensor, v: Tensor) -> Tensor:
        """T[u, v] = grad ((B u)'v)."""
        return differentiate(self.product(u, again=True) @ v, self.leaves)

    def hessian(self) -> Tensor:
        """B, row by row."""
        g = self.gradient
        basis = torch.eye(len(g), dtype=g.dtype, device=g.device)
        if not g.requires_grad:
            return torch.zeros_like(basis)
        if not self.batches:
            return torch.stack([self.product(row) for row in basis])
        return torch.cat([self.rows(some) for some in torch.split(basis, self.at_once)])

    def rows(self, V: Tensor) -> Tensor:
        """B v for each row v of V, all at once."""
        parts = torch.autograd.grad(
            self.gradient, self.leaves, V, retain_graph=True, is_grads_batched=True, materialize_grads=True
        )
        return torch.cat([part.reshape(len(V), -1).to(V.device) for part in parts], dim=1)

    def can_batch(self) -> bool:
        """Whether `rows` gives the right products: some operations raise there, and some could be wrong."""
        g = self.gradient.detach()
        if not self.gradient.requires_grad:
            return True
        V = torch.cos(torch.arange(2 * len(g), device=g.device, dtype=g.dtype)).view(2, -1)
        try:
            together = self.rows(V)
        except RuntimeError:
            return False
        single = torch.stack([self.product(v) for v in V])
        scale = torch.finfo(g.dtype).eps ** 0.5 * (1.0 + float(single.abs().max()))
        return bool(torch.allclose(together, single, rtol=0.0, atol=scale))

    def cube(self, V: Tensor) -> Tensor:
        """T[v_i, v_j, v_k] over the columns of V, from k (k + 1) / 2 products that share the k with B."""
        k = V.shape[1]
        T = V.new_zeros((k, k, k))
        for i in range(k):
            bent = self.product(V[:, i], again=True)
            for j in range(i + 1):
                T[i, j] = T[j, i] = V.T @ differentiate(bent @ V[:, j], self.leaves)
        return T

    def check(self, caller: str) -> None:
        """Take all derivatives once, so that an operation that has none is named before any work is done."""
        try:
            ones = torch.ones_like(self.gradient).detach()
            bent = self.product(ones, again=True)
            differentiate(bent @ ones, self.leaves)
        except NotDifferentiableError as error:
            raise NotDifferentiableError(f"{caller}: three derivatives are needed, but {error}") from error
        for node in nodes(self.value, self.gradient, bent):
            story = SILENT.get(node.name().rstrip("0123456789"))
            # Batch normalization is right where its statistics are fixed.
            if story is not None and getattr(node, "_saved_training", True):
                raise NotDifferentiableError(f"{caller}: three derivatives are needed, but {story}.")


def nodes(*values: Tensor) -> Iterator[Any]:
    """All operations in the graphs behind some tensors."""
    seen, waiting = set(), [value.grad_fn for value in values]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
            yield node


@dataclass(eq=False)
class Latest:
    """The graph of the latest x: several products are asked for at each."""

    x: np.ndarray[Any, np.dtype[np.float64]] | None = None
    known: Graph | None = None

    def graph(self, x: Any, make: Callable[[], Graph]) -> Graph:
        """The graph at x."""
        if self.known is None or self.x is None or not np.array_equal(self.x, x):
            self.x, self.known = None, None  # the old one goes before the new one comes
            self.x, self.known = x.copy(), make()
        return self.known
