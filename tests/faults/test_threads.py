"""Calls in threads, inside a callback and in other processes: each equals the call alone, bit for bit."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import tercet

jax = pytest.importorskip("jax")
jnp = jax.numpy

N, D = 800, 6


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    X = rng.standard_normal((N, D))
    return X, (X @ rng.standard_normal(D) + rng.standard_normal(N) > 0).astype(float)


def valley(x: np.ndarray) -> float:
    return float(np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))


def valley_gradient(x: np.ndarray) -> np.ndarray:
    bend = x[1:] - x[:-1] ** 2
    g = np.zeros_like(x)
    g[:-1] = -400.0 * x[:-1] * bend - 2.0 * (1.0 - x[:-1])
    g[1:] += 200.0 * bend
    return g


def term(p: Any, x: Any, y: Any) -> Any:
    z = x @ p
    return jnp.logaddexp(0.0, z) - y * z + 5e-3 * jnp.sum(p**2) + 0.1 * jnp.sum(jnp.cos(p))


def jax_valley(x: Any) -> Any:
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


X, Y = table()
START = np.full(D, 0.5)
PROBLEMS: dict[str, Any] = {
    "dense": tercet.LinearModel(X, Y, l2=1e-3),
    "sparse": tercet.LinearModel(sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0)), Y, "logistic", l2=1e-3),
    "own jax loss": tercet.LinearModel(X, Y, lambda z, y: jnp.logaddexp(0.0, z) - y * z, l2=1e-3),
    "sum": tercet.FiniteSum(term, (X, Y), chunk=128),
    "function": jax_valley,
    "callables": valley,
}
METHODS = {
    "STM": tercet.STM,
    "SCR": tercet.SCR,
    "growing": lambda: tercet.STM(sizes=tercet.Growing()),
    "adaptive": lambda: tercet.SCR(sizes=tercet.Adaptive()),
    "fixed": lambda: tercet.STM(sizes=tercet.Fixed(0.1, 0.1, 0.1)),
    "krylov": lambda: tercet.STM(subsolver=tercet.Krylov()),
    "SGD": tercet.SGD,
}


def call(problem: str, method: str, seed: int, **options: Any) -> tercet.Result:
    derivatives = {"grad": valley_gradient} if problem == "callables" else {}
    limits = {"max_iterations": 25, **options}
    return tercet.minimize(PROBLEMS[problem], START, method=METHODS[method](), seed=seed, **derivatives, **limits)


def digest(result: tercet.Result) -> tuple[Any, ...]:
    """All of a result but the clock, as bytes and plain values that can be sent to another process."""
    trace = {
        name: result.trace[name] for name in ("f", "gradient_norm", "sigma", "ratio", "step_norm", "size_gradient")
    }
    numbers = tuple(np.asarray(column, dtype=float).tobytes() for column in trace.values())
    counts = tuple(sorted(result.counts.as_dict().items()))
    return np.asarray(result.x).tobytes(), float(result.fun).hex(), result.status.name, result.nit, counts, numbers


def job(arguments: tuple[str, str, int]) -> tuple[Any, ...]:
    return digest(call(*arguments))


def together(jobs: list[tuple[str, str, int]]) -> list[tuple[Any, ...]]:
    """All jobs at once: each in its thread, and none begins before all are there."""
    gate = threading.Barrier(len(jobs))

    def wait_and_run(arguments: tuple[str, str, int]) -> tuple[Any, ...]:
        gate.wait(timeout=30)
        return job(arguments)

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(wait_and_run, jobs))


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", ["dense", "sparse"])
def test_calls_in_threads_on_one_linear_model_equal_the_calls_alone(problem, method, threads):
    jobs = [(problem, method, seed) for seed in range(threads)]
    assert together(jobs) == [job(arguments) for arguments in jobs]


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("problem", ["own jax loss", "sum", "function", "callables"])
def test_calls_in_threads_on_one_problem_of_any_kind_equal_the_calls_alone(problem, threads):
    jobs = [(problem, ("STM", "SCR")[seed % 2], seed) for seed in range(threads)]
    assert together(jobs) == [job(arguments) for arguments in jobs]


def test_the_same_call_in_four_threads_gives_four_times_the_same():
    for problem in ("dense", "sum"):
        assert len(set(together([(problem, "STM", 0)] * 4))) == 1


def test_calls_of_every_kind_beside_each_other_equal_the_calls_alone():
    jobs = [("dense", "STM", 0), ("sum", "STM", 1), ("function", "SCR", 2), ("sparse", "SGD", 3)]
    assert together(jobs) == [job(arguments) for arguments in jobs]


def test_a_first_call_in_threads_while_nothing_is_compiled_yet():
    fresh = tercet.FiniteSum(term, (X[:64], Y[:64]), chunk=32)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: digest(tercet.minimize(fresh, START, max_iterations=10)), range(4)))
    assert len(set(results)) == 1
    assert results[0] == digest(tercet.minimize(fresh, START, max_iterations=10))


def test_single_and_double_precision_in_two_threads_do_not_disturb_each_other():
    starts = [START, START.astype(np.float32)] * 2

    def solve(start: np.ndarray) -> tuple[Any, ...]:
        result = tercet.minimize(jax_valley, start, tol=1e-2, max_iterations=25)
        assert result.x.dtype == start.dtype
        return digest(result)

    alone = [solve(start) for start in starts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(solve, starts)) == alone


def test_a_thread_that_fails_leaves_the_others_alone():
    def failing(x: np.ndarray) -> float:
        raise RuntimeError("no data")

    expected = job(("dense", "STM", 0))
    with ThreadPoolExecutor(4) as pool:
        broken = [pool.submit(tercet.minimize, failing, START, grad=valley_gradient) for _ in range(2)]
        sound = [pool.submit(job, ("dense", "STM", 0)) for _ in range(2)]
        assert all(isinstance(future.exception(), RuntimeError) for future in broken)
        assert [future.result() for future in sound] == [expected] * 2


# inside a callback ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["dense", "sum", "function", "callables"])
@pytest.mark.parametrize("outer", ["dense", "sum", "function", "callables"])
def test_a_call_inside_the_callback_of_another_disturbs_neither(outer, inner):
    expected, seen = job((inner, "STM", 5)), []

    def nested(info: tercet.Info) -> None:
        if info.iteration % 8 == 0:
            seen.append(job((inner, "STM", 5)))

    result = digest(call(outer, "STM", 1, callback=nested))
    assert result == digest(call(outer, "STM", 1))
    assert seen
    assert set(seen) == {expected}


def test_a_call_inside_the_objective_of_another_disturbs_neither():
    inner = job(("dense", "STM", 2))

    def fun(x: np.ndarray) -> float:
        assert job(("dense", "STM", 2)) == inner
        return valley(x)

    plain = tercet.minimize(valley, START, grad=valley_gradient, max_iterations=5)
    nested = tercet.minimize(fun, START, grad=valley_gradient, max_iterations=5)
    assert digest(nested) == digest(plain)


def test_a_callback_that_fails_inside_a_callback_leaves_the_outer_run_whole():
    def failing(info: tercet.Info) -> None:
        raise ValueError("inner")

    def nested(info: tercet.Info) -> None:
        with contextlib.suppress(ValueError):
            call("dense", "STM", 3, callback=failing)

    assert digest(call("dense", "STM", 1, callback=nested)) == digest(call("dense", "STM", 1))


# processes ------------------------------------------------------------------------------------------------------------


def test_spawned_processes_give_the_same_results():
    jobs = [("dense", "STM", 0), ("sparse", "fixed", 1), ("callables", "SCR", 2), ("sum", "STM", 3)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        there = list(pool.map(job, jobs))
    assert there == [job(arguments) for arguments in jobs]
