"""`STM` and `SCR`: the same iteration with three samples and with two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tercet.checks import flag, number
from tercet.control.sigma import PaperSigma, SigmaRule, TrustRegion
from tercet.frame import Euclidean, Natural, Units
from tercet.methods.run import Run
from tercet.methods.step import TensorKernel
from tercet.sampling.rules import Fixed, Progressive, SizeRule
from tercet.subsolvers import GradientDescent
from tercet.subsolvers.base import Subsolver


@dataclass(frozen=True)
class STM:
    """The Sub-sampled Tensor Method: at each x it approximately minimizes

        m(s) = g's + 1/2 s'Bs + 1/6 T[s]^3 + sigma/4 |s|^4

    with g, B, T sampled as `sizes` says and |s| in the units of `units`. With `sizes=Full()` it is the deterministic
    AR3. Third derivatives are bought when the last quadratic model left more than 1/`worth` of the gradient
    unexplained; `worth=inf` always buys. With `noise_aware` a rejection that sampling error explains enlarges the
    samples and leaves sigma alone. `policy=Reduced()` reduces the variance of samples that are drawn afresh.
    """

    sizes: SizeRule = field(default_factory=Progressive)
    subsolver: Subsolver | None = None
    sigma: SigmaRule = field(default_factory=TrustRegion)
    worth: float = 4.0
    noise_aware: bool = True
    units: Units = field(default_factory=Natural)
    policy: Any = None
    order: int = field(default=3, init=False)
    power: int = field(default=4, init=False)

    def __post_init__(self) -> None:
        check_parts("STM", self)
        if not number(self.worth) >= 0:
            raise ValueError(f"STM(worth={self.worth!r}): worth must be at least 0; inf buys third derivatives always.")

    @staticmethod
    def paper(step: float = 1.0) -> STM:
        """The paper's settings: 5 % samples, factors 0.8/1.2/2, eta 0.2/0.8, sigma_0 = 1, gradient descent inside."""
        return STM(Fixed(), GradientDescent(step=step), PaperSigma(), worth=np.inf, units=Euclidean())

    def kernel(self, run: Run) -> TensorKernel:
        """The method with the parts that suit the run."""
        return TensorKernel.of(self, run)


@dataclass(frozen=True)
class SCR:
    """Sub-sampled cubic regularization: m(s) = g's + 1/2 s'Bs + sigma/3 |s|^3, with two samples.

    With `sizes=Full()` it is the deterministic ARC.
    """

    sizes: SizeRule = field(default_factory=Progressive)
    subsolver: Subsolver | None = None
    sigma: SigmaRule = field(default_factory=TrustRegion)
    noise_aware: bool = True
    units: Units = field(default_factory=Natural)
    policy: Any = None
    worth: float = field(default=0.0, init=False)
    order: int = field(default=2, init=False)
    power: int = field(default=3, init=False)

    def __post_init__(self) -> None:
        check_parts("SCR", self)

    @staticmethod
    def paper(step: float = 1.0) -> SCR:
        """The paper's settings for its baseline: 5 % samples, factors 0.8/1.2/2, gradient descent inside."""
        return SCR(Fixed(), GradientDescent(step=step), PaperSigma(), units=Euclidean())

    def kernel(self, run: Run) -> TensorKernel:
        """The method with the parts that suit the run."""
        return TensorKernel.of(self, run)


def check_parts(call: str, parts: Any) -> None:
    """Each part has what its room asks for."""
    both = ("first", "next")
    wanted = {
        "sizes": (*both, "nested", "replacement"),
        "sigma": (*both, "eta1"),
        "units": ("frame",),
        "subsolver": ("prepare",),
    }
    for name, methods in wanted.items():
        part = getattr(parts, name)
        if isinstance(part, type):
            raise ValueError(f"{call}({name}={part.__name__}): pass an object, {part.__name__}(), not the class.")
        missing = [m for m in methods if not hasattr(part, m)]
        if missing and not (name == "subsolver" and part is None):
            raise ValueError(f"{call}({name}={part!r}): it has no {missing[0]!r}; see CONTRIBUTING for a skeleton.")
    if parts.policy is not None and (isinstance(parts.policy, type) or not hasattr(parts.policy, "expand")):
        raise ValueError(f"{call}(policy={parts.policy!r}): give Reduced(), or None for plain samples.")
    flag(call, "noise_aware", parts.noise_aware)
