"""Models of many classes: dense and CSR agree, the fits are scikit-learn's and statsmodels', misuse is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import tercet

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 4)) * (RNG.random((300, 4)) < 0.7)
TRUE = np.array([[1.0, 0.0, 0.5, 0.0], [0.0, -1.0, 0.0, 0.5], [-0.5, 0.5, 0.0, 0.0]])
Y = np.argmax(X @ TRUE.T + RNG.gumbel(size=(300, 3)), axis=1)
W = np.linspace(0.2, 1.8, 300)


@pytest.mark.parametrize("loss", ["softmax", "brier"])
@pytest.mark.parametrize("reference", [None, 1])
@pytest.mark.parametrize("weights", [None, W])
def test_dense_and_sparse_equal_the_plain_formula(loss, reference, weights):
    options = {"l2": 0.1, "intercept": True, "reference": reference, "weights": weights}
    dense, sparse = (tercet.ClassModel(A, Y, loss, **options) for A in (X, sp.csr_array(X)))
    x, u, v = RNG.standard_normal((3, dense.d))
    A, w = np.column_stack([X, np.ones(300)]), np.ones(300) if weights is None else weights / weights.mean()
    E = np.exp(A @ (dense.Q @ x.reshape(2, 5)).T)
    p = E / E.sum(axis=1, keepdims=True)
    each = -np.log(p[np.arange(300), Y]) if loss == "softmax" else 0.5 * np.sum((p - np.eye(3)[Y]) ** 2, axis=1)
    value = np.mean(w * each) + 0.05 * np.sum(x.reshape(2, 5)[:, :4] ** 2)
    one, two = (model.over(None).at(x) for model in (dense, sparse))
    assert one.value() == pytest.approx(value, rel=1e-12)
    assert two.value() == pytest.approx(value, rel=1e-12)
    for ask in (
        lambda point: point.gradient(),
        lambda point: point.hessian(),
        lambda point: point.product(2, v),
        lambda point: point.product(3, u, v),
    ):
        np.testing.assert_allclose(ask(two), ask(one), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(one.hessian() @ v, one.product(2, v), rtol=1e-10, atol=1e-13)
    assert u @ one.product(3, v, v) == pytest.approx(v @ one.product(3, u, v), rel=1e-9)


def test_derivatives_equal_automatic_ones():
    model = tercet.ClassModel(X, Y, "brier", l2=0.1, intercept=True, weights=W)
    A, w, x = np.column_stack([X, np.ones(300)]), W / W.mean(), RNG.standard_normal(10)

    def f(x):
        U = x.reshape(2, 5)
        p = jax.nn.softmax(A @ (model.Q @ U).T)
        return jnp.mean(w * 0.5 * jnp.sum((p - jnp.eye(3)[Y]) ** 2, axis=1)) + 0.05 * jnp.sum(U[:, :4] ** 2)

    with jax.enable_x64(True):
        H = np.asarray(jax.jit(jax.hessian(f))(x))
    np.testing.assert_allclose(model.over(None).at(x).hessian(), H, rtol=1e-9, atol=1e-13)


def test_many_rows_come_in_pieces(monkeypatch):
    from tercet.objectives import class_point

    x = RNG.standard_normal(8)
    for loss in ("softmax", "brier"):
        whole = tercet.ClassModel(X, Y, loss).over(None).at(x)
        expected = whole.hessian(), whole.scatter()
        monkeypatch.setattr(class_point, "BYTES", 1)
        parts = tercet.ClassModel(X, Y, loss).over(None).at(x)
        assert len(list(parts.view.pieces())) > 10
        np.testing.assert_allclose(parts.hessian(), expected[0], rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(parts.scatter(), expected[1], rtol=1e-11, atol=1e-15)
        monkeypatch.undo()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_penalized_fit_is_that_of_scikit_learn(sparse):
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = tercet.ClassModel(sp.csr_array(X) if sparse else X, Y, l2=1e-2, intercept=True)
    result = tercet.minimize(model)
    assert result.success
    assert result.x.shape == (2, 5)
    other = linear_model.LogisticRegression(C=1 / 3, tol=1e-12, max_iter=1000, solver="newton-cholesky").fit(X, Y)
    W = model.coefficients(result.x)
    np.testing.assert_allclose(W[:, :4], other.coef_, atol=1e-7)
    np.testing.assert_allclose(W[:, 4] - W[0, 4], other.intercept_ - other.intercept_[0], atol=1e-7)
    np.testing.assert_allclose(W.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(model.probabilities(X, result.x), other.predict_proba(X), atol=1e-7)


def test_the_table_is_that_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    model = tercet.ClassModel(X, Y, intercept=True, reference=0)
    result = tercet.minimize(model)
    other = sm.MNLogit(Y, np.column_stack([X, np.ones(300)])).fit(disp=0, method="newton", tol=1e-13)
    np.testing.assert_allclose(result.x, other.params.T, rtol=1e-6)
    np.testing.assert_allclose(result.standard_errors(), other.bse.T, rtol=1e-6)
    told = result.infer()
    assert float(dict(told.facts)["log-likelihood"]) == pytest.approx(other.llf, abs=1e-6)
    assert told.names[:5] == ("1: x[0]", "1: x[1]", "1: x[2]", "1: x[3]", "1: intercept")
    each = np.stack([model.over(np.array([i])).at(result.x.ravel()).gradient() for i in range(300)])
    S, B = np.cov(each.T, bias=True), np.linalg.inv(model.over(None).at(result.x.ravel()).hessian())
    np.testing.assert_allclose(result.covariance("sandwich"), B @ S @ B / 300, rtol=1e-8)


def test_contrasts_do_not_change_the_likelihood():
    free, one = (tercet.minimize(tercet.ClassModel(X, Y, intercept=True, reference=r)).fun for r in (None, 2))
    assert free == pytest.approx(one, rel=1e-12)


def test_the_bounded_loss_withstands_wrong_labels():
    """A fifth of one class, far out, is labelled as another; the bounded loss hardly sees them."""
    rng = np.random.default_rng(2)
    centers = np.array([[3.0, 0.0], [-1.5, 2.6], [-1.5, -2.6]])
    y = rng.integers(0, 3, 600)
    Z = centers[y] + rng.standard_normal((600, 2))
    wrong = y.copy()
    far = np.flatnonzero((y == 0) & (rng.random(600) < 0.2))
    Z[far] *= 3.0
    wrong[far] = 1
    accuracy = {}
    for loss in ("softmax", "brier"):
        model = tercet.ClassModel(Z, wrong, loss, l2=1e-3, intercept=True)
        result = tercet.minimize(model)
        assert result.success
        accuracy[loss] = np.mean(np.argmax(model.probabilities(Z, result.x), axis=1) == y)
    assert accuracy["brier"] > 0.97
    assert accuracy["softmax"] < 0.92
    with pytest.raises(ValueError, match="no likelihood"):
        result.covariance("hessian")
    assert result.infer().kind == "sandwich"


def test_labels_may_be_text_and_a_start_flat_or_a_matrix():
    names = np.array(["ant", "bee", "cow"])[Y]
    model = tercet.ClassModel(X, names, l2=1e-2)
    assert model.classes.tolist() == ["ant", "bee", "cow"]
    start = RNG.standard_normal((2, 4))
    one, two = tercet.minimize(model, start), tercet.minimize(model, start.ravel())
    np.testing.assert_array_equal(one.x, two.x)


def test_the_fingerprint_knows_data_loss_and_contrasts():
    same = tercet.ClassModel(X, Y, l2=1e-2).fingerprint()
    assert same == tercet.ClassModel(X.copy(), Y, l2=1e-2).fingerprint()
    for other in (
        tercet.ClassModel(X, Y, l2=1e-3),
        tercet.ClassModel(X, Y, "brier", l2=1e-2),
        tercet.ClassModel(X, Y, l2=1e-2, reference=0),
        tercet.ClassModel(X, Y[::-1], l2=1e-2),
        tercet.ClassModel(X, Y, l2=1e-2, weights=W),
        tercet.ClassModel(sp.csr_array(X), Y, l2=1e-2),
    ):
        assert other.fingerprint() != same


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((X, Y, "hinge"), {}, "softmax, brier"),
        ((X, np.zeros(300)), {}, "only one class, 0.0;"),
        ((X, Y[:-1]), {}, "one label per row"),
        ((X, np.where(Y == 0, np.nan, Y)), {}, "not finite"),
        ((X, Y), {"reference": 7}, "reference=7"),
        ((X, Y), {"l2": -1.0}, "l2=-1"),
        ((X, Y), {"weights": -W}, "weights"),
        ((X, Y), {"intercept": "yes"}, "intercept='yes'"),
        ((X, np.array([1, "a", None] * 100, dtype=object)), {}, "cannot be sorted"),
    ],
)
def test_misuse_is_refused(arguments, options, text):
    with pytest.raises(ValueError, match=text):
        tercet.ClassModel(*arguments, **options)


@pytest.mark.parametrize("x0", [np.zeros(5), np.zeros((3, 4)), np.full((2, 4), np.nan)])
def test_a_start_of_another_shape_is_refused(x0):
    with pytest.raises(ValueError, match=r"shape \(2, 4\)"):
        tercet.minimize(tercet.ClassModel(X, Y), x0)
