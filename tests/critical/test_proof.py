"""The proved bound: never below the true error, of Newton and Kantorovich where they say so, and none elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import tercet
from tercet.critical.proof import proved
from tercet.objectives.metered import Meter, Metered

LOSSES = ("squares", "logistic", "cauchy", "welsch", "geman_mcclure", "sigmoid_squares")


def model(seed):
    """A linear model with columns in units of their own, and a start."""
    rng = np.random.default_rng(seed)
    n, d, loss = int(rng.integers(20, 200)), int(rng.integers(1, 7)), LOSSES[seed % len(LOSSES)]
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.5 * rng.standard_normal((d, d)))
    z = X @ rng.standard_normal(d)
    y = z + 0.3 * rng.standard_normal(n)
    if loss in ("logistic", "sigmoid_squares"):
        y = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float)
    l2 = float(rng.choice([1e-3, 1e-1]))
    return tercet.LinearModel(X * 10.0 ** rng.integers(-3, 4, d), y, loss, l2=l2 * (seed % 4 > 0))


def point_at(problem, x):
    bound = problem.bind(None)
    return Metered.of(bound.objective, Meter(bound.objective.n)).over(None).at(x)


def bound_at(problem, x):
    point = point_at(problem, x)
    found = proved(point, point.hessian(), point.gradient())
    return None if found is None else found.bound


def minimizer(problem, x):
    """By Newton's method in 80 bits: residual, gradient and x are longdouble, only the factored Hessian is not."""
    x = np.asarray(x, np.longdouble)
    rows = problem.rows
    A, y = np.asarray(rows.table.block(slice(None)), np.longdouble), np.asarray(rows.y, np.longdouble)
    for _ in range(60):
        z = A @ x
        g = A.T @ slope(problem, z, y) / len(y) + np.longdouble(rows.penalty.l2) * x
        B = point_at(problem, np.asarray(x, float)).hessian()
        E = 1 / np.sqrt(np.diag(B))
        s = -E * np.linalg.solve(B * np.outer(E, E), np.asarray(E * g, float))
        x = x + s
        if np.all(np.abs(s) <= 1e-18 * np.abs(x)):
            break
    return x


def slope(problem, z, y):
    """l', written down again for any precision."""
    r = z - y
    one = np.longdouble(1)
    p = one / (one + np.exp(-z))
    name, c = type(problem.loss).__name__, np.longdouble(getattr(problem.loss, "scale", 1.0))
    u = r / c
    return {
        "Squares": r,
        "Logistic": p - y,
        "SigmoidSquares": (p - y) * p * (one - p),
        "Cauchy": c * u / (one + u * u),
        "Welsch": c * u * np.exp(-u * u),
        "GemanMcClure": c * u / (one + u * u) ** 2,
    }[name]


def test_the_true_error_is_never_above_the_proved_bound():
    """300 models at the certified point, and each moved away by 1e-12 to 1e-1 of x."""
    certified, some, loose = 0, 0, []
    for seed in range(300):
        problem = model(seed)
        result = tercet.minimize(problem)
        if not result.success:
            continue
        certified += bool(result.certificate.bound_x)
        truth = minimizer(problem, result.x)
        if result.certificate.bound_x:
            assert np.all(np.abs(result.x - truth) <= np.array(result.certificate.bound_x)), seed
            loose.append(np.max(np.array(result.certificate.bound_x) / np.abs(np.asarray(truth, float))))
        rng = np.random.default_rng(seed)
        x = result.x * (1 + 10.0 ** rng.uniform(-12, -1) * rng.standard_normal(len(result.x)))
        bound = bound_at(problem, x)
        if bound is not None:
            some += 1
            assert np.all(np.abs(x - truth) <= bound), seed
    assert certified >= 240
    assert some >= 100
    assert np.median(loose) <= 1e-7


def test_the_bound_has_no_units():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    y, units = (X[:, 0] + rng.standard_normal(80) > 0).astype(float), np.array([2.0**-30, 1.0, 2.0**20])
    x = tercet.minimize(tercet.LinearModel(X, y, "logistic")).x * (1 + 1e-6)
    plain = bound_at(tercet.LinearModel(X, y, "logistic"), x)
    other = bound_at(tercet.LinearModel(X * units, y, "logistic"), x / units)
    np.testing.assert_allclose(other * units, plain, rtol=1e-6)


def test_where_the_condition_fails_nothing_is_proved():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 3))
    y = (X[:, 0] + rng.standard_normal(80) > 0).astype(float)
    problem = tercet.LinearModel(X, y, "logistic")
    x = tercet.minimize(problem).x
    sizes = 10.0 ** np.linspace(-10, 1, 40)
    proofs = [bound_at(problem, x + size) is not None for size in sizes]
    assert proofs[0]
    assert not proofs[-1]
    assert proofs == sorted(proofs, reverse=True)  # near enough, and from some distance on no more
    twice = tercet.LinearModel(np.column_stack([X, X[:, 0]]), y, "logistic")
    assert bound_at(twice, np.zeros(4)) is None  # singular
    assert tercet.minimize(twice).certificate.bound_x == ()
    counts = tercet.LinearModel(X, np.floor(np.exp(X[:, 0])), "poisson")
    assert tercet.minimize(counts).certificate.bound_x == ()  # its third derivative has no bound everywhere


def test_only_linear_models_tell_enough_and_the_proof_evaluates_nothing():
    assert tercet.minimize(lambda x: (x[0] - 1.0) ** 2, np.zeros(1)).certificate.bound_x == ()
    problem = model(1)
    point = point_at(problem, tercet.minimize(problem).x)
    B, g = point.hessian(), point.gradient()
    before = point.view.meter.counts()
    assert proved(point, B, g) is not None
    assert point.view.meter.counts() == before


def test_the_third_derivative_stays_below_what_is_said_of_it_everywhere():
    for seed in range(12):
        problem = model(seed)
        rng = np.random.default_rng(seed)
        d = len(problem.bind(None).x0)
        V = rng.standard_normal((d, d))
        point = point_at(problem, np.zeros(d))
        top = point.ask("value", point.able.limits, V, price=0).third
        scale = problem.scales
        for _ in range(50):
            point = point_at(problem, scale * rng.standard_normal(d) * 10.0 ** rng.uniform(-2, 1))
            u, v, w = (V @ (a / np.linalg.norm(a)) for a in rng.standard_normal((3, d)))
            assert abs(float(w @ point.third_product(u, v))) <= top * (1 + 1e-12)


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_printed_and_kept(seed, tmp_path):
    result = tercet.minimize(model(seed))
    text = str(result.certificate)
    assert f"proved: |x - x*| <= {max(result.certificate.bound_x):.1e}" in text
    assert len(text.splitlines()) <= 5
    tercet.save(result, tmp_path / "r.npz")
    assert tercet.load(tmp_path / "r.npz").certificate == result.certificate
