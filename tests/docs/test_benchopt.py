"""The benchopt benchmark: its formulas are those of tercet's linear model, and benchopt's own checks pass."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import tercet

FOLDER = Path(__file__).resolve().parents[2] / "benchopt"


@pytest.fixture(scope="module")
def sums():
    spec = importlib.util.spec_from_file_location("sums", FOLDER / "benchmark_utils" / "sums.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data(seed=0, n=200, d=6):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5), rng.integers(0, 2, n).astype(float), rng


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_the_peers_have_the_derivatives_of_the_linear_model(sums, form):
    X, y, rng = data()
    theirs, ours = (
        sums.SigmoidSquares(form(X), y, 1e-2),
        tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-2).over(None),
    )
    for x in rng.standard_normal((3, 6)):
        point, v = ours.at(x), rng.standard_normal(6)
        assert theirs.value(x) == pytest.approx(point.value(), rel=1e-13)
        np.testing.assert_allclose(theirs.gradient(x), point.gradient(), atol=1e-14)
        np.testing.assert_allclose(theirs.hessian(x), point.hessian(), atol=1e-14)
        np.testing.assert_allclose(theirs.hessian_product(x, v), point.hessian() @ v, atol=1e-13)


def test_the_step_of_gradient_descent_is_safe(sums):
    p = np.linspace(0, 1, 100001)
    largest = max(np.abs(sums.second_derivative(p, y)).max() for y in (0.0, 1.0))
    assert 0.999 * sums.STEEPEST < largest <= sums.STEEPEST
    X, y, rng = data(1)
    problem = sums.SigmoidSquares(X, y, 1e-2)
    for x in rng.standard_normal((5, 6)):
        assert np.linalg.norm(problem.hessian(x), 2) <= problem.lipschitz()


@pytest.fixture
def copy(tmp_path):
    """The folder elsewhere, since benchopt writes its results into it."""
    pytest.importorskip("benchopt.benchmark")  # `benchopt` alone would be found as our folder
    skip = shutil.ignore_patterns("outputs", "__cache__", "__pycache__")
    return shutil.copytree(FOLDER, tmp_path / "benchmark", ignore=skip)


def run(arguments, folder):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_benchopts_own_checks_pass(copy):
    checks = Path(importlib.util.find_spec("benchopt.tests").origin).parent / "test_benchmarks.py"
    plugin = ["-p", "benchopt.tests.fixtures", "-p", "no:xdist", "-p", "no:cacheprovider"]
    text = run(["-m", "pytest", *plugin, "--benchmark", str(copy), "--skip-install", "-rs", str(checks)], copy)
    assert " passed" in text
    assert "is not installed" not in text  # a solver or data set that cannot be imported is skipped by benchopt


def test_a_run_gives_curves_that_end_at_one_value(copy):
    pd = pytest.importorskip("pandas")
    pick = [part for name in ("tercet", "L-BFGS", "trust-exact") for part in ("-s", name)]
    size = "simulated[n_samples=300,n_features=5,condition=2.0]"
    run(["-m", "benchopt", "run", str(copy), "-d", size, "-o", "*[l2=1e-3]", *pick, "-r", "1", "-n", "50",
         "--no-plot", "--no-html", "--seed", "0", "--output", "small"], copy)  # fmt: skip
    table = pd.read_parquet(copy / "outputs" / "small.parquet")
    ends = table.sort_values("stop_val").groupby("solver_name").last()
    assert sorted(ends.index) == ["L-BFGS", "tercet[method=scr]", "tercet[method=stm]", "trust-exact"]
    assert np.ptp(ends["objective_value"]) <= 1e-12
    assert ends["objective_gradient"].max() <= 1e-7
