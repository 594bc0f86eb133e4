"""`Subspace`: conjugate gradients on a quadratic, minima where Krylov spaces find them, and fewer products."""

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet.objectives.linear.model import DENSE_LIMIT
from tercet.objectives.metered import Meter, Metered, engine_of
from tercet.objectives.sparse import SparseTable
from tercet.subsolvers import Dense, Krylov, Subspace
from tercet.subsolvers.base import Taylor
from tercet.subsolvers.subspace import KEPT, ImageSpace, SubspaceWorkspace


def sparse_model(n=1500, d=3200, seed=0, loss="sigmoid_squares", **settings):
    rng = np.random.default_rng(seed)
    rows, columns = np.repeat(np.arange(n), 20), rng.integers(0, d, 20 * n)
    X = sp.csr_array((rng.standard_normal(20 * n), (rows, columns)), shape=(n, d))
    y = (rng.random(n) < 1 / (1 + np.exp(-(X @ rng.standard_normal(d))))).astype(float)
    return tercet.LinearModel(X, y, loss, **{"l2": 1e-4, **settings})


def products(monkeypatch):
    """Counts products with A and with A'."""
    tally = {"times": 0, "weigh": 0}
    times, sums = SparseTable.times, SparseTable._sums

    def counted_times(self, x, piece=slice(None)):
        tally["times"] += piece == slice(None) or piece.start == 0
        return times(self, x, piece)

    def counted_sums(self, *rest):
        tally["weigh"] += 1
        return sums(self, *rest)

    monkeypatch.setattr(SparseTable, "times", counted_times)
    monkeypatch.setattr(SparseTable, "_sums", counted_sums)
    return tally


def test_it_is_the_default_for_wide_linear_models_only(monkeypatch):
    used = []
    prepare = Subspace.prepare
    monkeypatch.setattr(Subspace, "prepare", lambda self, taylor: used.append(1) or prepare(self, taylor))
    tercet.minimize(sparse_model(), order=1, max_iterations=2)
    assert used
    used.clear()
    tercet.minimize(sparse_model(), order=1, max_iterations=2, method=tercet.STM(tercet.Fixed(0.5, 0.5, 0.5)))
    tercet.minimize(sparse_model(d=50), order=1, max_iterations=2)
    tercet.minimize(lambda x: (x**2).sum(), np.ones(3), max_iterations=2)
    assert not used


@pytest.mark.parametrize("start", [0.0, 1.0])
@pytest.mark.parametrize(
    "settings",
    [{}, {"l2": 1e-3, "intercept": True}, {"l2": 1e-3, "alpha": 1e-4}, {"loss": "logistic", "l2": 1e-3}],
    ids=["plain", "intercept", "alpha", "logistic"],
)
@pytest.mark.parametrize("method", [tercet.STM, tercet.SCR])
def test_it_ends_at_a_certified_point(method, settings, start):
    problem = sparse_model(**settings)
    x0 = start * np.random.default_rng(1).standard_normal(problem.d)
    result = tercet.minimize(problem, x0, method=method(), tol=1e-7, order=2)
    assert result.success, result.message
    point = problem.over(None).at(result.x)
    assert np.linalg.norm(point.gradient()) <= 1e-7
    assert result.fun == pytest.approx(point.value(), rel=1e-12)
    assert result.fun <= problem.over(None).at(x0).value()
    peer = tercet.minimize(problem, x0, method=method(subsolver=Krylov()), tol=1e-7, order=1)
    assert result.fun <= peer.fun * (1 + 1e-3)


def test_a_quadratic_takes_no_more_gradients_than_conjugate_gradients():
    """Least squares over 12 variables: the span of g, x and the last steps reaches the minimum in 12 steps."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 12)), rng.standard_normal(200)
    problem = tercet.LinearModel(X, y, "squares", l2=1e-3)
    first = []
    method = tercet.STM(tercet.Full(), Subspace(), tercet.SignedEstimate(start=1e-12))
    tercet.minimize(problem, method=method, tol=1e-9, order=1, callback=lambda info: first.append(info.f))
    exact = np.linalg.solve(X.T @ X / 200 + 1e-3 * np.eye(12), X.T @ y / 200)
    lowest = problem.over(None).at(exact).value()
    assert len(first) <= 12
    assert first[-1] == pytest.approx(lowest, rel=1e-12)


def test_it_takes_fewer_products_than_a_krylov_space(monkeypatch):
    spent = {}
    for subsolver in (Krylov(), Subspace()):
        tally = products(monkeypatch)
        problem = sparse_model(4000, 8000, l2=1e-6)
        x0 = np.random.default_rng(2).standard_normal(problem.d)
        result = tercet.minimize(problem, x0, method=tercet.STM(subsolver=subsolver), tol=1e-8, order=1)
        assert result.success
        spent[type(subsolver).__name__] = sum(tally.values())
    assert spent["Subspace"] <= 0.6 * spent["Krylov"]


def test_a_product_with_the_transpose_is_saved_for_the_last_vector(monkeypatch):
    tally = products(monkeypatch)
    problem = sparse_model(loss="squares")
    tercet.minimize(problem, order=1, tol=1e-6, method=tercet.STM(tercet.Full()))
    # Each gradient is one product with A', each new vector one with A; only vectors that another follows take both.
    assert tally["times"] <= tally["weigh"] + 4


def test_a_far_start_is_certified_by_margins_of_its_own():
    """The way from 1e8 to the minimum is short here, and what rounding left on it is larger than the tolerance."""
    problem = sparse_model(loss="squares", l2=1.0)
    result = tercet.minimize(problem, np.full(problem.d, 1e8), tol=1e-10, order=1)
    assert result.success
    assert np.linalg.norm(problem.over(None).at(result.x).gradient()) <= 1e-10


def test_a_gradient_whose_square_is_no_number_ends_the_run_quietly():
    scale = 1e-160
    n, d = 40, DENSE_LIMIT + 1
    X = sp.csr_array(sp.random_array((n, d), density=0.01, rng=np.random.default_rng(0)))
    problem = tercet.LinearModel(X * np.sqrt(scale), np.ones(n) * np.sqrt(scale), "squares", l2=0.0)
    result = tercet.minimize(problem, order=1, max_iterations=50)
    assert np.all(np.isfinite(result.x))
    assert result.fun <= problem.over(None).at(np.zeros(d)).value()


def test_where_no_step_helps_the_step_is_refused():
    """A loss that is finite at the start only."""

    class Spike:
        def derivatives(self, z, y):
            inside = np.abs(z) < 1e-300
            return np.where(inside, 1.0, np.inf), np.ones_like(z), np.ones_like(z), np.zeros_like(z)

    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random_array((50, 3100), density=0.01, rng=rng))
    result = tercet.minimize(tercet.LinearModel(X, np.zeros(50), Spike(), l2=1e-3), order=1, max_iterations=60)
    assert not result.success
    assert result.fun == 1.0
    assert np.all(result.x == 0.0)


def test_other_objectives_and_other_samples_are_refused_by_name():
    with pytest.raises(ValueError, match=r"Subspace\(\) works on a LinearModel.*Krylov"):
        tercet.minimize(lambda x: (x**2).sum(), np.ones(3), method=tercet.STM(subsolver=Subspace()))
    method = tercet.STM(tercet.Fixed(0.5, 0.5, 0.5), Subspace())
    with pytest.raises(ValueError, match=r"Fixed.*Progressive\(\) or Full\(\)"):
        tercet.minimize(sparse_model(), method=method)
    for name in ("relative", "looks", "krylov"):
        with pytest.raises(ValueError, match=name):
            Subspace(**{name: 0})


def test_few_variables_work_too():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 5))
    problem = tercet.LinearModel(X, (X @ np.ones(5) + rng.standard_normal(500) > 0).astype(float), l2=1e-3)
    one = tercet.minimize(problem, method=tercet.STM(subsolver=Subspace()))
    other = tercet.minimize(problem, method=tercet.STM(subsolver=Dense()))
    assert one.success
    assert one.fun == pytest.approx(other.fun, rel=1e-10)


def test_growing_samples_of_a_wide_model():
    problem = sparse_model(40_000, 3100, l2=1e-4)
    result = tercet.minimize(problem, np.ones(problem.d), tol=1e-6, order=1, method=tercet.STM(tercet.Progressive(2)))
    assert result.success
    assert min(result.trace["size_value"]) < problem.n
    assert np.linalg.norm(problem.over(None).at(result.x).gradient()) <= 1e-6


def test_the_step_is_asked_for_once_for_each_regularization(monkeypatch):
    calls = []
    descend = SubspaceWorkspace.descend
    monkeypatch.setattr(SubspaceWorkspace, "descend", lambda self, ask: calls.append(ask) or descend(self, ask))
    result = tercet.minimize(sparse_model(), tol=1e-6, order=2)
    assert result.success
    assert len(calls) <= result.nit + 2


@pytest.mark.parametrize("far", [1e10, 1e12])
def test_the_point_is_not_worse_than_the_start_also_where_margins_are_rounded(far):
    """x0 fits targets that are known to 1e-5 beside margins of 1e10 and more: whatever f shows there is rounding."""
    n, d = 400, 3100
    A = sp.csr_array(sp.random_array((n, d), density=0.01, rng=np.random.default_rng(0)))
    x0 = far * np.ones(d)
    problem = tercet.LinearModel(A, A @ x0 + 1e-5 * np.random.default_rng(0).standard_normal(n), "squares")
    result = tercet.minimize(problem, x0, order=1)
    assert result.fun == problem.over(None).at(result.x).value()
    assert result.fun <= problem.over(None).at(x0).value()


class Failing:
    """The logistic loss, until its given call."""

    def __init__(self, at, how):
        self.calls, self.at, self.how = 0, at, how

    def derivatives(self, z, y):
        self.calls += 1
        if self.calls >= self.at:
            if self.how is None:
                return (np.full_like(z, np.nan),) * 4
            raise self.how
        p = 0.5 * (1 + np.tanh(0.5 * z))
        q = p * (1 - p)
        return np.logaddexp(0.0, z) - y * z, p - y, q, q * (1 - 2 * p)


@pytest.mark.parametrize("how", [None, ValueError("broken"), KeyboardInterrupt()], ids=["nan", "error", "interrupt"])
def test_whenever_the_loss_fails_the_best_point_so_far_comes_back(how):
    rng = np.random.default_rng(0)
    X = sp.csr_array(sp.random_array((60, 3100), density=0.01, rng=rng))
    y = (rng.random(60) < 0.5).astype(float)
    whole = Failing(10**9, None)
    tercet.minimize(tercet.LinearModel(X, y, whole, l2=0.1), np.ones(3100), order=1, tol=1e-11)
    ended = 0
    for at in range(3, whole.calls + 1):
        best = []
        try:
            result = tercet.minimize(
                tercet.LinearModel(X, y, Failing(at, how), l2=0.1), np.ones(3100), order=1, tol=1e-11,
                callback=lambda info, best=best: best.append(info.fun),
            )  # fmt: skip
        except ValueError as error:  # looks at the start come to the caller: there is nothing yet that could be lost
            if best or "at x0" not in error.__notes__[0]:
                raise
            continue
        if best:
            ended += 1
            assert result.fun <= min(best) * (1 + 1e-12), (at, result.message)
    assert ended > 5


def test_a_lagging_hessian_is_not_for_a_sub_solver_that_looks_at_f():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 4))
    problem = tercet.LinearModel(X, (X @ np.ones(4) + rng.standard_normal(40_000) > 0).astype(float), l2=1e-3)
    result = tercet.minimize(problem, 3 * np.ones(4), method=tercet.STM(subsolver=Subspace()))
    assert result.success
    assert np.array_equal(result.trace["size_hessian"], result.trace["size_value"])
    plain = tercet.minimize(problem, 3 * np.ones(4))
    assert not np.array_equal(plain.trace["size_hessian"], plain.trace["size_value"])  # the test is not empty


def test_a_long_krylov_space_keeps_few_images():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 60)) * 10.0 ** rng.uniform(-2, 2, 60)
    problem = tercet.LinearModel(X, rng.standard_normal(300), "squares", l2=1e-6)
    point = Metered.of(problem, Meter(300)).over(None).at(np.ones(60))
    taylor = Taylor(point.gradient(), point, None, False)
    space = ImageSpace(Krylov(), taylor, source=engine_of(point).images(point))
    while len(space.V) < 20 and space.extend():
        assert len(space.images) <= KEPT
        np.testing.assert_allclose(space.images[-1], X @ space.V[-1], atol=1e-12)
    assert len(space.V) == 20
    method = tercet.STM(tercet.Full(), Subspace())
    assert tercet.minimize(problem, np.ones(60), method=method, order=1, tol=1e-6).success
