"""Tercet: minimize non-convex finite sums with sub-sampled derivatives up to order three, and certify the point."""

from tercet.control.sigma import PaperSigma, SignedEstimate
from tercet.critical.certify import Tolerances
from tercet.datasets import load_libsvm
from tercet.methods.checkpoint import CheckpointError
from tercet.methods.minimize import minimize, resume
from tercet.methods.sgd import SGD
from tercet.methods.stm import SCR, STM
from tercet.objectives.finite_sum import FiniteSum
from tercet.objectives.linear import LinearModel
from tercet.records import Certificate, Counts, Status
from tercet.result import Info, Result, Trace
from tercet.sampling import Adaptive, Fixed, Full, Growing, Progressive, Ranges, Theory
from tercet.storage import load, save
from tercet.subsolvers import Accelerated, Dense, GradientDescent, Krylov, Subspace

__version__ = "0.1.0"

__all__ = [
    "SCR",
    "SGD",
    "STM",
    "Accelerated",
    "Adaptive",
    "Certificate",
    "CheckpointError",
    "Counts",
    "Dense",
    "FiniteSum",
    "Fixed",
    "Full",
    "GradientDescent",
    "Growing",
    "Info",
    "Krylov",
    "LinearModel",
    "PaperSigma",
    "Progressive",
    "Ranges",
    "Result",
    "SignedEstimate",
    "Status",
    "Subspace",
    "Theory",
    "Tolerances",
    "Trace",
    "load",
    "load_libsvm",
    "minimize",
    "resume",
    "save",
]
