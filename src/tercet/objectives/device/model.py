"""Data of a linear model on a device, checked: one device, one precision, finite, and room for a run beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tercet.checks import plain_array
from tercet.objectives.base import digest
from tercet.objectives.device.arrays import (
    BUFFER,
    LIBRARIES,
    SHARE,
    Array,
    Arrays,
    DeviceShuffle,
    PlainArrays,
    TorchArrays,
    library_of,
)
from tercet.objectives.device.csr import NARROW, CsrDeviceTable, CupyCsr, TorchCsr
from tercet.objectives.device.cupyarrays import CupyArrays
from tercet.objectives.device.formulas import formulas_of
from tercet.objectives.device.losses import device_loss
from tercet.objectives.device.point import DeviceView
from tercet.objectives.device.table import DenseDeviceTable
from tercet.objectives.linear.point import Penalty
from tercet.records import Vector

PRECISIONS = ("float32", "float64")
VECTORS = 10  # as long as the data, that a run keeps or makes at once


def precision_of(array: Any) -> str:
    """float32, float64 or another name."""
    return str(array.dtype).split(".")[-1]


def place_of(array: Any) -> str:
    """Where an array lies, in words."""
    devices = getattr(array, "devices", None)
    return ",".join(sorted(str(each) for each in devices())) if callable(devices) else str(array.device)


def arrays_of(X: Any, accumulate: str | None) -> Arrays:
    """The library, the device and the precisions of X."""
    library, data = library_of(X), precision_of(X)
    if data not in PRECISIONS:
        raise ValueError(
            f"LinearModel(X=...): X is a {data} array; give float32 or float64, for example by X.to(torch.float64) or "
            "X.astype('float64')."
        )
    if accumulate not in (None, *PRECISIONS):
        raise ValueError(f"LinearModel(accumulate={accumulate!r}): give 'float64' or 'float32'.")
    kind = accumulate or (data if is_csr(X) else "float64")
    if is_csr(X) and kind != data:
        raise ValueError(f"LinearModel(accumulate={kind!r}): X is a sparse {data} matrix; give it in {kind}.")
    if data == "float64" and kind == "float32":
        raise ValueError("LinearModel(accumulate='float32'): X is float64; leave it out, or give X in float32.")
    if library == "torch":
        return TorchArrays(X.device, data, kind)
    if library == "cupy":
        return CupyArrays(entries_of(X).device, data, kind)
    if library == "jax":
        return jax_arrays(X, data, kind, accumulate)
    return PlainArrays(X.__array_namespace__(), X.device, data, kind)


def jax_arrays(X: Any, data: str, kind: str, accumulate: str | None) -> Arrays:
    """JAX computes in float64 only where it is told to at the start; sums are float32 where it is not, unless asked."""
    import jax

    from tercet.objectives.device.jaxarrays import JaxArrays

    if kind == "float64" and not jax.config.jax_enable_x64:
        if data == "float64" or accumulate is not None:
            raise ValueError(
                "LinearModel(X=...): sums in float64 were asked of JAX, whose float64 is switched off; switch it on by "
                "jax.config.update('jax_enable_x64', True) before X is made, or give accumulate='float32'."
            )
        kind = "float32"
    return JaxArrays(X, data, kind)


@dataclass(frozen=True, eq=False)
class DeviceData:
    """The checked parts of a linear model on a device."""

    view: DeviceView
    X: Array

    def shuffle(self, seed: int) -> DeviceShuffle:
        """A random order of the rows."""
        return DeviceShuffle(self.view.table.arrays, self.view.terms, seed)

    def own(self, x: Vector) -> Array:
        """x as an array of the library of X."""
        return self.view.table.arrays.put(x)

    @property
    def epsilon(self) -> float:
        """Of the precision in which f is computed."""
        return float(np.finfo(self.view.table.arrays.kind).eps)

    @property
    def provenance(self) -> str:
        """How derivatives are computed, for the certificate."""
        on = self.view.table.arrays
        kind = f"{on.data.name} data, " if on.data != on.kind else ""
        return f"closed-form derivatives, {kind}sums in {on.kind.name} on {on.device}"

    def fingerprint(self) -> dict[str, str]:
        """Digests of what X makes of fixed vectors, of y and of weights: the data itself does not come to the host."""
        view, table = self.view, self.view.table
        on, (n, d) = table.arrays, table.shape
        v = np.cos(np.arange(1.0, d + 1.0))
        c = on.put(np.cos(np.arange(1.0, n + 1.0)))
        told = on.host(table.weighed(c), table.weighed(table.times(v) * c))
        w = "none" if view.w is None else digest(*on.host(on.xp.sum(view.w * c), on.xp.sum(view.w * c * c)))
        targets = digest(*on.host(on.xp.sum(view.y * c), on.xp.sum(view.y * c * c)))
        return {"X": f"{n} x {d} {on.data.name} {digest(*told)}", "y": targets, "weights": w}


def device_data(
    X: Any, y: Any, w: Any, loss: Any, given: Any, penalty: Penalty, ones: bool, accumulate: str | None, wide: bool
) -> DeviceData:
    """A view of all rows, or a ValueError that names argument, value and remedy before any work."""
    X = X.detach() if hasattr(X, "detach") else X
    on, formula = arrays_of(X, accumulate), device_loss(loss, given)
    check_shape(X)
    check_room(on, X)
    check_entries(on, X)
    targets = vector_of("y", y, X, on)
    if formula.two_classes:
        check_classes(on, targets, given)
        targets = 1.0 - 2.0 * targets
    weights = None if w is None else normalized(on, vector_of("weights", w, X, on))
    table = table_of(on, X, ones)
    return DeviceData(DeviceView(table, targets, weights, formulas_of(on, formula), penalty, wide), X)


def is_csr(X: Any) -> bool:
    """Whether X is sparse, in the layout that is taken; ValueError for another."""
    layout = str(getattr(X, "layout", getattr(X, "format", ""))).removeprefix("torch.")
    sparse = layout.startswith("sparse") or (library_of(X) == "cupy" and hasattr(X, "format"))
    if sparse and layout not in ("sparse_csr", "csr"):
        remedy = "X.to_sparse_csr()" if layout.startswith("sparse") else "X.tocsr()"
        raise ValueError(f"LinearModel(X=...): X has the layout {layout}; give rows, {remedy}.")
    return sparse


def entries_of(X: Any) -> Array:
    """The entries of a dense or a sparse array."""
    return X if not is_csr(X) else X.values() if library_of(X) == "torch" else X.data


def table_of(on: Arrays, X: Any, ones: bool) -> DenseDeviceTable | CsrDeviceTable:
    """The table of an array."""
    if not is_csr(X):
        return DenseDeviceTable(on, X, ones)
    return CsrDeviceTable(on, TorchCsr(X) if library_of(X) == "torch" else CupyCsr(X), ones)


def check_shape(X: Any) -> None:
    """X is a non-empty table."""
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(
            f"LinearModel(X=...): X has shape {tuple(X.shape)}; give a non-empty table of rows and columns."
        )


def check_room(on: Arrays, X: Any) -> None:
    """Beside X there is room for what a run makes."""
    free, (n, d) = on.free(), X.shape
    stored = 2 * int(entries_of(X).shape[0]) if is_csr(X) else n * d
    square = 0 if is_csr(X) and d > NARROW else 4 * d * d * on.kind.itemsize
    fixed = 2 * max(BUFFER, int(SHARE * on.data.itemsize * stored)) + square
    needed = VECTORS * n * on.kind.itemsize + fixed
    if free is not None and needed > free:
        fits = int(max(0, free - fixed) / (VECTORS * on.kind.itemsize))
        raise ValueError(
            f"LinearModel(X=...): a run on {n} rows needs {needed / 1e9:.2f} GB beside X on {on.device}, where "
            f"{free / 1e9:.2f} GB are free; free memory there, or give at most {fits} rows."
        )


def check_entries(on: Arrays, X: Any, largest: float = 1e90) -> None:
    """The entries are finite, and their cubes are numbers; found out without a second array of the size of X."""
    entries = entries_of(X)
    if 0 in entries.shape:
        return
    low, high = on.host(on.xp.min(entries), on.xp.max(entries))
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("LinearModel(X=...): X holds nan or inf; drop or fill those entries first.")
    size = float(max(high, -low))
    most = largest if on.kind == np.float64 else 1e12
    if size > most:
        raise ValueError(
            f"LinearModel(X=...): X holds {size:.3g}, whose cube is beyond {on.kind.name}; rescale its columns."
        )


def vector_of(name: str, values: Any, X: Any, on: Arrays) -> Array:
    """Targets or weights on the device of X, in the precision of sums."""
    n, library = int(X.shape[0]), library_of(values)
    if library is None:
        try:
            array = plain_array(values)
        except ValueError as error:
            raise ValueError(f"LinearModel({name}=...): {name} is not an array of real numbers ({error}).") from error
        found: Any = array if array.shape != (n,) else on.put(array)
    else:
        found = checked_place(name, values.detach() if hasattr(values, "detach") else values, X)
        found = found if tuple(found.shape) != (n,) else in_precision(on, found)
    if tuple(found.shape) != (n,):
        raise ValueError(
            f"LinearModel({name}=...): {name} has shape {tuple(found.shape)}, but X has {n} rows; give one per row."
        )
    if not all(np.isfinite(each) for each in on.host(on.xp.min(found), on.xp.max(found))):
        raise ValueError(f"LinearModel({name}=...): {name} holds nan or inf; drop those rows or fill them.")
    return found


def in_precision(on: Arrays, values: Any) -> Array:
    """A vector of the library of X in the precision of sums."""
    kind = getattr(on.xp, on.kind.name)
    if hasattr(values, "astype"):
        return values.astype(kind)
    return values.to(kind) if hasattr(values, "to") and not hasattr(on.xp, "astype") else on.xp.astype(values, kind)


def checked_place(name: str, values: Any, X: Any) -> Any:
    """Values of the library, the device and the precision of X; whole numbers and truth values in any."""
    mine, its = library_of(values), library_of(X)
    if mine != its:
        raise ValueError(
            f"LinearModel({name}=...): {name} is a {LIBRARIES.get(mine or '', mine)} array and X a "
            f"{LIBRARIES.get(its or '', its)} array; give both in one library, or {name} as a NumPy array."
        )
    mine, its = place_of(values), place_of(entries_of(X))
    if mine != its and library_of(X) != "jax":
        raise ValueError(f"LinearModel({name}=...): {name} is on {mine} and X on {its}; move them to one device.")
    kind = precision_of(values)
    if "float" in kind and kind != precision_of(X):
        raise ValueError(
            f"LinearModel({name}=...): {name} is {kind} and X {precision_of(X)}; give both in one precision."
        )
    return values


def check_classes(on: Arrays, y: Array, given: Any) -> None:
    """Targets of a classification loss are 0 and 1."""
    off = float(on.host(on.xp.max(on.xp.abs(y * (1.0 - y))))[0])
    if off > 0.0:
        raise ValueError(
            f"LinearModel(loss={given!r}): y holds other numbers than 0 and 1, which this loss takes; "
            "map the two labels first, for example y = (y == positive_label)."
        )


def normalized(on: Arrays, w: Array) -> Array:
    """Weights that are at least 0 and not all 0, with mean one."""
    least, total = on.host(on.xp.min(w), on.xp.sum(w))
    if least < 0.0 or not 0.0 < total < np.inf:
        raise ValueError("LinearModel(weights=...): weights must be finite, at least 0, and not all 0.")
    return w * (w.shape[0] / float(total))


def margins_of(X: Any, x: Vector, ones: bool) -> Array:
    """Ax for rows on a device, in the precision of X."""
    return table_of(arrays_of(X, precision_of(X)), X, ones).times(x)
