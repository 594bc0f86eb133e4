"""The LIBSVM files of the paper's experiments, read from a local folder; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

FILES = {"a9a": ("a9a", 123), "svmguide3": ("svmguide3", 22), "covtype": ("covtype.libsvm.binary.scale.bz2", 54)}
UNSCALED = {"covtype_raw": ("covtype.libsvm.binary.bz2", 54)}  # raw integers: badly conditioned on purpose


def folder() -> Path:
    """$TERCET_DATA, or shared/data beside the project."""
    return Path(os.environ.get("TERCET_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def load(name: str) -> tuple[object, np.ndarray]:
    """X as a CSR matrix without columns that are constantly zero, and y in {0, 1}."""
    file, columns = (FILES | UNSCALED)[name]
    path = folder() / file
    if not path.exists():
        raise SystemExit(f"{path} is not there; set TERCET_DATA to a folder with the LIBSVM file {file}.")
    X, y = load_svmlight_file(str(path), n_features=columns)
    if name == "svmguide3":
        X = X[:, :21]  # the file's 22nd column is 0 in every row
    return X, (y == y.max()).astype(float)
