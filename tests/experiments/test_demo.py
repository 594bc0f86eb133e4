"""What the picture of the demo says is so: each panel's heading is a claim about the runs in it."""

import numpy as np
import pytest

import tercet

pytest.importorskip("jax")
pytest.importorskip("matplotlib")

from tercet.experiments import demo
from tercet.records import Counts

GTOL = {"gtol": 1e-8}


def within(outcome, lowest, cost):
    """What a run spent to come within 1e-8."""
    return next(demo.COSTS[cost](counts) for counts, f in outcome.path if f - lowest <= 1e-8)


def test_the_start_of_the_likelihood_is_degenerate_and_third_order_leaves_it():
    job = demo.skew_normal()
    start = tercet.certify(job.problem, job.x0)
    assert max(start.chi1, start.chi2) < 1e-14 < 1e-3 < start.chi3
    stays = demo.solve_with_scipy(job, "trust-exact", "trust-exact", GTOL)
    assert not stays.certificate.holds
    leaves = demo.solve(job, "STM", tercet.STM())
    assert leaves.certificate.holds
    assert leaves.path[-1][1] < stays.path[-1][1] - 1e-3


def test_at_a_singular_minimum_third_order_saves_steps_and_evaluations_of_all_orders():
    job = demo.powell_singular()
    stm = demo.solve(job, "STM", tercet.STM())
    scr = demo.solve(job, "SCR", tercet.SCR(), max_iterations=60)
    assert within(stm, 0.0, demo.CALLS) < 0.75 * within(scr, 0.0, demo.CALLS)
    assert within(stm, 0.0, demo.EPOCHS) < 0.9 * within(scr, 0.0, demo.EPOCHS)


def test_on_the_linear_model_third_order_is_even():
    pytest.importorskip("sklearn")
    job = demo.breast_cancer()
    stm, scr = demo.solve(job, "STM", tercet.STM()), demo.solve(job, "SCR", tercet.SCR())
    lowest = min(stm.path[-1][1], scr.path[-1][1])
    assert within(stm, lowest, demo.EPOCHS) == pytest.approx(within(scr, lowest, demo.EPOCHS), rel=0.25)


def test_table_and_picture_show_what_was_run(tmp_path):
    job = demo.Job("a job", None, np.zeros(1), "seen")
    holds = tercet.certify(lambda x: x @ x, np.zeros(1))
    paths = ([(Counts(), 1.0), (Counts(value=2, gradient=2, n=2), 0.0)], [(Counts(), 1.0)])
    outcomes = [demo.Outcome(f"method {k}", 0.5, Counts(2, 2, n=2), holds, path) for k, path in enumerate(paths)]
    lines = demo.table(job, outcomes).splitlines()
    assert lines[0] == "a job (seen)"
    assert lines[3].split()[:5] == ["method", "0", "0.0e+00", "2.0", "2.0"]
    assert lines[4].split()[2:4] == ["1.0e+00", "never"]
    demo.picture([(job, outcomes * 2 + outcomes[:1])], tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
