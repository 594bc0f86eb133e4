"""The theorems as numbers: sample sizes, constants, sigma_max and iteration bounds. docs/theory.md explains each.

tail = theory.vector_tail(d=123, bound=1.0, N=32561)
tail.size(t=0.1, delta=0.05), tail.failure(n=1000, t=0.1), tail.accuracy(n=1000, delta=0.05)
"""

from tercet.objectives.suprema import Suprema, loss_suprema
from tercet.sampling.bernstein import Bernstein, matrix_bernstein, tensor_bernstein, vector_bernstein
from tercet.sampling.bounds import Hoeffding, matrix_tail, tensor_tail, vector_tail
from tercet.sampling.theory import Promise, Ranges, Theory
from tercet.theory.complexity import (
    Complexity,
    SigmaBound,
    complexity,
    largest_kappa_g,
    per_iteration_delta,
    sigma_max,
)
from tercet.theory.constants import Constants, constants, estimate_constants
from tercet.theory.reduced import reduced_bounds

__all__ = [
    "Bernstein",
    "Complexity",
    "Constants",
    "Hoeffding",
    "Promise",
    "Ranges",
    "SigmaBound",
    "Suprema",
    "Theory",
    "complexity",
    "constants",
    "estimate_constants",
    "largest_kappa_g",
    "loss_suprema",
    "matrix_bernstein",
    "matrix_tail",
    "per_iteration_delta",
    "reduced_bounds",
    "sigma_max",
    "tensor_bernstein",
    "tensor_tail",
    "vector_bernstein",
    "vector_tail",
]
