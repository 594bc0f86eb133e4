"""The compiled loop takes the iterations of the generic one: the same points to rounding, counts, trace and end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet.methods.run import Run
from tercet.methods.step import TensorKernel
from tercet.objectives import losses

METHODS = {
    "STM": tercet.STM(),
    "SCR": tercet.SCR(),
    "given": tercet.STM(units=tercet.Euclidean()),
    "always": tercet.STM(worth=1e9),
}


@dataclass(frozen=True)
class Stepping:
    """A method whose every iteration is the generic one."""

    method: Any

    def kernel(self, run: Run) -> TensorKernel:
        return replace(self.method.kernel(run), walker=None)


def problem(loss: str, n: int = 240, d: int = 6, seed: int = 0, **settings: Any) -> tercet.LinearModel:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(1.0, 30.0, d)
    if settings.pop("sparse", False):
        X = sp.csr_array(X * (rng.uniform(size=X.shape) < 0.3))
    z = X @ (rng.standard_normal(d) / np.geomspace(1.0, 30.0, d))
    classify = loss in ("sigmoid_squares", "logistic")
    y = (z + rng.standard_normal(n) > 0).astype(float) if classify else z + rng.standard_t(2, n)
    if settings.pop("weighted", False):
        settings["weights"] = rng.uniform(0.1, 3.0, n)
    return tercet.LinearModel(X, y, loss=loss, **settings)


def start(model: tercet.LinearModel, far: float) -> np.ndarray:
    return far * np.random.default_rng(5).standard_normal(model.d)


def alike(one: tercet.Result, other: tercet.Result) -> None:
    """The same run, up to what rounding makes of its last steps."""
    assert one.status is other.status
    assert abs(one.nit - other.nit) <= 1
    np.testing.assert_allclose(one.x, other.x, rtol=1e-6, atol=1e-8 * np.max(np.abs(other.x)))
    for a, b in zip(one.trace, other.trace, strict=False):
        if b.predicted <= 1e-10 * abs(b.f):
            break
        assert (a.counts, a.sizes) == (b.counts, b.sizes)
        assert (a.iteration, a.accepted, a.inner, a.third_bought) == (b.iteration, b.accepted, b.inner, b.third_bought)
        assert (a.meets, a.escape) == (b.meets, b.escape)
        for name in ("f", "gradient_norm", "sigma", "step_norm", "predicted", "ratio"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-5, atol=1e-12, err_msg=name)


def walked(model: tercet.LinearModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many iterations each call of the compiled loop took, as they come."""
    from tercet.methods.walking import Walker

    taken, own = [], Walker.walk

    def walk(self: Walker, *arguments: Any) -> Any:
        answer = own(self, *arguments)
        taken.append(len(answer[1]))
        return answer

    monkeypatch.setattr(Walker, "walk", walk)
    return taken


@pytest.mark.parametrize("far", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [name for name, kind in losses.LOSSES.items() if kind in losses.LOOPED])
@pytest.mark.parametrize("method", METHODS)
def test_the_compiled_loop_goes_the_way_of_the_generic_one(
    method: str, loss: str, sparse: bool, far: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = problem(loss, sparse=sparse, l2=1e-3)
    x0 = start(model, far)
    other = tercet.minimize(model, x0, method=Stepping(METHODS[method]))
    taken = walked(model, monkeypatch)
    one = tercet.minimize(model, x0, method=METHODS[method])
    assert sum(taken) > 0
    alike(one, other)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "settings",
    [
        {"weighted": True},
        {"intercept": True, "l2": 0.1},
        {"alpha": 0.01, "l2": 1e-4, "intercept": True},
        {"weighted": True, "sparse": True, "intercept": True, "alpha": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("loss", ["logistic", "welsch", "geman_mcclure"])
def test_weights_intercepts_and_penalties(loss: str, settings: dict[str, Any], seed: int) -> None:
    model = problem(loss, n=201, seed=seed, **dict(settings))
    x0 = start(model, 0.5)
    alike(tercet.minimize(model, x0), tercet.minimize(model, x0, method=Stepping(tercet.STM())))


def test_a_tolerance_in_the_units_of_f() -> None:
    model = problem("cauchy")
    one, other = (tercet.minimize(model, method=m, tol=1e-7) for m in (tercet.STM(), Stepping(tercet.STM())))
    alike(one, other)


def test_arrays_as_they_come() -> None:
    model = problem("welsch", l2=1e-3)
    fixed = np.asfortranarray(model.A)
    fixed.flags.writeable = False
    other = tercet.LinearModel(fixed, model.rows.y, loss="welsch", l2=1e-3)
    for one, two in zip(model.rows.looped, other.rows.looped, strict=True):
        assert np.array_equal(one, two)
        assert type(two) in (int, float) or (two.flags.c_contiguous and two.flags.writeable)
    alike(tercet.minimize(model), tercet.minimize(other))


def test_who_watches_sees_the_same_run() -> None:
    """One iteration at a time, with a callback, is bit for bit what many at once are."""
    model, seen = problem("sigmoid_squares", l2=1e-4), []
    x0 = start(model, 3.0)
    alone, watched = tercet.minimize(model, x0), tercet.minimize(model, x0, callback=lambda info: seen.append(info))
    assert np.array_equal(alone.x, watched.x)
    assert alone.counts == watched.counts
    assert [info.fun for info in seen] == [row.f for row in alone.trace]
    assert len(seen) == alone.nit


def test_budgets_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    model = problem("sigmoid_squares", l2=1e-4)
    x0 = start(model, 3.0)
    for budget in ({"max_iterations": 3}, {"max_epochs": 20.0}):
        one = tercet.minimize(model, x0, **budget)
        other = tercet.minimize(model, x0, method=Stepping(tercet.STM()), **budget)
        assert (one.status, one.nit, one.counts) == (other.status, other.nit, other.counts)


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Any) -> None:
    model, path = problem("geman_mcclure", l2=1e-4), tmp_path / "run"
    x0 = start(model, 2.0)
    whole = tercet.minimize(model, x0)
    tercet.minimize(model, x0, max_iterations=3, checkpoint=path, checkpoint_every=1)
    again = tercet.resume(path, model, max_iterations=1000)
    assert np.array_equal(again.x, whole.x)
    assert again.counts == whole.counts


def test_large_models_and_losses_of_ones_own_are_left_alone() -> None:
    from tercet.objectives.linear.point import NARROW

    rng = np.random.default_rng(0)
    wide = tercet.LinearModel(rng.standard_normal((90, NARROW + 1)), np.zeros(90), loss="logistic")
    assert wide.rows.looped is None
    assert problem("squares").over(np.arange(50)).looped is None
    own = tercet.LinearModel(rng.standard_normal((30, 3)), np.zeros(30), loss=losses.CheckedLoss(losses.Squares()))
    assert own.rows.looped is None
