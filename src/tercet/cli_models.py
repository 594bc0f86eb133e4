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


def read_data(file: str, n_features: int | None, binary: bool) -> tuple[Any, Vector, dict[str, int] | None]:
    """X, y and the map of two labels to 0 and 1, where there is one."""
    if not binary:
        X, y = load_libsvm(file, n_features)
        return X, y, None
    X, y, labels = load_libsvm(file, n_features, binary_labels=True)
    return X, y, {repr(float(label)): int(value) for label, value in labels.items()}


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
