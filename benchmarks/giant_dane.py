"""GIANT and DANE, written here from their papers, for `benchmarks.scale`. They are not their authors' programs.

A shard stands for a machine: f = mean of f_k, the model over the rows of shard k. A round is a task for every machine,
with what it gets and what it gives; machines read their rows in each of them, DANE's as often as its solver asks.

- GIANT: S. Wang, F. Roosta-Khorasani, P. Xu, M. Mahoney, Globally improved approximate Newton method for distributed
  optimization, NeurIPS 2018. p = mean of H_k^-1 g, with an Armijo search over steps 1, 1/4, ..., 4^-5 along -p.
- DANE: O. Shamir, N. Srebro, T. Zhang, Communication-efficient distributed optimization using an approximate
  Newton-type method, ICML 2014. w = mean of argmin f_k(w) - (grad f_k(w_t) - eta g)'w + mu/2 |w - w_t|^2, with eta = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tercet

STEPS = 4.0 ** -np.arange(6)
ARMIJO = 0.1
NEWTON = 10  # steps of a local solve at the most


class Machines:
    """Shards as machines; counts rounds, and how often a machine reads its rows in the mean."""

    def __init__(self, data: tercet.Shards, loss: str, l2: float):
        self.data, self.loss, self.l2, self.rounds = data, loss, l2, 0
        self.reads = 0.0
        self.shares = np.diff(data.layout.starts) / data.n
        self.d = data.layout.columns

    def ask(self, work: Callable[[Any, int], Any]) -> list[Any]:
        """work(f_k, k) of every machine: one round, in which it reads its rows, if they are read but once, once."""
        self.rounds += 1
        self.reads += 1
        answers = []
        for k in range(len(self.data)):
            X, y, _ = self.data.read(k)
            answers.append(work(tercet.LinearModel(X, y, self.loss, l2=self.l2).over(None), k))
        return answers

    def mean(self, answers: Sequence[Any]) -> Any:
        """Weighted by the rows."""
        return sum(share * answer for share, answer in zip(self.shares, answers, strict=True))


def giant(machines: Machines, target: float, most: int) -> float:
    """Rounds until f is at the target; inf where that takes more than `most`."""
    w = np.zeros(machines.d)
    while machines.rounds < most:
        kept: list[Any] = []

        def local(view: Any, k: int, w: Any = w, kept: list[Any] = kept) -> Any:
            point = view.at(w)
            kept.append(point.hessian())  # the machine keeps it for the next round: no rows are read there
            return np.append(point.gradient(), point.value())

        both = machines.mean(machines.ask(local))
        g, f = both[:-1], both[-1]
        if f <= target:
            return machines.rounds
        machines.rounds += 1
        p = machines.mean([np.linalg.solve(H, g) for H in kept])

        def ahead(view: Any, k: int, w: Any = w, p: Any = p) -> Any:
            return np.array([view.at(w - t * p).value() for t in STEPS])

        values = machines.mean(machines.ask(ahead))
        fits = np.flatnonzero(values <= f - ARMIJO * STEPS * (p @ g))
        w = w - (STEPS[fits[0]] if len(fits) else STEPS[-1]) * p
    return np.inf


def dane(machines: Machines, target: float, most: int, mu: float) -> float:
    """Rounds until f is at the target; inf where that takes more than `most`."""
    w = np.zeros(machines.d)
    while machines.rounds < most:

        def look(view: Any, k: int, w: Any = w) -> Any:
            point = view.at(w)
            return np.append(point.gradient(), point.value())

        each = machines.ask(look)
        both = machines.mean(each)
        g, f = both[:-1], both[-1]
        if not f > target:
            return machines.rounds if f <= target else np.inf

        def local(view: Any, k: int, w: Any = w, g: Any = g, each: list[Any] = each) -> Any:
            return solved(view, w, each[k][:-1] - g, mu)

        answers = machines.ask(local)
        machines.reads += machines.mean([looks - 1 for _, looks in answers])
        w = machines.mean([minimizer for minimizer, _ in answers])
    return np.inf


def solved(view: Any, start: np.ndarray, shift: np.ndarray, mu: float) -> tuple[np.ndarray, int]:
    """argmin of f_k(w) - shift'w + mu/2 |w - start|^2, by Newton's method with halved steps, and how often it read."""
    w, looks = start, 0

    def value(at: np.ndarray) -> float:
        nonlocal looks
        looks += 1
        return float(view.at(at).value() - shift @ at + 0.5 * mu * (at - start) @ (at - start))

    for _ in range(NEWTON):
        point, looks = view.at(w), looks + 1
        slope = point.gradient() - shift + mu * (w - start)
        p = np.linalg.solve(point.hessian() + mu * np.eye(len(w)), slope)
        if p @ slope <= 1e-24:
            break
        t, here = 1.0, value(w)
        while value(w - t * p) > here - 1e-4 * t * (p @ slope) + 1e-15 and t > 1e-6:
            t /= 2
        w = w - t * p
    return w, looks
