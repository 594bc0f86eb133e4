"""The skeletons in CONTRIBUTING and the first lines of the README run as they stand."""

import re
from pathlib import Path

import numpy as np
import pytest

import tercet

ROOT = Path(__file__).resolve().parents[1]


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def names():
    jnp = pytest.importorskip("jax.numpy")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    y = X @ np.arange(5.0) + 0.1 * rng.standard_normal(400)
    return {"tercet": tercet, "jnp": jnp, "X": X, "y": y, "problem": tercet.LinearModel(X, y, "cauchy", l2=1e-3)}


def test_own_loss_gives_the_derivatives_it_claims(names):
    exec(blocks("CONTRIBUTING.md")[0], names)
    own, by_jax = names["LogCosh"](), names["problem"].loss
    z = np.linspace(-3, 3, 50)
    for ours, theirs in zip(own.derivatives(z, 0 * z), by_jax.derivatives(z, 0 * z), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert tercet.minimize(tercet.LinearModel(names["X"], names["y"], own, l2=1e-3)).success


def test_own_subsolver_minimizes(names):
    exec(blocks("CONTRIBUTING.md")[1], names)
    result = tercet.minimize(names["problem"], method=tercet.STM(subsolver=names["Steepest"]()))
    assert result.fun == pytest.approx(tercet.minimize(names["problem"]).fun, abs=1e-10)


def test_own_size_rule_reaches_all_data(names):
    exec(blocks("CONTRIBUTING.md")[2], names)
    result = tercet.minimize(names["problem"], method=tercet.STM(sizes=names["Doubling"]()))
    assert result.success
    assert result.trace["size_value"][0] == 50
    assert result.trace["size_value"][-1] == 400


def test_first_lines_of_the_readme_are_certified():
    names = {}
    exec(blocks("README.md")[0], names)
    assert names["result"].success
