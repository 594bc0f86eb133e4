"""Skew-normal maximum likelihood, started where every second-order test is passed and no maximum is.

    python examples/skew_normal.py [--quick] [--out FOLDER]

The density is 2/w phi(z) Phi(alpha z) with z = (y - xi)/w; the parameters are (xi, log w, alpha). A natural start is
the normal model: xi = mean, w = standard deviation, alpha = 0. In every sample the gradient of the likelihood is zero
there, its Hessian is singular and semidefinite, and along the kernel direction y = (-b w, 0, 1), b = sqrt(2/pi),

    f(start + t y) = f(start) - t^3/6 b (4/pi - 1) skewness + O(t^4):

only the third derivative tells that it is no maximum, and which way alpha has to go. A method of first or second order
reports success where it stands, with an estimate that says "not skewed" and an information matrix that cannot be
inverted. It is not only the exact point: from an alpha of the wrong sign descent leads into this flat spot, and slows
down there until it looks converged.

Measured, with a tolerance of 1e-8 for all: at alpha = 0 and 1e-6 each of SciPy's six methods reports success where it
stands. From alpha = 0.1 five of them find the maximum, from 1 all do. From 50 random starts BFGS, L-BFGS-B, Newton-CG
and trust-ncg find it in about half of the runs and report a false success in most others, trust-exact in 32,
Nelder-Mead in 49, tercet in 50. `scipy.stats.skewnorm.fit`, which starts on the right side, finds it too. What the
certificate adds is that the answer does not depend on the start, and that the standard errors, the roots of the
diagonal of (n hess f)^-1, exist.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.stats
from jax.scipy.special import log_ndtr
from present import BLACK, BLUE, GRAY, VERMILION, panels, run, save, table

import tercet

TRUTH = np.array([1.0, math.log(2.0), 4.0])  # xi, log w, alpha
NAMES = ("xi", "log w", "alpha")
METHODS = ("BFGS", "L-BFGS-B", "Newton-CG", "trust-ncg", "trust-exact", "Nelder-Mead")


def log_normal_cdf(t: jax.Array) -> jax.Array:
    """log Phi(t) with three good derivatives; below -8 by the continued fraction x + 1/(x + 2/(x + ...)) of 1/Mills.

    `log_ndtr` changes at -20 to a short series, whose third derivative is wrong by more than a tenth.
    """
    far = t < -8.0
    x = jnp.where(far, -t, 8.0)
    fraction = x
    for k in range(10, 0, -1):
        fraction = x + k / fraction
    tail = -0.5 * x * x - 0.5 * math.log(2 * math.pi) - jnp.log(fraction)
    return jnp.where(far, tail, log_ndtr(jnp.where(far, -8.0, t)))


def f(x: jax.Array, sample: jax.Array) -> jax.Array:
    """The mean of -log density over a sample."""
    z = (sample - x[0]) * jnp.exp(-x[1])
    return jnp.mean(x[1] + 0.5 * z * z + 0.5 * math.log(0.5 * math.pi) - log_normal_cdf(x[2] * z))


# Compiled once with the sample as an argument, so that a thousand samples of one size cost no further compilation.
VALUE, GRADIENT, HESSIAN, THIRD = (
    jax.jit(call) for call in (f, jax.grad(f), jax.hessian(f), jax.jacfwd(jax.hessian(f)))
)


def at(call: Any, sample: np.ndarray) -> Any:
    """x -> call(x, sample) as NumPy."""
    return lambda x: np.asarray(call(x, sample))


def certified_fit(sample: np.ndarray, start: np.ndarray) -> tercet.Result:
    """The maximum likelihood estimate with its certificate."""
    derivatives = {"grad": at(GRADIENT, sample), "hess": at(HESSIAN, sample), "third": at(THIRD, sample)}
    return tercet.minimize(at(VALUE, sample), start, **derivatives)


def scipy_fit(sample: np.ndarray, start: np.ndarray, method: str) -> scipy.optimize.OptimizeResult:
    """The same by a method of SciPy, with the same derivatives and the same tolerance."""
    more: dict[str, Any] = {} if method == "Nelder-Mead" else {"jac": at(GRADIENT, sample)}
    if method in ("Newton-CG", "trust-ncg", "trust-exact"):
        more["hess"] = at(HESSIAN, sample)
    more |= {"options": {"ftol": 1e-15, "gtol": 1e-8}} if method == "L-BFGS-B" else {"tol": 1e-8}
    return scipy.optimize.minimize(at(VALUE, sample), start, method=method, **more)


def draw(rng: np.random.Generator, x: np.ndarray, n: int) -> np.ndarray:
    """A sample: xi + w (delta |e_1| + sqrt(1 - delta^2) e_2) with normal e and delta = alpha / sqrt(1 + alpha^2)."""
    delta = x[2] / math.sqrt(1 + x[2] ** 2)
    e = rng.standard_normal((2, n))
    return x[0] + math.exp(x[1]) * (delta * np.abs(e[0]) + math.sqrt(1 - delta**2) * e[1])


def normal_start(sample: np.ndarray, alpha: float = 0.0) -> np.ndarray:
    """The normal model's mean and standard deviation, and an alpha."""
    return np.array([np.mean(sample), np.log(np.std(sample)), alpha])


def standard_errors(sample: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The roots of the diagonal of (n hess f)^-1."""
    return np.sqrt(np.diag(np.linalg.inv(len(sample) * at(HESSIAN, sample)(x))))


def starts(sample: np.ndarray, rng: np.random.Generator, random: int) -> dict[str, list[np.ndarray]]:
    """Where the methods are sent off: the normal model with several alphas, and at random."""
    fixed = {f"alpha = {a:g}": [normal_start(sample, a)] for a in (0.0, 1e-6, 0.1, 1.0, -1.0)}
    spread = np.array([np.std(sample), 0.5, 3.0])
    return {
        **fixed,
        f"{random} at random": [normal_start(sample) + spread * rng.standard_normal(3) for _ in range(random)],
    }


def compare(
    sample: np.ndarray, best: float, groups: dict[str, list[np.ndarray]]
) -> dict[str, dict[str, tuple[int, int, int]]]:
    """By method and group of starts: how many reach the maximum, how many report success elsewhere, and of how many.

    The maximum is reached where the log-likelihood, a sum over the sample, is within 0.01 of the best.
    """
    outcome: dict[str, dict[str, tuple[int, int, int]]] = {}
    for method in ("tercet", *METHODS):
        outcome[method] = {}
        for name, group in groups.items():
            fits = [certified_fit(sample, x) if method == "tercet" else scipy_fit(sample, x, method) for x in group]
            reached = [len(sample) * (fit.fun - best) < 0.01 for fit in fits]
            wrong = [bool(fit.success) and not there for fit, there in zip(fits, reached, strict=True)]
            outcome[method][name] = (sum(reached), sum(wrong), len(group))
    return outcome


def word(reached: int, wrong: int, runs: int) -> str:
    """The outcome of a cell in words."""
    if runs == 1:
        return "maximum" if reached else ("false success" if wrong else "gives up")
    return f"{reached} maximum, {wrong} false"


def simulate(x: np.ndarray, n: int, repeats: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Estimates and standard errors over samples drawn at x, fitted from the degenerate start; how many certified."""
    fits = [
        (sample, certified_fit(sample, normal_start(sample))) for sample in (draw(rng, x, n) for _ in range(repeats))
    ]
    good = [(fit.x, standard_errors(sample, fit.x)) for sample, fit in fits if fit.success]
    estimates, errors = (np.array(part) for part in zip(*good, strict=True))
    return estimates, errors, len(good)


def profile(sample: np.ndarray, alphas: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The log-likelihood maximized over xi and w for each alpha, less its largest value."""
    best, values, at_x = len(sample) * float(at(VALUE, sample)(x)), [], x[:2]
    for alpha in alphas[::-1]:
        fit = scipy.optimize.minimize(
            lambda p, a=alpha: at(VALUE, sample)(np.append(p, a)),
            at_x,
            jac=lambda p, a=alpha: at(GRADIENT, sample)(np.append(p, a))[:2],
            hess=lambda p, a=alpha: at(HESSIAN, sample)(np.append(p, a))[:2, :2],
            method="trust-exact",
        )
        at_x = fit.x
        values.append(best - len(sample) * fit.fun)
    return np.array(values[::-1])


def picture(sample: np.ndarray, start: np.ndarray, x: np.ndarray, path: Path) -> Path:
    """Left: the data and both densities. Right: the profile of the log-likelihood over alpha."""
    figure, (left, right) = panels(2)
    y = np.linspace(sample.min() - 0.5, sample.max() + 0.5, 400)
    left.hist(sample, 40, density=True, color="#D9D9D9", label="data")
    for p, color, style, name in ((start, VERMILION, "--", "start, alpha = 0"), (x, BLUE, "-", "certified maximum")):
        left.plot(y, scipy.stats.skewnorm.pdf(y, p[2], p[0], np.exp(p[1])), style, color=color, label=name)
    left.set(xlabel="y", ylabel="density")
    left.legend(frameon=False, loc="upper right")
    alphas = np.linspace(-2, 1.75 * x[2], 121)
    right.plot(alphas, profile(sample, alphas, x), color=BLACK)
    level = len(sample) * (float(at(VALUE, sample)(x)) - float(at(VALUE, sample)(start)))
    right.plot(0, level, "s", color=VERMILION, label="start: gradient 0, Hessian singular")
    right.plot(x[2], 0, "o", color=BLUE, label="certified maximum")
    right.axvline(TRUTH[2], color=GRAY, lw=0.8, ls=":", label="true alpha")
    right.set(xlabel="alpha", ylabel="profile log-likelihood, less its maximum")
    right.legend(loc="lower right", facecolor="white", framealpha=1, edgecolor="white")
    return save(figure, path)


def look_at_start(sample: np.ndarray, start: np.ndarray) -> None:
    """The start is a degenerate critical point: g = 0, B singular, and T[y]^3 as the formula above says."""
    y = np.array([-math.sqrt(2 / math.pi) * math.exp(start[1]), 0.0, 1.0])
    gradient = float(np.linalg.norm(at(GRADIENT, sample)(start)))
    curvature = np.linalg.eigvalsh(at(HESSIAN, sample)(start))
    cubic = float(np.einsum("ijk,i,j,k", at(THIRD, sample)(start), y, y, y))
    print(f"at the start: |gradient| {gradient:.1e}, smallest eigenvalue {curvature[0]:.1e}, T[y]^3 {cubic:.4f}\n")
    assert gradient < 1e-12
    assert abs(curvature[0]) < 1e-12 < curvature[1]
    assert abs(cubic + math.sqrt(2 / math.pi) * (4 / math.pi - 1) * scipy.stats.skew(sample)) < 1e-9


def report_fit(sample: np.ndarray, fit: tercet.Result) -> np.ndarray:
    """Estimates and standard errors, beside those of scipy.stats."""
    errors = standard_errors(sample, fit.x)
    table(
        ("parameter", "truth", "estimate", "standard error"),
        [(a, f"{b:.4f}", f"{c:.4f}", f"{e:.4f}") for a, b, c, e in zip(NAMES, TRUTH, fit.x, errors, strict=True)],
    )
    assert fit.success
    assert np.all(np.abs(fit.x - TRUTH) < 4 * errors)
    law = scipy.stats.skewnorm
    alpha, xi, w = law.fit(sample)
    off = float(np.max(np.abs(np.array([xi, math.log(w), alpha]) - fit.x) / errors))
    print(f"scipy.stats.skewnorm.fit (Nelder-Mead from its own start) is {off:.1e} standard errors away\n")
    ours = law.nnlf((fit.x[2], fit.x[0], np.exp(fit.x[1])), sample)
    assert abs(ours - len(sample) * fit.fun) < 1e-6 * abs(ours)
    assert ours <= law.nnlf((alpha, xi, w), sample) + 1e-6
    return errors


def report_methods(sample: np.ndarray, best: float, groups: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """Who finds the maximum from where."""
    outcome = compare(sample, best, groups)
    print("where each method ends, by start ('false': success reported away from the maximum)")
    table(("method", *groups), [(m, *(word(*outcome[m][g]) for g in groups)) for m in outcome])
    assert all(reached == runs for reached, _, runs in outcome["tercet"].values())
    assert all(outcome[m]["alpha = 0"] == (0, 1, 1) for m in METHODS if m != "Nelder-Mead")
    return outcome


def report_errors(x: np.ndarray, n: int, repeats: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The spread of the estimates over samples that are drawn at x, beside the standard errors that each claims."""
    estimates, claimed, certified = simulate(x, n, repeats, rng)
    spread = np.std(estimates, axis=0, ddof=1) / np.sqrt(np.mean(claimed**2, axis=0))
    covered = np.mean(np.abs(estimates - x) < 1.96 * claimed, axis=0)
    print(f"{repeats} samples drawn at the estimate, each fitted from its own degenerate start: {certified} certified")
    table(
        ("parameter", "spread over claimed error", "95 % interval covers"),
        [(a, f"{b:.3f}", f"{100 * c:.0f} %") for a, b, c in zip(NAMES, spread, covered, strict=True)],
    )
    assert certified == repeats
    assert np.all((spread > 0.7) & (spread < 1.4))
    return spread, covered


def main(quick: bool, out: Path) -> dict[str, Any]:
    """Fit, compare, check the standard errors, and draw."""
    n, random, repeats = (500, 5, 60) if quick else (1000, 50, 500)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        sample = draw(rng, TRUTH, n)
        start = normal_start(sample)
        fit = certified_fit(sample, start)
        print(f"skew-normal sample of {n}, started at the normal model\n{fit}\n")
        look_at_start(sample, start)
        errors = report_fit(sample, fit)
        outcome = report_methods(sample, fit.fun, starts(sample, rng, random))
        spread, covered = report_errors(fit.x, n, repeats, rng)
        path = picture(sample, start, fit.x, out / "skew_normal.png")
    return {"result": fit, "errors": errors, "outcome": outcome, "spread": spread, "covered": covered, "picture": path}


if __name__ == "__main__":
    run(main, __doc__)
