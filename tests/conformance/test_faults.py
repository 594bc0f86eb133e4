"""Objectives that fail: the best point so far comes back with a status that says what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tercet
from tercet import Status
from tests.conformance.entries import OBJECTIVES

SUMS = [name for name, entry in OBJECTIVES.items() if entry.sum]


@dataclass(eq=False)
class Faulty:
    """An objective whose k-th evaluation of one kind goes wrong: it raises, or gives nan."""

    inner: Any
    kind: str
    after: int
    how: str
    seen: int = 0

    @property
    def n(self) -> int:
        return self.inner.n

    @property
    def d(self) -> int:
        return self.inner.d

    def over(self, rows: Any) -> Any:
        return FaultyView(self, self.inner.over(rows))

    def fingerprint(self) -> dict[str, str]:
        return {}

    def pass_through(self, kind: str, result: Any) -> Any:
        if kind == self.kind:
            self.seen += 1
            if self.seen > self.after:
                if self.how == "raises":
                    raise ZeroDivisionError("as planned")
                return result * np.nan
        return result


@dataclass(eq=False)
class FaultyView:
    objective: Faulty
    inner: Any

    @property
    def terms(self) -> int:
        return self.inner.terms

    def at(self, x: Any, carry: Any = None) -> Any:
        return FaultyPoint(self.objective, self.inner.at(x))


@dataclass(eq=False)
class FaultyPoint:
    objective: Faulty
    inner: Any

    def value(self) -> float:
        return self.objective.pass_through("value", self.inner.value())

    def gradient(self) -> Any:
        return self.objective.pass_through("gradient", self.inner.gradient())

    def product(self, order: int, *vectors: Any) -> Any:
        return self.objective.pass_through("product", self.inner.product(order, *vectors))


@pytest.mark.parametrize("how", ["raises", "nan"])
@pytest.mark.parametrize("after", [1, 20])
@pytest.mark.parametrize("kind", ["value", "gradient", "product"])
@pytest.mark.parametrize("name", SUMS)
def test_a_fault_ends_a_run_with_the_best_point_and_the_reason(name, kind, after, how):
    entry = OBJECTIVES[name]
    if entry.needs:
        pytest.importorskip(entry.needs)
    bound = entry.bound()
    objective = Faulty(bound.objective, kind, after, how)
    try:
        result = tercet.minimize(objective, bound.x0, order=2, max_iterations=60)
    except ZeroDivisionError:  # at x0, where nothing can be lost
        assert how == "raises"
        assert after == 1
        return
    before = bound.objective.over(None).at(bound.x0).value()
    if objective.seen <= after:
        assert result.success  # the fault never came
        return
    if how == "raises":
        assert result.status is Status.FUNCTION_ERROR
        assert isinstance(result.error, ZeroDivisionError)
        assert "as planned" in result.message
    else:
        assert not result.success
    there = bound.objective.over(None).at(np.asarray(result.x)).value()
    assert there <= before + 1e-12
    assert np.isnan(result.fun) or result.fun == pytest.approx(there, rel=1e-9)
