"""Data sets by name: `load("a9a")`, from local folders, from scikit-learn, generated, or downloaded when allowed.

A name may end with `:ROWS` for a sample of that many rows that is always the same, as in `a9a:4000`. What is read from
a file or from scikit-learn is compared with a digest of the decoded matrix, so that archives packed differently pass
and other data does not.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tercet.datasets import synthetic
from tercet.datasets.libsvm import load_libsvm

PAGE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
VARIABLE = "TERCET_DATA"
DENSE = 0.5  # a matrix with at least this fraction of its entries stored is kept as a dense array


@dataclass(frozen=True)
class About:
    """What is known of a data set: its size, what 0 and 1 stand for, where it is from, and the digest of its matrix."""

    name: str
    n: int
    d: int
    labels: str
    source: str
    license: str
    digest: str = ""  # sha256 of labels, indices and values; empty in the catalogue for what is generated
    loss: Any = "sigmoid_squares"  # a name or a loss of its own


@dataclass(frozen=True, eq=False)
class Dataset:
    """A loaded data set: X (NumPy array or CSR array), y (0 and 1, but for `degenerate`), and what is known of it."""

    name: str
    X: Any
    y: NDArray[np.float64]
    info: About


UCI = "CC BY 4.0 (UCI Machine Learning Repository)"
CATALOGUE = {
    about.name: about
    for about in (
        About(
            "a9a",
            32561,
            123,
            "0: income up to 50K (-1 in the file), 1: above (+1)",
            f"LIBSVM collection, {PAGE}a9a; from UCI Adult",
            f"{UCI}; the LIBSVM page states none",
            "bf0a1eb25139b6e1fcc5d9f5fefaa8a331ca8f4f5d95595f6d11d1a8196b3247",
        ),
        About(
            "covtype",
            581012,
            54,
            "0: other cover types (1 in the file), 1: lodgepole pine (2)",
            f"LIBSVM collection, {PAGE}covtype.libsvm.binary.scale.bz2; from UCI Covertype, features mapped to [0, 1]",
            f"{UCI}; the LIBSVM page states none",
            "d681113778c60bd8d3cf9562ebae12cc588c3eaf6559d6b9546e11460bbf74ab",
        ),
        About(
            "covtype-raw",
            581012,
            54,
            "0: other cover types (1 in the file), 1: lodgepole pine (2)",
            f"LIBSVM collection, {PAGE}covtype.libsvm.binary.bz2; from UCI Covertype, features as measured",
            f"{UCI}; the LIBSVM page states none",
            "7567eebb953f0961ec9082b9f1c90dc789b4dbb8ba3fdeaaa173145a830de584",
        ),
        About(
            "svmguide3",
            1243,
            21,
            "0: -1 in the file, 1: +1",
            f"LIBSVM collection, {PAGE}svmguide3; the file's 22nd column is 0 in every row and is dropped",
            "none stated on the LIBSVM page; used in the LIBSVM authors' practical guide",
            "673c000c1af48a4d60442736eddc644c2d957764c509324eb33aac5857d64ade",
        ),
        About(
            "breast-cancer",
            569,
            30,
            "0: malignant, 1: benign",
            "scikit-learn, load_breast_cancer; from UCI Breast Cancer Wisconsin (Diagnostic); columns standardized",
            UCI,
            "561a3037470aaf700365045a5d13f39ee64a03f133b1f0833bda00e625624ad2",
        ),
        About(
            "digits",
            1797,
            61,
            "0: an even digit, 1: an odd digit",
            "scikit-learn, load_digits; from UCI Optical Recognition of Handwritten Digits; pixels over 16, three that "
            "are always 0 dropped",
            UCI,
            "e71540a7db35e432871cf0ae72e26718b0e0b6209b872e0a3e994feb51ff1129",
        ),
        About(
            "degenerate",
            2048,
            10,
            "real tilts of mean zero, no classes",
            "generated: mean of z^3 + z^4 + y z with z = a'x; with l2 = 0 the start 0 has zero gradient and Hessian, "
            "and only the third derivative leads down",
            "generated, no restriction",
            loss=synthetic.CubicValley(),
        ),
        About(
            "ill-conditioned",
            5000,
            40,
            "0 and 1, drawn from a logistic model",
            "generated: Gaussian columns with scales from 1 to 1e-4",
            "generated, no restriction",
        ),
        About(
            "sparse",
            20000,
            1000,
            "0 and 1, drawn from a logistic model",
            "generated: 10 entries a row, columns of very different frequency",
            "generated, no restriction",
        ),
        About(
            "huge",
            1000000,
            20,
            "0 and 1, drawn from a logistic model",
            "generated: Gaussian columns",
            "generated, no restriction",
        ),
    )
}
# name: the file's name and the columns that it has
FILES = {
    "a9a": ("a9a", 123),
    "covtype": ("covtype.libsvm.binary.scale.bz2", 54),
    "covtype-raw": ("covtype.libsvm.binary.bz2", 54),
    "svmguide3": ("svmguide3", 22),
}


def names() -> tuple[str, ...]:
    """All names of the catalogue."""
    return tuple(CATALOGUE)


def about(name: str) -> About:
    """What is known of a data set before it is loaded; ValueError with the nearest names for an unknown one."""
    base, rows = split(name)
    found = CATALOGUE[base]
    return found if rows is None else replace(found, name=name, n=rows, digest="")


def load(name: str, data_dir: str | Path | None = None, download: bool = False) -> Dataset:
    """The data set of that name.

    Files are looked for in `data_dir`, in the folder that the environment variable TERCET_DATA names, in
    `../shared/data` beside a developer's checkout, and in the cache of earlier downloads; with `download` they are
    fetched into that cache from the LIBSVM page (needs `pooch`). Without it nothing touches the network.
    """
    base, rows = split(name)
    if base in FILES:
        X, y, digest = from_file(base, data_dir, download)
    elif base in EMBEDDED:
        X, y, digest = EMBEDDED[base]()
    else:
        X, y = synthetic.GENERATORS[base]()
        digest = digest_of(X, y)
    check_digest(base, digest, "scikit-learn's copy" if base in EMBEDDED else "what was read")
    info = replace(CATALOGUE[base], digest=digest)
    return Dataset(base, X, y, info) if rows is None else sample(Dataset(base, X, y, info), name, rows)


def load_file(name: str, path: str | Path, n_features: int | None = None) -> Dataset:
    """A user's own LIBSVM file with two labels, as a data set called `name`."""
    X, raw = load_libsvm(path, n_features)
    y, words = binary(raw, str(path))
    about = About(name, X.shape[0], X.shape[1], words, f"file {Path(path).name}", "not known", digest_of(X, raw))
    return Dataset(name, thicken(X), y, about)


def split(name: str) -> tuple[str, int | None]:
    """The name in the catalogue and the number of rows that `:ROWS` asks for."""
    base, colon, tail = name.partition(":")
    if base not in CATALOGUE:
        near = difflib.get_close_matches(base.lower(), CATALOGUE, n=3, cutoff=0.5)
        hint = f"the nearest are {', '.join(near)}" if near else "none is near"
        raise ValueError(f"unknown data set {name!r}: {hint}; there are {', '.join(CATALOGUE)}.")
    if not colon:
        return base, None
    if not tail.isdecimal() or not 2 <= int(tail) <= CATALOGUE[base].n:
        raise ValueError(f"data set {name!r}: after the colon give a number of rows, 2 to {CATALOGUE[base].n}.")
    return base, int(tail)


def sample(dataset: Dataset, name: str, rows: int) -> Dataset:
    """The same `rows` rows every time, in their order in the data."""
    chosen = np.sort(np.random.default_rng(0).permutation(dataset.X.shape[0])[:rows])
    X, y = dataset.X[chosen], dataset.y[chosen]
    source = f"{rows} random rows (always the same) of: {dataset.info.source}"
    return Dataset(name, X, y, replace(dataset.info, name=name, n=rows, source=source, digest=digest_of(X, y)))


# --- files


def from_file(name: str, data_dir: str | Path | None, download: bool) -> tuple[Any, NDArray[np.float64], str]:
    """X, y and the digest of a LIBSVM file, wherever it is found."""
    path = find(name, data_dir) or (fetch(name) if download else None)
    if path is None:
        file = FILES[name][0]
        raise FileNotFoundError(
            f"data set {name!r}: the file {file} is not there. Name a folder that has it with --data-dir "
            f"(data_dir=...) or the environment variable {VARIABLE}, or allow a download by --download (download=True)."
        )
    X, raw = load_libsvm(path, FILES[name][1])
    digest = digest_of(X, raw)
    check_digest(name, digest, str(path))
    if name == "svmguide3":
        X = X[:, :21]
    return thicken(X), binary(raw, str(path))[0], digest


def find(name: str, data_dir: str | Path | None) -> Path | None:
    """The first file of the data set in the folders, packed or not."""
    file = FILES[name][0]
    for folder in folders(data_dir):
        for candidate in (file, file.removesuffix(".bz2")):
            if (folder / candidate).is_file():
                return folder / candidate
    return None


def folders(data_dir: str | Path | None) -> Iterator[Path]:
    """Where files may lie, in order."""
    if data_dir is not None:
        if not Path(data_dir).is_dir():
            raise FileNotFoundError(f"data_dir {str(data_dir)!r} is not a folder.")
        yield Path(data_dir)
    if os.environ.get(VARIABLE):
        yield Path(os.environ[VARIABLE])
    root = Path(__file__).resolve().parents[3]
    if (root / "pyproject.toml").is_file():  # a checkout, not an installed package
        yield root.parent / "shared" / "data"
    if (cached := cache()) is not None:
        yield cached


def cache() -> Path | None:
    """The folder of earlier downloads; None without pooch, which makes it."""
    try:
        import pooch
    except ImportError:
        return None
    return Path(pooch.os_cache("tercet"))


def fetch(name: str) -> Path:
    """Download the file of a data set into the cache, once."""
    file = FILES[name][0]
    try:
        import pooch
    except ImportError as error:
        raise ValueError(
            f"data set {name!r}: a download needs the package pooch; install it with pip install 'tercet[download]'."
        ) from error
    try:
        # No hash of the archive: it may be packed in several ways. The digest of the decoded matrix is checked.
        return Path(pooch.retrieve(PAGE + file, known_hash=None, fname=file, path=cache(), progressbar=False))
    except Exception as error:  # whatever the network and its libraries raise
        raise OSError(
            f"data set {name!r}: {PAGE + file} could not be downloaded ({type(error).__name__}: {error}). Without a "
            f"network, copy the file into a folder and name that with --data-dir or {VARIABLE}."
        ) from error


# --- matrices


def digest_of(X: Any, y: Any) -> str:
    """sha256 of the labels and of the matrix: row starts, column indices and values; all values where it is dense."""
    total = hashlib.sha256()
    parts = [(y, "<f8")]
    parts += [(X.indptr, "<i8"), (X.indices, "<i8"), (X.data, "<f8")] if sp.issparse(X) else [(X, "<f8")]
    total.update(f"{X.shape[0]} {X.shape[1]} {'csr' if sp.issparse(X) else 'dense'}".encode())
    for array, kind in parts:
        total.update(np.ascontiguousarray(array, dtype=kind).data)
    return total.hexdigest()


def check_digest(name: str, digest: str, where: str) -> None:
    """ValueError where the matrix is not the published one."""
    expected = CATALOGUE[name].digest or digest
    if digest != expected:
        raise ValueError(
            f"data set {name!r}: {where} is not the published matrix (sha256 of the decoded matrix is {digest[:16]}, "
            f"expected {expected[:16]}). Remove the file and get it again, or pass it as a file of your own."
        )


def binary(raw: NDArray[np.float64], where: str) -> tuple[NDArray[np.float64], str]:
    """Labels as 0 and 1, the larger one 1, and the map in words."""
    values = np.unique(raw)
    if len(values) != 2:
        some = ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")
        raise ValueError(f"{where}: found {len(values)} label value(s) ({some}), expected two.")
    return (raw == values[1]).astype(np.float64), f"0: {values[0]:g} in the file, 1: {values[1]:g}"


def thicken(X: Any) -> Any:
    """A matrix that is mostly stored entries as a dense array, any other as it is."""
    return X.toarray() if X.nnz >= DENSE * X.shape[0] * X.shape[1] else X


# --- scikit-learn's embedded sets


def need_sklearn(name: str) -> Any:
    """scikit-learn's data sets, or a ValueError that says what to install."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise ValueError(
            f"data set {name!r} comes with scikit-learn; install it with pip install 'tercet[sklearn]'."
        ) from error
    return sklearn.datasets


def breast_cancer() -> tuple[Any, NDArray[np.float64], str]:
    """Standardized columns; the digest is of the columns as scikit-learn has them."""
    X, y = need_sklearn("breast-cancer").load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y.astype(np.float64), digest_of(X, y)


def digits() -> tuple[Any, NDArray[np.float64], str]:
    """Pixels in [0, 1], without those that are always 0; odd digits are 1."""
    X, y = need_sklearn("digits").load_digits(return_X_y=True)
    return X[:, np.any(X != 0, axis=0)] / 16.0, (y % 2).astype(np.float64), digest_of(X, y)


EMBEDDED: dict[str, Callable[[], tuple[Any, NDArray[np.float64], str]]] = {
    "breast-cancer": breast_cancer,
    "digits": digits,
}
