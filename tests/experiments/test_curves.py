"""Curves are step functions over the union of the runs' costs."""

import numpy as np
import pytest

from tercet.experiments import curves
from tercet.experiments.stored import Run
from tests.experiments.stores import BASE, record


def run(costs, gaps, **changes):
    made = record("a", 1e-3, "N", 0, "STM", **changes)
    zeros = [0.0] * len(costs)
    f = [None if g is None else BASE + g for g in gaps]
    trace = {"f": f, "gradient": list(costs), "value": zeros, "hessian": zeros, "third": zeros, "chi2": [None] * len(f)}
    return Run({**made, "trace": trace}, BASE)


def test_the_value_after_a_cost_is_that_of_the_last_row_up_to_it():
    x = np.array([-1.0, 0.0, 0.9, 1.0, 5.0])
    assert curves.after(np.array([0.0, 1.0]), np.array([3.0, 2.0]), x) == pytest.approx(
        [np.nan, 3, 3, 2, 2], nan_ok=True
    )


def test_mean_is_geometric_and_the_band_goes_from_lowest_to_highest():
    c = curves.curve([run([0, 1, 2], [1e-1, 1e-2, 1e-8]), run([0, 2, 3], [1e-1, 1e-4, 1e-6])], "ours")
    assert c.x.tolist() == [0, 1, 2, 3]
    assert c.mean == pytest.approx([1e-1, 10**-1.5, 1e-6, 1e-7], rel=1e-6)
    assert c.low == pytest.approx([1e-1, 1e-2, 1e-8, 1e-8], rel=1e-6)
    assert c.high == pytest.approx([1e-1, 1e-1, 1e-4, 1e-6], rel=1e-6)
    assert c.runs == 2


def test_where_one_run_is_not_finite_there_is_no_mean():
    c = curves.curve([run([0, 1, 2], [1e-1, None, None]), run([0, 1, 2], [1e-1, 1e-2, 1e-3])], "ours")
    assert c.mean[0] == pytest.approx(1e-1)
    assert np.all(np.isnan(c.mean[1:]))


def test_a_failed_run_is_left_out_and_none_is_no_curve():
    failed = Run({**record("a", 1e-3, "N", 0, "STM"), "trace": None}, BASE)
    assert curves.curve([failed], "ours") is None
    assert curves.curve([failed, run([0, 1], [1e-1, 1e-2])], "ours").runs == 1
    assert curves.middle_run([failed]) is None


def test_thinning_keeps_ends_and_exact_values():
    costs = np.arange(5000.0)
    gaps = np.exp(-costs / 300)
    c = curves.curve([run(costs, gaps)], "ours", points=100)
    assert len(c.x) <= 100
    assert (c.x[0], c.x[-1]) == (0, 4999)
    assert c.mean == pytest.approx(np.exp(-c.x / 300), rel=1e-6)


def test_points_that_change_nothing_are_dropped_but_the_last():
    c = curves.curve([run([0, 1, 2, 3, 9], [1e-1, 1e-2, 1e-2, 1e-2, 1e-2])], "ours")
    assert c.x.tolist() == [0, 1, 9]


def test_rows_of_a_run_keep_first_last_and_known_curvature():
    made = run(np.arange(1000.0), np.exp(-np.arange(1000.0) / 50))
    made.record["trace"]["chi2"][777] = 0.5
    keep = curves.rows_to_keep(made, 50)
    assert len(keep) <= 50
    assert {0, 777, 999} <= set(keep.tolist())


def test_the_middle_run_is_in_the_middle():
    runs = [run([0, cost], [1.0, 1e-11]) for cost in (5, 1, 3)]
    assert curves.middle_run(runs) is runs[2]
