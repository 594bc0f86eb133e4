"""`infer` and the methods of a result: equal to statsmodels, nan with the reason, refused where it means nothing."""

from __future__ import annotations

import pickle

import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

import tercet
from tercet.objectives.structure import places

sm = pytest.importorskip("statsmodels.api")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((500, 3))
A = np.column_stack([X, np.ones(500)])
MU = np.exp(X @ [0.5, -0.3, 0.2] + 0.7)
DATA = {
    "logistic": (RNG.random(500) < 1 / (1 + 1 / MU)).astype(float),
    "poisson": RNG.poisson(MU).astype(float),
    "negative_binomial": RNG.negative_binomial(2, 2 / (2 + MU)).astype(float),
    "gamma": RNG.gamma(2.0, MU / 2),
    "squares": np.log(MU) + RNG.standard_t(5, 500),
}


def fitted(loss, **options):
    y = DATA[loss if isinstance(loss, str) else "negative_binomial"]
    return tercet.minimize(tercet.LinearModel(X, y, loss, intercept=True, **options))


def theirs(name, **options):
    model = {"logistic": sm.Logit, "poisson": sm.Poisson, "squares": sm.OLS}[name](DATA[name], A)
    return model.fit(**options) if name == "squares" else model.fit(disp=0, method="newton", tol=1e-13, **options)


# equal to statsmodels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_the_table_is_that_of_statsmodels(loss):
    result, other = fitted(loss), theirs(loss)
    told = result.infer()
    table = told.table()
    np.testing.assert_allclose(result.x, other.params, rtol=1e-7)
    np.testing.assert_allclose(result.covariance(), other.cov_params(), rtol=1e-6)
    np.testing.assert_allclose(result.covariance("hessian"), other.cov_params(), rtol=1e-6)
    np.testing.assert_allclose(result.standard_errors(), other.bse, rtol=1e-6)
    np.testing.assert_allclose(table["z"], other.tvalues, rtol=1e-6)
    np.testing.assert_allclose(table["p"], other.pvalues, rtol=1e-5)
    np.testing.assert_allclose(np.column_stack(result.confidence_intervals(0.9)), other.conf_int(0.1), rtol=1e-6)
    facts = dict(told.facts)
    assert float(facts["log-likelihood"]) == pytest.approx(other.llf, abs=1e-6)
    assert [float(part) for part in facts["AIC, BIC"].split(",")] == pytest.approx([other.aic, other.bic], abs=1e-4)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "squares"])
def test_the_sandwich_is_that_of_statsmodels(loss):
    np.testing.assert_allclose(
        fitted(loss).covariance("sandwich"), theirs(loss, cov_type="HC0").cov_params(), rtol=1e-6
    )


def test_squares_are_ordinary_least_squares():
    result, other = fitted("squares"), theirs("squares")
    np.testing.assert_allclose(result.covariance(), other.cov_params(), rtol=1e-8)
    facts = dict(result.infer().facts)
    assert float(facts["log-likelihood"]) == pytest.approx(other.llf, abs=1e-6)
    assert float(facts["phi"].split()[0]) == pytest.approx(other.scale, rel=1e-5)


def test_gamma_has_pearsons_phi():
    other = sm.GLM(DATA["gamma"], A, family=sm.families.Gamma(sm.families.links.Log())).fit(tol=1e-14)
    result = fitted("gamma")
    assert float(dict(result.infer().facts)["phi"].split()[0]) == pytest.approx(other.scale, rel=1e-5)
    observed = np.linalg.inv(-other.model.hessian(other.params, scale=other.scale, observed=True))
    np.testing.assert_allclose(result.covariance(), observed, rtol=1e-6)


def test_the_negative_binomial_with_a_known_dispersion_is_statsmodels_observed_information():
    model = sm.GLM(DATA["negative_binomial"], A, family=sm.families.NegativeBinomial(alpha=0.5))
    other = model.fit(tol=1e-14)
    result = fitted(tercet.NegativeBinomial(0.5))
    np.testing.assert_allclose(result.x, other.params, rtol=1e-7)
    np.testing.assert_allclose(
        result.covariance(), np.linalg.inv(-model.hessian(other.params, observed=True)), rtol=1e-6
    )
    assert float(dict(result.infer().facts)["log-likelihood"]) == pytest.approx(other.llf, abs=1e-6)


def joint(params, a, y):
    """Minus the log-likelihood of a negative binomial, dispersion included."""
    r, z = jnp.exp(-params["log_dispersion"]), a @ params["beta"]
    log_p = z - jnp.logaddexp(z, jnp.log(r))
    log_q = jnp.log(r) - jnp.logaddexp(z, jnp.log(r))
    return -(jsp.gammaln(y + r) - jsp.gammaln(r) - jsp.gammaln(y + 1) + r * log_q + y * log_p)


@pytest.fixture(scope="module")
def both():
    problem = tercet.FiniteSum(joint, (A, DATA["negative_binomial"]))
    result = tercet.minimize(problem, {"beta": np.zeros(4), "log_dispersion": np.zeros(())})
    return result, sm.NegativeBinomial(DATA["negative_binomial"], A)


def test_the_negative_binomial_with_its_dispersion_is_statsmodels_in_the_structure_of_x(both):
    result, model = both
    assert result.success
    other = model.fit(
        disp=0, method="newton", tol=1e-13, start_params=[*result.x["beta"], float(np.exp(result.x["log_dispersion"]))]
    )
    errors = result.standard_errors()
    np.testing.assert_allclose(result.x["beta"], other.params[:4], rtol=1e-6)
    np.testing.assert_allclose(errors["beta"], other.bse[:4], rtol=1e-6)
    told = result.infer()
    assert told.names == ("beta[0]", "beta[1]", "beta[2]", "beta[3]", "log_dispersion")
    alpha = told.delta(lambda params: np.exp(params["log_dispersion"]))
    assert alpha.x == pytest.approx(other.params[4], rel=1e-6)
    assert alpha.standard_errors() == pytest.approx(other.bse[4], rel=1e-6)


def test_the_sandwich_of_a_sum_by_jax_is_that_of_statsmodels(both):
    result, model = both
    start = [*result.x["beta"], float(np.exp(result.x["log_dispersion"]))]
    other = model.fit(disp=0, method="newton", tol=1e-13, start_params=start, cov_type="HC0")
    np.testing.assert_allclose(result.standard_errors("sandwich")["beta"], other.bse[:4], rtol=1e-6)


# what it means --------------------------------------------------------------------------------------------------------


class Point:
    """The required members of a point and no more."""

    def __init__(self, point):
        self.point = point

    def value(self):
        return self.point.value()

    def gradient(self):
        return self.point.gradient()

    def product(self, order, *vectors):
        return self.point.product(order, *vectors)


def test_a_sum_of_ones_own_has_the_sandwich_from_single_terms():
    y = DATA["logistic"]
    model = tercet.LinearModel(X, y, "logistic")

    class Own:
        n, d = 500, 3

        def over(self, rows):
            view = model.over(rows)

            class View:
                terms = view.terms

                def at(self, x, carry=None):
                    point = view.at(x)

                    return Point(point)

            return View()

    x = tercet.minimize(model).x
    own = tercet.infer(Own(), x, "sandwich")
    np.testing.assert_allclose(own.covariance, tercet.infer(model, x, "sandwich").covariance, rtol=1e-9)
    np.testing.assert_allclose(
        tercet.infer(Own(), x, "hessian").covariance, tercet.infer(model, x).covariance, rtol=1e-9
    )


def test_a_plain_function_is_the_likelihood_of_all():
    y = DATA["squares"]
    result = tercet.minimize(lambda p: 0.5 * jnp.sum((y - p[0]) ** 2) * jnp.exp(-2 * p[1]) + len(y) * p[1], np.zeros(2))
    assert result.success
    scale = np.sqrt(np.mean((y - y.mean()) ** 2))
    np.testing.assert_allclose(result.standard_errors(), [scale / np.sqrt(500), 1 / np.sqrt(1000)], rtol=1e-6)
    for kind in ("sandwich", "bootstrap"):
        with pytest.raises(ValueError, match=rf"kind='{kind}'.*one term"):
            result.covariance(kind)


def test_robust_losses_have_the_sandwich_by_default_and_no_inverse_information():
    result = tercet.minimize(tercet.LinearModel(X, DATA["squares"], "cauchy", intercept=True))
    assert result.infer().kind == "sandwich"
    with pytest.raises(ValueError, match="no likelihood"):
        result.covariance("hessian")
    assert np.all(np.isfinite(result.covariance("hessian", force=True)))


def test_intervals_cover_as_often_as_they_say():
    """95 % intervals of both kinds over 300 samples: 14 misses each on the average, sd 3.7."""
    rng, misses = np.random.default_rng(5), np.zeros(2)
    for _ in range(300):
        Z = rng.standard_normal((80, 2))
        y = rng.poisson(np.exp(Z @ [0.4, -0.2] + 1.0)).astype(float)
        result = tercet.minimize(tercet.LinearModel(Z, y, "poisson", intercept=True))
        for k, kind in enumerate(("hessian", "sandwich")):
            lower, upper = result.confidence_intervals(kind=kind)
            misses[k] += not lower[0] <= 0.4 <= upper[0]
    assert 3 <= misses[0] <= 30
    assert 3 <= misses[1] <= 36  # the sandwich is a little short in small samples


def test_the_bootstrap_agrees_with_the_sandwich_and_repeats():
    result = fitted("poisson")
    told = result.infer("bootstrap", draws=150, seed=3)
    again = result.infer("bootstrap", draws=100, seed=3)
    np.testing.assert_array_equal(told.draws[:100], again.draws)
    ratio = told.deviations / result.standard_errors("sandwich")
    assert np.all((ratio > 0.75) & (ratio < 1.3))  # the error of 150 draws is 6 %
    lower, upper = told.confidence_intervals(0.9)
    assert np.all((lower < result.x) & (result.x < upper))
    inside = np.mean((told.draws > lower) & (told.draws < upper), axis=0)
    np.testing.assert_allclose(inside, 0.9, atol=0.02)


# not identified -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hessian", "sandwich"])
def test_collinear_columns_are_nan_with_the_reason_and_the_others_are_those_without_them(kind):
    y = DATA["logistic"]
    twice = np.column_stack([X, X[:, 1]])  # x[1] and x[3] are one
    result = tercet.minimize(tercet.LinearModel(twice, y, "logistic", intercept=True))
    told = result.infer(kind)
    alone = tercet.minimize(tercet.LinearModel(X, y, "logistic", intercept=True)).infer(kind)
    assert np.flatnonzero(np.isnan(told.deviations)).tolist() == [1, 3]
    assert "not identified" in told.why[1]
    assert "x[1], x[3]" in told.why[3]
    assert told.why[0] == told.why[2] == told.why[4] == ""
    np.testing.assert_allclose(told.deviations[[0, 2, 4]], alone.deviations[[0, 2, 3]], rtol=1e-6)
    total = told.delta(lambda x: np.array([x[1] + x[3], x[1] - x[3]]))
    assert total.standard_errors()[0] == pytest.approx(alone.deviations[1], rel=1e-6)
    assert np.isnan(total.standard_errors()[1])
    assert "not identified" in str(told.summary())


def test_what_the_penalty_alone_identifies_is_nan_too():
    twice = np.column_stack([X, X[:, 1]])
    result = tercet.minimize(tercet.LinearModel(twice, DATA["poisson"], "poisson", intercept=True, l2=1e-3))
    told = result.infer()
    assert np.flatnonzero(np.isnan(told.deviations)).tolist() == [1, 3]
    assert "penalty alone" in told.why[1]
    assert "penalized" in str(told.summary())
    assert "AIC" not in str(told.summary())


def test_a_minimum_flatter_than_a_square_has_no_standard_error():
    result = tercet.minimize(lambda p: p[0] ** 4 + 0.5 * (p[1] - 1.0) ** 2, np.array([1.0, 0.0]))
    assert result.success
    told = tercet.infer(lambda p: p[0] ** 4 + 0.5 * (p[1] - 1.0) ** 2, np.array([0.0, 1.0]), force=True)
    assert np.isnan(told.deviations[0])
    assert "more slowly than a square" in told.why[0]
    assert told.deviations[1] == pytest.approx(1.0)


def test_more_coefficients_than_rows_leave_no_variance():
    told = tercet.infer(tercet.LinearModel(np.eye(3), [1.0, 2.0, 3.0], "squares"), np.array([1.0, 2.0, 3.0]), "hessian")
    assert np.all(np.isnan(told.deviations))
    assert "nothing to estimate" in told.why[0]


# where it is asked ----------------------------------------------------------------------------------------------------


def test_a_point_that_is_not_certified_is_refused_unless_forced():
    model = tercet.LinearModel(X, DATA["poisson"], "poisson", intercept=True)
    early = tercet.minimize(model, max_iterations=1)
    with pytest.raises(ValueError, match=r"not .*minimizer.*force=True"):
        early.covariance()
    assert np.all(np.isfinite(early.covariance(force=True)))
    with pytest.raises(ValueError, match="force=True"):
        tercet.infer(model, np.ones(4))


def test_a_point_from_elsewhere_is_certified_first():
    other = theirs("poisson")
    model = tercet.LinearModel(sp.csr_array(A), DATA["poisson"], "poisson")
    np.testing.assert_allclose(tercet.infer(model, other.params).standard_errors(), other.bse, rtol=1e-6)


def test_a_result_lets_go_of_its_problem_when_it_is_saved_or_pickled(tmp_path):
    result = fitted("poisson")
    model = tercet.LinearModel(X, DATA["poisson"], "poisson", intercept=True)
    tercet.save(result, tmp_path / "r.npz")
    for other in (tercet.load(tmp_path / "r.npz"), pickle.loads(pickle.dumps(result))):
        with pytest.raises(ValueError, match=r"tercet\.infer\(problem, result\)"):
            other.standard_errors()
        np.testing.assert_array_equal(tercet.infer(model, other).covariance, result.covariance())
    assert len(pickle.dumps(result)) < X.nbytes


def test_a_result_of_another_problem_is_refused():
    with pytest.raises(ValueError, match="give the problem of that run"):
        tercet.infer(tercet.LinearModel(X[::-1], DATA["poisson"], "poisson", intercept=True), fitted("poisson"))


def test_names_come_from_the_data_frame_the_structure_or_the_user():
    pd = pytest.importorskip("pandas")
    model = tercet.LinearModel(
        pd.DataFrame(X, columns=["age", "dose", "sex"]), DATA["poisson"], "poisson", intercept=True
    )
    result = tercet.minimize(model)
    assert result.infer().names == ("age", "dose", "sex", "intercept")
    assert "dose" in str(result.summary())
    assert result.infer(names=list("abcd")).names == ("a", "b", "c", "d")
    with pytest.raises(ValueError, match="2 names for 4"):
        result.infer(names=["a", "b"])
    names = places(lambda v: {"W": v[:4].reshape(2, 2), "v": [v[4]]}, 5)
    assert names == ["W[0, 0]", "W[0, 1]", "W[1, 0]", "W[1, 1]", "v[0]"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kind": "exact"}, "hessian, sandwich, bootstrap"),
        ({"kind": "bootstrap", "draws": 1}, "draws=1"),
        ({"force": 1}, "force=1"),
    ],
)
def test_options_that_do_not_exist_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        fitted("poisson").infer(**options)


def test_too_many_coordinates_are_refused_before_any_work():
    wide = tercet.LinearModel(sp.eye_array(3001).tocsr(), np.ones(3001), "poisson", l2=1.0)
    with pytest.raises(ValueError, match="3001 coordinates"):
        tercet.infer(wide, np.zeros(3001))


def test_a_bootstrap_that_hangs_on_a_few_rows_says_so():
    """Separable but for one row: a resample without it has no minimizer."""
    y = (X[:40, 0] > 0).astype(float)
    y[np.argmin(np.abs(X[:40, 0]))] = 1.0 - y[np.argmin(np.abs(X[:40, 0]))]
    result = tercet.minimize(tercet.LinearModel(X[:40, :1], y, "logistic"))
    assert result.success
    told = result.infer("bootstrap", draws=40)
    assert "of 40 resamples had no certified minimizer" in told.notes[0]
    assert 0 < 40 - len(told.draws) < 20
    assert told.notes[0] in str(told.summary())


def test_probabilities_are_two_sided():
    table = fitted("poisson").infer().table()
    np.testing.assert_allclose(table["p"], 2 * scipy.stats.norm.sf(np.abs(table["z"])), rtol=1e-10)


def line(p, t, y):
    return p[0] * t + p[1] - y


def test_residuals_have_the_errors_of_the_linear_model_that_they_are():
    pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    t = rng.standard_normal(40)
    y = 2 * t + 1 + 0.05 * rng.standard_normal(40)
    linear = tercet.minimize(tercet.LinearModel(t[:, None], y, "squares", intercept=True)).infer()
    for problem in (
        tercet.Residuals(line, (t, y)),
        tercet.Residuals.of(lambda p: line(p, t, y)),
        tercet.Residuals.of(lambda p: line(p, t, y), jac=lambda p: np.column_stack([t, np.ones(40)])),
    ):
        told = tercet.minimize(problem, np.zeros(2)).infer()
        np.testing.assert_allclose(told.standard_errors(), linear.standard_errors(), rtol=1e-6)
        facts = [dict(row for row in each.facts if row[0] == "log-likelihood") for each in (told, linear)]
        assert float(facts[0]["log-likelihood"]) == pytest.approx(float(facts[1]["log-likelihood"]), abs=1e-5)
    fit = tercet.curve_fit(lambda t, a, b: a * t + b, t, y)
    np.testing.assert_allclose(fit.result.standard_errors(), fit.errors, rtol=1e-6)


def test_robust_residuals_are_no_likelihood():
    pytest.importorskip("jax")
    t = np.linspace(0, 1, 30)
    result = tercet.minimize(tercet.Residuals(line, (t, 2 * t + np.cos(40 * t)), loss="cauchy"), np.zeros(2))
    with pytest.raises(ValueError, match="no likelihood"):
        result.infer("hessian")
    assert result.infer().kind == "sandwich"
