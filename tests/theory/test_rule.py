"""`Theory`: its samples keep Condition 1 on real runs, and the run and its certificate say with what probability."""

import numpy as np
import pytest

import tercet
from benchmarks.problems import draws
from tercet import theory
from tercet.methods.guarantee import Promised
from tercet.records import Certificate, Sampling, Sizes
from tercet.sampling.rules import Outlook

RNG = np.random.default_rng(0)
N, D = 4000, 2
A = RNG.standard_normal((N, D))
A /= np.maximum(1.0, np.linalg.norm(A, axis=1))[:, None]
PROBLEM = tercet.LinearModel(A, (A @ np.ones(D) + 0.5 * RNG.standard_normal(N) > 0).astype(float), l2=1e-2)
RANGES = theory.constants(PROBLEM).ranges
EPS = 0.05


def stm(bound="hoeffding", **changes):
    how = {"eps": EPS, "delta": 0.1, "ranges": RANGES, "kappa": (0.2, 0.25, 0.5), "iterations": 50, "bound": bound}
    return tercet.STM(tercet.Theory(**{**how, **changes}), worth=np.inf)


def condition_errors(at):
    """|g - grad f|, |B - hess f|, |T - third f| of an expansion, in the units of x."""
    full = PROBLEM.over(None).at(at.point.x)
    third = at.T.third_tensor(np.eye(D)) - full.third_tensor(np.eye(D))
    return (
        np.linalg.norm(at.g - full.gradient()),
        np.linalg.norm(at.B.hessian() - full.hessian(), 2),
        draws.symmetric_cubic_norms(third[None])[0],
    )


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein"])
def test_condition_one_holds_on_runs_wherever_it_is_guaranteed(monkeypatch, bound):
    seen = []
    record = Promised.record

    def spy(promised, run, sizes, at, step):
        made = record(promised, run, sizes, at, step)
        seen.append((made, sizes, condition_errors(at)))
        return made

    monkeypatch.setattr(Promised, "record", spy)
    method = stm(bound)
    for seed in range(15):
        tercet.minimize(
            PROBLEM, 2 * np.random.default_rng(seed).standard_normal(D), method=method, seed=seed, tol=EPS, order=1
        )
    assert len(seen) > 50
    sampled = [sizes for _, sizes, _ in seen if sizes.gradient < N]
    assert len(sampled) > 30  # it is not by taking everything that the condition holds
    guaranteed = violated = 0
    for made, _, errors in seen:
        for sure, error, tolerance in zip(made.holds, errors, method.sizes.tolerances, strict=True):
            guaranteed += bool(sure)
            violated += bool(sure) and error > tolerance
    assert guaranteed > 2 * len(seen)
    assert violated <= 0.1 / 50 * len(seen)


def test_the_trace_and_the_certificate_carry_the_probability(tmp_path):
    run = tercet.minimize(PROBLEM, np.full(D, 2.0), method=stm(), tol=EPS)
    told = run.certificate.sampling
    assert told is not None
    assert told.iterations == run.nit
    assert told.complete
    assert (told.gradient, told.hessian, told.third) == (run.nit,) * 3
    assert told.failure == pytest.approx(np.sum(run.trace["failure"]))
    assert 0 < told.failure <= 0.1 * run.nit / 50 * (1 + 1e-9)
    assert told.probability == pytest.approx(1 - told.failure)
    assert "Condition 1 guaranteed" in str(run)
    tercet.save(run, tmp_path / "run.npz")
    again = tercet.load(tmp_path / "run.npz")
    assert again.certificate == run.certificate
    assert again.trace.rows[0].guaranteed == (True, True, True)


def test_other_rules_promise_nothing_and_their_certificates_are_as_before():
    run = tercet.minimize(PROBLEM, method=tercet.STM(), tol=EPS)
    assert run.certificate.sampling is None
    assert run.trace.rows[0].guaranteed == (None, None, None)
    assert np.all(np.isnan(run.trace["failure"]))
    assert "Condition 1" not in str(run)


def test_a_third_derivative_that_was_not_bought_is_not_guaranteed():
    method = tercet.STM(stm().sizes, worth=0.0)
    run = tercet.minimize(PROBLEM, np.full(D, 2.0), method=method, tol=EPS)
    assert not np.any(run.trace["third_bought"])
    assert run.certificate.sampling.third == 0
    assert not run.certificate.sampling.complete
    assert run.certificate.sampling.gradient == run.nit


def test_variances_are_counted_and_a_method_without_third_derivatives_does_not_ask_for_theirs():
    rule = stm("bernstein").sizes
    how = {"tol": EPS, "order": 1}
    third = tercet.minimize(PROBLEM, np.full(D, 2.0), method=tercet.STM(rule, worth=0.0), **how)
    assert not np.any(third.trace["third_bought"])
    assert third.counts.third == np.sum(third.trace["size_third"]) > 0
    second = tercet.minimize(PROBLEM, np.full(D, 2.0), method=tercet.SCR(rule), **how)
    assert second.nit > 0
    assert second.counts.third == 0


def test_a_file_of_an_earlier_version_still_loads(tmp_path):
    run = tercet.minimize(PROBLEM, method=tercet.STM(), tol=EPS)
    tercet.save(run, tmp_path / "new.npz")
    import json

    with np.load(tmp_path / "new.npz") as file:
        arrays = {name: file[name] for name in file.files if "guaranteed" not in name and "failure" not in name}
    header = json.loads(str(arrays.pop("header")))
    del header["certificate"]["sampling"]
    np.savez(tmp_path / "old.npz", header=np.array(json.dumps(header)), **arrays)
    old = tercet.load(tmp_path / "old.npz")
    assert old.certificate == run.certificate
    assert old.trace.rows[0].guaranteed == (None, None, None)


@pytest.mark.parametrize("bound", ["hoeffding", "bernstein"])
def test_a_resumed_run_is_the_run_and_keeps_its_probability(tmp_path, bound):
    how = {"method": stm(bound), "tol": EPS, "seed": 3}
    whole = tercet.minimize(PROBLEM, np.full(D, 3.0), **how)
    assert whole.nit > 2
    tercet.minimize(PROBLEM, np.full(D, 3.0), **how, max_iterations=2, checkpoint=tmp_path / "run.ckpt")
    resumed = tercet.resume(tmp_path / "run.ckpt", PROBLEM, max_iterations=1000)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert resumed.certificate == whole.certificate
    assert [row.guaranteed for row in resumed.trace] == [row.guaranteed for row in whole.trace]


def test_sizes_are_those_of_the_bounds():
    rule = stm().sizes
    sizes = rule.first(N, D)
    share = 0.1 / 150
    assert rule.share == pytest.approx(share)
    assert sizes == Sizes(
        N,
        theory.vector_tail(D, RANGES.gradient, N).size(0.2 * EPS, share),
        theory.matrix_tail(D, N=N, width=RANGES.hessian).size(0.25 * EPS ** (2 / 3), share),
        theory.tensor_tail(D, RANGES.third, N, rank_one=True).size(0.5 * EPS ** (1 / 3), share),
    )
    promise = rule.guarantee(sizes, N, D)
    assert promise.holds == (True, True, True)
    assert promise.failure <= 3 * share * (1 + 1e-9)
    smaller = Sizes(N, sizes.gradient - 1, sizes.hessian, sizes.third)
    assert rule.guarantee(smaller, N, D).holds == (False, True, True)
    assert rule.guarantee(Sizes(N, N, N, N), N, D) == theory.Promise((True, True, True), 0.0)


def test_terms_that_do_not_differ_need_one_and_unknown_ranges_need_all():
    rule = tercet.Theory(0.1, 0.1, tercet.Ranges(np.inf, 1.0, 0.0))
    sizes = rule.first(10**6, 3)
    assert sizes.gradient == 10**6
    assert sizes.hessian < 10**6
    assert sizes.third == 1
    assert rule.guarantee(sizes, 10**6, 3).holds == (True, True, True)
    assert rule.guarantee(Sizes(10**6, 500, 10**6, 1), 10**6, 3).holds == (False, True, True)


def test_noise_sends_every_sample_to_all_terms_and_a_small_variance_shrinks_them():
    rule = stm("bernstein").sizes
    assert rule.first(N, D) == Sizes(N, 400, 400, 400)
    how = {"n": N, "d": D, "iteration": 1, "sizes": Sizes(N, 400, 400, 400), "step": 0.1, "noise_share": 0.0}
    small = rule.next(Outlook(**how, noisy=False, variances=(1e-9, 1e-9, 1e-9)))
    large = rule.next(Outlook(**how, noisy=False, variances=(1e-2, 1e-2, 1e-2)))
    assert small.gradient < large.gradient
    assert small.hessian <= large.hessian
    assert rule.next(Outlook(**how, noisy=False)) == stm().sizes.first(N, D)  # nothing was seen: the worst case
    assert rule.next(Outlook(**how, noisy=True)) == Sizes(N, N, N, N)
    unknown = rule.guarantee(Sizes(N, 400, 3, 3), N, D)
    assert unknown.holds == (False, False, False)
    assert unknown.failure == 0.0


def test_a_sum_that_does_not_tell_its_variances_gets_the_worst_case():
    jnp = pytest.importorskip("jax.numpy")
    data = RNG.standard_normal((3000, 1)).clip(-1, 1)
    problem = tercet.FiniteSum(lambda x, a: jnp.cos(a[0] * x[0] - 1) + 0.1 * x[0] ** 2, data)
    method = tercet.STM(tercet.Theory(0.3, 0.1, tercet.Ranges(1.0, 2.0, 2.0), (0.25, 0.5, 0.5), 50, "bernstein"))
    run = tercet.minimize(problem, np.array([3.0]), method=method, tol=0.3, order=1)
    assert run.success
    told = run.certificate.sampling
    assert told.gradient >= run.nit - 1  # the first sample is a guess
    assert run.trace["size_hessian"][-1] < 3000


def test_a_full_hessian_beside_a_sampled_gradient_is_fresh_and_costs_no_full_gradient():
    ranges = tercet.Ranges(RANGES.gradient, np.inf, RANGES.third, rank_one=True)
    run = tercet.minimize(PROBLEM, np.full(D, 2.0), method=stm(ranges=ranges), tol=EPS)
    assert np.all(run.trace["size_hessian"] == N)
    assert np.all(run.trace["size_gradient"][:-1] < N)
    assert run.certificate.sampling.hessian == run.nit
    sampled = run.trace["size_gradient"]
    spent = run.trace["gradient"]
    assert np.all(np.diff(spent) <= sampled[1:] * (1 + 1e-12))


def test_a_certificate_knows_whether_all_is_guaranteed():
    told = Sampling(10, 10, 9, 10, 0.02)
    assert not told.complete
    assert told.probability == pytest.approx(0.98)
    assert Certificate(0, 0, 0, 1, 1, 1, 1, 1, 1, 1, "").sampling is None
    assert Sampling(1, 1, 1, 1, 2.0).probability == 0.0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"eps": 0.0}, r"eps=0\.0"),
        ({"eps": float("nan")}, "eps=nan"),
        ({"delta": 0.0}, r"delta=0\.0"),
        ({"delta": 1.0}, r"delta=1\.0"),
        ({"iterations": 0}, "iterations=0"),
        ({"kappa": (0.1, 0.1)}, "three positive"),
        ({"kappa": (0.1, -0.1, 0.1)}, r"kappa=-0\.1"),
        ({"bound": "chernoff"}, "bound='chernoff'"),
        ({"ranges": (1.0, 1.0, 1.0)}, "give Ranges"),
        ({"start": 0.0}, r"start=0\.0"),
    ],
)
def test_bad_settings_are_refused_by_name(changes, match):
    with pytest.raises(ValueError, match=match):
        stm(**changes)


@pytest.mark.parametrize("values", [(-1.0, 1.0, 1.0), (float("nan"), 1.0, 1.0), (1.0, "1", 1.0)])
def test_bad_ranges_are_refused_by_name(values):
    with pytest.raises(ValueError, match="Ranges"):
        tercet.Ranges(*values)
