"""The sentences say what the numbers say, and hide nothing."""

import re

import pytest

from tercet.experiments import stored, words
from tercet.experiments.summary import Verdict
from tests.experiments.stores import BASE, many_runs, record, small_store, write_store


def verdict(answer="fewer", **changes):
    ratio = {"fewer": 0.5, "more": 2.0, "same": 1.0, "neither": float("nan")}[answer]
    both = 0 if answer == "neither" else 10
    values = {
        "dataset": "a9a", "l2": 1e-3, "settings": "ours", "counting": "ours", "gap": 1e-6, "rival": "SCR",
        "methods": ("STM", "SCR"), "pairs": 10, "both": both, "only_stm": 0, "only_rival": 0, "apart": 0,
        "ratio": ratio, "low": ratio, "high": ratio,
    }  # fmt: skip
    return Verdict(**{**values, **changes})


def notes_of(tmp_path, runs, minima=(BASE,)):
    reference = {"dataset": "a", "l2": 1e-3, "minima": [{"f": f} for f in minima], "text": ""}
    return " ".join(words.story(stored.read(write_store(tmp_path, runs, [reference]))).notes)


@pytest.mark.parametrize(
    ("answers", "word"),
    [(("fewer", "fewer"), "it holds (fewer calls in 2 of 2"), (("fewer", "more", "fewer"), "holds only in part"),
     (("more", "fewer"), "does not hold"), (("same",), "does not hold"), (("neither",), "cannot be judged")],
)  # fmt: skip
def test_the_claim_is_judged_by_its_cases(answers, word):
    assert word in words.claim([verdict(answer) for answer in answers])


def test_where_it_needs_more_is_named():
    text = words.claim([verdict("fewer"), verdict("more", dataset="covtype", gap=1e-10)])
    assert "Against SCR it needs more calls on covtype (l2 = 1e-3), to a gap of 1e-10." in text


def test_cases_in_which_neither_side_met_the_gap_are_not_hidden():
    assert "in 1 more neither side met the gap" in words.claim([verdict("fewer"), verdict("neither")])


def test_the_countings_and_settings_are_told_apart():
    text = words.claim([verdict("fewer"), verdict("more", counting="paper"), verdict("more", settings="paper")])
    assert re.search(r"with the paper's settings it does not hold .* with every product counted", text)
    assert re.search(r"with our settings it holds .* counted and does not hold .* counted as in the paper", text)


def test_the_limit_against_scr_names_the_worst():
    assert "never above 1.1" in words.within([verdict(ratio=1.05), verdict(ratio=0.9)])
    assert "1.20 on covtype" in words.within([verdict(ratio=1.2, dataset="covtype"), verdict(ratio=0.9)])


def test_other_minima_failures_low_runs_and_wild_runs_are_noted(tmp_path):
    shifted = record("a", 1e-3, "N", 0, "STM", shift=0.01)
    failed = record("a", 1e-3, "N", 1, "SCR", error="ValueError: <no>", trace=None, fun=None, certificate=None)
    deep = record("a", 1e-3, "N", 2, "ARC", shift=-0.001)
    wild = record("a", 1e-3, "N", 3, "SGD")
    wild["trace"]["f"][-1] = None
    text = notes_of(tmp_path, [shifted, failed, deep, wild], (BASE, BASE + 0.01))
    assert "1 of 4 ended in a certified higher one (STM: 1)" in text
    assert "1 run failed (SCR: 1): ValueError: <no>." in text
    assert re.search(r"1 run went below the reference minimum, by up to 1\.0e-03 \(ARC: 1\)", text)
    assert "infinite or nan in 1 run (SGD: 1)" in text


def test_a_certified_end_that_is_not_on_file_is_noted(tmp_path):
    assert "not among the minima on file (STM: 1)" in notes_of(tmp_path, [record("a", 1e-3, "N", 0, "STM", shift=0.5)])


def test_quiet_runs_need_no_note(tmp_path):
    assert words.story(stored.read(small_store(tmp_path))).notes == []


def test_without_stm_the_story_still_says_what_there_is(tmp_path):
    runs = [r for r in many_runs(datasets=("a",), seeds=2, sgd=0) if r["family"] == "SciPy"]
    told = words.story(stored.read(write_store(tmp_path, runs)))
    assert told.lead == "4 runs of 2 methods on 1 problem (data set and l2)."


@pytest.mark.parametrize(
    ("value", "text"), [(0.94, "0.940"), (12.3456, "12.3"), (123.4, "123"), (12345.6, "12346"), (float("nan"), "-")]
)
def test_numbers_have_three_digits(value, text):
    assert words.number(value) == text


def test_why_names_iterations_and_third_derivatives(tmp_path):
    records = stored.read(small_store(tmp_path))
    text = words.why(records.problems[0], verdict("more"))
    assert re.search(r"STM takes [\d.]+ iterations and [\d.]+ epochs, [\d.]+ of them third", text)
