"""A linear model over shards is the linear model: the same sums, few passes, the same bits however it is run."""

import itertools
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet import LinearModel, Shards, Status
from tercet.objectives.capabilities import result_of
from tercet.objectives.sharded import driver
from tercet.objectives.sharded.engine import Local, Traffic
from tercet.objectives.sharded.sums import Gradient, Hessian, Product, Value
from tercet.objectives.sharded.survey import Digest
from tercet.shards.keys import by_key, keys

RNG = np.random.default_rng(0)
N, D = 3000, 6
X = RNG.standard_normal((N, D)) * np.array([1.0, 10.0, 0.1, 1.0, 1.0, 3.0])
Y = (X @ (RNG.standard_normal(D) / np.array([1.0, 10.0, 0.1, 1.0, 1.0, 3.0])) + RNG.standard_normal(N) > 0).astype(
    float
)
W = RNG.uniform(0.1, 3.0, N)
CUTS = (0, 400, 401, 1700, N)
SMALL = 500 * 8 * (D + 2)  # bytes of a sample of 500 rows


def cut(values, cuts=CUTS):
    return [values[a:b] for a, b in itertools.pairwise(cuts)]


def shards_of(table=X, w=None, cuts=CUTS):
    return Shards(cut(table, cuts), cut(Y, cuts), weights=None if w is None else cut(w, cuts))


CASES = {
    "dense": (X, None, {"loss": "sigmoid_squares", "l2": 1e-2}),
    "sparse": (sp.csr_array(X * (np.abs(X) > 0.5)), None, {"loss": "logistic", "l2": 1e-3}),
    "weights, intercept, both penalties": (X, W, {"loss": "cauchy", "l2": 1e-2, "alpha": 1e-2, "intercept": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_answer_is_that_of_the_model_in_memory(name):
    table, w, options = CASES[name]
    whole, model = LinearModel(table, Y, weights=w, **options), LinearModel(shards_of(table, w), **options)
    x, (u, v) = RNG.standard_normal(model.d) / 10, RNG.standard_normal((2, model.d))
    one, other = whole.over(None).at(x), model.over(None).at(x)
    V = np.linalg.qr(RNG.standard_normal((model.d, 2)))[0]
    asks = {
        "value": lambda p: p.value(),
        "gradient": lambda p: p.gradient(),
        "hessian": lambda p: p.hessian(),
        "Bv": lambda p: p.product(2, v),
        "T[u, v]": lambda p: p.product(3, u, v),
        "T[s, s]": lambda p: result_of(p.third_square(v)),
        "tensor": lambda p: p.third_tensor(V),
        "scatter": lambda p: p.scatter(),
        "bound": lambda p: p.third_bound(V),
        "tight bound": lambda p: p.third_bound(V, True),
        "bound everywhere": lambda p: p.third_bound(None),
        "limits": lambda p: np.hstack([getattr(p.limits(V), part) for part in ("third", "gradient", "hessian")]),
        **{f"variance {k}": lambda p, k=k: p.variance(k) for k in (1, 2, 3)},
    }
    for ask, get in asks.items():
        np.testing.assert_allclose(get(other), get(one), rtol=1e-10, atol=1e-13, err_msg=ask)
    value, gradient = other.first()
    assert (value, list(gradient)) == (other.value(), list(other.gradient()))
    assert other.third_square(v).third == one.third_square(v).third
    zero = np.zeros(model.d)
    assert model.over(None).at(zero).value() == pytest.approx(whole.over(None).at(zero).value(), rel=1e-12)
    np.testing.assert_allclose(model.scales, whole.scales, rtol=1e-12)
    rows = RNG.permutation(N)[:70]
    np.testing.assert_allclose(
        model.over(rows).at(x).gradient(), whole.over(rows).at(x).gradient(), rtol=1e-10, atol=1e-13
    )
    np.testing.assert_array_equal(model.margins(table[:5], x), whole.margins(table[:5], x))


def test_what_is_asked_together_takes_one_pass():
    model = LinearModel(shards_of(), loss="logistic")
    point, v = model.over(None).at(np.ones(D)), np.arange(D) / 10
    model.driver.survey()
    before = model.traffic.rounds, model.traffic.bytes
    value, gradient, B, Tvv = point.together(Value(), Gradient(), Hessian(), Product(3, (v, v)))
    assert (model.traffic.rounds, model.traffic.bytes) == (before[0] + 1, before[1] + model.driver.layout.bytes)
    np.testing.assert_array_equal(gradient, point.gradient())
    np.testing.assert_array_equal(B, point.hessian())
    np.testing.assert_array_equal(Tvv, point.product(3, v, v))
    assert value == point.value()


def test_each_block_is_read_once_a_pass_and_in_order():
    seen = []

    def read(i):
        seen.append(i)
        return cut(X)[i], cut(Y)[i]

    model = LinearModel(Shards(read, shapes=4), loss="logistic")
    model.driver.survey()
    seen.clear()
    model.over(None).at(np.ones(D)).first()
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("name", CASES)
def test_a_run_finds_the_minimizer_of_the_model_in_memory_in_few_passes(name):
    table, w, options = CASES[name]
    options = {**options, "loss": "logistic"}
    whole = tercet.minimize(LinearModel(table, Y, weights=w, **options))
    model = LinearModel(shards_of(table, w), sample_bytes=SMALL, **options)
    result = tercet.minimize(model)
    assert result.success, result.message
    assert whole.success
    np.testing.assert_allclose(result.x, whole.x, rtol=1e-6, atol=1e-9)
    assert 3 <= result.rounds <= 19  # six of them are the certificate's
    assert result.certificate.bound_x is not None  # one of these proves it
    assert result.bytes_read == result.rounds * model.driver.layout.bytes
    assert result.retries == 0
    assert f"{result.rounds} over all shards" in str(result)
    assert max(row.sizes.value for row in result.trace if row.sizes.value < N) <= model.driver.most
    assert tercet.minimize(model).rounds == result.rounds - 1  # each run counts its own; the first pass is known


def test_the_first_pass_gathers_the_sample_and_checks_the_numbers():
    model = LinearModel(shards_of(), loss="logistic", sample_bytes=SMALL)
    order = by_key(np.arange(N), keys(5, 0, N))
    shuffle = model.shuffle(5)
    model.scales  # noqa: B018, the pass
    assert model.traffic.rounds == 1
    np.testing.assert_array_equal(shuffle.beginning(model.driver.most), order[: model.driver.most])
    view = model.over(shuffle.beginning(300))
    np.testing.assert_array_equal(view.table.A, X[order[:300]])
    np.testing.assert_array_equal(view.y, Y[order[:300]])
    assert model.traffic.rounds == 1
    np.testing.assert_array_equal(shuffle.beginning(2000), order[:2000])
    assert shuffle.beginning(N) is None


def test_samples_do_not_depend_on_how_the_rows_are_cut():
    one, other = (LinearModel(shards_of(cuts=cuts), loss="logistic", sample_bytes=SMALL) for cuts in (CUTS, (0, N)))
    rows = [model.shuffle(3).beginning(model.driver.most) for model in (one, other)]
    np.testing.assert_array_equal(*rows)
    np.testing.assert_array_equal(one.over(rows[0]).table.A, other.over(rows[1]).table.A)


def test_the_same_bits_on_any_number_of_threads_and_from_files_of_any_kind(tmp_path):
    for k, (table, y) in enumerate(zip(cut(X), cut(Y), strict=True)):
        np.save(tmp_path / f"X-{k}.npy", np.asfortranarray(table))
        np.save(tmp_path / f"y-{k}.npy", y)
    files = Shards(str(tmp_path / "X-*.npy"), str(tmp_path / "y-*.npy"))
    options = {"loss": "sigmoid_squares", "l2": 1e-3, "sample_bytes": SMALL}
    results = [
        tercet.minimize(LinearModel(shards, engine=Local(shards, threads=threads), **options))
        for shards, threads in ((shards_of(), 1), (shards_of(), 3), (files, 1), (files, 2))
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result.x, results[0].x)
        np.testing.assert_array_equal(result.trace["f"], results[0].trace["f"])


def test_a_run_resumes_bit_for_bit_and_other_shards_are_refused(tmp_path):
    options = {"loss": "sigmoid_squares", "l2": 1e-3, "sample_bytes": SMALL}
    whole = tercet.minimize(LinearModel(shards_of(), **options))
    path = tmp_path / "run.ckpt"
    for most in (4, whole.nit - 1):
        tercet.minimize(LinearModel(shards_of(), **options), checkpoint=path, max_iterations=most)
        again = tercet.resume(path, LinearModel(shards_of(), **options), max_iterations=100)
        np.testing.assert_array_equal(again.x, whole.x)
        np.testing.assert_array_equal(again.trace["f"], whole.trace["f"])
        path.unlink(missing_ok=True)
    tercet.minimize(LinearModel(shards_of(), **options), checkpoint=path, max_iterations=4)
    with pytest.raises(tercet.CheckpointError, match="of another problem: X was"):
        tercet.resume(path, LinearModel(shards_of(X + 1e-9), **options))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, y, w: X.__setitem__((5, 2), np.nan), "shard 2, row 5, column 2: X holds nan"),
        (lambda X, y, w: X.__setitem__((9, 0), -1e100), "shard 2, row 9, column 0: X holds -1e\\+100"),
        (lambda X, y, w: y.__setitem__(7, np.inf), "shard 2, row 7: y is not finite"),
        (lambda X, y, w: w.__setitem__(3, -1.0), "shard 2, row 3: its weight is below 0"),
        (lambda X, y, w: y.__setitem__(7, 2.0), "shard 2, row 7: .* y holds \\[2.0\\]"),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_that_no_model_takes_are_refused_with_shard_and_row(spoil, message, sparse):
    tables, targets, weights = ([np.array(part) for part in cut(values)] for values in (X, Y, W))
    spoil(tables[2], targets[2], weights[2])
    shards = Shards([sp.csr_array(t) for t in tables] if sparse else tables, targets, weights=weights)
    with pytest.raises(ValueError, match=message):
        tercet.minimize(LinearModel(shards, loss="logistic"))


def test_weights_that_are_all_0_are_refused():
    with pytest.raises(ValueError, match="sum to 0"):
        tercet.minimize(LinearModel(shards_of(w=np.zeros(N)), loss="logistic"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: LinearModel(s, Y, loss="logistic"), "leave both out"),
        (lambda s: LinearModel(s, loss="logistic", weights=W), "leave both out"),
        (lambda s: LinearModel(s, loss="nothing"), "unknown loss"),
        (lambda s: LinearModel(s, loss="logistic", l2=-1.0), "l2=-1"),
        (lambda s: LinearModel(s, loss="logistic", sample_bytes=0), "sample_bytes=0"),
        (lambda s: LinearModel(X), "y=None"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(shards_of())


@pytest.mark.timeout(60)
def test_a_shard_that_goes_away_ends_the_run_with_the_best_point_and_its_number(tmp_path):
    calls = []

    def read(i):
        calls.append(i)
        if len(calls) > 30 and i == 2:
            raise OSError("the disk is gone")
        return cut(X)[i], cut(Y)[i]

    model = LinearModel(Shards(read, shapes=4), loss="sigmoid_squares", l2=1e-3, sample_bytes=SMALL)
    result = tercet.minimize(model)
    assert result.status is Status.FUNCTION_ERROR
    assert "shard 2 (read(2)) cannot be read" in result.message
    assert np.linalg.norm(result.x) > 0


@pytest.mark.timeout(60)
def test_the_clock_is_looked_at_while_a_shard_is_read():
    def read(i):
        if len(calls) > 8:
            time.sleep(0.1)
        calls.append(i)
        return cut(X, range(0, N + 1, 250))[i], cut(Y, range(0, N + 1, 250))[i]

    calls = []
    model = LinearModel(Shards(read, shapes=[(250, D)] * 12), loss="sigmoid_squares", l2=1e-3)
    begun = time.monotonic()
    result = tercet.minimize(model, max_seconds=0.4)
    assert result.status is Status.MAX_SECONDS
    assert time.monotonic() - begun < 20


def test_digests_are_those_of_the_manifest_or_of_a_pass(tmp_path):
    for k, (table, y) in enumerate(zip(cut(X), cut(Y), strict=True)):
        np.save(tmp_path / f"X-{k}.npy", table)
        np.save(tmp_path / f"y-{k}.npy", y)
    Shards(str(tmp_path / "X-*.npy"), str(tmp_path / "y-*.npy")).write_manifest()
    traffic = Traffic()
    assert Local(Shards(tmp_path)).digests(traffic) == Local(shards_of()).digests(Traffic())
    assert traffic.rounds == 0
    assert list(Local(shards_of()).each(Digest(), traffic, [2])) == [shards_of().digest(2)]
    assert traffic.rounds == 0


def test_losses_of_ones_own_and_of_jax_run_out_of_core():
    jnp = pytest.importorskip("jax.numpy")
    plain = tercet.minimize(LinearModel(shards_of(), loss="logistic", l2=1e-2))
    other = tercet.minimize(LinearModel(shards_of(), loss=lambda z, y: jnp.logaddexp(0.0, z) - y * z, l2=1e-2), order=2)
    np.testing.assert_allclose(other.x, plain.x, rtol=1e-6)


@pytest.mark.timeout(120)
def test_memory_stays_bounded_by_sample_and_windows(tmp_path):
    """120 MB in shards, a sample of 8 MB: what the process takes beyond its imports stays far below the data."""
    rng = np.random.default_rng(0)
    for k in range(6):
        np.save(tmp_path / f"X-{k}.npy", rng.standard_normal((50_000, 50)))
        np.save(tmp_path / f"y-{k}.npy", (rng.random(50_000) < 0.5).astype(float))
    code = f"""
import json, resource, tercet, numpy as np
import tercet.objectives.sharded
warm = tercet.Shards([np.eye(3)], [np.ones(3)])
tercet.minimize(tercet.LinearModel(warm, loss="logistic", l2=1.0))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
shards = tercet.Shards("{tmp_path}/X-*.npy", "{tmp_path}/y-*.npy")
result = tercet.minimize(tercet.LinearModel(shards, loss="logistic", l2=1e-3, sample_bytes=1 << 23), max_iterations=8)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([after - before, result.rounds]))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kilobytes, rounds = json.loads(out.stdout)
    assert rounds >= 1
    assert kilobytes < 70_000


def test_each_pass_writes_a_line_with_f_as_the_run_sees_it(monkeypatch):
    lines = []
    monkeypatch.setattr(driver, "on_terminal", lambda: lines.append)
    result = tercet.minimize(LinearModel(shards_of(), loss="sigmoid_squares", l2=1e-1, sample_bytes=SMALL))
    shown = [line for line in lines if "value-gradient" in line]
    assert len(lines) >= result.rounds - 1  # the first pass looks at the numbers
    assert any(f"f {result.fun:.8g}  |g|" in line for line in shown)
    assert all(line.startswith("pass ") and "GB/s" in line and "retries 0" in line for line in lines)
