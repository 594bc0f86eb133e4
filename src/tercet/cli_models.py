"""Models of the command line: their settings, their files, and the data that they are fitted to."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tercet.checks import regular_file
from tercet.datasets import load_libsvm
from tercet.datasets.catalogue import names
from tercet.objectives.glm import NegativeBinomial, SmoothQuantile
from tercet.objectives.linear import LinearModel
from tercet.records import Vector

FORMAT, VERSION = "tercet linear model", 1
SETTINGS = ("loss", "scale", "dispersion", "quantile", "l2", "alpha", "intercept")


def header_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the flags say of the model."""
    return {"settings": {name: getattr(options, name) for name in SETTINGS}, "n_features": options.n_features}


def load_point(options: argparse.Namespace) -> tuple[dict[str, Any], Vector]:
    """Coefficients from anywhere, of the model that the flags describe."""
    path = options.model
    try:
        with open(regular_file("certify", path), "rb") as file:
            x = np.load(file, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(file, ndmin=1)
        if x.ndim != 1 or x.dtype.kind not in "fiu" or not np.all(np.isfinite(x)):
            raise ValueError(f"it holds {x.dtype} of shape {x.shape}; a vector of finite numbers is needed")
        return header_of(options), x.astype(np.float64)
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever a foreign file makes NumPy raise
        raise ValueError(f"{path}: no coefficients ({error}).") from error


def no_data_set(file: str, remedy: str) -> None:
    """ValueError where the name of a data set stands for a file that is not there."""
    if not Path(file).exists() and file.split(":")[0] in names():
        raise ValueError(f"{file}: there is no such file; it is the name of a data set, {remedy}.")


def read_data(file: str, n_features: int | None, binary: bool) -> tuple[Any, Vector, dict[str, int] | None]:
    """X, y and the map of two labels to 0 and 1, where there is one."""
    no_data_set(file, f"which `tercet compare` and tercet.datasets.load({file!r}) take. Give the path of a file")
    X, y = load_libsvm(file, n_features)
    if not binary:
        return X, y, None
    values = np.unique(y)
    if len(values) != 2:
        some = ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")
        raise ValueError(
            f"{file}: it has {len(values)} labels ({some}), but this --loss tells two classes apart; for numbers give "
            "--loss squares, cauchy or another one of regression."
        )
    low, high = (float(value) for value in values)
    return X, (y == high).astype(np.float64), {repr(low): 0, repr(high): 1}


def metrics_of(labels: dict[str, int] | None, file: str, y: Vector, z: Vector, mean: Vector) -> dict[str, float]:
    """How good the margins z are for the targets y of a file: accuracy and log-loss, or the errors of a regression."""
    if labels is None:
        off = mean - y
        return {"rmse": float(np.sqrt(np.mean(off * off))), "mae": float(np.mean(np.abs(off)))}
    unseen = [value for value in np.unique(y) if repr(float(value)) not in labels]
    if unseen:
        raise ValueError(f"{file}: the label {unseen[0]:g} is none of those of the model, {', '.join(labels)}.")
    sign = np.where([labels[repr(float(value))] == 1 for value in y], 1.0, -1.0)
    return {"accuracy": float(np.mean((z > 0) == (sign > 0))), "log_loss": float(np.mean(np.logaddexp(0.0, -sign * z)))}


def model_on(header: dict[str, Any], X: Any, y: Vector) -> LinearModel:
    """The model of a file over other data."""
    settings = dict(header["settings"])
    name, scale, dispersion, quantile = (settings.pop(key, None) for key in ("loss", "scale", "dispersion", "quantile"))
    for option, value, of in (
        ("dispersion", dispersion, "negative_binomial"),
        ("quantile", quantile, "smooth_quantile"),
    ):
        if value is not None and name != of:
            raise ValueError(f"fit --{option} {value}: only the loss {of} has one; leave it out.")
    if dispersion is not None:
        return LinearModel(X, y, NegativeBinomial(dispersion), scale=scale, **settings)
    if quantile is not None:
        return LinearModel(X, y, SmoothQuantile(quantile, 1.0 if scale is None else scale), **settings)
    return LinearModel(X, y, name, scale=scale, **settings)


def save_model(path: Path, header: dict[str, Any], x: Vector) -> None:
    """Write coefficients and header, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            text = json.dumps({"format": FORMAT, "version": VERSION, **header})
            np.savez(file, allow_pickle=False, header=np.array(text), x=x)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_model(path: Path) -> tuple[dict[str, Any], Vector]:
    """Header and coefficients; ValueError for any other file."""
    try:
        with open(regular_file("load_model", path), "rb") as raw, np.load(raw, allow_pickle=False) as file:
            header, x = json.loads(str(file["header"])), np.asarray(file["x"], dtype=np.float64)
        if header["format"] != FORMAT or header["version"] != VERSION:
            raise ValueError("its header is not that of a linear model")
        if x.shape != (header["n_features"] + bool(header["settings"]["intercept"]),):
            raise ValueError(f"it holds {x.shape} coefficients for {header['n_features']} features")
        return header, x
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever a foreign file makes NumPy or JSON raise
        raise ValueError(f"{path}: not a model that tercet wrote ({error}).") from error
