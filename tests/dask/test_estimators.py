"""Estimators on a cluster find what those in memory find."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import tercet.dask
import tercet.sklearn
from tests.dask.data import TARGETS, D, W, X, Y, shards_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("default")]
LAZY = da.from_array(X, chunks=(700, D))


def test_the_classifier_is_that_of_scikit_learn_style(client):
    labels = np.where(Y == 1.0, "yes", "no")
    alone = tercet.sklearn.RobustClassifier(l2=1e-3, random_state=0).fit(X, labels, sample_weight=W)
    model = tercet.dask.RobustClassifier(l2=1e-3, random_state=0, client=client)
    model.fit(LAZY, da.from_array(labels, chunks=700), sample_weight=da.from_array(W, chunks=700))
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.intercept_, alone.intercept_, rtol=1e-5)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_array_equal(model.predict(LAZY).compute(scheduler="sync"), alone.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), rtol=1e-5)
    assert model.certificate_.holds
    assert model.get_params()["client"] is client


def test_frames_and_shards(client):
    frame = pd.DataFrame({**{f"c{j}": X[:, j] for j in range(D)}, "label": Y})
    lazy = dd.from_pandas(frame, npartitions=4)
    expected = tercet.sklearn.RobustClassifier("logistic", random_state=0).fit(X, Y)
    for data in ((lazy, "label"), (lazy.drop(columns="label"), lazy["label"]), (shards_of(),)):
        model = tercet.dask.RobustClassifier("logistic", random_state=0, client=client).fit(*data)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6)
        assert model.classes_.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("loss", ["squares", "cauchy", "welsch"])
def test_the_regressor_finds_scale_and_coefficients(client, loss):
    """All rows are in the sample here, so that the estimated scale is that in memory, up to how it is settled."""
    alone = tercet.sklearn.RobustRegressor(loss, random_state=0).fit(X, TARGETS)
    model = tercet.dask.RobustRegressor(loss, random_state=0, client=client)
    model.fit(LAZY, da.from_array(TARGETS, chunks=700))
    if loss != "squares":
        assert model.scale_ == pytest.approx(alone.scale_, rel=1e-6)
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-5)
    np.testing.assert_allclose(model.predict(LAZY).compute(scheduler="sync"), alone.predict(X), rtol=1e-4, atol=1e-4)


def test_a_scale_that_is_given_is_used(client):
    model = tercet.dask.RobustRegressor("cauchy", scale=0.7, fit_intercept=False, client=client)
    model.fit(LAZY, da.from_array(TARGETS, chunks=700))
    alone = tercet.sklearn.RobustRegressor("cauchy", scale=0.7, fit_intercept=False).fit(X, TARGETS)
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-6)
    assert (model.scale_, model.intercept_) == (0.7, 0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda c: tercet.dask.RobustClassifier("cauchy", client=c).fit(LAZY, Y), "unknown loss"),
        (lambda c: tercet.dask.RobustClassifier(client=c).fit(LAZY, TARGETS), "give rows of two"),
        (lambda c: tercet.dask.RobustClassifier(client=c).fit(LAZY, [1, 2]), "y=list"),
        (lambda c: tercet.dask.RobustRegressor("squares", scale=1.0, client=c).fit(LAZY, TARGETS), "have no scale"),
        (lambda c: tercet.dask.RobustClassifier(max_iter=0, client=c).fit(LAZY, Y), "max_iter=0"),
    ],
)
def test_what_does_not_fit_is_refused(client, make, message):
    with pytest.raises(ValueError, match=message):
        make(client)
