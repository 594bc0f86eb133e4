"""Compiled once: the same loss with other data, never the loss as it was before."""

import numpy as np
import pytest

import tercet
from tercet.objectives import programs

jax = pytest.importorskip("jax")
jnp = jax.numpy

X = np.linspace(0.0, 1.0, 20)
Y = np.exp(-X) + 0.1 * np.sin(9 * X)


@pytest.fixture
def compiles(monkeypatch):
    """How many programs were made."""
    made = []
    monkeypatch.setattr(programs, "CACHE", programs.OrderedDict())
    real = programs.compiled

    def watched(key, make):
        return real(key, lambda: made.append(key) or make())

    for home in ("finite_sum", "functions", "residuals.problem"):
        monkeypatch.setattr(f"tercet.objectives.{home}.compiled", watched)
    return made


PROBLEMS = {
    "FiniteSum": lambda y: (tercet.FiniteSum(lambda p, x, y: (p[0] * jnp.exp(-p[1] * x) - y) ** 2, (X, y)), np.ones(2)),
    "Residuals": lambda y: (tercet.Residuals(lambda p, x, y: p[0] * jnp.exp(-p[1] * x) - y, (X, y)), np.ones(2)),
    "function": lambda y: (lambda p: jnp.sum((p[0] * jnp.exp(-p[1] * X) - y) ** 2), np.ones(2)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_other_data_compile_nothing_and_have_their_own_answer(name, compiles):
    first, second = (tercet.minimize(*PROBLEMS[name](y)) for y in (Y, 2.0 * Y))
    assert len(compiles) == 1
    assert first.success
    assert second.success
    np.testing.assert_allclose(second.x, [2 * first.x[0], first.x[1]], rtol=1e-6)


MODELS = {
    "FiniteSum": lambda p, x, y: (p[0] * jnp.exp(-p[1] * x) - y) ** 2,
    "Residuals": lambda p, x, y: p[0] * jnp.exp(-p[1] * x) - y,
    "curve_fit": lambda x, a, b: a * jnp.exp(-b * x),
    "curve_fit_many": lambda x, a, b: a * jnp.exp(-b * x),
    "function": lambda p: (p[0] - 1.0) ** 2 + jnp.exp(p[1]) - p[1],
}
CALLS = {
    "FiniteSum": lambda f, y: tercet.minimize(tercet.FiniteSum(f, (X, y)), np.ones(2)),
    "Residuals": lambda f, y: tercet.minimize(tercet.Residuals(f, (X, y)), np.ones(2)),
    "curve_fit": lambda f, y: tercet.curve_fit(f, X, y),
    "curve_fit_many": lambda f, y: tercet.curve_fit_many(f, X, y[None]),
    "function": lambda f, y: tercet.minimize(f, y[:2]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_function_is_traced_once_and_compiled_once(name, monkeypatch):
    monkeypatch.setattr(programs, "CACHE", programs.OrderedDict())
    traces, real = [], jax.make_jaxpr
    monkeypatch.setattr(jax, "make_jaxpr", lambda f: traces.append(f) or real(f))
    CALLS[name](MODELS[name], Y)
    held = len(programs.CACHE)
    for factor in (2.0, 3.0):
        CALLS[name](MODELS[name], factor * Y)
    assert len(traces) == 1
    assert len(programs.CACHE) == held


def test_a_number_that_changed_is_another_program(compiles):
    power = [2.0]

    def f(p):
        return (p[0] - power[0]) ** 2

    assert tercet.minimize(f, np.zeros(1)).x[0] == pytest.approx(2.0)
    power[0] = 2.0 + 1e-9
    assert tercet.minimize(f, np.zeros(1)).x[0] - 2.0 == pytest.approx(1e-9, rel=1e-4)
    assert len(compiles) == 2


def test_an_array_that_was_written_to_is_seen(compiles):
    goal = np.array([1.0, 2.0])

    def f(p):
        return jnp.sum((p - goal) ** 2)

    tercet.minimize(f, np.zeros(2))
    goal[:] = [5.0, 7.0]
    np.testing.assert_allclose(tercet.minimize(f, np.zeros(2)).x, goal)
    assert len(compiles) == 1  # it is an argument of the program


def test_a_rule_of_the_users_own_is_never_taken_for_another():
    def make(factor):
        @jax.custom_jvp
        def own(x):
            return x * x

        own.defjvp(lambda p, t: (own(p[0]), factor * p[0] * t[0]))
        return own

    with jax.enable_x64(True):
        assert programs.traced(jax, make(2.0), 1.0).text is None
        assert programs.traced(jax, jax.nn.softplus, 1.0).text is not None


def test_loops_and_branches_are_told_apart():
    def loop(count, factor):
        return lambda x: jax.lax.fori_loop(0, count, lambda _, a: factor * a, x)

    with jax.enable_x64(True):
        texts = [programs.traced(jax, loop(*each), 1.0).text for each in ((3, 2.0), (4, 2.0), (3, 2.5), (3, 2.0))]
    assert texts[0] == texts[3]
    assert len(set(texts)) == 3


def test_the_oldest_is_forgotten(monkeypatch):
    monkeypatch.setattr(programs, "CACHE", programs.OrderedDict())
    monkeypatch.setattr(programs, "KEPT", 2)
    for key in "abcb":
        programs.compiled(key, lambda key=key: key)
    assert list(programs.CACHE) == ["c", "b"]
