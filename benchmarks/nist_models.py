"""NIST StRD nonlinear regression: 27 problems with two starts and certified values, read from the data folder.

Models are written from the text of each file; the response is log y for Nelson. The data files are not part of the
project: `folder` says where they are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.data import folder as data_folder

Model = Callable[..., Any]


def _three_exponentials(b: Any, x: Any) -> Any:
    return b[0] * jnp.exp(-b[1] * x) + b[2] * jnp.exp(-b[3] * x) + b[4] * jnp.exp(-b[5] * x)


def _gauss(b: Any, x: Any) -> Any:
    peaks = b[2] * jnp.exp(-((x - b[3]) ** 2) / b[4] ** 2) + b[5] * jnp.exp(-((x - b[6]) ** 2) / b[7] ** 2)
    return b[0] * jnp.exp(-b[1] * x) + peaks


def _cubic_over_cubic(b: Any, x: Any) -> Any:
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def _saturation(b: Any, x: Any) -> Any:
    return b[0] * (1 - jnp.exp(-b[1] * x))


def _chwirut(b: Any, x: Any) -> Any:
    return jnp.exp(-b[0] * x) / (b[1] + b[2] * x)


def _enso(b: Any, x: Any) -> Any:
    turn = 2 * jnp.pi * x
    waves = b[4] * jnp.cos(turn / b[3]) + b[5] * jnp.sin(turn / b[3])
    waves = waves + b[7] * jnp.cos(turn / b[6]) + b[8] * jnp.sin(turn / b[6])
    return b[0] + b[1] * jnp.cos(turn / 12) + b[2] * jnp.sin(turn / 12) + waves


MODELS: dict[str, Model] = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": _saturation,
    "Chwirut1": _chwirut,
    "Chwirut2": _chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": _enso,
    "Eckerle4": lambda b, x: (b[0] / b[1]) * jnp.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _gauss,
    "Gauss2": _gauss,
    "Gauss3": _gauss,
    "Hahn1": _cubic_over_cubic,
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": _three_exponentials,
    "Lanczos2": _three_exponentials,
    "Lanczos3": _three_exponentials,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * jnp.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * jnp.exp(-x * b[3]) + b[2] * jnp.exp(-x * b[4]),
    "Misra1a": _saturation,
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** (-2)),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** (-0.5)),
    "Misra1d": lambda b, x: b[0] * b[1] * x * ((1 + b[1] * x) ** (-1)),
    "Nelson": lambda b, x: b[0] - b[1] * x[..., 0] * jnp.exp(-b[2] * x[..., 1]),
    "Rat42": lambda b, x: b[0] / (1 + jnp.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / ((1 + jnp.exp(b[1] - b[2] * x)) ** (1 / b[3])),
    "Roszman1": lambda b, x: b[0] - b[1] * x - jnp.arctan(b[2] / (x - b[3])) / jnp.pi,
    "Thurber": _cubic_over_cubic,
}


@dataclass(frozen=True, eq=False)
class Regression:
    """A model with its data, two starts, and certified parameters with their standard deviations."""

    name: str
    model: Model
    x: np.ndarray
    y: np.ndarray
    starts: tuple[np.ndarray, np.ndarray]
    certified: np.ndarray
    deviations: np.ndarray
    rss: float

    def residuals(self, b: Any) -> Any:
        """y - model, traceable."""
        return self.y - self.model(b, self.x)

    def sum_of_squares(self, b: Any) -> Any:
        """The residual sum of squares, traceable."""
        return jnp.sum(self.residuals(b) ** 2)

    def compiled(self) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
        """Residuals and their Jacobian as NumPy, compiled in double precision."""
        calls = [jax.jit(self.residuals), jax.jit(jax.jacobian(self.residuals))]

        def asked(call: Callable[..., Any]) -> Callable[[np.ndarray], np.ndarray]:
            def ask(b: np.ndarray) -> np.ndarray:
                with jax.enable_x64(True):
                    return np.asarray(call(b))

            return ask

        return asked(calls[0]), asked(calls[1])

    def digits(self, b: np.ndarray) -> float:
        """Right digits of the worst parameter, at most 11, which is what is certified."""
        with np.errstate(all="ignore"):
            worst = np.max(np.abs(np.asarray(b) / self.certified - 1))
        return float(np.clip(-np.log10(worst), 0.0, 11.0)) if np.isfinite(worst) and worst > 0 else 11.0 * (worst == 0)


def folder() -> Path:
    """Where the .dat files are looked for: nist/ in $TERCET_DATA, or in shared/data beside the project."""
    return data_folder() / "nist"


def read(name: str) -> Regression:
    """One problem from its file."""
    lines = (folder() / f"{name}.dat").read_text().splitlines()
    rows = [re.split(r"\s+", line.split("=")[1].strip()) for line in lines[:60] if re.match(r"\s+b\d+ =", line)]
    numbers = np.array([[float(cell) for cell in row[:4]] for row in rows])
    rss = next(float(line.split(":")[1]) for line in lines if line.startswith("Residual Sum of Squares"))
    data = np.array([[float(cell) for cell in line.split()] for line in lines[60:] if line.strip()])
    y, x = data[:, 0], data[:, 1:]
    x = x[:, 0] if x.shape[1] == 1 else x
    y = np.log(y) if name == "Nelson" else y
    return Regression(name, MODELS[name], x, y, (numbers[:, 0], numbers[:, 1]), numbers[:, 2], numbers[:, 3], rss)


def problems() -> list[Regression]:
    """All of them, by name."""
    return [read(name) for name in MODELS]
