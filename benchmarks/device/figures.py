"""The figures. Each takes a Bench and says its lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import tercet
from benchmarks.device.measure import Bench, Path, gaussian, lbfgs, middle, ours

GAP = 1e-8
Both = Callable[[Tensor], tuple[Tensor, Tensor]]


def sigmoid_squares(X: Tensor, y: Tensor, l2: float) -> Both:
    """f and its gradient in closed form, as a user of PyTorch would write them for speed."""

    def both(w: Tensor) -> tuple[Tensor, Tensor]:
        p = torch.sigmoid(X @ w)
        r = p - y
        return 0.5 * (r @ r) / len(y) + 0.5 * l2 * (w @ w), X.T @ (r * p * (1 - p)) / len(y) + l2 * w

    return both


def logistic(X: Tensor, y: Tensor, l2: float) -> Both:
    """The same for the logistic loss."""

    def both(w: Tensor) -> tuple[Tensor, Tensor]:
        z = X @ w
        f = (torch.nn.functional.softplus(z) - y * z).mean() + 0.5 * l2 * (w @ w)
        return f, X.T @ (torch.sigmoid(z) - y) / len(y) + l2 * w

    return both


def copy_rate(bench: Bench) -> float:
    """Bytes a second, read and written."""
    a = torch.randn(bench.rows(4e8), dtype=torch.float64, device=bench.device)
    b = torch.empty_like(a)
    return 16 * len(a) / bench.median(lambda: b.copy_(a), warm=3)


def ceilings(bench: Bench) -> None:
    """The copy and the product that everything is measured by."""
    bench.copy = copy_rate(bench)
    k = 8192 if bench.scale >= 0.5 else 512
    A = torch.randn((k, k), dtype=torch.float64, device=bench.device)
    bench.product = 2 * k**3 / bench.median(lambda: A @ A, warm=3)
    bench.say(
        f"copy {bench.copy / 1e12:.2f} TB/s, read and written; product {bench.product / 1e12:.1f} TFLOP/s in float64"
    )


def case(bench: Bench) -> tuple[Tensor, Tensor]:
    """8e6 x 100, made once."""
    if "case" not in bench.kept:
        bench.kept["case"] = gaussian(bench, bench.rows(8e6), 100)
    return bench.kept["case"]


def in_library(library: str, X: Tensor, y: Tensor) -> tuple[Any, Any]:
    """The same memory as an array of another library."""
    if library == "torch":
        return X, y
    if library == "cupy":
        import cupy

        return cupy.from_dlpack(X), cupy.from_dlpack(y)
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax.dlpack.from_dlpack(X), jax.dlpack.from_dlpack(y)


def against_lbfgs(bench: Bench, name: str, X: Tensor, y: Tensor, l2: float, libraries: list[str], most: int) -> None:
    """L-BFGS over ours, in seconds to the gap."""
    start = torch.zeros(X.shape[1], dtype=X.dtype, device=X.device)
    both = sigmoid_squares(X, y, l2)
    peers = [lbfgs(bench, both, start, most) for _ in range(bench.repeats if most < 1000 else 2)]
    runs: dict[str, list[Path]] = {}
    for library in libraries:
        try:
            problem = tercet.LinearModel(*in_library(library, X, y), l2=l2)
            ours(bench, problem)
            runs[library] = [ours(bench, problem) for _ in range(bench.repeats)]
        except Exception as error:
            bench.say(f"{name}, {library}: raised {type(error).__name__}: {str(error)[:300]}")
    lowest = min(min(path.values) for path in [*peers, *(run for each in runs.values() for run in each)])
    peer, _ = middle(peers, lowest + GAP)
    bench.say(
        f"{name}: torch LBFGS to 1e-8 {peer:.4f} s ({peers[-1].note}; ended {min(peers[-1].values) - lowest:.1e} above)"
    )
    for library, some in runs.items():
        to_gap, total = middle(some, lowest + GAP)
        bench.say(
            f"{name}: LinearModel on {library} to 1e-8 {to_gap:.4f} s, certified {total:.4f} s ({some[-1].note}); "
            f"LBFGS / ours {peer / to_gap:.2f}; each {', '.join(f'{run.until(lowest + GAP):.4f}' for run in some)}"
        )


def main_case(bench: Bench) -> None:
    """8e6 x 100, sigmoid squares, l2 1e-6."""
    against_lbfgs(bench, "8e6 x 100", *case(bench), 1e-6, ["torch", "cupy", "jax"], 200)


def ill_conditioned(bench: Bench) -> None:
    """The same with columns scaled from 1 to 1e3 and l2 1e-9."""
    X, y = case(bench)
    scales = torch.logspace(0, 3, X.shape[1], dtype=X.dtype, device=X.device)
    X.mul_(scales)
    try:
        against_lbfgs(bench, "ill-conditioned", X, y, 1e-9, ["torch"], 2000)
    finally:
        X.div_(scales)


def one_pass(bench: Bench) -> None:
    """f and its gradient: the share of the copy's bandwidth, each of the two products reading X once."""
    import numpy as np

    X, y = case(bench)
    view, x = tercet.LinearModel(X, y, l2=1e-6).over(None), np.linspace(-0.1, 0.1, X.shape[1])
    took = bench.median(lambda: view.at(x).first(), warm=2)
    v, c = torch.ones(X.shape[1], dtype=X.dtype, device=X.device), torch.ones(len(y), dtype=X.dtype, device=X.device)
    times, weigh = bench.median(lambda: X @ v), bench.median(lambda: c @ X)
    both = 2 * 8 * X.numel()
    bench.say(
        f"value and gradient: {1e3 * took:.2f} ms, {both / took / bench.copy:.0%} of the copy "
        f"(Xv alone {both / 2 / times / bench.copy:.0%}, X'c {both / 2 / weigh / bench.copy:.0%})"
    )


def gram_matrix(bench: Bench) -> None:
    """A' diag(c) A: the share of the product rate, ours and as it is written first."""
    gram_share(bench, case(bench)[0])
    gram_share(bench, gaussian(bench, bench.rows(2e6), 1000)[0])


def gram_share(bench: Bench, X: Tensor) -> None:
    """For one X, also by the size of the buffer."""
    from tercet.objectives.device import table as tables

    c, (n, d) = torch.randn(len(X), dtype=X.dtype, device=X.device), X.shape

    def share(work: Callable[[], Any]) -> str:
        return f"{2.0 * n * d * d / bench.median(work, repeats=3) / bench.product:.0%}"

    def table() -> Any:
        return tercet.LinearModel(X, torch.zeros_like(c), "squares").rows.table

    own, sizes, whole = (tables.LEAST, tables.SHARE), [], table()
    try:
        for buffer in (1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 29):
            tables.LEAST, tables.SHARE = buffer, 0.0
            other = table()
            sizes.append(f"{buffer >> 20} MB {share(partial(other.gram, c))}")
    finally:
        tables.LEAST, tables.SHARE = own
    took = bench.median(lambda: whole.gram(c))
    bench.say(
        f"Gram matrix, d = {d}: {1e3 * took:.2f} ms, {share(lambda: whole.gram(c))} of the product rate (written first "
        f"{share(lambda: X.T @ (c[:, None] * X))}; by buffer: {', '.join(sizes)})"
    )


def memory(bench: Bench) -> None:
    """What a run takes beyond its data."""
    X, y = case(bench)
    path, peak = bench.peak(lambda: ours(bench, tercet.LinearModel(X, y, l2=1e-6)))
    bench.say(f"memory beyond X and y, 8e6 x 100: {peak / (8 * X.numel()):.1%} ({peak / 1e6:.0f} MB; {path.note})")


def autodiff(bench: Bench) -> None:
    """`tercet.torch.FiniteSum` over LinearModel, in seconds, the same problem."""
    import tercet.torch

    X, y = case(bench)

    def loss(w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return 0.5 * (torch.sigmoid(a @ w) - b) ** 2 + 0.5e-6 * (w @ w)

    problem = tercet.torch.FiniteSum(loss, (X, y), batched=True)
    start = torch.zeros(X.shape[1], dtype=X.dtype, device=X.device)
    linear = tercet.LinearModel(X, y, l2=1e-6)
    ours(bench, linear)
    ours(bench, problem, x0=start)
    a = [ours(bench, linear) for _ in range(3)]
    b = [ours(bench, problem, x0=start) for _ in range(2)]
    lowest = min(min(path.values) for path in [*a, *b])
    (a_gap, a_all), (b_gap, b_all) = middle(a, lowest + GAP), middle(b, lowest + GAP)
    bench.say(
        f"FiniteSum (autodiff) to 1e-8 {b_gap:.3f} s, certified {b_all:.3f} s ({b[-1].note}); over LinearModel "
        f"{b_gap / a_gap:.1f} and {b_all / a_all:.1f}"
    )


def large(bench: Bench) -> None:
    """Logistic, 12.5e6 x 1000 float64, 100 GB."""
    bench.kept.clear()
    bench.clear()
    X, y = gaussian(bench, bench.rows(12.5e6), 1000 if bench.scale >= 0.1 else 100)
    problem = tercet.LinearModel(X, y, "logistic", l2=1e-6)
    path, peak = bench.peak(lambda: ours(bench, problem))
    again = ours(bench, problem)
    gap = middle([again], min(again.values) + GAP)[0]
    bench.say(
        f"logistic 12.5e6 x 1000 ({8e-9 * X.numel():.0f} GB): to 1e-8 {gap:.2f} s, certified {again.total:.2f} s "
        f"(first run {path.total:.2f} s; {again.note}); memory beyond X {peak / (8 * X.numel()):.1%}"
    )


def single(bench: Bench) -> None:
    """Logistic, 1e6 x 3000 float32, as far as 200 iterations of L-BFGS come."""
    bench.kept.clear()
    X, y = gaussian(bench, bench.rows(1e6), 3000 if bench.scale >= 0.1 else 1600, torch.float32)
    start = torch.zeros(X.shape[1], dtype=X.dtype, device=X.device)
    lbfgs(bench, logistic(X, y, 1e-6), start, 200)
    peer = min((lbfgs(bench, logistic(X, y, 1e-6), start, 200) for _ in range(3)), key=lambda path: path.total)
    exact = tercet.LinearModel(X, y, "logistic", l2=1e-6)
    reached = exact.over(None).at(peer_x(bench, X, y))
    for accumulate in ("float64", "float32"):
        problem = tercet.LinearModel(X, y, "logistic", l2=1e-6, accumulate=accumulate)
        ours(bench, problem, max_seconds=8.0)
        runs = [ours(bench, problem, max_seconds=8.0) for _ in range(2)]
        to_level, total = middle(runs, reached.value())
        bench.say(
            f"logistic 1e6 x 3000 float32, sums in {accumulate}: to the f of 200 L-BFGS iterations {to_level:.3f} s, "
            f"certified {total:.3f} s ({runs[-1].note}); torch LBFGS {peer.total:.3f} s ({peer.note})"
        )


def peer_x(bench: Bench, X: Tensor, y: Tensor) -> Any:
    """Where 200 iterations of L-BFGS in the precision of X end."""
    x = torch.zeros(X.shape[1], dtype=X.dtype, device=X.device, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=200, max_eval=400, history_size=10, line_search_fn="strong_wolfe")
    both = logistic(X, y, 1e-6)

    def closure() -> Tensor:
        f, x.grad = both(x.detach())
        return f

    optimizer.step(closure)
    return x.detach().double().cpu().numpy()


def csr(bench: Bench) -> None:
    """2e7 rows with 50 entries each, d = 1e5: torch LBFGS with CuPy's products, and ours on CuPy and PyTorch."""
    bench.kept.clear()
    bench.clear()
    n, d, each = bench.rows(2e7), 100_000 if bench.scale >= 0.1 else 5000, 50
    stream = torch.Generator(device=bench.device).manual_seed(0)
    entries = torch.empty(n * each, dtype=torch.float64, device=bench.device).normal_(generator=stream)
    col = torch.randint(0, d, (n * each,), generator=stream, device=bench.device, dtype=torch.int32)
    crow = torch.arange(0, n * each + 1, each, device=bench.device, dtype=torch.int32)
    X = torch.sparse_csr_tensor(crow, col, entries, (n, d), check_invariants=False)
    w = torch.randn(d, dtype=torch.float64, device=bench.device, generator=stream) * 0.3
    chance = torch.rand(n, dtype=torch.float64, device=bench.device, generator=stream)
    y = (chance < torch.sigmoid(X @ w)).to(torch.float64)
    problems: dict[str, Any] = {"torch": (X, y)}
    try:
        import cupy
        from cupyx.scipy.sparse import csr_matrix

        A = csr_matrix(tuple(cupy.from_dlpack(part) for part in (entries, col, crow)), shape=(n, d))
        problems["cupy"] = (A, cupy.from_dlpack(y))
        peer = lbfgs(bench, cupy_logistic(A, y, 1e-6), torch.zeros_like(w), 200)
    except Exception as error:
        bench.say(f"CSR, CuPy: raised {type(error).__name__}: {str(error)[:300]}")
        peer = None
    runs = {}
    for library, (rows, targets) in problems.items():
        try:
            problem = tercet.LinearModel(rows, targets, "logistic", l2=1e-6)
            runs[library] = ours(bench, problem, max_seconds=20.0)
        except Exception as error:
            bench.say(f"CSR on {library}: raised {type(error).__name__}: {str(error)[:300]}")
    found = [*runs.values(), *([] if peer is None else [peer])]
    lowest = min(min(path.values) for path in found)
    to_gap = float("nan") if peer is None else peer.until(lowest + GAP)
    bench.say(f"CSR {n:.1e} x {d}: torch LBFGS with CuPy's products to 1e-8 {to_gap:.3f} s ({peer and peer.note})")
    for library, path in runs.items():
        mine = path.until(lowest + GAP)
        bench.say(
            f"CSR on {library}: to 1e-8 {mine:.3f} s, {path.total:.3f} s ({path.note}); ratio {to_gap / mine:.2f}"
        )


def cupy_logistic(A: Any, y: Tensor, l2: float) -> Both:
    """f and its gradient with the products of CuPy, without a copy."""
    import cupy

    def both(w: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.from_dlpack(A @ cupy.from_dlpack(w))
        c = (torch.sigmoid(z) - y) / len(y)
        g = torch.from_dlpack(A.T @ cupy.from_dlpack(c))
        return (torch.nn.functional.softplus(z) - y * z).mean() + 0.5 * l2 * (w @ w), g + l2 * w

    return both
