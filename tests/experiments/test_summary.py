"""Costs, the best, and the verdict on third order, against numbers that are known in advance."""

import numpy as np
import pytest

from tercet.experiments import stored, summary
from tests.experiments.stores import BASE, many_runs, record, small_store, write_store

GAPS = (1e-1, 1e-3, 1e-5, 1e-7, 1e-9, 1e-11)


def planned(method, seed, per_row, rows=6, **changes):
    """A run that gains two digits a row at a given price a row."""
    run = record("a", 1e-3, "N", seed, method, **changes)
    trace = {name: [None] * rows for name in run["trace"]}
    trace["f"] = [BASE + g for g in GAPS[:rows]]
    for order in ("value", "hessian", "third", "paper_value", "paper_hessian", "paper_third"):
        trace[order] = [0.0] * rows
    trace["gradient"] = [per_row * k for k in range(rows)]
    trace["paper_gradient"] = [2 * per_row * k for k in range(rows)]
    trace["iteration"] = trace["seconds"] = list(range(rows))
    return {**run, "trace": trace, "fun": trace["f"][-1]}


def answers(runs, tmp_path, **wanted):
    records = stored.read(write_store(tmp_path, runs))
    return [v for v in summary.verdicts(records) if all(getattr(v, k) == x for k, x in wanted.items())]


def test_spread_counts_who_got_there():
    s = summary.spread([1.0, 3.0, float("nan")])
    assert (s.runs, s.reached, s.mean, s.low, s.high) == (3, 2, 2.0, 1.0, 3.0)
    assert s.deviation == pytest.approx(np.sqrt(2))
    assert not s.complete
    assert summary.spread([2.0]).deviation == 0
    assert not summary.spread([]).complete


def test_the_table_agrees_with_the_stored_rows(tmp_path):
    records = stored.read(small_store(tmp_path))
    for problem in records.problems:
        table = summary.cost_table(problem, "ours")
        for method in problem.methods:
            for gap, s in zip(summary.GAPS, table[method], strict=True):
                costs = []
                for run in problem.of(method):
                    t = run.record["trace"]
                    row = next((i for i, f in enumerate(t["f"]) if f - BASE <= gap), None)
                    if row is not None:
                        costs.append(sum(t[order][row] for order in ("value", "gradient", "hessian", "third")))
                assert s.reached == len(costs)
                assert s.mean == pytest.approx(np.mean(costs) if costs else np.nan, nan_ok=True)


def test_only_a_method_all_of_whose_runs_got_there_can_be_best(tmp_path):
    runs = [planned("STM", seed, 1.0, rows=6 if seed else 2) for seed in range(3)]
    runs += [planned("SCR", seed, 5.0) for seed in range(3)]
    (problem,) = stored.read(write_store(tmp_path, runs)).problems
    assert summary.best(summary.cost_table(problem, "ours", gaps=(1e-2, 1e-4))) == ["STM", "SCR"]
    assert summary.best(summary.cost_table(problem, "ours", gaps=(1e-15,))) == [None]


@pytest.mark.parametrize(("price", "answer"), [(1.0, "fewer"), (1.97, "same"), (3.0, "more")])
def test_the_verdict_is_the_ratio_of_costs_from_the_same_start(tmp_path, price, answer):
    runs = [planned("STM", seed, price * (1 + seed)) for seed in range(3)]
    runs += [planned("SCR", seed, 2.0 * (1 + seed)) for seed in range(3)]
    found = answers(runs, tmp_path, rival="SCR", settings="ours")
    assert len(found) == 6
    for v in found:
        assert v.answer == answer
        assert (v.pairs, v.both) == (3, 3)
        assert v.ratio == pytest.approx(price / 2)
        assert (v.low, v.high) == (pytest.approx(price / 2), pytest.approx(price / 2))


def test_a_rival_that_does_not_get_there_loses_and_both_missing_is_said(tmp_path):
    runs = [planned("STM", seed, 9.0) for seed in range(2)]
    runs += [planned("SGD batch=0.1 step=1", seed, 1.0, rows=3) for seed in range(2)]
    by_gap = {v.gap: v for v in answers(runs, tmp_path, rival="best SGD", counting="ours")}
    assert (by_gap[1e-4].answer, by_gap[1e-4].ratio) == ("more", pytest.approx(9.0))
    assert (by_gap[1e-10].answer, by_gap[1e-10].only_stm, by_gap[1e-10].both) == ("fewer", 2, 0)
    short = [planned(m, 0, 1.0, rows=3) for m in ("STM", "SCR")]
    assert {v.answer for v in answers(short, tmp_path / "b", gap=1e-10)} == {"neither"}


def test_paper_settings_and_ours_are_kept_apart(tmp_path):
    prices = {"STM": 1.0, "SCR": 2.0, "STM-paper": 8.0, "SCR-paper": 4.0}
    found = answers(
        [planned(m, s, p) for m, p in prices.items() for s in range(2)], tmp_path, gap=1e-6, counting="paper"
    )
    assert {v.settings: (v.methods, v.ratio) for v in found} == {
        "ours": (("STM", "SCR"), pytest.approx(0.5)),
        "paper": (("STM-paper", "SCR-paper"), pytest.approx(2.0)),
    }


def test_the_best_sgd_is_chosen_for_each_gap(tmp_path):
    quick = [planned("SGD batch=0.1 step=1", s, 1.0, rows=3) for s in range(2)]
    slow = [planned("SGD batch=0.1 step=0.1", s, 4.0) for s in range(2)]
    runs = quick + slow + [planned("STM", s, 2.0) for s in range(2)]
    chosen = {v.gap: v.methods[1] for v in answers(runs, tmp_path, counting="ours")}
    assert chosen == {1e-4: "SGD batch=0.1 step=1", 1e-6: "SGD batch=0.1 step=0.1", 1e-10: "SGD batch=0.1 step=0.1"}


def test_runs_in_different_minima_are_counted(tmp_path):
    runs = [planned("STM", s, 1.0) for s in range(3)] + [planned("SCR", s, 1.0) for s in range(3)]
    runs[0] = {**runs[0], "trace": {**runs[0]["trace"], "f": [f + 0.01 for f in runs[0]["trace"]["f"]]}}
    runs[0]["fun"] = runs[0]["trace"]["f"][-1]
    write_store(tmp_path, runs, [{"dataset": "a", "l2": 1e-3, "minima": [{"f": BASE}, {"f": BASE + 0.01}], "text": ""}])
    assert {v.apart for v in summary.verdicts(stored.read(tmp_path))} == {1}


def test_a_gap_met_at_the_start_is_a_ratio_of_one(tmp_path):
    runs = [planned(m, 0, p) for m, p in (("STM", 1.0), ("SCR", 2.0))]
    for run in runs:
        run["trace"]["f"] = [BASE] * 6
    assert {(v.ratio, v.answer) for v in answers(runs, tmp_path)} == {(1.0, "same")}


def test_without_stm_there_is_no_verdict(tmp_path):
    runs = [r for r in many_runs(datasets=("a",), seeds=1) if r["family"] != "STM"]
    assert answers(runs, tmp_path) == []


def test_a_choice_of_a_grid_belongs_to_its_method():
    assert summary.tuned("SGD batch=0.1 step=1") == "SGD"
    assert summary.tuned("STM-paper") == "STM-paper"
