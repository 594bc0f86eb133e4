"""The suprema of the losses against SymPy and against a fine grid; the constants of a model against its derivatives."""

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet import theory
from tercet.objectives import losses

sympy = pytest.importorskip("sympy")
u = sympy.Symbol("u", real=True)

ROBUST = {
    losses.Cauchy: sympy.log(1 + u**2) / 2,
    losses.Welsch: (1 - sympy.exp(-(u**2))) / 2,
    losses.GemanMcClure: u**2 / (1 + u**2) / 2,
}
OURS = [losses.SigmoidSquares(), losses.Logistic(), *(make(c) for make in ROBUST for c in (1.0, 0.3))]


def tops(sup):
    return [sup.first, sup.second, sup.third, sup.fourth]


def largest_in_p(polynomial, p):
    """sup |q(p)| on [0, 1] and its ends there, with exactly isolated critical points."""
    roots = sympy.Poly(sympy.diff(polynomial, p), p).real_roots()
    points = [sympy.Integer(0), sympy.Integer(1), *(r for r in roots if 0 < r.evalf(40) < 1)]
    values = [polynomial.subs(p, point).evalf(40) for point in points]
    return max(abs(value) for value in values), min(values), max(values)


@pytest.mark.parametrize("name", ["sigmoid_squares", "logistic"])
def test_suprema_of_the_classification_losses_by_exact_roots(name):
    p = sympy.Symbol("p")
    # d/dz = p (1 - p) d/dp, for y = 0; y = 1 is the mirror image
    chain = [sympy.expand(p**2 * (1 - p)) if name == "sigmoid_squares" else p]
    for _ in range(3):
        chain.append(sympy.expand(sympy.diff(chain[-1], p) * p * (1 - p)))
    ours = theory.loss_suprema(losses.LOSSES[name]())
    for polynomial, claimed in zip(chain, tops(ours), strict=True):
        exact = largest_in_p(polynomial, p)[0]
        assert float(exact) <= claimed * (1 + 1e-15)
        assert claimed == pytest.approx(float(exact), rel=1e-11)
    _, low, high = largest_in_p(chain[1], p)
    assert ours.lowest == pytest.approx(float(low), rel=1e-11, abs=1e-15)
    assert ours.highest == pytest.approx(float(high), rel=1e-11)


@pytest.mark.parametrize("make", ROBUST)
def test_suprema_of_the_robust_losses_by_the_roots_of_the_next_derivative(make):
    derivatives = [sympy.diff(ROBUST[make], u, k) for k in range(1, 6)]
    ours = theory.loss_suprema(make())
    for k, claimed in enumerate(tops(ours)):
        # the next derivative is a polynomial times something positive (1/(1+u^2)^m or exp(-u^2))
        numerator = sympy.numer(
            sympy.together(
                sympy.simplify(derivatives[k + 1] * sympy.exp(u**2))
                if make is losses.Welsch
                else sympy.together(derivatives[k + 1])
            )
        )
        roots = sympy.Poly(sympy.expand(numerator), u).real_roots()
        exact = max(abs(derivatives[k].subs(u, root).evalf(30)) for root in roots)
        assert claimed == pytest.approx(float(exact), rel=1e-13)
        assert sympy.limit(sympy.Abs(derivatives[k]), u, sympy.oo) == 0
        if k == 1:
            lowest = min(derivatives[k].subs(u, root).evalf(30) for root in roots)
            assert ours.lowest == pytest.approx(float(lowest), rel=1e-13)


@pytest.mark.parametrize("loss", OURS, ids=repr)
def test_no_margin_exceeds_the_suprema_and_some_margin_comes_close(loss):
    z = np.linspace(-40, 40, 400001)
    sup = theory.loss_suprema(loss)
    parts = loss.derivatives(z, np.zeros_like(z))
    fourth = np.gradient(parts[3], z)
    for values, claimed in zip((*parts[1:], fourth), tops(sup), strict=True):
        top = np.max(np.abs(values))
        assert top <= claimed * (1 + 1e-6)
        assert top >= claimed * (1 - 1e-3)
    assert sup.lowest <= np.min(parts[2]) + 1e-15
    assert sup.highest >= np.max(parts[2])


def test_least_squares_has_no_bounded_gradient_and_says_so():
    sup = theory.loss_suprema(losses.Squares())
    assert tops(sup) == [np.inf, 1.0, 0.0, 0.0]
    found = theory.constants(tercet.LinearModel(np.eye(3), [1.0, 2.0, 3.0], "squares"))
    assert found.L_f == np.inf
    assert "unbounded" in found.reason
    assert found.ranges.gradient == np.inf
    assert found.ranges.third == 0.0


def test_an_own_loss_is_estimated_and_labelled():
    class LogCosh:
        def derivatives(self, z, y):
            t = np.tanh(z - y)
            s = 1 - t * t
            return np.logaddexp(z - y, y - z) - np.log(2), t, s, -2 * t * s

    model = tercet.LinearModel(np.eye(3), [0.0, 1.0, 2.0], LogCosh())
    found = theory.constants(model)
    assert not found.certified
    assert "estimate" in found.how
    assert found.L_g == pytest.approx(1.0, rel=1e-4)
    assert found.L_t == pytest.approx(2.0, rel=1e-2)
    with pytest.raises(ValueError, match="derivatives"):
        theory.loss_suprema(object())


@pytest.mark.parametrize("loss", ["sigmoid_squares", "logistic", "cauchy", "welsch", "geman_mcclure"])
@pytest.mark.parametrize("sparse", [False, True])
def test_constants_bound_the_derivatives_of_every_term_everywhere(loss, sparse):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((30, 3)) * (rng.random((30, 3)) < 0.8)
    weights = rng.random(30) + 0.1
    model = tercet.LinearModel(
        sp.csr_array(A) if sparse else A, (rng.random(30) < 0.5).astype(float), loss, l2=0.1, alpha=0.2, weights=weights
    )
    found = theory.constants(model)
    assert found.certified
    assert found.L_f == np.inf  # the l2 penalty
    assert "penalty" in found.reason
    h = 1e-4
    for x in 3 * rng.standard_normal((5, 3)):
        direction = rng.standard_normal(3)
        direction /= np.linalg.norm(direction)
        full = model.over(None)
        rise = full.at(x + h * direction).third_tensor(np.eye(3)) - full.at(x).third_tensor(np.eye(3))
        assert cubic_norm(rise) / h <= found.lipschitz * (1 + 1e-3)
        for i in range(30):
            point = model.over(np.array([i])).at(x)
            slope = point.gradient() - model.rows.penalty.gradient(x)
            assert np.linalg.norm(slope) <= found.ranges.gradient * (1 + 1e-12)
            B = point.hessian()
            assert np.linalg.norm(B, 2) <= found.L_g * (1 + 1e-12)
            assert cubic_norm(point.third_tensor(np.eye(3))) <= found.L_b * (1 + 1e-12)
    assert found.lipschitz <= found.L_t


def cubic_norm(T):
    """max |T[u]^3| over a grid of the sphere, from below."""
    return float(np.max(np.abs(np.einsum("abc,ga,gb,gc->g", T, GRID, GRID, GRID))))


GRID = np.random.default_rng(0).standard_normal((500, 3))
GRID /= np.linalg.norm(GRID, axis=1)[:, None]


def test_a_spread_of_hessians_is_narrower_than_twice_their_norm():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((50, 4))
    found = theory.constants(tercet.LinearModel(A, (A[:, 0] > 0).astype(float), "logistic"))
    top = np.max(np.sum(A**2, axis=1))
    assert found.ranges.hessian == pytest.approx(0.25 * top)  # convex: from 0 to 1/4 |a|^2
    assert found.L_g == pytest.approx(0.25 * top)
    assert np.isfinite(found.L_f)
    assert found.reason == ""


def test_estimates_for_any_finite_sum_are_labelled_and_of_the_right_size():
    pytest.importorskip("jax")
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    data = rng.standard_normal((20, 2))
    found = theory.estimate_constants(
        tercet.FiniteSum(lambda x, a: jnp.cos(a @ x), data), np.zeros(2), radius=2.0, points=3, terms=5
    )
    assert not found.certified
    assert "not a bound" in found.how
    norms = np.linalg.norm(data, axis=1)
    for value, order in ((found.L_f, 1), (found.L_g, 2), (found.L_b, 3), (found.L_t, 4)):
        assert 0 < value <= np.max(norms) ** order * (1 + 1e-2)
    with pytest.raises(ValueError, match="estimate_constants"):
        theory.constants(tercet.FiniteSum(lambda x, a: jnp.cos(a @ x), data))
    with pytest.raises(ValueError, match="radius=0"):
        theory.estimate_constants(tercet.LinearModel(data, np.zeros(20)), radius=0)
