"""What every sub-solver promises, in one list; and what each adds of its own."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tercet.model import DenseModel, Regularizer
from tercet.subsolvers import Accelerated, Dense, GradientDescent, Krylov, krylov
from tercet.subsolvers.base import Ask, Taylor

D = 6


@dataclass(eq=False)
class Cubic:
    """g's + 1/2 s'Bs + 1/6 T[s]^3 as a point of 10 terms that counts what is asked of it."""

    g: np.ndarray
    B: np.ndarray
    T: np.ndarray
    terms: int = 10
    asked: dict = field(default_factory=lambda: {"hessian": 0, "product": 0, "third": 0})
    formed: bool = False

    def gradient(self):
        return self.g

    def hessian(self):
        self.asked["hessian"] += not self.formed  # remembered, as by metered points
        self.formed = True
        return self.B

    def hessian_product(self, v):
        self.asked["product"] += 1
        return self.B @ v

    def third_product(self, u, v):
        self.asked["third"] += 1
        return self.T @ v @ u

    def third_square(self, s):
        return self.third_product(s, s)

    def third_tensor(self, V):
        self.asked["third"] += 1
        return np.einsum("abc,ai,bj,ck->ijk", self.T, V, V, V)


def problem(seed, convex=False, d=D, bend=1.0):
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((d, d))
    T = rng.standard_normal((d, d, d))
    T = sum(T.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6
    B = B @ B.T / d + 0.1 * np.eye(d) if convex else (B + B.T) / 2
    return Cubic(rng.standard_normal(d), B, bend * T)


def taylor_of(point, order=3, forms=False):
    return Taylor(point.g, point, point if order == 3 else None, forms)


def model_of(point, step, ask):
    """The model that the step was taken on, from its arrays."""
    return DenseModel(point.g, point.B, None if step.cubic is None else point.T, Regularizer(step.sigma, ask.power))


# name: the sub-solver, whether T is formed, and whether T[s]^2 is taken at s itself or at the step before a correction
SOLVERS = {
    "dense, formed": (Dense(), True, "itself"),
    "dense, spectral": (Dense(), False, "before"),
    "krylov": (Krylov(), False, "before"),
    "gradient descent": (GradientDescent(step=0.5), False, "itself"),
    "accelerated": (Accelerated(step=0.3), False, "itself"),
}
DESCENTS = ("gradient descent", "accelerated")
every_solver = pytest.mark.parametrize("name", SOLVERS)
seeds = pytest.mark.parametrize("seed", range(8))


def solve(name, point, ask, order=3):
    solver, forms, _ = SOLVERS[name]
    workspace = solver.prepare(taylor_of(point, order, forms))
    return workspace, workspace.solve(ask)


@every_solver
@seeds
@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("radius", [np.inf, 0.2])
def test_the_second_order_model_decreases(name, seed, power, radius):
    point, ask = problem(seed), Ask(0.7, 0.7, power, radius)
    _, step = solve(name, point, ask, order=2)
    assert step.cubic is None
    assert step.sigma >= 0.7
    if radius == np.inf or name in DESCENTS:
        assert step.sigma == pytest.approx(0.7, rel=1e-9)
    assert model_of(point, step, ask).value(step.s) < 0
    assert point.asked["third"] == 0


@pytest.mark.parametrize("name", ["dense, spectral", "krylov"])
@seeds
@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("radius", [1e-6, 1e-3, 0.2])
def test_a_radius_that_binds_acts_like_the_sigma_that_the_step_says(name, seed, power, radius):
    """grad m(s) = 0 over the space of the solver, with that sigma and without the radius."""
    point, ask = problem(seed, convex=True), Ask(0.0, 0.0, power, radius)
    workspace, step = solve(name, point, ask, order=2)
    V = np.eye(D) if name != "krylov" else np.stack(workspace.V, axis=1)
    assert np.linalg.norm(step.s) == pytest.approx(radius, rel=1e-9)
    assert step.sigma > 0
    gradient = V.T @ model_of(point, step, ask).gradient(step.s)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9 * np.linalg.norm(point.g))


@pytest.mark.parametrize("name", [n for n, (_, _, where) in SOLVERS.items() if where == "itself"])
@seeds
@pytest.mark.parametrize("radius", [np.inf, 0.2])
def test_the_third_order_model_decreases(name, seed, radius):
    point, ask = problem(seed), Ask(0.7, 1.3, 4, radius)
    _, step = solve(name, point, ask)
    assert step.cubic is not None
    assert step.sigma == 1.3
    assert model_of(point, step, ask).value(step.s) < 0


@every_solver
@seeds
@pytest.mark.parametrize("order", [2, 3])
def test_forecasts_are_the_taylor_polynomials_at_the_step(name, seed, order):
    point, ask = problem(seed), Ask(0.7, 1.3)
    _, step = solve(name, point, ask, order)
    s, g, B, T = step.s, point.g, point.B, point.T
    np.testing.assert_allclose(step.quadratic.decrease, -(g @ s + s @ B @ s / 2), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(step.quadratic.gradient, g + B @ s, rtol=1e-10, atol=1e-12)
    assert step.forecast is (step.quadratic if order == 2 else step.cubic)
    if order == 2:
        return
    where = s
    if SOLVERS[name][2] == "before":
        # One product buys T[s_2]^2 at the uncorrected step; the forecast says what that product says.
        where = previous(name, point, ask)
    bend = T @ where @ where
    np.testing.assert_allclose(step.cubic.decrease, step.quadratic.decrease - bend @ s / 6, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(step.cubic.gradient, step.quadratic.gradient + bend / 2, rtol=1e-9, atol=1e-11)


def previous(name, point, ask):
    """The step at which the last product with T was taken."""
    solver, forms, _ = SOLVERS[name]
    return solver.prepare(taylor_of(point, 3, forms)).solve(Ask(ask.sigma2, ask.sigma3, buy_third=False)).s


@every_solver
@seeds
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("radius", [1e-6, 1e-2, 0.3])
def test_the_radius_is_respected_and_a_correction_adds_at_most_half_of_it(name, seed, order, radius):
    point, ask = problem(seed), Ask(1e-3, 1e-3, radius=radius)
    workspace, step = solve(name, point, ask, order)
    if order == 3 and SOLVERS[name][2] == "before":
        plain = workspace.solve(replace(ask, buy_third=False))
        assert np.linalg.norm(step.s - plain.s) <= 0.5 * np.linalg.norm(plain.s) * (1 + 1e-9)
        step = plain
    assert 0 < np.linalg.norm(step.s) <= radius * (1 + 1e-9)


@every_solver
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("radius", [np.inf, 1e-2], ids=["free", "radius binds"])
def test_the_first_condition_is_claimed_only_where_it_holds(name, seed, order, radius):
    """chi_{m,1}(s) = |grad m(s)| <= theta |s|^3, m with its own regularizer and not with the radius."""
    point, ask = problem(seed), Ask(0.7, 0.9, 4, radius)
    workspace, step = solve(name, point, ask, order)
    meets = workspace.meets(step, ask)
    theta = SOLVERS[name][0].theta
    gradient = np.linalg.norm(model_of(point, step, ask).gradient(step.s))
    holds = gradient <= theta * np.linalg.norm(step.s) ** 3 + 1e-13
    assert meets[0] is None or holds == meets[0]


@every_solver
def test_the_first_condition_is_met_and_said_to_be_when_nothing_binds(name):
    point, ask = problem(3, convex=True), Ask(0.7, 0.7)
    workspace, step = solve(name, point, ask, order=2 if SOLVERS[name][2] == "before" else 3)
    assert workspace.meets(step, ask)[0] is True


@pytest.mark.parametrize("seed", range(20))
def test_the_higher_conditions_of_the_formed_model_are_claimed_only_where_they_hold(seed):
    theta = 0.5
    point, ask = problem(seed, d=2), Ask(0.5, 0.5)
    workspace = Dense(theta=theta).prepare(taylor_of(point, 3, True))
    step = workspace.solve(ask)
    model, r = model_of(point, step, ask), np.linalg.norm(step.s)
    _, second, third = workspace.meets(step, ask)
    values, basis = np.linalg.eigh(model.hessian(step.s))
    assert second == (-values[0] <= theta * r**2)
    angles = np.linspace(0, np.pi, 20001)
    near = basis[:, np.abs(values) <= theta * r**2]
    Y = basis @ np.array([np.cos(angles), np.sin(angles)]) if near.shape[1] == 2 else near
    chi3 = np.abs(np.einsum("abc,ai,bi,ci->i", model.third_tensor(step.s), Y, Y, Y)).max(initial=0.0)
    if abs(chi3 - theta * r) > 1e-6:
        assert third == (chi3 <= theta * r)


@every_solver
def test_no_third_derivative_is_bought_at_price_zero(name):
    point = problem(0)
    _, step = solve(name, point, Ask(0.7, 0.9, buy_third=False))
    assert step.cubic is None
    assert step.sigma == pytest.approx(0.7, rel=1e-12)
    assert point.asked["third"] == 0


@pytest.mark.parametrize("name", [n for n, (_, _, where) in SOLVERS.items() if where == "before"])
def test_a_third_derivative_is_bought_only_where_it_may_be(name):
    for buy_third in (False, True):
        point = problem(0)
        _, step = solve(name, point, Ask(0.7, 0.7, buy_third=buy_third))
        assert (step.cubic is not None) == buy_third == (point.asked["third"] > 0)


@pytest.mark.parametrize("name", ["dense, formed", "dense, spectral"])
def test_the_hessian_is_taken_once_however_often_sigma_changes(name):
    point = problem(1)
    workspace, _ = solve(name, point, Ask(1.0, 1.0))
    for sigma in (2.0, 20.0, 1e-3):
        workspace.solve(Ask(sigma, sigma))
    assert point.asked["hessian"] == 1
    assert point.asked["product"] == 0


def test_krylov_keeps_its_basis_across_sigmas():
    point = problem(1)
    workspace, first = solve("krylov", point, Ask(1.0, 1.0), order=2)
    spent = point.asked["product"]
    assert 0 < spent == first.inner <= D
    assert workspace.solve(Ask(1.0, 1.0)).inner == 0
    assert point.asked["product"] == spent
    for sigma in (2.0, 20.0, 1e-3, 1e5):
        workspace.solve(Ask(sigma, sigma))
    assert point.asked["product"] <= D
    V = np.stack(workspace.V, axis=1)
    np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-13)
    assert_lanczos(workspace, point)


def assert_lanczos(workspace, point):
    """V is orthonormal, begins with g, and BV = VT + rest e' with T tridiagonal, e the last unit vector."""
    V = np.stack(workspace.V, axis=1)
    k = V.shape[1]
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-13)
    np.testing.assert_allclose(V[:, 0], point.g / np.linalg.norm(point.g), rtol=1e-14, atol=1e-16)
    T = np.diag(workspace.diag) + np.diag(workspace.off, 1) + np.diag(workspace.off, -1)
    np.testing.assert_allclose(V.T @ point.B @ V, T, atol=1e-13)
    rest = np.zeros(len(point.g)) if workspace.rest is None else workspace.rest
    last = np.eye(k)[-1]
    np.testing.assert_allclose(point.B @ V, V @ T + np.outer(rest, last), atol=1e-13)
    np.testing.assert_allclose(V.T @ rest, 0.0, atol=1e-13)


@seeds
@pytest.mark.parametrize("vectors", [1, 2, 7, 25, 200])
def test_the_krylov_basis_is_lanczos_own_and_no_larger_than_asked(seed, vectors):
    point = problem(seed, d=25)
    workspace = Krylov(relative=1e-14, vectors=vectors).prepare(taylor_of(point, 2))
    step = workspace.solve(Ask(0.7, 0.7))
    assert len(workspace.V) == step.inner == point.asked["product"] <= min(vectors, 25)
    assert_lanczos(workspace, point)


def test_a_krylov_space_that_is_complete_is_not_enlarged():
    """With g in an invariant space of B of dimension 2 two products are all that can be learned."""
    point = Cubic(np.array([1.0, -2.0, 0, 0, 0]), np.diag([1.0, 3.0, 5.0, 7.0, 9.0]), np.zeros((5, 5, 5)))
    workspace = Krylov(relative=1e-15).prepare(taylor_of(point, 2))
    step = workspace.solve(Ask(0.7, 0.7))
    assert point.asked["product"] == step.inner == 2
    assert workspace.rest is None
    dense = Dense().prepare(taylor_of(point, 2)).solve(Ask(0.7, 0.7))
    np.testing.assert_allclose(step.s, dense.s, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("limit", [0, 10**9])
def test_a_large_krylov_basis_without_reorthogonalization_gives_the_same_step(limit, monkeypatch):
    monkeypatch.setattr(krylov, "REORTHOGONAL", limit)
    point, ask = problem(4, convex=True, d=40), Ask(0.7, 0.7)
    step = Krylov(relative=1e-8).prepare(taylor_of(point, 2)).solve(ask)
    dense = Dense().prepare(taylor_of(point, 2)).solve(ask)
    np.testing.assert_allclose(step.s, dense.s, rtol=1e-5, atol=1e-7)
    assert np.linalg.norm(model_of(point, step, ask).gradient(step.s)) <= 1e-7 * np.linalg.norm(point.g)


@seeds
def test_a_retry_gives_the_step_that_a_fresh_start_gives(seed):
    ask = Ask(30.0, 30.0)
    for name in ("dense, formed", "dense, spectral"):
        workspace, _ = solve(name, problem(seed), Ask(1.0, 1.0))
        np.testing.assert_allclose(workspace.solve(ask).s, solve(name, problem(seed), ask)[1].s, rtol=1e-9, atol=1e-13)


@seeds
@pytest.mark.parametrize("radius", [np.inf, 0.3])
def test_a_tight_krylov_step_is_the_dense_one(seed, radius):
    point, ask = problem(seed, d=25), Ask(0.7, 0.9, 4, radius)
    if np.isfinite(radius):  # with a radius and negative curvature the step is a cautious one
        point.B = point.B + 1.1 * np.linalg.norm(point.B, 2) * np.eye(25)
    tight = Krylov(relative=1e-12).prepare(taylor_of(point, 2)).solve(ask)
    dense = Dense().prepare(taylor_of(point, 2)).solve(ask)
    np.testing.assert_allclose(tight.s, dense.s, rtol=1e-6, atol=1e-8)


@seeds
def test_a_corrected_krylov_step_over_the_whole_space_is_the_dense_one(seed):
    point, ask = problem(seed, d=25), Ask(0.7, 0.9)
    workspace = Krylov(relative=1e-12).prepare(taylor_of(point))
    tight = workspace.solve(ask)
    assert len(workspace.V) == 25
    dense = Dense().prepare(taylor_of(point)).solve(ask)
    assert (tight.cubic is None) == (dense.cubic is None)
    np.testing.assert_allclose(tight.s, dense.s, rtol=1e-6, atol=1e-8)


@seeds
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("radius", [np.inf, 0.3])
@pytest.mark.parametrize("relative", [0.3, 1e-3, 1e-12])
def test_a_krylov_step_is_the_dense_one_of_the_problem_projected_on_its_space(seed, order, radius, relative):
    point, ask = problem(seed, d=25), Ask(0.7, 0.9, 4, radius)
    if np.isfinite(radius):  # with a radius and negative curvature the step is a cautious one
        point.B = point.B + 1.1 * np.linalg.norm(point.B, 2) * np.eye(25)
    workspace = Krylov(relative=relative).prepare(taylor_of(point, order))
    step = workspace.solve(ask)
    V = np.stack(workspace.V, axis=1)
    small = Cubic(V.T @ point.g, V.T @ point.B @ V, np.einsum("abc,ai,bj,ck->ijk", point.T, V, V, V))
    dense = Dense().prepare(taylor_of(small, order)).solve(ask)
    assert (step.cubic is None) == (dense.cubic is None)
    assert step.sigma == pytest.approx(dense.sigma, rel=1e-6)
    np.testing.assert_allclose(step.s, V @ dense.s, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(step.forecast.decrease, dense.forecast.decrease, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["dense, spectral", "krylov"])
@seeds
@pytest.mark.parametrize("radius", [np.inf, 0.1])
def test_the_correction_is_chebyshevs_over_the_space_of_the_solver(name, seed, radius):
    """V'((B + mu I) u + 1/2 T[s_2]^2) = 0 with mu = sigma |s_2|^2, where it is short enough not to be limited."""
    point, ask = problem(seed, convex=True, d=25, bend=0.02), Ask(0.7, 0.9, 4, radius)
    workspace, step = solve(name, point, ask)
    plain = workspace.solve(replace(ask, buy_third=False))
    u, s = step.s - plain.s, plain.s
    assert step.cubic is not None
    assert 0 < np.linalg.norm(u) < 0.45 * np.linalg.norm(s)
    assert step.sigma == plain.sigma
    V = np.eye(25) if name != "krylov" else np.stack(workspace.V, axis=1)
    left = point.B @ u + step.sigma * (s @ s) * u + 0.5 * (point.T @ s @ s)
    np.testing.assert_allclose(V.T @ left, 0.0, atol=1e-9 * np.linalg.norm(point.g))
    assert name != "krylov" or workspace.solve(ask).inner == 0  # the correction took no vector of its own


@pytest.mark.parametrize("name", [n for n, (_, _, where) in SOLVERS.items() if where == "before"])
def test_where_the_corrected_step_promises_no_decrease_the_plain_one_is_taken(name):
    refused = 0
    for seed in range(60):
        point, ask = problem(seed, bend=10.0), Ask(0.7, 0.9)
        workspace, step = solve(name, point, ask)
        assert step.forecast.decrease > 0
        if step.cubic is None:
            refused += 1
            assert point.asked["third"] > 0  # it was bought all the same
            assert step.sigma == pytest.approx(0.7, rel=1e-12)
            np.testing.assert_array_equal(step.s, workspace.solve(Ask(0.7, 0.9, buy_third=False)).s)
    assert refused > 0, "the example must refuse some corrections"
    assert refused < 60


@seeds
@pytest.mark.parametrize("relative", [0.3, 1e-3])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_the_krylov_residual_is_below_what_was_asked(seed, relative, size):
    point, ask = problem(seed, d=25), Ask(0.7, 0.7)
    point.g = size * point.g
    step = Krylov(relative=relative).prepare(taylor_of(point, 2)).solve(ask)
    norm = np.linalg.norm(point.g)
    residual = np.linalg.norm(model_of(point, step, ask).gradient(step.s))
    assert residual <= min(relative * norm, 100 * np.linalg.norm(step.s) ** 3) * (1 + 1e-9)


@seeds
def test_the_second_order_dense_step_is_a_global_minimizer(seed):
    point, ask = problem(seed), Ask(0.7, 0.7)
    step = Dense().prepare(taylor_of(point, 2)).solve(ask)
    model, rng = model_of(point, step, ask), np.random.default_rng(seed)
    np.testing.assert_allclose(model.gradient(step.s), 0.0, atol=1e-9)
    least = model.value(step.s)
    assert all(least <= model.value(s) for s in 3 * rng.standard_normal((500, D)))


@seeds
def test_the_formed_model_is_minimized_to_the_accuracy_asked(seed):
    point, ask = problem(seed), Ask(0.7, 0.7)
    step = Dense(relative=1e-9).prepare(taylor_of(point, 3, True)).solve(ask)
    model = model_of(point, step, ask)
    assert np.linalg.norm(model.gradient(step.s)) <= 1e-9 * np.linalg.norm(point.g)
    assert np.linalg.eigvalsh(model.hessian(step.s))[0] >= -1e-9  # a minimizer, not a saddle


def test_the_correction_by_T_lowers_the_third_order_model_on_average():
    gains = []
    for seed in range(200):
        point, ask = problem(seed, convex=True, bend=0.5), Ask(1.0, 1.0)
        before = Dense().prepare(taylor_of(point, 2)).solve(ask)
        after = Dense().prepare(taylor_of(point)).solve(ask)
        model = DenseModel(point.g, point.B, point.T, Regularizer(1.0))
        gains.append((model.value(before.s) - model.value(after.s)) / -model.value(before.s))
    gains = np.array(gains)
    assert gains.mean() > 4 * gains.std() / np.sqrt(len(gains)) > 0
    assert np.median(gains) > 0


@pytest.mark.parametrize("formed", [False, True])
def test_one_product_with_T_makes_the_error_in_the_gradient_smaller_by_one_order(formed):
    """|grad phi_3(s)| is O(|g|^2) after a Newton step and O(|g|^3) where T[s_2, s_2] is known."""
    point = problem(5, convex=True)
    sizes, left = np.array([1e-3, 1e-4]), {2: [], 3: []}
    for size in sizes:
        for order in left:
            small = Cubic(size * point.g, point.B, point.T)
            dense = Dense(relative=1e-12, whole=False)
            step = dense.prepare(taylor_of(small, order, formed)).solve(Ask(1e-9, 1e-9))
            assert small.asked["third"] == order - 2
            model = DenseModel(small.g, small.B, small.T, Regularizer(0.0))
            left[order].append(np.linalg.norm(model.gradient(step.s)))
    slopes = {order: np.log10(errors[0] / errors[1]) for order, errors in left.items()}
    assert slopes[2] == pytest.approx(2.0, abs=0.1)
    assert slopes[3] == pytest.approx(3.0, abs=0.1)


def test_a_product_along_the_step_serves_for_every_radius_and_its_model_is_minimized():
    point = problem(3, convex=True, bend=0.3)
    dense = Dense(relative=1e-9, whole=False).prepare(taylor_of(point, 3, True))
    lengths = []
    for radius in (10.0, 0.5, 0.1):
        ask = Ask(0.7, 0.7, radius=radius)
        step = dense.solve(ask)
        lengths.append(np.linalg.norm(step.s))
        assert lengths[-1] <= radius * (1 + 1e-9)
        assert dense.meets(step, ask) == (None, None, None)  # of a model that is not all of phi_3 nothing is promised
    assert point.asked["third"] == 1
    assert lengths[0] > lengths[1] > lengths[2]
    whole = dense.solve(Ask(0.7, 0.7))
    model = DenseModel(point.g, point.B, dense.bend, Regularizer(0.7))
    assert np.linalg.norm(model.gradient(whole.s)) <= 1e-9 * np.linalg.norm(point.g)


@pytest.mark.parametrize("d", [1, 5])
def test_a_step_from_beside_a_minimum_of_fourth_order_ends_there(d):
    """f = |x|^4 at (1, ..., 1): the cubic model falls without end, and the sigma that holds it is that of f itself."""
    x, eye = np.ones(d), np.eye(d)
    B = 4 * (d * eye + 2 * np.outer(x, x))
    xI = np.einsum("a,bc->abc", x, eye)
    T = 8 * (xI + xI.transpose(1, 0, 2) + xI.transpose(1, 2, 0))
    point = Cubic(4 * d * x, B, T)
    step = Dense(whole=False).prepare(taylor_of(point, 3, True)).solve(Ask(0.0, 0.0, radius=10.0))
    assert np.linalg.norm(x + step.s) <= 0.1 * np.linalg.norm(x)
    assert step.sigma == pytest.approx(4.0, rel=0.1)  # |s|^4 = sigma/4 |s|^4


@every_solver
@pytest.mark.parametrize("order", [2, 3])
def test_without_gradient_at_a_minimum_there_is_no_step(name, order):
    point = problem(0, convex=True)
    point.g = np.zeros(D)
    _, step = solve(name, point, Ask(1.0, 1.0), order)
    np.testing.assert_array_equal(step.s, 0.0)
    assert step.forecast.decrease == 0.0


@every_solver
def test_one_variable_is_enough(name):
    point = Cubic(np.array([2.0]), np.array([[-1.0]]), np.array([[[0.5]]]))
    ask = Ask(0.8, 0.8)
    _, step = solve(name, point, ask)
    assert step.s[0] < 0
    assert model_of(point, step, ask).value(step.s) < 0


@pytest.mark.parametrize("seed", range(3))
def test_promises_are_the_decreases_that_gradients_promise_and_their_errors_pretend(seed):
    point, ask = problem(seed, convex=True), Ask(0.7, 0.7)
    errors = np.random.default_rng(seed).standard_normal((4, D))
    workspace, step = solve("dense, spectral", point, ask, order=2)
    shifted = point.B + 0.7 * (step.s @ step.s) * np.eye(D)
    expected = [0.5 * e @ np.linalg.solve(shifted, e) for e in errors]
    np.testing.assert_allclose(workspace.decreases(errors), expected, rtol=1e-8)


@every_solver
def test_promises_are_positive_numbers_or_not_known(name):
    workspace, _ = solve(name, problem(2), Ask(0.7, 0.7))
    promised = workspace.decreases(np.ones((2, D)))
    assert promised is None or (promised.shape == (2,) and np.all(promised > 0))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (Dense, "theta", 0.0),
        (Dense, "relative", -1.0),
        (Krylov, "theta", np.nan),
        (Krylov, "relative", 0.0),
        (Krylov, "vectors", 0),
        (GradientDescent, "step", 0.0),
        (GradientDescent, "theta", -1.0),
        (GradientDescent, "iterations", 0),
        (Accelerated, "step", -0.1),
    ],
)
def test_a_bad_setting_is_refused_by_name(kind, name, value):
    with pytest.raises(ValueError, match=rf"{kind.__name__}\({name}={value}\)"):
        kind(**{name: value})
