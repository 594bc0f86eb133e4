"""The pictures of the certificate page, from real runs: `python docs/figures.py` writes docs/_static/*.png."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from matplotlib.figure import Figure

import tercet

OUT = Path(__file__).resolve().parent / "_static"
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#E69F00", "#009E73", "#7F7F7F"  # of the palette of Okabe and Ito
FLOOR = 1e-6  # a measure that is 0 is drawn here
START = np.array([1.4, 0.0])


@dataclass(frozen=True)
class Case:
    """f(x, y) = x^2/2 + x^4/8 + h(y), where h is a polynomial: lowest at x = 0, and along y what h says."""

    title: str
    h: np.polynomial.Polynomial
    start: np.ndarray[Any, Any]
    ylim: tuple[float, float]

    def fun(self, p: Any) -> Any:
        """f."""
        return p[0] ** 2 / 2 + p[0] ** 4 / 8 + self.h(p[1])

    def grad(self, p: Any) -> Any:
        """Its gradient."""
        return np.array([p[0] + p[0] ** 3 / 2, self.h.deriv(1)(p[1])])

    def hess(self, p: Any) -> Any:
        """Its Hessian, which is diagonal."""
        return np.diag([1 + 1.5 * p[0] ** 2, self.h.deriv(2)(p[1])])

    def third(self, p: Any) -> Any:
        """Its third derivative, which is diagonal."""
        T = np.zeros((2, 2, 2))
        T[0, 0, 0], T[1, 1, 1] = 3 * p[0], self.h.deriv(3)(p[1])
        return T

    def run(self, start: Any, **settings: Any) -> tercet.Result:
        """A run of tercet from a point, without samples: there is one term."""
        return tercet.minimize(self.fun, start, grad=self.grad, hess=self.hess, third=self.third, order=3, **settings)

    @cached_property
    def path(self) -> list[np.ndarray[Any, Any]]:
        """The points of tercet's run."""
        points = [self.start]
        self.run(self.start, callback=lambda info: points.append(np.array(info.x)))
        return points

    @cached_property
    def certificates(self) -> list[tercet.Certificate]:
        """The certificate of each of them, as a run that ends before its first iteration gives it."""
        return [self.run(p, max_iterations=0).certificate for p in self.path]

    def peers(self) -> dict[str, Any]:
        """Where SciPy's methods end from the same start."""
        more: dict[str, dict[str, Any]] = {"Newton-CG": {"hess": self.hess}, "L-BFGS-B": {}}
        return {
            name: scipy.optimize.minimize(self.fun, self.start, jac=self.grad, method=name, **given)
            for name, given in more.items()
        }


CASES = (
    Case("saddle", np.polynomial.Polynomial([0, 0, -0.5, 0, 0.25]), START, (-1.6, 1.6)),
    Case("degenerate saddle", np.polynomial.Polynomial([0, 0, 0, 1 / 3, 0.25]), START, (-1.6, 1.0)),
    Case("degenerate minimum", np.polynomial.Polynomial([0, 0, 0, 0, 0.25]), np.array([1.4, 1.0]), (-1.2, 1.4)),
)


def panels(height: float) -> tuple[Figure, list[Any]]:
    """A figure with a panel for each case."""
    figure = Figure(figsize=(11, height), layout="constrained")
    axes = [figure.add_subplot(1, len(CASES), k + 1) for k in range(len(CASES))]
    for ax, case in zip(axes, CASES, strict=True):
        ax.set_title(case.title)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def paths() -> Figure:
    """Level lines, tercet's points, and where the others say that they have converged."""
    figure, axes = panels(4.0)
    for ax, case in zip(axes, CASES, strict=True):
        x, y = np.meshgrid(np.linspace(-1.0, 1.7, 200), np.linspace(*case.ylim, 200))
        values = case.fun(np.stack([x, y]))
        low = values.min()
        ax.contour(x, y, values, levels=low + np.linspace(0, 1, 22)[1:] ** 2 * (values.max() - low), colors="#CFCFCF",
                   linewidths=0.8, linestyles="solid")  # fmt: skip
        points = np.stack(case.path)
        ax.plot(*points.T, "-o", color=BLUE, ms=4, lw=1.5, label="tercet")
        ends = np.stack([peer.x for peer in case.peers().values()])
        ax.plot(*ends.T, "x", color=ORANGE, ms=11, mew=2.5, ls="", label="ends of Newton-CG and L-BFGS-B")
        ax.plot(*points[-1], "*", color=GREEN, ms=15, label="end of tercet, certified", zorder=5)
        ax.set(xlabel="x", ylabel="y", ylim=case.ylim)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def measures() -> Figure:
    """chi_1, chi_2, chi_3 over their tolerances along the run; the certificate holds where all are at most 1."""
    figure, axes = panels(3.6)
    shown: tuple[tuple[str, str, Callable[[Any], float]], ...] = (
        (r"$\chi_1/\varepsilon_1$", BLUE, lambda c: c.chi1 / c.eps1),
        (r"$\chi_2/\varepsilon_2$", ORANGE, lambda c: c.chi2 / c.eps2),
        (r"$\chi_3/\varepsilon_3$", GREEN, lambda c: c.chi3 / c.eps3),
    )
    for ax, case in zip(axes, CASES, strict=True):
        for (label, color, measure), marker in zip(shown, "osD", strict=True):
            values = np.array([measure(c) for c in case.certificates])
            ax.semilogy(np.maximum(values, FLOOR), marker=marker, color=color, ms=5, lw=1.5, label=label)
        ax.axhline(1.0, color=GRAY, ls="--", lw=1)
        ax.set(xlabel="iteration", ylim=(FLOOR / 10, 1e10))
        ax.set_yticks([FLOOR, 1e-3, 1e0, 1e3, 1e6, 1e9], ["0", *(f"$10^{{{k}}}$" for k in (-3, 0, 3, 6, 9))])
        ax.minorticks_off()
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("measure over tolerance")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    for case in CASES:
        print(case.title, case.run(case.start).status.name, case.path[-1])
        for p, c in zip(case.path, case.certificates, strict=True):
            print("  ", p, f"{c.chi1:.2e} {c.chi2:.2e} {c.chi3:.2e}")
        for name, peer in case.peers().items():
            print("  ", name, peer.success, peer.x, peer.fun)
    OUT.mkdir(exist_ok=True)
    for name, figure in (("certificate_paths", paths()), ("certificate_measures", measures())):
        figure.savefig(OUT / f"{name}.png", dpi=130, metadata={"Software": None})
