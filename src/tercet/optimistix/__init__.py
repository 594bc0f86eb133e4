"""Tercet as a minimiser and a least-squares solver of optimistix:

    optimistix.minimise(fn, tercet.optimistix.STM(rtol=1e-8, atol=1e-8), y0)
    optimistix.least_squares(fn, tercet.optimistix.GaussNewton(rtol=1e-8, atol=1e-8), y0)

The dense third-order steps with the formulas of tercet's own methods, written in JAX: they can be compiled, mapped over
starts with `vmap`, and differentiated through by the implicit function theorem, optimistix's default.
"""

from tercet.optimistix.residuals import GaussNewton
from tercet.optimistix.solver import STM, certify

__all__ = ["STM", "GaussNewton", "certify"]
