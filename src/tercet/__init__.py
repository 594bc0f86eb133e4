"""Tercet: minimize non-convex finite sums with sub-sampled derivatives up to order three, and certify the point."""

from tercet.control.sigma import PaperSigma, SignedEstimate, TrustRegion
from tercet.critical.tolerances import Tolerances
from tercet.datasets import load_libsvm
from tercet.fitting import Fit, Fits, curve_fit, curve_fit_many, least_squares
from tercet.frame import Euclidean, Natural
from tercet.inference import Inference
from tercet.methods.accelerated import AcceleratedCubic, AcceleratedTensor
from tercet.methods.certifying import assert_minimizer, certify
from tercet.methods.checkpoint import CheckpointError
from tercet.methods.inferring import infer
from tercet.methods.many import Minima, minimize_many
from tercet.methods.minimize import minimize, resume
from tercet.methods.profiling import Profile, profile
from tercet.methods.reduced import Reduced
from tercet.methods.schemes import EstimateSequence, NearOptimal, Unaccelerated
from tercet.methods.sgd import SGD
from tercet.methods.stm import SCR, STM
from tercet.objectives.class_model import ClassModel
from tercet.objectives.finite_sum import FiniteSum
from tercet.objectives.glm import Gamma, NegativeBinomial, Poisson, SmoothQuantile
from tercet.objectives.linear import LinearModel
from tercet.objectives.residuals import Residuals
from tercet.objectives.transformed import Transformed
from tercet.objectives.transforms import above, below, interval, positive
from tercet.records import Certificate, Counts, Status
from tercet.result import Info, Result, Trace
from tercet.sampling import Adaptive, Fixed, Full, Growing, Progressive, Ranges, Theory
from tercet.shards import Shards
from tercet.storage import load, save
from tercet.subsolvers import Accelerated, Dense, GaussNewton, GradientDescent, Krylov, Subspace

__version__ = "0.1.0"

__all__ = [
    "SCR",
    "SGD",
    "STM",
    "Accelerated",
    "AcceleratedCubic",
    "AcceleratedTensor",
    "Adaptive",
    "Certificate",
    "CheckpointError",
    "ClassModel",
    "Counts",
    "Dense",
    "EstimateSequence",
    "Euclidean",
    "FiniteSum",
    "Fit",
    "Fits",
    "Fixed",
    "Full",
    "Gamma",
    "GaussNewton",
    "GradientDescent",
    "Growing",
    "Inference",
    "Info",
    "Krylov",
    "LinearModel",
    "Minima",
    "Natural",
    "NearOptimal",
    "NegativeBinomial",
    "PaperSigma",
    "Poisson",
    "Profile",
    "Progressive",
    "Ranges",
    "Reduced",
    "Residuals",
    "Result",
    "Shards",
    "SignedEstimate",
    "SmoothQuantile",
    "Status",
    "Subspace",
    "Theory",
    "Tolerances",
    "Trace",
    "Transformed",
    "TrustRegion",
    "Unaccelerated",
    "above",
    "assert_minimizer",
    "below",
    "certify",
    "curve_fit",
    "curve_fit_many",
    "infer",
    "interval",
    "least_squares",
    "load",
    "load_libsvm",
    "minimize",
    "minimize_many",
    "positive",
    "profile",
    "resume",
    "save",
]
