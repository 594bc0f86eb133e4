"""Time, memory and data on one device."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor

Work = Callable[[], Any]


@dataclass
class Bench:
    """A device, how large problems are, and what was measured of it."""

    device: torch.device
    scale: float = 1.0
    repeats: int = 5
    copy: float = float("nan")  # bytes a second, read and written
    product: float = float("nan")  # float64 operations a second
    lines: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """A line of the report, at once."""
        self.lines.append(text)
        print(text, flush=True)

    def rows(self, n: float) -> int:
        """n, scaled."""
        return max(1000, int(n * self.scale))

    def wait(self) -> None:
        """Until the device has done all that was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Work) -> float:
        """One run, from rest to rest."""
        self.wait()
        begun = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - begun

    def median(self, work: Work, repeats: int | None = None, warm: int = 1) -> float:
        """The median of several runs after some that do not count."""
        for _ in range(warm):
            self.seconds(work)
        return median(self.seconds(work) for _ in range(repeats or self.repeats))

    def peak(self, work: Work) -> tuple[Any, int]:
        """What work gives, and the bytes that it took at most beyond those in use before."""
        if self.device.type != "cuda":
            return work(), 0
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        answer = work()
        torch.cuda.synchronize()
        return answer, torch.cuda.max_memory_allocated() - before

    def clear(self) -> None:
        """Give memory back, that of other libraries too."""
        gc.collect()
        if "cupy" in sys.modules:
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def gaussian(bench: Bench, n: int, d: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Standard normal rows and labels from a logistic model with margins of size 3, both made on the device."""
    stream = torch.Generator(device=bench.device).manual_seed(seed)
    X = torch.empty((n, d), dtype=dtype, device=bench.device)
    X.normal_(generator=stream)
    w = torch.randn(d, dtype=dtype, device=bench.device, generator=stream) * (3.0 / d**0.5)
    chance = torch.rand(n, dtype=dtype, device=bench.device, generator=stream)
    return X, (chance < torch.sigmoid(X @ w)).to(dtype)


@dataclass
class Path:
    """f along a run, with the seconds since its beginning."""

    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    total: float = 0.0
    note: str = ""

    def until(self, level: float) -> float:
        """The seconds until f was at most that."""
        for at, f in zip(self.seconds, self.values, strict=True):
            if f <= level:
                return at
        return float("inf")


def lbfgs(bench: Bench, both: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, most: int = 200) -> Path:
    """torch.optim.LBFGS with strong Wolfe conditions; `both` gives f and its gradient."""
    path, x = Path(), start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [x], max_iter=most, max_eval=2 * most, history_size=10, line_search_fn="strong_wolfe",
        tolerance_grad=1e-14, tolerance_change=1e-16,
    )  # fmt: skip

    def closure() -> Tensor:
        with torch.no_grad():
            f, g = both(x.detach())
            x.grad = g
            path.values.append(float(f))
            path.seconds.append(time.perf_counter() - begun)
        return f

    bench.wait()
    begun = time.perf_counter()
    optimizer.step(closure)
    bench.wait()
    path.total, path.note = time.perf_counter() - begun, f"{len(path.values)} evaluations"
    return path


def ours(bench: Bench, problem: Any, **options: Any) -> Path:
    """`tercet.minimize`; a row of the trace over all terms tells f."""
    import tercet

    path = Path()

    def note(info: Any) -> None:
        if info.row.sizes.value >= n:
            path.values.append(info.row.f)
            path.seconds.append(time.perf_counter() - begun)

    n = problem.n
    bench.wait()
    begun = time.perf_counter()
    result = tercet.minimize(problem, callback=note, **options)
    bench.wait()
    path.total = time.perf_counter() - begun
    path.values.append(result.fun)
    path.seconds.append(path.total)
    path.note = f"{result.status.name}, {result.nit} iterations, {result.counts.epochs:.1f} epochs"
    return path


def middle(runs: list[Path], level: float) -> tuple[float, float]:
    """The medians over runs of the seconds to a level of f and in all."""
    return median(run.until(level) for run in runs), median(run.total for run in runs)
