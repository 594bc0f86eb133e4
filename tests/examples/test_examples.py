"""The worked examples, at quick size: what each of them asserts, and what they claim in their tables."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("skew_normal", "gaussian_mixture", "degenerate_start", "pinn", "robust_regression")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def drawn(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_skew_normal(example, tmp_path, capsys):
    found = example("skew_normal").main(True, tmp_path)
    assert found["result"].success
    assert found["result"].certificate.order == 3
    assert found["outcome"]["tercet"]["alpha = -1"] == (1, 0, 1)
    assert found["outcome"]["trust-exact"]["alpha = 1"] == (1, 0, 1)  # from the right side the others do well
    assert np.all(found["covered"] > 0.8)
    assert drawn(found["picture"])
    assert "false success" in capsys.readouterr().out


def test_the_third_derivative_of_log_phi_is_right_far_out(example):
    """With h = phi/Phi: (log Phi)''' = h ((t + h)(t + 2h) - 1), in a hundred digits' worth of tail."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60), jax.enable_x64(True):
        third = jax.grad(jax.grad(jax.grad(example("skew_normal").log_normal_cdf)))
        for t in (-35.0, -21.0, -8.5, -7.5, -1.0, 0.0, 2.0):
            h = mpmath.npdf(t) / mpmath.ncdf(t)
            exact = float(h * ((t + h) * (t + 2 * h) - 1))
            assert float(third(t)) == pytest.approx(exact, rel=1e-6)


def test_gaussian_mixture(example, tmp_path):
    found = example("gaussian_mixture").main(True, tmp_path)
    assert found["result"].success
    assert found["gradients"]["EM, tol = 1e-3 (default)"] > 1e5 * found["gradients"]["tercet from EM"]
    assert np.max(found["moved"]) > 1.0  # EM stops more than a standard error away
    assert np.median(found["plain"] / found["bootstrap"]) == pytest.approx(1.0, abs=0.2)
    assert drawn(found["picture"])


def test_the_mixture_density_is_that_of_scikit_learn(example):
    mixture = example("gaussian_mixture")
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        sample = mixture.draw(rng, mixture.WEIGHTS, mixture.MEANS, mixture.COVARIANCES, 200)
        x, model = mixture.expectation_maximization(sample, 1e-3)
        np.testing.assert_allclose(np.asarray(mixture.terms(x, sample)), -model.score_samples(sample), rtol=1e-10)
        weight = np.asarray(mixture.quantities(x))[0]
    assert weight == pytest.approx(model.weights_[np.argmin(model.means_[:, 0])])


def test_degenerate_start(example, tmp_path):
    found = example("degenerate_start").main(True, tmp_path)
    for words in found["words"].values():
        assert "stays" not in words["tercet"]
        assert all(words[method][0] == "stays" for method in words if method != "tercet")
    assert found["deep"].success  # at depth four values of f show the way, no derivative does
    assert found["deep"].nit > 0
    assert drawn(found["picture"])


def test_pinn(example, tmp_path):
    found = example("pinn").main(True, tmp_path)
    assert found["errors"][0, 0] < 0.2 * found["start"]
    assert found["results"][0].nit == 250
    assert drawn(found["picture"])


def test_the_network_of_the_pinn_solves_a_poisson_problem(example):
    """Its force is -u'' of the solution it names, and its residual is that of the network it names."""
    pinn = example("pinn")
    with jax.enable_x64(True):
        x, h = 0.3, 1e-4
        params = pinn.glorot(3)
        second = (pinn.solution(params, x + h) - 2 * pinn.solution(params, x) + pinn.solution(params, x - h)) / h**2
        force = -float(pinn.second_derivative(pinn.exact, x))
        wave = 4 * np.pi**2 * np.sin(2 * np.pi * x) + 25.6 * np.pi**2 * np.sin(16 * np.pi * x)
        assert force == pytest.approx(wave, rel=1e-12)
        assert float(pinn.loss(params, x, force)) == pytest.approx(0.5 * (float(second) + force) ** 2, rel=1e-5)
        assert float(pinn.solution(params, 0.0)) == float(pinn.solution(params, 1.0)) == 0.0


def test_robust_regression(example, tmp_path):
    found = example("robust_regression").main(True, tmp_path)
    assert len(found["results"]) == 15  # three losses, five fractions
    assert all(result.success for result in found["results"].values())
    assert found["errors"]["welsch"][-1] < found["errors"]["Huber"][-1] < found["errors"]["least squares"][-1]
    assert drawn(found["picture"])


def test_an_example_runs_as_a_script_and_says_what_it_takes():
    done = subprocess.run([sys.executable, EXAMPLES / "pinn.py", "--help"], capture_output=True, text=True, check=True)
    assert "--quick" in done.stdout
    assert "equal seconds" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_in_the_list(name):
    assert f"{name}.py" in (EXAMPLES / "README.md").read_text()
