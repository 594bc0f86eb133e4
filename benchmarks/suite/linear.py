"""The linear models of the suite: files, embedded data, generated data, columns in other units, small problems."""

from __future__ import annotations

import bz2
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

import tercet
from benchmarks.data import folder
from benchmarks.suite import generate
from benchmarks.suite.cases import Case, Instance, start_at

CLASSIFY = ("sigmoid_squares", "logistic")
REGRESS = ("squares", "cauchy", "welsch", "geman_mcclure")
FILES = {  # name: file, columns, every how many-th row
    "a9a": ("a9a", 123, 1),
    "svmguide3": ("svmguide3", 21, 1),
    "mushrooms": ("mushrooms", 112, 1),
    "splice": ("splice", 60, 1),
    "ijcnn1": ("ijcnn1.bz2", 22, 1),
    "covtype": ("covtype.libsvm.binary.scale.bz2", 54, 6),
    "covtype_raw": ("covtype.libsvm.binary.bz2", 54, 20),
}
EMBEDDED = ("breast_cancer", "digits", "iris", "wine", "diabetes")


@dataclass(frozen=True)
class Recipe:
    """A linear model: which data, which loss and penalties, from where."""

    data: str
    loss: str
    l2: float
    start: str = "zero"
    alpha: float = 0.0
    intercept: bool = False
    quick: bool = False

    @property
    def name(self) -> str:
        """All of it in one word."""
        more = f"-alpha{self.alpha:g}" * bool(self.alpha) + "-intercept" * self.intercept
        return f"{self.data}-{self.loss}-l2={self.l2:g}-{self.start}{more}"


@lru_cache(maxsize=2)
def file_data(name: str) -> tuple[Any, np.ndarray]:
    """X and labels 0, 1 of a LIBSVM file, or of every k-th of its rows."""
    from sklearn.datasets import load_svmlight_file

    file, columns, every = FILES[name]
    path = folder() / file
    if not path.exists():
        raise SystemExit(f"{path} is not there; set TERCET_DATA to a folder with the LIBSVM file {file}.")
    with bz2.open(path, "rb") if file.endswith(".bz2") else open(path, "rb") as stream:
        text = b"".join(line for i, line in enumerate(stream) if i % every == 0)
    X, y = load_svmlight_file(io.BytesIO(text))
    X = sp.csr_array(X[:, :columns])
    return X, (y == y.max()).astype(float)


@lru_cache(maxsize=2)
def embedded_data(name: str) -> tuple[Any, np.ndarray]:
    """Data that come with scikit-learn, as they are; classes as the first against the rest."""
    import sklearn.datasets

    bunch = getattr(sklearn.datasets, f"load_{name}")()
    y = bunch.target.astype(float)
    return bunch.data.astype(float), y if name == "diabetes" else (y == y.min()).astype(float)


@lru_cache(maxsize=2)
def generated_data(data: str, classify: bool) -> tuple[Any, np.ndarray]:
    """X and targets by a name like units-2000x30; one that begins with separable has labels without noise."""
    kind, shape = data.removeprefix("separable-").split("-")
    n, d = (int(size) for size in shape.split("x"))
    rng = np.random.default_rng([n, d, sum(kind.encode())])
    X = generate.MAKERS[kind](rng, n, d)
    z = generate.margins(rng, X)
    return X, generate.labels(rng, z, data.startswith("separable-")) if classify else generate.responses(rng, z)


def data_of(recipe: Recipe) -> tuple[Any, np.ndarray]:
    """X and targets that fit the loss."""
    if recipe.data in FILES:
        return file_data(recipe.data)
    if recipe.data in EMBEDDED:
        return embedded_data(recipe.data)
    return generated_data(recipe.data, recipe.loss in CLASSIFY)


def make(recipe: Recipe, scales_seed: int | None = None) -> Instance:
    """The model; with a seed its columns are multiplied by 10^U(-3, 3) and the start divided by the same."""
    X, y = data_of(recipe)
    scale = {"scale": float(np.std(y)) or 1.0} if recipe.loss in REGRESS[1:] else {}
    d = X.shape[1] + recipe.intercept
    x0 = start_at(recipe.start, d)
    if scales_seed is not None:
        factors = 10.0 ** np.random.default_rng(scales_seed).uniform(-3.0, 3.0, X.shape[1])
        X, x0 = X * factors, x0 / factors
    model = tercet.LinearModel(X, y, recipe.loss, l2=recipe.l2, alpha=recipe.alpha, intercept=recipe.intercept, **scale)
    return Instance(model, x0, np.zeros(d))


def files() -> Iterator[Recipe]:
    """The LIBSVM files with both losses of classification."""
    yield Recipe("covtype", "logistic", 1e-6, "zero")
    yield Recipe("covtype", "sigmoid_squares", 1e-6, "normal", quick=True)
    yield Recipe("covtype_raw", "logistic", 1e-5, "zero")
    yield Recipe("a9a", "sigmoid_squares", 1e-3, "normal", quick=True)
    yield Recipe("a9a", "logistic", 1e-6, "zero", quick=True)
    yield Recipe("a9a", "sigmoid_squares", 1e-6, "far")
    yield Recipe("a9a", "cauchy", 1e-5, "normal")
    yield Recipe("ijcnn1", "logistic", 1e-6, "zero", quick=True)
    yield Recipe("ijcnn1", "sigmoid_squares", 1e-3, "normal", quick=True)
    yield Recipe("ijcnn1", "sigmoid_squares", 1e-6, "zero", intercept=True)
    yield Recipe("mushrooms", "logistic", 1e-3, "zero", quick=True)
    yield Recipe("mushrooms", "logistic", 1e-6, "normal", quick=True)
    yield Recipe("mushrooms", "sigmoid_squares", 1e-6, "normal")
    yield Recipe("mushrooms", "sigmoid_squares", 1e-9, "far")
    yield Recipe("mushrooms", "squares", 1e-5, "normal")
    yield Recipe("splice", "logistic", 1e-3, "normal", quick=True)
    yield Recipe("splice", "sigmoid_squares", 1e-6, "normal", quick=True)
    yield Recipe("splice", "sigmoid_squares", 1e-3, "zero", intercept=True)
    yield Recipe("splice", "welsch", 1e-4, "zero")
    yield Recipe("svmguide3", "sigmoid_squares", 1e-3, "normal", quick=True)
    yield Recipe("svmguide3", "sigmoid_squares", 1e-6, "far", quick=True)
    yield Recipe("svmguide3", "logistic", 1e-6, "zero")
    yield Recipe("svmguide3", "logistic", 1e-9, "normal", intercept=True)


def embedded() -> Iterator[Recipe]:
    """scikit-learn's own data, not scaled."""
    yield Recipe("breast_cancer", "sigmoid_squares", 1e-3, "zero", quick=True)
    yield Recipe("breast_cancer", "logistic", 1e-6, "zero", intercept=True, quick=True)
    yield Recipe("breast_cancer", "sigmoid_squares", 1e-6, "normal", quick=True)
    yield Recipe("digits", "logistic", 1e-3, "normal", quick=True)
    yield Recipe("digits", "sigmoid_squares", 1e-6, "zero", quick=True)
    yield Recipe("digits", "squares", 1e-7, "far")
    yield Recipe("iris", "logistic", 1e-5, "normal", intercept=True, quick=True)
    yield Recipe("iris", "sigmoid_squares", 1e-3, "far")
    yield Recipe("wine", "sigmoid_squares", 1e-3, "zero", quick=True)
    yield Recipe("wine", "logistic", 1e-4, "zero", intercept=True, quick=True)
    yield Recipe("wine", "cauchy", 1e-5, "normal")
    yield Recipe("diabetes", "squares", 1e-9, "zero", intercept=True)
    yield Recipe("diabetes", "cauchy", 1e-6, "normal", intercept=True, quick=True)
    yield Recipe("diabetes", "welsch", 1e-6, "zero", intercept=True, quick=True)
    yield Recipe("diabetes", "geman_mcclure", 1e-5, "zero", intercept=True)


SHAPES = (  # data, how many recipes are made of it
    ("gauss-1000000x10", 2), ("wide-5000x50000", 2), ("rare-20000x20000", 2), ("onehot-100000x64", 2),
    ("rare-3000x5000", 2), ("gauss-300x600", 2), ("gauss-20000x100", 2), ("units-50000x20", 2),
    ("correlated-5000x100", 3), ("onehot-4000x200", 3), ("heavy-20000x20", 3), ("counts-10000x40", 3),
    ("gauss-200x2", 3), ("units-2000x30", 4), ("units-500x10", 3), ("correlated-1000x20", 4),
    ("heavy-1000x10", 3), ("outliers-2000x20", 4), ("duplicates-2000x30", 4), ("counts-600x8", 3),
    ("shifted-2000x20", 4), ("binary-3000x60", 4), ("decaying-2000x50", 4), ("separable-gauss-1000x20", 2),
    ("separable-onehot-2000x64", 2), ("separable-units-1000x10", 2), ("onehot-800x24", 3), ("rare-2000x300", 3),
)  # fmt: skip
L2 = (1e-3, 1e-6, 1e-1, 1e-9, 1e-4, 1e-7, 1e-2, 1e-5, 1e-8)
STARTS = ("zero", "normal", "far")


def generated() -> Iterator[Recipe]:
    """Shapes crossed with losses, penalties, starts and intercepts by counters of coprime lengths."""
    i = 0
    for data, how_many in SHAPES:
        losses = CLASSIFY if data.startswith("separable-") else (*CLASSIFY, *REGRESS)
        for _ in range(how_many):
            loss = losses[(5 * i + i // 6) % len(losses)]
            # A bounded residual loss is flat where x is far in large units: no method could leave such a start.
            far = loss in REGRESS[2:] and data.split("-")[0] in ("units", "counts", "outliers", "shifted", "heavy")
            start = "zero" if far else STARTS[(i + i // 3) % 3]
            alpha = 1e-3 if i % 7 == 3 else 0.0
            yield Recipe(data, loss, L2[i % 9], start, alpha, intercept=i % 4 == 2, quick=i % 2 == 0)
            i += 1


def small() -> Iterator[Recipe]:
    """n = 1000, d = 20: what an iteration costs beside its arithmetic."""
    for loss in (*CLASSIFY, *REGRESS):
        yield Recipe("gauss-1000x20", loss, 1e-4, "zero", quick=loss in (*CLASSIFY, "cauchy"))
    yield Recipe("gauss-1000x20", "sigmoid_squares", 1e-4, "normal", quick=True)
    yield Recipe("gauss-1000x20", "logistic", 1e-6, "normal", quick=True)


def unscaled() -> Iterator[Recipe]:
    """Without penalty, so that the same function is met again in other units."""
    yield Recipe("gauss-2000x15", "logistic", 0.0, "zero", quick=True)
    yield Recipe("gauss-2000x15", "sigmoid_squares", 0.0, "normal", quick=True)
    yield Recipe("gauss-2000x15", "cauchy", 0.0, "zero", quick=True)
    yield Recipe("correlated-3000x12", "logistic", 0.0, "normal")
    yield Recipe("heavy-3000x10", "welsch", 0.0, "zero")
    yield Recipe("binary-20000x25", "sigmoid_squares", 0.0, "zero")
    yield Recipe("gauss-30000x25", "logistic", 0.0, "normal", quick=True)


def cases() -> list[Case]:
    """All linear models."""
    found = []
    for group, recipes in (("data", files()), ("generated", generated()), ("embedded", embedded()), ("small", small())):
        found += [Case(f"{group}/{r.name}", group, r.data, partial(make, r), r.quick) for r in recipes]
    for r in unscaled():
        base = f"scaled/{r.name}"
        found.append(Case(base, "scaled", r.data, partial(make, r), r.quick))
        for seed in (1, 2):
            name = f"{base}-units{seed}"
            found.append(Case(name, "scaled", r.data, partial(make, r, seed), r.quick and seed == 1, base))
    return found
