"""An objective of the user's own, by its eight members: minimized, resumed, and refused by name."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tercet
from tercet.objectives.own import OwnObjective
from tests.objectives.engines import SinesView


class BowlPoint:
    """The mean of sin(a_i'x) + |x|^2 / 2 over some terms."""

    def __init__(self, view, x):
        self.A, self.x = view.A, x

    def value(self):
        return float(np.mean(np.sin(self.A @ self.x)) + self.x @ self.x / 2)

    def gradient(self):
        return self.A.T @ np.cos(self.A @ self.x) / len(self.A) + self.x

    def product(self, order, *vectors):
        if order == 2:
            (v,) = vectors
            return -self.A.T @ (np.sin(self.A @ self.x) * (self.A @ v)) / len(self.A) + v
        u, v = vectors
        return -self.A.T @ (np.cos(self.A @ self.x) * (self.A @ u) * (self.A @ v)) / len(self.A)


@dataclass
class Bowl:
    """A non-convex sum with a minimum."""

    A: Any
    name: str = "bowl"
    kind = BowlPoint

    @property
    def n(self):
        return self.A.shape[0]

    @property
    def d(self):
        return self.A.shape[1]

    def over(self, rows):
        return SinesView(self, self.A if rows is None else self.A[rows])


def bowl(n=4000, d=3, seed=0):
    return Bowl(3.0 * np.random.default_rng(seed).standard_normal((n, d)) + 1.0)


@pytest.mark.parametrize(
    "method", [tercet.STM(), tercet.SCR(), tercet.STM(tercet.Full()), tercet.STM(tercet.Growing())], ids=str
)
def test_an_objective_of_eight_members_is_minimized_and_certified(method):
    problem = bowl()
    result = tercet.minimize(problem, np.full(3, 2.0), method=method)
    assert result.success
    assert result.certificate.n == result.certificate.terms == 4000
    assert "derivatives as given" in result.certificate.how
    point = problem.over(None).at(result.x)
    assert result.fun == point.value()
    assert result.certificate.chi1 == pytest.approx(np.linalg.norm(point.gradient()), abs=1e-12)
    assert np.linalg.norm(point.gradient()) <= 1e-6


def test_a_sampled_run_of_it_begins_with_few_terms_and_counts_them():
    result = tercet.minimize(bowl(), np.full(3, 2.0))
    first = result.trace.rows[0]
    assert first.sizes.value == first.sizes.gradient == 60  # twenty for each variable
    assert first.counts.gradient < 4000
    assert result.trace.rows[-1].sizes.value == 4000


def test_its_derivatives_are_checked_when_that_is_asked_for():
    tercet.minimize(bowl(50), np.ones(3), check_derivatives=True, max_iterations=0)

    class Wrong(BowlPoint):
        def gradient(self):
            return -super().gradient()

    problem = bowl(50)
    problem.kind = Wrong
    with pytest.raises(ValueError, match="gradient"):
        tercet.minimize(problem, np.ones(3), check_derivatives=True)


def test_a_run_of_it_is_resumed(tmp_path):
    path, x0 = tmp_path / "run.ckpt", np.full(3, 2.0)
    whole = tercet.minimize(bowl(), x0)
    tercet.minimize(bowl(), x0, max_iterations=3, checkpoint=path)  # the third step is the first that is accepted
    resumed = tercet.resume(path, bowl(), max_iterations=1000)
    assert whole.nit > 3
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert resumed.counts == whole.counts
    with pytest.raises(ValueError, match="another problem: A was"):
        tercet.resume(path, bowl(seed=1))


def test_it_is_known_by_its_class_its_size_and_its_fields():
    one = OwnObjective(bowl(50)).fingerprint()
    assert one == OwnObjective(bowl(50)).fingerprint()
    assert one["objective"] == "Bowl"
    assert (one["n"], one["d"]) == ("50", "3")
    other = OwnObjective(bowl(50, seed=1)).fingerprint()
    assert {name for name in one if one[name] != other[name]} == {"A"}
    renamed = OwnObjective(Bowl(bowl(50).A, "cup")).fingerprint()
    assert {name for name in one if one[name] != renamed[name]} == {"name"}


def test_it_may_say_itself_what_it_is_known_by():
    problem = bowl(50)
    problem.fingerprint = lambda: {"bowl": "of mine"}
    assert OwnObjective(problem).fingerprint() == {"bowl": "of mine"}


@pytest.mark.parametrize("missing", ["n", "d"])
def test_an_objective_without_a_member_is_refused_by_its_name(missing):
    class Part:
        def over(self, rows):
            raise AssertionError

    for name in {"n", "d"} - {missing}:
        setattr(Part, name, 3)
    with pytest.raises(ValueError, match=rf"Part\(\.\.\.\).*it has no {missing}"):
        tercet.minimize(Part(), np.ones(3))


@pytest.mark.parametrize("x0", [None, np.ones(2), [np.nan, 0.0, 0.0], np.ones((3, 1))], ids=str)
def test_a_bad_start_is_refused_by_name(x0):
    with pytest.raises(ValueError, match="x0"):
        tercet.minimize(bowl(50), x0)


def test_derivatives_beside_it_are_refused():
    with pytest.raises(ValueError, match=r"grad=\.\.\."):
        tercet.minimize(bowl(50), np.ones(3), grad=lambda x: x)
