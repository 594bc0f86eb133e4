"""Long calls of compiled code under a deadline: they run beside the caller, who looks at the clock meanwhile."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextvars import copy_context
from functools import cache
from threading import Thread
from typing import Any

import numpy as np

from tercet.records import Matrix, Vector

LONG = 500  # rows of a matrix from which a factorization takes long enough to be watched
PAUSE = 0.02  # seconds between two looks at the clock

Look = Callable[[], None]


def unwatched() -> None:
    """No clock to look at."""


def watched(look: Look, work: Callable[..., Any], matrix: Matrix) -> Any:
    """work(matrix), left to itself once `look` raises: LAPACK cannot be stopped, but need not be waited for.

    What it computes is the same; the clock ends a run and decides nothing else.
    """
    if look is unwatched or len(matrix) < LONG:
        return work(matrix)
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work(matrix))
        except BaseException as error:  # handed to the caller
            failed.append(error)

    thread = Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    while True:
        thread.join(PAUSE)
        look()
        if not thread.is_alive():
            break
    if failed:
        raise failed[0]
    return found[0]


@cache
def lapack_dsytrd() -> Callable[..., None]:
    """LAPACK's dsytrd as SciPy has it, called without Python's lock, which SciPy's own wrapper keeps."""
    from scipy.linalg import cython_lapack

    capsule = cython_lapack.__pyx_capi__["dsytrd"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, name(capsule))
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, *[ctypes.c_void_p] * 9)(address)


def tridiagonalize(B: Matrix) -> tuple[Matrix, Vector, Vector, Vector]:
    """B = QTQ' by dsytrd from the lower triangle: reflectors, diagonal and off-diagonal of T, and the factors tau."""
    A = np.array(B, dtype=np.float64, order="F")
    d = len(A)
    diag, off, tau, work = np.empty(d), np.empty(d - 1), np.empty(d - 1), np.empty(8 * d)
    sizes, info = np.array([d, 8 * d], dtype=np.intc), np.zeros(1, dtype=np.intc)
    n, room = sizes[:1].ctypes.data, sizes[1:].ctypes.data
    pointers = (array.ctypes.data for array in (diag, off, tau, work))
    lapack_dsytrd()(b"L", n, A.ctypes.data, n, *pointers, room, info.ctypes.data)
    return A, diag, off, tau
