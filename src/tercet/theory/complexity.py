"""sigma_max and the number of iterations, as they follow from Condition 1 and Condition 2.

One argument serves all orders. While chi_i > eps_i at the trial point x + s,

    |s| >= (c_i eps_i / K_i(sigma))^(1/(4-i)),      q_i = (K_i / c_i)^(1/(4-i)),   so that eps^(1/3) <= q_i |s|:

    order 1:  K = sigma + theta + L_t/6 + (kb + kt)/3,     c = 1 - (kg + 2 kb/3 + kt/6)
    order 2:  K = 3 sigma + theta + L_t/2 + kt/2,          c = 1 - (kb + kt/2)
    order 3:  K = 6 sigma + theta + L_t,                   c = 1 - kt
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil, floor, inf, isfinite, isnan, log
from typing import Any

from tercet.checks import number, positive, probability, whole

PAPER_KAPPA = (0.25, 0.25, 0.5)
PAPER_GAMMA = (0.8, 1.2, 2.0)


@dataclass(frozen=True)
class Model:
    """L_t, theta and the kappas of Condition 1, and from them K_i and c_i of the step-length lemmas."""

    lipschitz: float
    kappa: tuple[float, float, float] = PAPER_KAPPA
    theta: float = 0.1

    def __post_init__(self) -> None:
        for name in ("lipschitz", "theta"):
            at_least_zero("Model", name, getattr(self, name))
        if len(self.kappa) != 3:
            raise ValueError(f"Model(kappa={self.kappa}): give three numbers, for g, B and T.")
        for kappa in self.kappa:
            at_least_zero("Model", "kappa", kappa)

    def slope(self, order: int) -> float:
        """How K_i grows with sigma: 1, 3, 6."""
        return (1.0, 3.0, 6.0)[order - 1]

    def size(self, order: int, sigma: float) -> float:
        """K_i(sigma)."""
        _, kb, kt = self.kappa
        rest = (self.lipschitz / 6 + (kb + kt) / 3, self.lipschitz / 2 + kt / 2, self.lipschitz)[order - 1]
        return self.slope(order) * sigma + self.theta + rest

    def share(self, order: int) -> float:
        """c_i, the share of eps_i that sampling error leaves."""
        kg, kb, kt = self.kappa
        return (1 - (kg + 2 * kb / 3 + kt / 6), 1 - (kb + kt / 2), 1 - kt)[order - 1]

    def quotient(self, order: int, sigma: float) -> float:
        """q_i = (K_i / c_i)^(1/(4-i)), with eps^(1/3) <= q_i |s| while chi_i > eps_i."""
        return (self.size(order, sigma) / self.share(order)) ** (1 / (4 - order))

    def miss(self, order: int, sigma: float) -> float:
        """(f(x+s) - phi(s)) / |s|^4 at most: kg q^3 + kb/2 q^2 + kt/6 q + L_t/24."""
        (kg, kb, kt), q = self.kappa, self.quotient(order, sigma)
        return kg * q**3 + kb / 2 * q**2 + kt / 6 * q + self.lipschitz / 24


def at_least_zero(call: str, name: str, value: Any) -> float:
    """A finite number that is at least 0, or a ValueError that names it."""
    if not 0 <= number(value) < inf:
        raise ValueError(f"{call}({name}={value!r}): {name} must be a finite number that is at least 0.")
    return float(value)


@dataclass(frozen=True)
class SigmaBound:
    """sigma_max = max(sigma_0, gamma_3 threshold); above the threshold every iteration is very successful.

    Where there is none, both are infinite and `reason` says why. `largest_kappa_g` is what kappa_g has to stay below
    for a threshold of first order to exist. `printed` is the paper's number, whatever it is, when asked for.
    """

    value: float
    threshold: float
    reason: str
    largest_kappa_g: float
    formula: str
    printed: float = float("nan")

    @property
    def finite(self) -> bool:
        """Whether there is a bound."""
        return isfinite(self.value)

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)


def sigma_max(
    lipschitz: float,
    *,
    kappa: tuple[float, float, float] = PAPER_KAPPA,
    theta: float = 0.1,
    eta2: float = 0.8,
    gamma3: float = 2.0,
    sigma0: float = 1.0,
    order: int = 1,
    relative: bool = False,
    paper: bool = False,
    eps: float | None = None,
) -> SigmaBound:
    """The bound on sigma_k: an iteration whose trial point is not yet critical is very successful whenever

        kg q^3 + kb/2 q^2 + kt/6 q + L_t/24 <= (1 - eta2) sigma / 4,     q = q_i(sigma), for every i up to `order`.

    `relative` is Condition 1 with eps^(1/3) replaced by |s| (the adaptive samples): then q = 1 and every kappa will do.
    `paper=True` is the printed bound for one eps, which is empty for every small eps.
    """
    model, eta2 = Model(lipschitz, kappa, theta), probability("sigma_max", "eta2", eta2)
    check_growth("sigma_max", gamma3, order)
    sigma0 = positive("sigma_max", "sigma0", sigma0)
    largest = largest_kappa_g(kappa[1], kappa[2], eta2)
    if paper:
        return printed_sigma(model, eta2, gamma3, sigma0, eps, largest)
    if relative:
        threshold, reason = relative_threshold(model, eta2), ""
        formula = "threshold = 4 (kg + kb/2 + kt/6 + L_t/24) / (1-eta2)"
    else:
        found = [threshold_of(model, i, eta2) for i in range(1, order + 1)]
        threshold = max(value for value, _ in found)
        reason = "; ".join(text for _, text in found if text)
        formula = "kg q^3 + kb/2 q^2 + kt/6 q + L_t/24 = (1-eta2) threshold/4, q = (K_i/c_i)^(1/(4-i))"
    formula += "; sigma_max = max(sigma_0, gamma_3 threshold)"
    return SigmaBound(max(sigma0, gamma3 * threshold), threshold, reason, largest, formula)


def check_growth(call: str, gamma3: float, order: int) -> None:
    """gamma_3 is above 1 and the order is 1, 2 or 3."""
    if not positive(call, "gamma3", gamma3) > 1:
        raise ValueError(f"{call}(gamma3={gamma3}): gamma3 must be above 1.")
    if whole(call, "order", order) > 3:
        raise ValueError(f"{call}(order={order}): order is 1, 2 or 3.")


def largest_kappa_g(kappa_b: float = 0.25, kappa_t: float = 0.5, eta2: float = 0.8) -> float:
    """kappa_g must stay below this for a finite sigma of first order: kg / c < (1 - eta2)/4, i.e.

        kg < r (1 - 2 kb/3 - kt/6) / (1 + r),   r = (1 - eta2)/4.

    0 where kb and kt alone take everything. With the paper's kb = 1/4, kt = 1/2, eta2 = 0.8 it is 1/28 = 0.0357.
    """
    kb, kt = at_least_zero("largest_kappa_g", "kappa_b", kappa_b), at_least_zero("largest_kappa_g", "kappa_t", kappa_t)
    r = (1 - probability("largest_kappa_g", "eta2", eta2)) / 4
    return max(0.0, r * (1 - 2 * kb / 3 - kt / 6) / (1 + r))


def relative_threshold(model: Model, eta2: float) -> float:
    """4 (kg + kb/2 + kt/6 + L_t/24) / (1 - eta2): Condition 1 relative to the step."""
    kg, kb, kt = model.kappa
    return 4 * (kg + kb / 2 + kt / 6 + model.lipschitz / 24) / (1 - eta2)


def threshold_of(model: Model, order: int, eta2: float) -> tuple[float, str]:
    """The sigma of one order and "", or infinity and the reason."""
    reason = why_none(model, order, eta2)
    if reason:
        return inf, reason

    def excess(sigma: float) -> float:
        return model.miss(order, sigma) - (1 - eta2) * sigma / 4

    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > 1e250:
            return (
                inf,
                f"order {order}: sigma is beyond all numbers; L_t is too large or a kappa too close to its limit",
            )
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high, ""


def why_none(model: Model, order: int, eta2: float) -> str:
    """Why no sigma is large enough; "" where one is.

    The left side grows like sigma^(j/(4-i)) in the term of order j of q; it must not outgrow (1-eta2) sigma/4.
    """
    share, room = model.share(order), (1 - eta2) / 4
    if share <= 0:
        return f"order {order}: sampling error takes all of eps_{order} (c = {share:.4g} is not positive)"
    (kg, kb, kt), slope = model.kappa, model.slope(order)
    names, weights = ("kappa_g", "kappa_b", "kappa_t"), (kg, kb / 2, kt / 6)
    for name, weight, power in zip(names, weights, (3, 2, 1), strict=True):
        if weight > 0 and power > 4 - order:
            return (
                f"order {order}: the {name} term grows like sigma^({power}/{4 - order}), faster than sigma; "
                f"it asks for {name} = 0, or for samples relative to the step"
            )
    leading = weights[order - 1] * slope / share  # the term that is linear in sigma
    if leading < room:
        return ""
    limit = f"; kappa_g must stay below {largest_kappa_g(kb, kt, eta2):.4g}" if order == 1 else ""
    return f"order {order}: {names[order - 1]} is too large, {leading:.4g} >= (1-eta2)/4 = {room:.4g}{limit}"


def printed_sigma(
    model: Model, eta2: float, gamma3: float, sigma0: float, eps: float | None, largest: float
) -> SigmaBound:
    """gamma_3 max(4 xi/(1-eta2), xi (4 L_t + 2 + 8 theta) / ((1-eta2) eps - 8 xi)), as printed."""
    if eps is None:
        raise ValueError("sigma_max(paper=True): the printed bound depends on eps; give eps.")
    eps = positive("sigma_max", "eps", eps)
    kg, kb, kt = model.kappa
    xi = eps * kg + eps ** (2 / 3) * kb / 2 + (eps ** (1 / 3) * kt + model.lipschitz) / 6
    room = (1 - eta2) * eps - 8 * xi
    second = xi * (4 * model.lipschitz + 2 + 8 * model.theta) / room if room else inf
    formula = "gamma_3 max(4 xi/(1-eta2), xi (4 L_t + 2 + 8 theta)/((1-eta2) eps - 8 xi)) [paper]"
    if room > 0:
        threshold = max(4 * xi / (1 - eta2), second)
        return SigmaBound(max(sigma0, gamma3 * threshold), threshold, "", largest, formula, gamma3 * threshold)
    reason = (
        f"the printed bound is empty: its denominator (1-eta2) eps - 8 xi = {room:.4g} is not positive, "
        f"so the fraction {second:.4g} bounds nothing"
    )
    return SigmaBound(inf, inf, reason, largest, formula, gamma3 * second)


@dataclass(frozen=True)
class Complexity:
    """How many iterations until chi_i <= eps_i: successful ones and all, and the delta that each of them may spend.

    Infinite where sigma_max is, with its reason. `eps` is the one of Condition 1: min(eps_1, eps_2^(3/2), eps_3^3).
    """

    successful: float
    total: float
    delta: float  # overall
    per_iteration: float  # what the three conditions of one iteration may fail with; 0 where `total` is infinite
    decrease: float  # what every successful iteration takes off f, at least
    eps: float
    sigma: SigmaBound
    formula: str
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)


def complexity(
    eps: float | tuple[float, ...],
    gap: float,
    lipschitz: float,
    *,
    delta: float = 0.05,
    kappa: tuple[float, float, float] = PAPER_KAPPA,
    theta: float = 0.1,
    eta: tuple[float, float] = (0.2, 0.8),
    gamma: tuple[float, float, float] = PAPER_GAMMA,
    sigma0: float = 1.0,
    sigma_min: float = 1e-10,
    order: int = 1,
    relative: bool = False,
    paper: bool = False,
) -> Complexity:
    """The iteration bounds K_succ and K for gap = f(x_0) - f_low, with probability 1 - delta over the whole run:

        K_succ = 1 + floor(4 gap / (eta1 sigma_min) max_i (K_i(sigma_max) / (c_i eps_i))^(4/(4-i)))
        K      = ceil((1 + |log gamma1| / log gamma2) K_succ + log(sigma_max / sigma_0) / log gamma2)

    `eps` is one number (eps, eps^(2/3), eps^(1/3)) or one per order. Each iteration may fail with delta / K. With
    `relative` samples c_i = 1 and K_i = the slope in sigma plus theta, the kappas and the Lipschitz term.
    """
    call = "complexity"
    for name, value in (("sigma0", sigma0), ("sigma_min", sigma_min)):
        positive(call, name, value)
    at_least_zero(call, "gap", gap)
    check_factors(call, eta, gamma)
    check_growth(call, gamma[2], order)
    levels = tolerances(call, eps, order)
    eps1 = min(level ** (3 / (4 - i)) for i, level in enumerate(levels, start=1))
    sigma = sigma_max(
        lipschitz, kappa=kappa, theta=theta, eta2=eta[1], gamma3=gamma[2], sigma0=sigma0, order=order,
        relative=relative, paper=paper, eps=eps1,
    )  # fmt: skip
    delta = probability(call, "delta", delta)
    model = Model(lipschitz, kappa, theta)
    if not sigma.finite:
        return Complexity(inf, inf, delta, 0.0, 0.0, eps1, sigma, "", sigma.reason)
    if paper:
        lengths = printed_power(model, levels, sigma.value)
    else:
        lengths = min(power(model, i, level, sigma.value, relative) for i, level in enumerate(levels, start=1))
    fall = eta[0] * sigma_min / 4 * lengths
    return count(gap, fall, delta, gamma, sigma0, sigma, eps1, paper)


def tolerances(call: str, eps: float | tuple[float, ...], order: int) -> list[float]:
    """eps_1 ... eps_order."""
    if isinstance(eps, tuple | list):
        if len(eps) < order:
            raise ValueError(f"{call}(eps={eps}, order={order}): give one number, or one for each order.")
        return [positive(call, f"eps{i + 1}", value) for i, value in enumerate(eps[:order])]
    eps = positive(call, "eps", eps)
    return [eps ** ((4 - i) / 3) for i in range(1, order + 1)]


def check_factors(call: str, eta: tuple[float, float], gamma: tuple[float, float, float]) -> None:
    """0 < eta1 < eta2 < 1 and 0 < gamma1 < 1 < gamma2 <= gamma3."""
    if not (len(eta) == 2 and 0 < eta[0] < eta[1] < 1):
        raise ValueError(f"{call}(eta={eta}): give 0 < eta1 < eta2 < 1.")
    if not (len(gamma) == 3 and 0 < gamma[0] < 1 < gamma[1] <= gamma[2]):
        raise ValueError(f"{call}(gamma={gamma}): give 0 < gamma1 < 1 < gamma2 <= gamma3.")


def power(model: Model, order: int, eps: float, sigma: float, relative: bool) -> float:
    """|s|^4 at least, while chi_i > eps_i: (c_i eps_i / K_i)^(4/(4-i)). Relative samples put their kappas into K_i."""
    L, theta, (kg, kb, kt) = model.lipschitz, model.theta, model.kappa
    if relative:
        rest = (kg + kb + kt / 2 + L / 6, kb + kt + L / 2, kt + L)[order - 1]
        return (eps / (model.slope(order) * sigma + theta + rest)) ** (4 / (4 - order))
    return (model.share(order) * eps / model.size(order, sigma)) ** (4 / (4 - order))


def printed_power(model: Model, levels: list[float], sigma: float) -> float:
    """1 / (2 kappa_max max(eps_1^(-4/3), eps_2^-2, eps_3^-4)) with the printed constants,

    kappa_max = max(2^(1/3) kappa_s^(4/3), 2 kappa_s2^2, 8 kappa_s3),   kappa_s = sigma + L_t/2 + theta + 1/4,
    kappa_s2 = 3 sigma + L_t/2 + theta + 1/4,   kappa_s3 = L_t + sigma/2 + theta (its fourth power was dropped).
    """
    L, theta = model.lipschitz, model.theta
    first, second, third = sigma + L / 2 + theta + 0.25, 3 * sigma + L / 2 + theta + 0.25, L + sigma / 2 + theta
    largest = max((2 ** (1 / 3) * first ** (4 / 3), 2 * second**2, 8 * third)[: len(levels)])
    return 1 / (2 * largest * max(level ** (-4 / (4 - i)) for i, level in enumerate(levels, start=1)))


def count(
    gap: float, fall: float, delta: float, gamma: tuple[float, float, float], sigma0: float, sigma: SigmaBound,
    eps: float, paper: bool,
) -> Complexity:  # fmt: skip
    """K_succ, K and delta / K from the decrease of one successful iteration."""
    ratio = gap / fall if fall > 0 else inf
    if not isfinite(ratio):
        return Complexity(inf, inf, delta, 0.0, fall, eps, sigma, "", "the decrease per iteration is below all numbers")
    growth = 1 + abs(log(gamma[0])) / log(gamma[1])
    successful = ceil(ratio) if paper else floor(ratio) + 1
    start = log(sigma.value / sigma0) / log(gamma[1])
    total = ceil((growth * successful + start) * (successful if paper else 1))
    if paper:
        formula = "K_succ = ceil(8 kappa_max gap/(eta1 sigma_min) max(eps_1^-4/3, ...)), K = C K_succ [paper]"
    else:
        formula = (
            "K_succ = 1 + floor(4 gap/(eta1 sigma_min) max_i (K_i/(c_i eps_i))^(4/(4-i))), "
            "K = ceil((1 + |log gamma1|/log gamma2) K_succ + log(sigma_max/sigma_0)/log gamma2), delta_k = delta/K"
        )
    return Complexity(float(successful), float(total), delta, delta / total, fall, eps, sigma, formula)


def per_iteration_delta(delta: float, iterations: int, paper: bool = False) -> float:
    """delta / K, what each of K iterations may fail with so that all of them hold with probability 1 - delta.

    The paper prints delta' = delta / T with delta' the overall one, i.e. delta = T delta', which grows with the run.
    """
    delta = probability("per_iteration_delta", "delta", delta)
    iterations = whole("per_iteration_delta", "iterations", iterations)
    if not paper:
        return delta / iterations
    if delta * iterations >= 1 or isnan(delta):
        raise ValueError(
            f"per_iteration_delta(delta={delta}, iterations={iterations}, paper=True): the printed relation gives "
            f"{delta * iterations:.4g}, which is no probability; it should read delta / iterations."
        )
    return delta * iterations
