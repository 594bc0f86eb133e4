"""PyTorch: what Hessian products and T[s, s] cost, in gradients, by reverse mode and by torch.func.

    python -m benchmarks.adaptor_torch [--device cuda] [--threads 1] [--repeats 20]

Three losses: a linear classifier, a perceptron with two hidden layers, a small convolutional net, in float32 over one
batch. The time of each is the least of the repeats, over that of a gradient; "kept" reuses the graph of the gradient.
A second table compares each derivative through `tercet.torch.FiniteSum` with the same written by hand.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

import tercet.torch

CASES = ("linear", "perceptron", "convolutional")
Work = Callable[[], Any]


def make(case: str, device: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A net with a batch of inputs and labels."""
    torch.manual_seed(0)
    net, shape = {
        "linear": (nn.Linear(100, 10), (4096, 100)),
        "perceptron": (
            nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10)),
            (4096, 64),
        ),
        "convolutional": (
            nn.Sequential(
                nn.Conv2d(1, 8, 3, padding=1), nn.Softplus(), nn.AvgPool2d(2),
                nn.Conv2d(8, 16, 3, padding=1), nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(784, 10),
            ),
            (256, 1, 28, 28),
        ),
    }[case]  # fmt: skip
    labels = torch.randint(0, 10, (shape[0],))
    return net.to(device), torch.randn(shape).to(device), labels.to(device)


def loss_of(net: nn.Module) -> Callable[..., Tensor]:
    """One cross entropy for each example of a batch."""

    def loss(params: Any, x: Tensor, label: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(net, params, (x,)), label, reduction="none")

    return loss


def dot(a: Any, b: Any) -> Any:
    return sum((x * y).sum() for x, y in zip(a, b, strict=True))


class Derivatives:
    """The derivatives of a mean loss along fixed directions, written by hand in every way there is."""

    def __init__(self, case: str, device: str):
        self.net, self.x, self.labels = make(case, device)
        self.names = [name for name, _ in self.net.named_parameters()]
        self.leaves = [p.detach().requires_grad_() for p in self.net.parameters()]
        self.fixed = tuple(p.detach() for p in self.leaves)
        self.s = tuple(torch.randn_like(p) for p in self.leaves)
        self.kept: Any = None

    def f(self, *leaves: Tensor) -> Tensor:
        """The mean loss."""
        return loss_of(self.net)(dict(zip(self.names, leaves, strict=True)), self.x, self.labels).mean()

    def gradient(self, again: bool = False) -> Any:
        """By reverse mode."""
        return torch.autograd.grad(self.f(*self.leaves), self.leaves, create_graph=again)

    def value(self) -> Tensor:
        """Without a graph."""
        with torch.no_grad():
            return self.f(*self.leaves)

    def mapped_gradient(self) -> Any:
        """Of a loss that sees one example."""
        params = dict(zip(self.names, self.leaves, strict=True))
        one = loss_of(self.net)
        each = vmap(lambda x, label: one(params, x[None], label[None])[0])
        return torch.autograd.grad(each(self.x, self.labels).mean(), self.leaves)

    def product(self) -> Any:
        """grad (g's)."""
        return torch.autograd.grad(dot(self.gradient(again=True), self.s), self.leaves)

    def kept_product(self) -> Any:
        """grad (g's) from a graph of g that is there."""
        if self.kept is None:
            self.kept = self.gradient(again=True)
        return torch.autograd.grad(dot(self.kept, self.s), self.leaves, retain_graph=True)

    def third(self) -> Any:
        """grad (s'(B s))."""
        bent = torch.autograd.grad(dot(self.gradient(again=True), self.s), self.leaves, create_graph=True)
        return torch.autograd.grad(dot(bent, self.s), self.leaves)

    def kept_third(self) -> Any:
        """grad (s'(B s)) from a graph of g that is there."""
        if self.kept is None:
            self.kept = self.gradient(again=True)
        bent = torch.autograd.grad(dot(self.kept, self.s), self.leaves, create_graph=True)
        return torch.autograd.grad(dot(bent, self.s), self.leaves, retain_graph=True)

    def all_arguments(self, f: Callable[..., Tensor]) -> Callable[..., Any]:
        """The gradient by torch.func."""
        return grad(f, argnums=tuple(range(len(self.leaves))))

    def along(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """The derivative along s by forward mode."""
        return lambda *leaves: jvp(f, leaves, self.s)[1]

    def product_forward(self) -> Any:
        """jvp(grad)."""
        return self.along(self.all_arguments(self.f))(*self.fixed)

    def third_forward(self) -> Any:
        """jvp(jvp(grad))."""
        return self.along(self.along(self.all_arguments(self.f)))(*self.fixed)

    def third_mixed(self) -> Any:
        """grad(jvp(jvp))."""
        return self.all_arguments(self.along(self.along(self.f)))(*self.fixed)


WAYS = {
    "value": "value",
    "gradient, vmap over examples": "mapped_gradient",
    "B s, reverse twice": "product",
    "B s, reverse twice, kept": "kept_product",
    "B s, jvp(grad)": "product_forward",
    "T[s, s], reverse three times": "third",
    "T[s, s], reverse three times, kept": "kept_third",
    "T[s, s], jvp(jvp(grad))": "third_forward",
    "T[s, s], grad(jvp(jvp))": "third_mixed",
}


def least_seconds(work: Work, repeats: int, device: str) -> float:
    """The shortest of some repeats, after two to warm up."""
    times = []
    for _ in range(repeats + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[2:])


def costs(device: str, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of a gradient for each case, and the other derivatives in gradients."""
    table = {}
    for case in CASES:
        derivatives = Derivatives(case, device)
        unit = least_seconds(derivatives.gradient, repeats, device)
        table[case] = {"gradient, in ms": 1e3 * unit}
        for way, name in WAYS.items():
            table[case][way] = least_seconds(getattr(derivatives, name), repeats, device) / unit
    return table


def rows(device: str = "cpu") -> Iterator[tuple[str, Work, Work]]:
    """(name, by hand, through tercet.torch.FiniteSum) for the derivatives of each case."""
    for case in CASES:
        hand = Derivatives(case, device)
        problem = tercet.torch.FiniteSum(loss_of(hand.net), (hand.x, hand.labels), batched=True)
        bound = problem.bind(hand.net)
        view, x = bound.objective.over(None), bound.x0
        s = np.concatenate([part.cpu().numpy().ravel() for part in hand.s]).astype(np.float64)
        yield f"{case}: value", hand.value, lambda view=view, x=x: view.at(x).value()
        yield f"{case}: gradient", hand.gradient, lambda view=view, x=x: view.at(x).gradient()
        yield f"{case}: B s", hand.kept_product, lambda view=view, x=x, s=s: view.at(x).product(2, s)
        yield f"{case}: T[s, s]", hand.kept_third, lambda view=view, x=x, s=s: view.at(x).product(3, s, s)


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {options.threads} thread(s)"
    print(f"tercet {tercet.__version__}, PyTorch {torch.__version__}, {where}; in gradients\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's own, where forward mode loads its rules
        table = costs(options.device, options.repeats)
    print(f"{'':36s}" + "".join(f"{case:>15s}" for case in CASES))
    for way in table[CASES[0]]:
        print(f"{way:36s}" + "".join(f"{table[case][way]:15.2f}" for case in CASES))
    print("\nseconds through FiniteSum over those by hand")
    for name, native, adapted in rows(options.device):
        by_hand = least_seconds(native, options.repeats, options.device)
        print(f"{name:36s}{least_seconds(adapted, options.repeats, options.device) / by_hand:15.2f}")


if __name__ == "__main__":
    main()
