"""A checkpoint that was edited, with a checksum that fits, is refused, or its run is as true as any other."""

import copy
import random
import warnings

import numpy as np
import pytest

import tercet
from benchmarks.tampered import edit, written
from tercet.methods.checkpoint import frames_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3))
Y = (X @ np.ones(3) + RNG.standard_normal(200) > 0).astype(float)
PROBLEM = tercet.LinearModel(X, Y, l2=1e-3)
START = 3.0 * RNG.standard_normal(3)
METHODS = {
    "STM": tercet.STM(tercet.Progressive(multiple=4)),
    "Subspace": tercet.STM(tercet.Full(), tercet.Subspace()),
    "SGD": tercet.SGD(),
    "SCR": tercet.SCR(tercet.Adaptive()),
}


@pytest.fixture(scope="module", params=METHODS)
def journal(request, tmp_path_factory):
    """The frames of a short run, as headers and arrays."""
    path = tmp_path_factory.mktemp("saved") / "run.ckpt"
    tercet.minimize(PROBLEM, START, method=METHODS[request.param], max_iterations=4, seed=1, checkpoint=path)
    return list(frames_of(path.read_bytes()))


@pytest.mark.parametrize("seed", range(30))
def test_an_edited_checkpoint_is_refused_or_its_run_is_true(journal, seed, tmp_path):
    frames, what = edit(journal, random.Random(seed))
    path = written(frames, tmp_path / "run.ckpt")
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = tercet.resume(path, PROBLEM, max_iterations=30)
    except tercet.CheckpointError:
        return
    point = PROBLEM.over(None).at(result.x)
    assert result.fun == pytest.approx(point.value(), rel=1e-9), what
    if result.success:  # Newton's step, recomputed, says so too
        s = np.linalg.solve(point.hessian(), -point.gradient())
        assert np.linalg.norm(s) <= 1e-6 * np.linalg.norm(result.x), what
    assert result.fun <= PROBLEM.over(None).at(START).value() or result.status is not tercet.Status.CERTIFIED, what


LIES = {
    "sigma below 0": (("state", "memory", "control", "sigma2"), -1.0),
    "sigma infinite": (("state", "memory", "control", "sigma3"), float("inf")),
    "no radius": (("state", "memory", "control", "radius"), 0.0),
    "more terms than there are": (("state", "sizes", "value"), 201),
    "no terms": (("state", "sizes", "value"), 0),
    "another iteration": (("state", "memory", "iteration"), 3),
    "fewer evaluations": (("tally", "gradient"), 0),
    "more evaluations than can be counted": (("tally", "hessian"), 10**30),
    "evaluations below 0": (("tally", "value"), -1),
    "another stream": (("state", "stream", "state", "inc"), 7),
    "time that ran back": (("seconds",), 0.0),
    "another f": (("state", "point", "value"), 1e-9),
    "a reach that is none": (("state", "memory", "reach"), 2.0),
    "closer than all": (("state", "memory", "closer"), 0.0),
    "further than was asked": (("state", "memory", "closer"), 2.0),
    "a rounding below 0": (("state", "memory", "rounding"), -1.0),
    "half a truth": (("state", "memory", "looked"), 0.5),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_run_can_have_written_is_refused(lie, tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, max_iterations=4, seed=1, checkpoint=path)
    frames = list(frames_of(path.read_bytes()))
    (*way, last), value = LIES[lie]
    node = frames[-1][0]
    for key in way:
        node = node[key]
    assert node[last] != value
    node[last] = value
    with pytest.raises(tercet.CheckpointError, match=r"run\.ckpt"):
        tercet.resume(written(frames, path), PROBLEM)


def test_settings_go_through_the_checks_of_minimize(tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, max_iterations=4, seed=1, checkpoint=path)
    frames = list(frames_of(path.read_bytes()))
    changes = [("tol", -1.0), ("tol", "x"), ("order", True), ("order", 4), ("seed", -1), ("seed", 0.5), ("more", 1)]
    changes += [("max_iterations", 1.5), ("checkpoint_every", 0), ("max_seconds", "x"), ("max_epochs", float("nan"))]
    methods = [None, {"class": "STM", "much": 1}, {"class": "Dense"}, [], 3]
    changes += [("method", method) for method in methods]
    for name, value in changes:
        edited = copy.deepcopy(frames)
        edited[0][0]["settings"][name] = value
        with pytest.raises(tercet.CheckpointError):
            tercet.resume(written(edited, path), PROBLEM)


def test_a_gradient_that_is_a_lie_never_reaches_a_certificate(tmp_path):
    path = tmp_path / "run.ckpt"
    tercet.minimize(PROBLEM, START, method=tercet.STM(tercet.Full()), max_iterations=4, checkpoint=path)
    frames = list(frames_of(path.read_bytes()))
    header, arrays = frames[-1]
    name = header["state"]["point"]["gradient"]["array"]
    for lie in (np.zeros(3), 1e-12 * arrays[name], -arrays[name]):
        edited = copy.deepcopy(frames)
        edited[-1][1][name] = lie
        with pytest.raises(tercet.CheckpointError, match="gradient"):
            tercet.resume(written(edited, path), PROBLEM)


def test_a_problem_that_changed_behind_its_name_is_refused(tmp_path):
    path, height = tmp_path / "run.ckpt", [1.0]

    def fun(x):
        return float(height[0] * np.sum((x - 1.0) ** 4) + np.sum(x**2))

    def grad(x):
        return 4.0 * height[0] * (x - 1.0) ** 3 + 2.0 * x

    tercet.minimize(fun, np.array([3.0, -2.0]), grad=grad, max_iterations=2, checkpoint=path)
    height[0] = 2.0
    with pytest.raises(tercet.CheckpointError, match="not what the problem gives"):
        tercet.resume(path, fun, grad=grad)
