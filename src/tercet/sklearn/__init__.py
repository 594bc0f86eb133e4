"""Robust and generalized linear models, and curves, as scikit-learn estimators.

    model = tercet.sklearn.RobustRegressor("welsch").fit(X, y, sample_weight=w)
    model.predict(X), model.certificate_, model.standard_errors(X, y, sample_weight=w)

The estimators minimize f(x) = (1/W) sum_i w_i l(a_i'x, y_i) + l2/2 |x|^2, where the weights w_i sum to W, and keep the
certificate of the point. An intercept is a last coordinate of x with a column of ones; it is not penalized.
`CurveRegressor(f)` fits a nonlinear model f(X, *params) by least squares.
"""

try:
    from tercet.sklearn.classifier import RobustClassifier
    from tercet.sklearn.curve import CurveRegressor
    from tercet.sklearn.generalized import GeneralizedRegressor
    from tercet.sklearn.regressor import RobustRegressor
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "sklearn":
        raise
    raise ImportError("tercet.sklearn needs scikit-learn: pip install 'tercet[sklearn]'.") from error

__all__ = ["CurveRegressor", "GeneralizedRegressor", "RobustClassifier", "RobustRegressor"]
