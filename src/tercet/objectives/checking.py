"""Are the derivatives those of the function? Each order against central differences of the one below."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tercet.domain import EVERYWHERE, Domain
from tercet.objectives.base import Objective
from tercet.objectives.metered import Meter, Metered, MeteredView
from tercet.records import Vector

MOST_AXES = 20  # coordinate directions that are tried, drawn at random where there are more
STEP = float(np.finfo(float).eps) ** (1 / 3)


class DerivativeError(ValueError):
    """A derivative that does not belong to the function; the text names the first bad entry."""


def check_derivatives(objective: Objective, x: Vector, seed: int = 0, domain: Domain = EVERYWHERE) -> None:
    """Compare gradient, Hessian and third derivative with differences near x; DerivativeError at the first bad entry.

    An entry is bad when it differs by more than 1e-3 of the largest entry of its kind (1e-2 for the third derivative):
    far above what differences get wrong on a smooth function, far below what a wrong sign or factor makes.
    """
    view, rng = Metered.of(objective, Meter(objective.n)).over(None), np.random.default_rng(seed)
    # Beside x: at a symmetric point, such as zero, wrong derivatives may vanish together with the right ones.
    base = domain.project(x + 1e-2 * np.maximum(1.0, np.abs(x)) * rng.uniform(-1.0, 1.0, len(x)))
    axes = np.sort(rng.permutation(len(x))[:MOST_AXES])

    def along(j: int, of: Callable[[Vector], Vector]) -> Vector:
        h = STEP * max(1.0, abs(float(base[j])))
        return domain.difference(of, base, np.eye(1, len(base), j)[0], h)

    point = view.at(base)
    value = np.array([along(j, lambda z: np.array([view.at(z).value()]))[0] for j in axes])
    compare("gradient", "the function", [(int(j),) for j in axes], point.gradient()[axes], value, 1e-3)
    for j in axes:
        unit = np.eye(1, len(x), j)[0]
        places = [(i, int(j)) for i in range(len(x))]
        compare(
            "Hessian",
            "the gradient",
            places,
            point.hessian_product(unit),
            along(j, lambda z: view.at(z).gradient()),
            1e-3,
        )
        differences = along(j, products_with(view, unit))
        places3 = [(i, int(j), int(j)) for i in range(len(x))]
        compare("third derivative", "the Hessian", places3, point.third_product(unit, unit), differences, 1e-2)


def products_with(view: MeteredView, v: Vector) -> Callable[[Vector], Vector]:
    """z -> hess f(z) v."""
    return lambda z: view.at(z).hessian_product(v)


def compare(
    name: str, below: str, places: Sequence[tuple[int, ...]], given: Vector, differences: Vector, tolerance: float
) -> None:
    """Raise at the first entry that is off."""
    scale = max(float(np.max(np.abs(differences))), float(np.max(np.abs(given))), 1e-8)
    off = ~(np.abs(given - differences) <= tolerance * scale)
    if np.any(off):
        k = int(np.argmax(off))
        entry = ", ".join(str(i) for i in places[k])
        found = f"{name}[{entry}] is {given[k]:.8g}, but differences of {below} give {differences[k]:.8g}"
        raise DerivativeError(f"check_derivatives: {found}; correct the {name}.")
