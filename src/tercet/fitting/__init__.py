"""Fits of nonlinear models with SciPy's contracts and a certificate: `curve_fit`, `least_squares`, and many at once."""

from tercet.fitting.curve import Fit, curve_fit
from tercet.fitting.many import Fits, curve_fit_many
from tercet.fitting.squares import least_squares

__all__ = ["Fit", "Fits", "curve_fit", "curve_fit_many", "least_squares"]
