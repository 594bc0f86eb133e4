"""An estimate with a known covariance: limits, functions of it, and its table."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from tercet import Inference
from tercet.inference.estimates import jacobian
from tercet.inference.spread import Spread

C = np.array([[0.04, 0.01, 0.0], [0.01, 0.09, 0.0], [0.0, 0.0, 1.0]])
FLAT = np.array([1.0, -2.0, 0.5])


def inference(why=("", "", ""), K=None, **more):
    spread = Spread(C, np.zeros((3, 0)) if K is None else K, why)
    return Inference(FLAT, FLAT, ("a", "b", "c"), "hessian", spread, lambda v: v, **more)


def test_limits_are_those_of_the_normal_distribution():
    lower, upper = inference().confidence_intervals(0.8)
    other = scipy.stats.norm.interval(0.8, FLAT, np.sqrt(np.diag(C)))
    np.testing.assert_allclose([lower, upper], other, rtol=1e-12)


def test_what_is_not_known_is_nan_in_rows_and_columns_and_the_table_says_why():
    told = inference(("", "no reason", ""), np.eye(3)[:, [1]])
    assert np.isnan(told.covariance[1]).all()
    assert np.isnan(told.covariance[:, 1]).all()
    np.testing.assert_array_equal(told.covariance[np.ix_([0, 2], [0, 2])], C[np.ix_([0, 2], [0, 2])])
    assert "nan for b: no reason." in str(told.summary())


def test_printed_it_is_the_table():
    assert str(inference()) == str(inference().summary())
    assert "std err" in str(inference().delta(lambda x: x[0] / x[1]))


def test_the_delta_method_of_a_product_and_of_a_number():
    told = inference().delta(lambda x: np.array([x[0] * x[1], np.exp(x[2])]), names=["ab", "exp c"])
    J = np.array([[-2.0, 1.0, 0.0], [0.0, 0.0, np.exp(0.5)]])
    np.testing.assert_allclose(told.covariance, J @ C @ J.T, rtol=1e-9)
    assert told.names == ("ab", "exp c")
    one = inference().delta(lambda x: x[0] / x[1])
    assert isinstance(one.standard_errors(), float)
    gradient = np.array([-0.5, -0.25, 0.0])
    assert one.standard_errors() == pytest.approx(np.sqrt(gradient @ C @ gradient), rel=1e-9)


def test_a_function_of_the_draws_is_a_function_of_each_of_them():
    draws = np.random.default_rng(0).standard_normal((500, 3)) + FLAT
    told = inference(draws=draws).delta(lambda x: x[0] ** 2)
    np.testing.assert_allclose(told.draws[:, 0], draws[:, 0] ** 2)
    assert told.confidence_intervals(0.9)[0] == pytest.approx(np.quantile(draws[:, 0] ** 2, 0.05))


def test_the_table_has_a_line_for_each_name_and_renders_in_a_notebook():
    summary = inference(facts=(("f", "1"),), notes=("<remark>",)).summary(names=["one", "two", "three"])
    lines = str(summary).splitlines()
    assert lines[0].split() == ["f:", "1"]
    row = next(line for line in lines if line.startswith("two")).split()
    assert [float(v) for v in row[1:]] == pytest.approx([-2.0, 0.3, -6.667, 0.0, -2.588, -1.412], abs=1e-3)
    assert "&lt;remark&gt;" in summary._repr_html_()


def test_the_jacobian_has_ten_digits_also_in_small_units():
    x = np.array([1e-8, 3.0])
    J = jacobian(lambda v: np.array([np.sin(1e8 * v[0]) * v[1] ** 3]), x, np.zeros(2), 1)
    np.testing.assert_allclose(J, [[1e8 * np.cos(1.0) * 27.0, np.sin(1.0) * 27.0]], rtol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, 95, "0.9"])
def test_a_bad_level_is_refused(level):
    with pytest.raises(ValueError, match="level="):
        inference().confidence_intervals(level)
    with pytest.raises(ValueError, match="level="):
        inference().summary(level)


@pytest.mark.parametrize("function", [lambda x: np.log(-x[0]), lambda x: "text", lambda x: np.eye(2)])
def test_a_function_that_gives_no_numbers_is_refused(function):
    with pytest.raises(ValueError, match=r"delta\(function="), np.errstate(invalid="ignore"):
        inference().delta(function)
