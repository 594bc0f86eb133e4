"""BLAS on one thread for a while: where matrices are small, or where sums must have the same bits anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any


@dataclass(eq=False)
class Threads:
    """How many callers want BLAS to use one thread; the last of them gives back what it was."""

    lock: Lock = field(default_factory=Lock)
    callers: int = 0
    limiter: Any = None


THREADS = Threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS on one thread meanwhile, where threadpoolctl is there: how it splits a sum shows in the last bits."""
    with THREADS.lock:
        THREADS.callers += 1
        if THREADS.callers == 1:
            THREADS.limiter = limited()
    try:
        yield
    finally:
        with THREADS.lock:
            THREADS.callers -= 1
            if THREADS.callers == 0 and THREADS.limiter is not None:
                THREADS.limiter.restore_original_limits()
                THREADS.limiter = None


def limited() -> Any:
    """The limit, or None where threadpoolctl is not installed."""
    libraries = controller()
    return None if libraries is None else libraries.limit(limits=1, user_api="blas")


@cache
def controller() -> Any:
    """The libraries of threads in this process, as threadpoolctl found them once: that takes some milliseconds."""
    import scipy.linalg.lapack  # noqa: F401 - its BLAS is another one than NumPy's, and is to be found, too

    with suppress(ModuleNotFoundError):
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()
    return None
