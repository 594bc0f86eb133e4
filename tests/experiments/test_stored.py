"""A run is measured from the minimum it ended in, and the store is read as it is on disk."""

import json

import numpy as np
import pytest

from tercet.experiments import stored
from tests.experiments.stores import BASE, many_runs, record, small_store, write_store


def one(run, minima):
    return stored.place_run(run, tuple({"f": f} for f in minima))


def test_the_gap_is_to_the_lowest_minimum_unless_the_run_is_certified_in_another():
    low = record("a", 1e-3, "N", 0, "STM")
    high = record("a", 1e-3, "N", 0, "STM", shift=0.01)
    lost = record("a", 1e-3, "N", 0, "SGD", shift=0.01)
    assert (one(low, (BASE, BASE + 0.01)).basin, one(high, (BASE, BASE + 0.01)).basin) == (0, 1)
    assert one(high, (BASE, BASE + 0.01)).gap[-1] < 1e-9
    assert one(lost, (BASE, BASE + 0.01)).gap[-1] > 0.009


def test_of_two_minima_close_together_the_nearest_is_taken():
    run = record("a", 1e-3, "N", 0, "STM", shift=1e-8)
    assert one(run, (BASE, BASE + 1e-8)).basin == 1


def test_a_certified_end_far_from_every_minimum_is_measured_from_the_lowest():
    assert one(record("a", 1e-3, "N", 0, "STM", shift=0.5), (BASE, BASE + 0.01)).basin == 0


def test_cost_to_a_gap_is_that_of_the_first_row_within_it():
    run = record("a", 1e-3, "N", 0, "STM")
    trace = run["trace"]
    trace["f"] = [BASE + g for g in (1e-1, 1e-3, 1e-5, 1e-3, 1e-7)]
    for name in trace:
        trace[name] = trace[name][:5]
    trace["value"], trace["gradient"] = [0, 1, 2, 3, 4], [0, 10, 20, 30, 40]
    trace["hessian"] = trace["third"] = [0] * 5
    one_run = one(run, (BASE,))
    assert one_run.cost_to(1.1e-5, "ours") == 22  # the later rise does not count
    assert one_run.cost_to(1.1e-7, "ours") == 44
    assert np.isnan(one_run.cost_to(1e-9, "ours"))
    assert one_run.cost_to(1.0, "ours") == 0


def test_missing_columns_and_nulls_are_nan_and_a_gap_is_never_below_the_floor():
    run = record("a", 1e-3, "N", 0, "STM")
    run["trace"]["f"][3] = None
    run["trace"]["f"][-1] = BASE - 1.0
    del run["trace"]["sigma"]
    r = one(run, (BASE,))
    assert np.isnan(r.gap[3])
    assert r.gap[-1] == stored.FLOOR
    assert np.all(np.isnan(r.column("sigma")))


def test_without_a_reference_the_lowest_value_seen_stands_in_and_it_is_said(tmp_path):
    records = stored.read(write_store(tmp_path, many_runs(datasets=("a",), seeds=2), references=[]))
    (problem,) = records.problems
    assert problem.minima[0]["f"] == min(f for run in problem.runs for f in run.record["trace"]["f"])
    assert "No reference" in problem.text


def test_a_torn_last_line_is_passed_over_and_a_repeated_key_keeps_the_last(tmp_path):
    folder = small_store(tmp_path)
    whole = stored.read(folder)
    again = {**whole.runs[0], "fun": 7.0}
    with open(folder / "runs.jsonl", "a") as file:
        file.write(json.dumps(again) + "\n" + '{"key": {"data')
    records = stored.read(folder)
    assert len(records.runs) == len(whole.runs)
    assert 7.0 in [r["fun"] for r in records.runs]


def test_a_folder_without_a_store_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"comparison\.json"):
        stored.read(tmp_path)


def test_failed_runs_have_no_path():
    run = record("a", 1e-3, "N", 0, "STM", error="ValueError: no", trace=None, fun=None, certificate=None)
    r = one(run, (BASE,))
    assert r.failed
    assert len(r.gap) == 0
    assert np.isnan(r.cost_to(1e-2, "paper"))


@pytest.mark.parametrize(
    ("value", "text"), [(1e-3, "1e-3"), (3.07e-8, "3.07e-8"), (0.0, "0"), (0.5, "0.5"), (1e-10, "1e-10")]
)
def test_small_numbers_are_written_as_people_do(value, text):
    assert stored.power(value) == text


def test_seeds_are_ordered_by_number():
    assert sorted(["10", "2", "N"], key=stored.natural) == ["2", "10", "N"]
