"""What every objective promises, by the one list of `entries.py`."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import tercet
from tercet.objectives.metered import DeadlineError, Meter, Metered, exact, saved
from tests.conformance.entries import OBJECTIVES, Entry

SUMS = [name for name, entry in OBJECTIVES.items() if entry.sum]
pytestmark = [pytest.mark.filterwarnings(f"ignore:.*{words}.*") for words in ("os.fork", "Sparse CSR")]


@pytest.fixture
def entry(name: str) -> Entry:
    found = OBJECTIVES[name]
    if found.needs:
        pytest.importorskip(found.needs)
    return found


def metered(entry: Entry, meter: Meter | None = None) -> Metered:
    objective = entry.bound().objective
    return Metered.of(objective, meter or Meter(objective.n))


def tally(objective: Metered) -> tuple[int, ...]:
    return tuple(objective.meter.tally.values())


def rows_of(objective: Metered, m: int) -> np.ndarray:
    return np.random.default_rng(m).permutation(objective.objective.n)[:m]


def differences(f, x, v, h):
    return (f(x + h * v) - f(x - h * v)) / (2 * h)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_derivative_is_that_of_the_one_below(entry):
    objective, x = metered(entry), entry.bound().x0
    view, rng, h = objective.over(None), np.random.default_rng(1), 1e-4
    u, v = rng.standard_normal((2, len(x)))
    point, tolerance = view.at(x), max(entry.digits, 1e-6)
    g = point.gradient()
    size = max(1.0, np.linalg.norm(g), np.linalg.norm(point.hessian()))
    assert g @ v == pytest.approx(differences(lambda z: view.at(z).value(), x, v, h), abs=tolerance * size)
    Bv = view.at(x).hessian_product(v)
    np.testing.assert_allclose(
        Bv, differences(lambda z: view.at(z).gradient(), x, v, h), atol=tolerance * size, rtol=tolerance
    )
    Tuv = view.at(x).third_product(u, v)
    third = differences(lambda z: view.at(z).hessian_product(v), x, u, h)
    np.testing.assert_allclose(Tuv, third, atol=30 * tolerance * size, rtol=30 * tolerance)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_formed_derivatives_and_products_agree(entry):
    objective, x = metered(entry), entry.bound().x0
    view, rng = objective.over(None), np.random.default_rng(2)
    d, digits = len(x), max(entry.digits, 1e-9)
    B = view.at(x).hessian()
    products = np.stack([view.at(x).hessian_product(e) for e in np.eye(d)])
    size = max(1.0, float(np.abs(B).max()))
    np.testing.assert_allclose(B, B.T, atol=1e-12 * size)
    np.testing.assert_allclose(products, B, atol=digits * size)
    V = np.linalg.qr(rng.standard_normal((d, 2)))[0]
    T = view.at(x).third_tensor(V)
    for i in range(2):
        for j in range(2):
            image = V.T @ view.at(x).third_product(V[:, i], V[:, j])
            np.testing.assert_allclose(T[i, j], image, atol=10 * digits * max(1.0, float(np.abs(T).max())))
    s = 1e-3 * rng.standard_normal(d)
    square, whole = view.at(x).third_square(s), view.at(x).third_product(s, s)
    # Terms that hardly bend may be left out of T[s, s]: those whose cubic term is below a fifth of the quadratic.
    assert np.linalg.norm(square - whole) <= 0.4 * np.linalg.norm(B) * np.linalg.norm(s) + 1e-9
    for z in rng.standard_normal((20, 2)):
        y = z / np.linalg.norm(z)
        assert abs(((T @ y) @ y) @ y) <= view.at(x).third_bound(V) * (1 + 1e-9)


@pytest.mark.parametrize("name", SUMS)
def test_the_mean_over_rows_is_the_mean_of_their_terms_and_an_index_may_repeat(entry):
    objective, x = metered(entry), entry.bound().x0
    rows = np.append(rows_of(objective, 7), rows_of(objective, 7)[2])
    v = np.random.default_rng(3).standard_normal(len(x))
    point, alone = objective.over(rows).at(x), [objective.over(np.array([i])).at(x) for i in rows]
    assert point.terms == 8
    assert point.value() == pytest.approx(np.mean([one.value() for one in alone]), rel=1e-9)
    for ask in (
        lambda p: p.gradient(),
        lambda p: p.hessian_product(v),
        lambda p: p.third_product(v, v),
        lambda p: p.hessian(),
    ):
        np.testing.assert_allclose(ask(point), np.mean([ask(one) for one in alone], axis=0), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", SUMS)
def test_all_rows_in_any_order_are_the_whole_sum(entry):
    objective, x = metered(entry), entry.bound().x0
    whole, shuffled = objective.over(None).at(x), objective.over(rows_of(objective, objective.objective.n)).at(x)
    assert shuffled.value() == pytest.approx(whole.value(), rel=1e-10)
    np.testing.assert_allclose(shuffled.gradient(), whole.gradient(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", SUMS)
def test_sampled_gradients_have_no_bias_and_tell_their_error(entry):
    """Over a partition of the terms the mean of the gradients is the gradient; over random samples the squares of the
    errors add up to the variance of the terms over m, which is what the sampled gradients stray by."""
    objective, x = metered(entry), entry.bound().x0
    n, m = objective.objective.n, 48
    whole = objective.over(None).at(x).gradient()
    order = np.random.default_rng(4).permutation(n)
    parts = [objective.over(order[k : k + m]).at(x).gradient() for k in range(0, n, m)]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-8, atol=1e-12)
    each = np.stack([objective.over(np.array([i])).at(x).gradient() for i in range(n)])
    variance = float(np.sum(np.var(each, axis=0, ddof=1))) / m
    rng, told = np.random.default_rng(5), []
    for _ in range(60):
        # A linear model deals ascending rows out to groups by a fixed shuffle, so the rows themselves have to be drawn.
        told.append(float(np.sum(objective.over(rng.permutation(n)[:m]).at(x).errors() ** 2)))
    error = np.std(told) / np.sqrt(len(told))
    assert abs(np.mean(told) - variance) <= 5 * error + 1e-15
    assert error <= 0.2 * variance


@pytest.mark.parametrize("name", OBJECTIVES)
def test_nothing_is_evaluated_before_it_is_asked_for_and_each_thing_is_paid_once(entry):
    objective, x = metered(entry), entry.bound().x0
    point = objective.over(None).at(x)
    assert tally(objective) == (0, 0, 0, 0)
    asks = (lambda: point.value(), lambda: point.gradient(), lambda: point.hessian())
    for ask in asks:
        before = tally(objective)
        first = ask()
        paid = tally(objective)
        assert sum(paid) > sum(before)
        np.testing.assert_array_equal(ask(), first)
        assert tally(objective) == paid
    point.hessian_product(np.ones(len(x)))
    assert tally(objective) == paid  # from the matrix that is there


@pytest.mark.parametrize("name", OBJECTIVES)
def test_values_and_gradients_count_every_term_and_products_at_least(entry):
    objective, x = metered(entry), entry.bound().x0
    n, v = objective.objective.n, np.ones(len(x))
    objective.over(None).at(x).value()
    assert tally(objective) == (n, 0, 0, 0)
    objective.over(None).at(x).gradient()
    assert tally(objective)[1] == n
    before = tally(objective)
    objective.over(None).at(x).hessian_product(v)
    assert tally(objective)[2] - before[2] >= n
    before = tally(objective)
    objective.over(None).at(x).third_product(v, v)
    assert tally(objective)[3] - before[3] == n
    before = tally(objective)
    objective.over(None).at(x).third_tensor(np.eye(len(x))[:, :2])
    assert tally(objective)[3] - before[3] == 3 * n
    if entry.sum:
        before = tally(objective)
        point = objective.over(rows_of(objective, 20)).at(x)
        point.value(), point.gradient(), point.errors()
        assert tuple(np.subtract(tally(objective), before)) == (20, 20, 0, 0)  # errors come with the gradient


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_point_with_no_carry_is_exact_and_one_with_a_carry_is_close_and_says_what_it_owes(entry):
    objective, x = metered(entry), entry.bound().x0
    view, s = objective.over(None), 1e-3 * np.ones(len(x))
    first = view.at(x)
    assert first.inexact == 4
    first.value(), first.gradient(), first.hessian()
    near, fresh = view.at(x + s, first.carry), view.at(x + s)
    assert near.value() == pytest.approx(fresh.value(), rel=1e-9)
    np.testing.assert_allclose(near.gradient(), fresh.gradient(), rtol=1e-7, atol=1e-10)
    B, own = near.hessian(), fresh.hessian()
    np.testing.assert_allclose(B, own, atol=0.3 * max(1.0, float(np.abs(own).max())))
    if near.inexact > 2:
        np.testing.assert_allclose(B, own, rtol=1e-9, atol=1e-12)
    before = tally(objective)
    settled = exact(near)
    assert settled.inexact == 4
    assert settled.value() == near.value()
    if near.inexact > 1:  # the gradient was exact
        np.testing.assert_array_equal(settled.gradient(), near.gradient())
        assert tally(objective) == before  # what was exact is not paid again
    np.testing.assert_array_equal(settled.hessian(), own)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_point_is_the_same_bit_for_bit_after_it_was_saved_and_recalled(entry):
    objective, x = metered(entry), entry.bound().x0
    view = objective.over(rows_of(objective, 30) if entry.sum else None)
    first = view.at(x)
    first.hessian()
    near = view.at(x + 0.01, first.carry)
    near.value(), near.gradient()
    again = view.recall(x + 0.01, saved(near))
    before = tally(objective)
    assert again.value() == near.value()
    np.testing.assert_array_equal(again.gradient(), near.gradient())
    assert tally(objective) == before
    np.testing.assert_array_equal(again.hessian(), near.hessian())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_after_the_deadline_nothing_is_evaluated(entry):
    objective = metered(entry, Meter(1, deadline=time.perf_counter() - 1.0))
    point, v = objective.over(None).at(entry.bound().x0), np.ones(len(entry.bound().x0))
    for ask in (point.value, point.gradient, point.hessian, lambda: point.third_product(v, v)):
        with pytest.raises(DeadlineError):
            ask()
    assert tally(objective) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_run_is_certified_repeats_itself_and_resumes_bit_for_bit(entry, tmp_path):
    problem, derivatives = entry.problem()
    options = {"tol": max(1e-7, entry.digits**2), "order": 2, "seed": 3, **derivatives}
    whole = tercet.minimize(problem, entry.x0, **options)
    assert whole.success, whole.message
    again = tercet.minimize(problem, entry.x0, **options)
    stopped = max(1, whole.nit // 2)
    path = tmp_path / "run.ckpt"
    tercet.minimize(problem, entry.x0, checkpoint=path, max_iterations=stopped, **options)
    resumed = tercet.resume(path, entry.problem()[0], max_iterations=1000, **derivatives) if path.exists() else whole
    for other in (again, resumed):
        np.testing.assert_array_equal(np.asarray(other.x), np.asarray(whole.x))
        assert other.counts == whole.counts
        np.testing.assert_array_equal(other.trace["f"], whole.trace["f"])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_problem_has_a_fingerprint_that_repeats(entry):
    from tercet.methods.minimize import as_problem

    first, second = (as_problem(*entry.problem()).fingerprint() for _ in range(2))
    assert first == second
    assert all(isinstance(value, str) for value in first.values())


def test_the_objective_of_thirty_lines_is_the_one_that_the_documentation_shows():
    root = Path(__file__).resolve().parents[2]
    shown = (root / "docs" / "extending.md").read_text().split("```python\n")[1].split("```")[0]
    kept = (root / "tests" / "conformance" / "own.py").read_text()
    assert shown.strip() in kept
    members = [line for line in shown.splitlines() if line.strip().startswith("def ") and "def c(" not in line]
    assert len(members) == 8
