"""Ways to minimize the model: `Dense`, `Krylov`, `GradientDescent` (the paper's), `Accelerated`, and those for a
structure: `Subspace` (linear models) and `GaussNewton` (residuals)."""

from tercet.subsolvers.dense import Dense
from tercet.subsolvers.descent import Accelerated, GradientDescent
from tercet.subsolvers.gauss_newton import GaussNewton
from tercet.subsolvers.krylov import Krylov
from tercet.subsolvers.subspace import Subspace

__all__ = ["Accelerated", "Dense", "GaussNewton", "GradientDescent", "Krylov", "Subspace"]
