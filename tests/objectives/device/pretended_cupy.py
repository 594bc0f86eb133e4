"""CuPy in NumPy: arrays of a class of their own with the few things that CuPy has and NumPy has not.

It tells whether our code asks CuPy for what it documents; whether CuPy does so is told on a device (`test_cuda.py`).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.special


class Device:
    """A device, as a context too."""

    id = 0

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __str__(self) -> str:
        return "<CUDA Device 0>"


class ndarray(np.ndarray):  # its name is CuPy's
    """An array that does not become one of NumPy unless it is asked to."""

    __module__ = "cupy"
    device = Device()

    def get(self) -> np.ndarray:
        return np.array(self).view(np.ndarray)


class csr_matrix(sp.csr_array):
    """Sparse rows."""

    __module__ = "cupyx.scipy.sparse"
    device = Device()

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.data = self.data.view(ndarray)

    def __matmul__(self, other: Any) -> Any:
        assert isinstance(other, ndarray), "CuPy does not multiply with arrays of NumPy"
        return np.asarray(sp.csr_array(self) @ np.asarray(other)).view(ndarray)

    @property
    def T(self) -> Any:
        return csr_matrix(sp.csr_array(self).T.tocsr())

    def __getitem__(self, key: Any) -> Any:
        return csr_matrix(sp.csr_array(self)[np.asarray(key) if isinstance(key, np.ndarray) else key])

    def toarray(self) -> Any:
        return sp.csr_array(self).toarray().view(ndarray)


def modules() -> dict[str, ModuleType]:
    """What stands for CuPy in `sys.modules`."""
    cupy = ModuleType("cupy")

    def giving(name: str) -> Any:
        own = getattr(np, name)
        return lambda *arguments, **options: np.asarray(own(*arguments, **options)).view(ndarray)

    names = "asarray concatenate stack matmul add multiply sum max min abs exp expm1 log1p sqrt where arange reshape"
    for name in [*names.split(), "empty", "zeros", "ones_like", "zeros_like"]:
        setattr(cupy, name, giving(name))
    cupy.ndarray, cupy.float64, cupy.float32 = ndarray, np.float64, np.float32
    cupy.random = ModuleType("cupy.random")
    cupy.random.RandomState = lambda seed: Stream(seed)
    special = ModuleType("cupyx.scipy.special")
    special.expit = lambda v: scipy.special.expit(v).view(ndarray)
    names = ("cupyx", "cupyx.scipy")
    return {"cupy": cupy, "cupyx.scipy.special": special, **{name: ModuleType(name) for name in names}}


class Stream:
    """A generator."""

    def __init__(self, seed: int):
        self.own = np.random.RandomState(seed)

    def permutation(self, n: int) -> Any:
        return self.own.permutation(n).view(ndarray)
