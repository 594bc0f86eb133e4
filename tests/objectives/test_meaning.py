"""Functions that mean the same, and what changes the meaning of one, or leaves it untold."""

import functools
import types

import numpy as np
import pytest

from tercet.objectives.meaning import meaning

jax = pytest.importorskip("jax")
jnp = jax.numpy

SCALE = 2.0
TABLE = np.array([1.0, 2.0])
HOME = types.ModuleType("home")
HOME.factor = 3.0


def helper(x):
    return SCALE * x


def make(power, table):
    def f(x, a=1.0):
        return a * jnp.exp(-(helper(x) ** power)) * table[0] + jnp.sum(TABLE) + HOME.factor

    return f


def test_equal_functions_mean_the_same():
    first, second = (make(2, np.ones(3)) for _ in range(2))
    assert first is not second
    assert meaning(first) is not None
    assert meaning(first) == meaning(second)
    assert hash(meaning(first)) == hash(meaning(second))


@pytest.mark.parametrize(
    "other",
    [make(3, np.ones(3)), make(2.0, np.ones(3)), make(2, np.zeros(3)), make(2, np.ones(4)), lambda x: x],
    ids=["a number", "its kind", "entries", "a shape", "code"],
)
def test_other_functions_mean_something_else(other):
    assert meaning(other) is not None
    assert meaning(other) != meaning(make(2, np.ones(3)))


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setitem(helper.__globals__, "SCALE", 2.5),
        lambda patch: patch.setitem(helper.__globals__, "helper", lambda x: x),
        lambda patch: patch.setattr(HOME, "factor", -3.0),
        lambda patch: np.put(TABLE, 0, TABLE[0] + 1.0),
    ],
    ids=["a global of a function it calls", "a function it calls", "a number of a module", "an array written to"],
)
def test_what_changes_elsewhere_is_seen(change, monkeypatch):
    f = make(2, np.ones(3))
    before = meaning(f)
    change(monkeypatch)
    assert meaning(f) is not None
    assert meaning(f) != before


class Thing:
    factor = 1.0

    def __call__(self, x):
        return self.factor * x

    def times(self, x):
        return self.factor * x


thing, rng = Thing(), np.random.default_rng(0)


def imports(x):
    from math import pi

    return pi * x


@pytest.mark.parametrize(
    "f",
    [
        thing,
        thing.times,
        lambda x: thing.factor * x,
        lambda x: rng.normal() * x,
        lambda x: np.random.normal() * x,  # noqa: NPY002 (what is refused)
        lambda x: getattr(HOME, "fac" + "tor") * x,
        lambda x: undefined * x,  # noqa: F821
        imports,
        functools.partial(thing, 1.0),
    ],
)
def test_what_cannot_be_told_has_no_meaning(f):
    assert meaning(f) is None


def test_a_function_that_the_user_jitted_is_itself():
    one, two = jax.jit(helper), jax.jit(helper)
    f, g = (lambda x, inner=inner: inner(x) for inner in (one, one))
    assert meaning(f) == meaning(g) != meaning(lambda x, inner=two: inner(x))


def test_recursion_ends():
    def f(x, n=3):
        return x if n == 0 else f(x * x, n - 1)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    assert meaning(f) is not None
    assert meaning(even) is None
