"""Ways to minimize the model: `Dense`, `Krylov`, `GradientDescent` (the paper's) and `Accelerated`."""

from tercet.subsolvers.dense import Dense
from tercet.subsolvers.descent import Accelerated, GradientDescent
from tercet.subsolvers.krylov import Krylov
from tercet.subsolvers.subspace import Subspace

__all__ = ["Accelerated", "Dense", "GradientDescent", "Krylov", "Subspace"]
