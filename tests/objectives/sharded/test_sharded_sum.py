"""A JAX sum over shards is the sum in memory: the same derivatives, few passes, the same bits however it is run."""

import itertools
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet import FiniteSum, Shards, Status
from tercet.objectives.finite_sum import SumView
from tercet.objectives.sharded.engine import Local
from tercet.objectives.sharded.sums import Gradient, Groups, Hessian, Product, ThirdSquare, ThirdTensor, Value
from tercet.shards import layout

jax = pytest.importorskip("jax")
RNG = np.random.default_rng(0)
N, D = 1200, 5
X = RNG.standard_normal((N, D))
Y = (X @ RNG.standard_normal(D) + RNG.logistic(size=N) > 0).astype(float)
CUTS = (0, 300, 301, 900, N)
SMALL = 200 * 8 * (D + 2)  # bytes of a sample of 200 rows


def loss(w, x, y):
    return 0.5 * (jax.nn.sigmoid(x @ w) - y) ** 2 + 5e-3 * w @ w


def cut(values, cuts=CUTS):
    return [values[a:b] for a, b in itertools.pairwise(cuts)]


def shards_of(cuts=CUTS):
    return Shards(cut(X, cuts), cut(Y, cuts))


def bound(problem, x0=None):
    return problem.bind(np.zeros(D) if x0 is None else x0).objective


def test_every_answer_is_that_of_the_sum_in_memory_and_together_they_take_one_pass():
    x, (u, v) = RNG.standard_normal(D), RNG.standard_normal((2, D))
    whole, objective = bound(FiniteSum(loss, (X, Y))).over(None).at(x), bound(FiniteSum(loss, shards_of()))
    point, V = objective.over(None).at(x), np.eye(D)[:, :2]
    sums = (Value(), Gradient(), Hessian(), Product(2, (v,)), Product(3, (u, v)), ThirdTensor(V))
    asks = (point.value, point.gradient, point.hessian, lambda: point.product(2, v), lambda: point.product(3, u, v),
            lambda: point.third_tensor(V))  # fmt: skip
    told = (whole.value(), whole.gradient(), whole.hessian(), whole.product(2, v), whole.product(3, u, v),
            whole.third_tensor(V))  # fmt: skip
    before = objective.traffic.rounds, objective.traffic.bytes
    together = point.together(*sums)
    assert objective.traffic.rounds == before[0] + 1
    assert objective.traffic.bytes == before[1] + objective.driver.layout.bytes
    for one, ask, other in zip(together, asks, told, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(ask(), one, rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(point.scatter(), whole.scatter(), rtol=1e-11, atol=1e-14)
    with pytest.raises(TypeError, match="no sum over single rows"):
        point.together(ThirdSquare(v))


@pytest.mark.parametrize("kind", ["linear", "sparse", "sum", "residuals"])
def test_group_sums_come_with_the_same_pass_and_are_dealt_within_each_shard(monkeypatch, kind):
    """Also where a shard is read in several windows, whose rows are no multiple of 16."""
    monkeypatch.setattr(layout, "WINDOW", 72 * 8 * D)
    table = sp.csr_array(X) if kind == "sparse" else X
    shards, w = Shards(cut(table), cut(Y)), np.full(D, 0.1)
    each = (1 / (1 + np.exp(-X @ w)) - Y)[:, None] * X
    if kind in ("linear", "sparse"):
        objective = tercet.LinearModel(shards, loss="logistic")
    elif kind == "sum":
        objective = bound(FiniteSum(lambda w, x, y: jax.numpy.logaddexp(0.0, x @ w) - y * (x @ w), shards))
    else:
        objective = bound(tercet.Residuals(lambda w, x, y: jax.nn.sigmoid(x @ w) - y, shards, chunk=40))
        s = 1 / (1 + np.exp(-X @ w))
        each = (s * (1 - s))[:, None] * each
    objective.driver.survey()
    rounds = objective.traffic.rounds
    f, gradient, groups = objective.over(None).at(w).together(Value(), Gradient(), Groups())
    assert objective.traffic.rounds == rounds + 1
    expected = np.zeros((16, D))
    for rows in cut(each):
        for k in range(16):
            expected[k] += rows[k::16].sum(axis=0)
    np.testing.assert_allclose(groups * N, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(groups.sum(axis=0), gradient, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(f, objective.over(None).at(w).value(), rtol=1e-13)


def test_f_comes_with_what_is_asked_first():
    objective = bound(FiniteSum(loss, shards_of()))
    point = objective.over(None).at(np.ones(D))
    point.hessian()
    rounds = objective.traffic.rounds
    f = point.value()
    assert objective.traffic.rounds == rounds
    assert f == pytest.approx(bound(FiniteSum(loss, (X, Y))).over(None).at(np.ones(D)).value(), rel=1e-13)


def test_a_sample_is_a_sum_in_memory_and_does_not_depend_on_the_cut():
    one, other = (bound(FiniteSum(loss, shards_of(cuts), sample_bytes=SMALL)) for cuts in (CUTS, (0, N)))
    rows = one.shuffle(4).beginning(150)
    np.testing.assert_array_equal(rows, other.shuffle(4).beginning(150))
    rounds = one.traffic.rounds
    assert isinstance(one.over(rows), SumView)
    own, more = one.over(rows).at(np.ones(D)), one.over(rows[:20]).at(np.ones(D))
    assert own.value() == other.over(rows).at(np.ones(D)).value()
    assert one.traffic.rounds == rounds  # both are in memory
    expected = bound(FiniteSum(loss, (X, Y))).over(rows[:20]).at(np.ones(D))
    np.testing.assert_allclose(more.gradient(), expected.gradient(), rtol=1e-12)
    np.testing.assert_allclose(more.group_sums, expected.group_sums, rtol=1e-11, atol=1e-14)
    drawn = np.array([901, 3, 3, 300, 1199])  # any rows, in any order, dealt to groups as they come
    expected = bound(FiniteSum(loss, (X, Y))).over(drawn).at(np.ones(D))
    np.testing.assert_allclose(one.over(drawn).at(np.ones(D)).group_sums, expected.group_sums, rtol=1e-11, atol=1e-14)


def test_a_run_has_the_same_bits_on_any_number_of_threads_few_passes_and_resumes(tmp_path):
    whole = tercet.minimize(FiniteSum(loss, (X, Y)), np.zeros(D))
    results = []
    for threads in (1, 3):
        shards = shards_of()
        problem = FiniteSum(loss, shards, sample_bytes=SMALL, engine=Local(shards, threads=threads))
        results.append(tercet.minimize(problem, np.zeros(D)))
    result = results[0]
    assert result.success, result.message
    np.testing.assert_allclose(result.x, whole.x, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(results[1].x, result.x)
    np.testing.assert_array_equal(results[1].trace["f"], result.trace["f"])
    assert 3 <= result.rounds <= 25
    assert result.bytes_read == result.rounds * shards_of().layout.bytes
    path = tmp_path / "run.ckpt"
    tercet.minimize(FiniteSum(loss, shards_of(), sample_bytes=SMALL), np.zeros(D), checkpoint=path, max_iterations=4)
    again = tercet.resume(path, FiniteSum(loss, shards_of(), sample_bytes=SMALL), max_iterations=100)
    np.testing.assert_array_equal(again.x, result.x)
    np.testing.assert_array_equal(again.trace["f"], result.trace["f"])


def test_parameters_in_a_structure_and_single_precision():
    def network(p, x, y):
        z = jax.numpy.tanh(x @ p["W"] + p["b"]) @ p["v"]
        return 0.5 * (z - y) ** 2 + 1e-2 * sum(jax.numpy.sum(a * a) for a in p.values())

    start = {"W": 0.5 * RNG.standard_normal((D, 2)), "b": np.zeros(2), "v": np.array([1.0, -1.0])}
    single = {name: a.astype(np.float32) for name, a in start.items()}
    for x0, digits in ((start, 1e-12), (single, 1e-5)):
        one, other = bound(FiniteSum(network, shards_of()), x0), bound(FiniteSum(network, (X, Y)), x0)
        x = FiniteSum(network, (X, Y)).bind(x0).x0
        np.testing.assert_allclose(
            one.over(None).at(x).gradient(), other.over(None).at(x).gradient(), rtol=100 * digits, atol=digits
        )
        assert {name: a.dtype for name, a in FiniteSum(network, shards_of()).bind(x0).restore(x).items()} == {
            name: a.dtype for name, a in x0.items()
        }


def test_a_number_that_is_not_finite_is_named_with_its_shard_and_row_before_the_run():
    cuts = np.linspace(0, N, 41).astype(int)  # 40 shards of 30 rows
    for name in ("X", "y", "weights"):
        tables, targets, weights = cut(np.array(X), cuts), cut(np.array(Y), cuts), cut(np.ones(N), cuts)
        {"X": tables, "y": targets, "weights": weights}[name][37][12] = np.nan
        shards = Shards(tables, targets, weights=weights)
        with pytest.raises(ValueError, match=rf"shard 37, row 12.*{name}"):
            tercet.minimize(FiniteSum(lambda w, x, y, weight: loss(w, x, y), shards), np.zeros(D))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FiniteSum(loss, Shards([sp.csr_array(X)], [Y])), "rows of these shards are CSR"),
        (lambda: FiniteSum("loss", shards_of()), "loss='loss'"),
        (lambda: FiniteSum(loss, shards_of(), chunk=0), "chunk=0"),
        (lambda: FiniteSum(loss, shards_of(), sample_bytes=-1), "sample_bytes=-1"),
        (lambda: FiniteSum(loss, shards_of()).bind(None), "pass params0"),
        (lambda: FiniteSum(lambda w, x, y: x, shards_of()).bind(np.zeros(D)), "one scalar per example"),
        (lambda: FiniteSum(lambda w, x: w @ x, shards_of()).bind(np.zeros(D)), "JAX could not trace"),
        (lambda: FiniteSum(loss, shards_of()).bind(np.zeros(D + 1)), "JAX could not trace"),
    ],
)
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_shard_that_goes_away_ends_the_run_with_the_best_point_and_its_number():
    calls = []

    def read(i):
        calls.append(i)
        if len(calls) > 30 and i == 2:
            raise OSError("the disk is gone")
        return cut(X)[i], cut(Y)[i]

    problem = FiniteSum(loss, Shards(read, shapes=4), sample_bytes=SMALL)
    result = tercet.minimize(problem, np.zeros(D))
    assert result.status is Status.FUNCTION_ERROR
    assert "shard 2 (read(2)) cannot be read" in result.message
    assert np.linalg.norm(result.x) > 0


def test_the_clock_is_looked_at_while_shards_are_read():
    calls = []

    def read(i):
        calls.append(i)
        if len(calls) > 6:
            time.sleep(0.1)
        return cut(X)[i], cut(Y)[i]

    begun = time.monotonic()
    problem = FiniteSum(loss, Shards(read, shapes=[(b - a, D) for a, b in itertools.pairwise(CUTS)]))
    result = tercet.minimize(problem, np.zeros(D), max_seconds=0.5)
    assert result.status is Status.MAX_SECONDS
    assert time.monotonic() - begun < 30


@pytest.mark.timeout(120)
def test_memory_stays_bounded_by_sample_and_windows(tmp_path):
    """80 MB in shards, a sample of 2 MB: what the process takes beyond a run over a few rows stays far below."""
    for k in range(4):
        np.save(tmp_path / f"X-{k}.npy", np.random.default_rng(k).standard_normal((50_000, 50)))
        np.save(tmp_path / f"y-{k}.npy", np.zeros(50_000))
    code = f"""
import json, resource, tercet, numpy as np
def loss(w, x, y):
    return 0.5 * (x @ w - y - 1.0) ** 2
def run(shards):
    objective = tercet.FiniteSum(loss, shards, sample_bytes=1 << 21).bind(np.zeros(50)).objective
    sample = objective.over(objective.shuffle(0).beginning(4000)).at(np.ones(50))
    sample.first(), sample.group_sums
    for k in range(3):
        objective.over(None).at(np.full(50, 0.1 * k)).first()
    return objective.traffic
X = np.random.default_rng(0).standard_normal((9000, 50))
run(tercet.Shards([X], [np.zeros(9000)]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = run(tercet.Shards("{tmp_path}/X-*.npy", "{tmp_path}/y-*.npy"))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([after - before, result.rounds]))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kilobytes, rounds = json.loads(out.stdout)
    assert rounds == 4
    assert kilobytes < 50_000
