"""Digits claimed against digits right, on NIST's regressions: NIST gives 11 of them, here they are computed to 30.

    python -m benchmarks.nist_digits            # `minimize` on the sum of squares, and on `Residuals`
    python -m benchmarks.nist_digits MGH10      # some of them

A reference is Newton's iteration from NIST's values for the data as double precision has them, with residuals and
their derivatives of 60 digits (mpmath, central differences) and a Hessian of 16, until steps are below 1e-32.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import mpmath
import numpy as np

import tercet
from benchmarks.nist_models import Regression, problems

mp = mpmath.mp.clone()
mp.dps = 60
SMALL = mp.mpf(10) ** -20  # of a difference, relative to the parameter
EXACT = 1e-32
ITERATIONS = 60

PRIMITIVES: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": operator.pow,
    "integer_pow": lambda a, y: a**y,
    "square": lambda a: a * a,
    "exp": mp.exp,
    "log": mp.log,
    "sin": mp.sin,
    "cos": mp.cos,
    "atan": mp.atan,
    "convert_element_type": lambda a, **_: a,
}


class Columns(tuple[Any, ...]):
    """Several regressors of one example, as x[..., k]."""

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, key[-1])


def interpret(jaxpr: Any, constants: Any, arguments: list[Any]) -> list[Any]:
    """The outputs of a program of scalars, with numbers of 60 digits."""
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(exact, constants), strict=True))
    known |= dict(zip(jaxpr.invars, arguments, strict=True))

    def value(atom: Any) -> Any:
        return exact(atom.val) if hasattr(atom, "val") else known[atom]

    for step in jaxpr.eqns:
        inputs = [value(atom) for atom in step.invars]
        inner = step.params.get("jaxpr")
        if inner is not None:
            outputs = interpret(inner.jaxpr, inner.consts, inputs)
        else:
            options = {"y": step.params["y"]} if step.primitive.name == "integer_pow" else {}
            outputs = [PRIMITIVES[step.primitive.name](*inputs, **options)]
        known |= dict(zip(step.outvars, outputs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def exact(number: Any) -> Any:
    """A double as it is."""
    return mp.mpf(float(number))


def residual(p: Regression) -> Callable[[list[Any], Any, Any], Any]:
    """Of one example, in 60 digits."""

    def scalars(b: Any, x: Any) -> Any:
        return p.model(b, Columns(x) if len(x) > 1 else x[0])

    many = np.atleast_2d(np.asarray(p.x).T).shape[0]
    with jax.enable_x64(True):
        program = jax.make_jaxpr(scalars)(tuple(map(float, p.starts[0])), (1.0,) * many)
    return lambda b, x, y: interpret(program.jaxpr, program.consts, [*b, *x])[0] - y


def reference(p: Regression) -> list[Any]:
    """The minimizer of the sum of squares to 30 digits."""
    r, b = residual(p), [exact(v) for v in p.certified]
    rows = [([exact(v) for v in np.atleast_1d(x)], exact(y)) for x, y in zip(p.x, p.y, strict=True)]
    with jax.enable_x64(True):
        H = np.asarray(jax.hessian(p.sum_of_squares)(np.array(p.certified)))
    E = 1.0 / np.sqrt(np.diag(H))
    inverse = E[:, None] * np.linalg.inv(H * np.outer(E, E)) * E
    for _ in range(ITERATIONS):
        g = gradient(r, rows, b)
        s = [-sum(exact(a) * v for a, v in zip(row, g, strict=True)) for row in inverse]
        b = [v + d for v, d in zip(b, s, strict=True)]
        if max(abs(d / v) for d, v in zip(s, b, strict=True)) < EXACT:
            return b
    raise RuntimeError(f"{p.name}: the reference does not converge.")


def gradient(r: Callable[[list[Any], Any, Any], Any], rows: list[tuple[Any, Any]], b: list[Any]) -> list[Any]:
    """Of the sum of squares, by central differences of each residual."""
    g = []
    for j, v in enumerate(b):
        h = SMALL * abs(v)
        up, down = [*b[:j], v + h, *b[j + 1 :]], [*b[:j], v - h, *b[j + 1 :]]
        g.append(sum(r(b, x, y) * (r(up, x, y) - r(down, x, y)) for x, y in rows) / h)
    return g


def digits(found: Any, truth: list[Any]) -> float:
    """Right digits of the worst parameter, at most 16."""
    worst = max(abs(exact(v) / b - 1) for v, b in zip(found, truth, strict=True))
    return 16.0 if worst == 0 else float(min(16.0, max(0.0, -mp.log10(worst))))


def difference(p: Regression) -> Callable[..., Any]:
    """The residual of one example."""
    return lambda b, x, y: p.model(b, x) - y


def main(names: list[str]) -> None:
    """Claims and truths of every success, and how far the highest claim is above the truth."""
    excess = []
    for p in problems():
        if names and p.name not in names:
            continue
        truth = reference(p)
        ways = {"sum": p.sum_of_squares, "Residuals": tercet.Residuals(difference(p), (p.x, p.y))}
        for k, start in enumerate(p.starts):
            cells = []
            for name, problem in ways.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = tercet.minimize(problem, np.array(start))
                right, claimed = digits(result.x, truth), result.certificate.digits
                excess += [claimed - right] * result.success
                cells.append(f"{name} {right:5.1f} right, {claimed:5.1f} claimed {result.status.name}")
            print(f"{p.name:9}{k + 1} NIST's {digits(p.certified, truth):4.1f} | " + " | ".join(cells), flush=True)
    above = sum(e > 1.0 for e in excess)
    print(
        f"\n{len(excess)} claims, {above} more than a digit too high; the highest is {max(excess):+.1f} above the truth"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
