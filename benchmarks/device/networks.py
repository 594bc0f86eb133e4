"""Networks of 465 and 4929 parameters over 50,000 rows: the loss after some seconds, beside torch.optim.LBFGS."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.device.measure import Bench

SECONDS = 20.0
SHAPES = ((10, 16, 16, 1), (10, 64, 64, 1))  # layers of 465 and 4929 parameters


def network(widths: tuple[int, ...], bench: Bench) -> nn.Sequential:
    """Layers with tanh between them, in float64."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.Tanh()]
    return nn.Sequential(*layers[:-1]).double().to(bench.device)


def networks(bench: Bench) -> None:
    """Least squares to a network of the same kind with other parameters."""
    for widths in SHAPES:
        one_network(bench, widths)


def one_network(bench: Bench, widths: tuple[int, ...]) -> None:
    """L-BFGS in closed loops and ours, each for the same seconds."""
    import tercet
    import tercet.torch

    stream = torch.Generator(device=bench.device).manual_seed(1)
    X = torch.randn((bench.rows(5e4), widths[0]), dtype=torch.float64, device=bench.device, generator=stream)
    teacher, net = network(widths, bench), network(widths, bench)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.normal_(generator=stream)
        y = teacher(X)[:, 0]
    seconds = SECONDS if bench.scale >= 0.5 else 3.0
    d = sum(parameter.numel() for parameter in net.parameters())
    peer = by_lbfgs(net, X, y, seconds)

    def residual(params: Any, a: Tensor, b: Tensor) -> Tensor:
        return functional_call(net, params, (a,))[:, 0] - b

    def loss(params: Any, a: Tensor, b: Tensor) -> Tensor:
        return 0.5 * residual(params, a, b) ** 2

    start = {name: value.detach().clone() for name, value in network(widths, bench).named_parameters()}
    problems = {
        "Residuals": tercet.torch.Residuals(residual, (X, y), batched=True),
        "FiniteSum": tercet.torch.FiniteSum(loss, (X, y), batched=True),
    }
    for name, problem in problems.items():
        result = tercet.minimize(problem, start, max_seconds=seconds)
        bench.say(
            f"network, {d} parameters, {len(X)} rows, {seconds:.0f} s: torch LBFGS {peer:.2e}, {name} {result.fun:.2e} "
            f"({result.status.name}, {result.nit} iterations, {result.seconds:.1f} s with its certificate); "
            f"LBFGS / ours {peer / result.fun:.3g}"
        )


def by_lbfgs(net: nn.Sequential, X: Tensor, y: Tensor, seconds: float) -> float:
    """The least loss that L-BFGS finds in so many seconds."""
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=20, history_size=20, line_search_fn="strong_wolfe")
    least, begun = float("inf"), time.perf_counter()

    def closure() -> Tensor:
        optimizer.zero_grad()
        f = 0.5 * ((net(X)[:, 0] - y) ** 2).mean()
        f.backward()
        return f

    while time.perf_counter() - begun < seconds:
        before = least
        least = min(least, float(optimizer.step(closure).detach()))
        if least == before:
            break
    return least
