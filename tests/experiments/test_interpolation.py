"""Interpolation updates and pre-rejection do what their papers say of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import tercet
from tercet.control.ray import Ray
from tercet.control.sigma import Control, Evidence, Miss, PaperSigma
from tercet.experiments import methods
from tercet.experiments.interpolation import Interpolation, Persistent, persistent_until, transient
from tercet.frame import Euclidean
from tercet.records import Forecast, Step
from tercet.subsolvers.base import Ask, Taylor

RNG = np.random.default_rng(0)
RULE = Interpolation()


def rays(count):
    return [Ray(-abs(a), b, c) for a, b, c in RNG.standard_normal((count, 3)) * [1.0, 2.0, 8.0]]


def slope(ray, a):
    return ray.c1 + ray.c2 * a + ray.c3 / 2 * a**2


def first_minimizer(ray, sigma, power):
    """The minimizer of t(a) + sigma/p a^p that a path of descent from a = 0 comes to."""
    c = [ray.c1, ray.c2, ray.c3 / 2, 0.0]
    c[power - 1] += sigma
    found = np.roots(c[::-1])
    found = found[np.abs(found.imag) < 1e-9].real
    return found[found > 0].min()


def banded(count):
    """Rays on which the path breaks at a sigma above 0: 3/2 ac < b^2 < 2 ac."""
    return [
        Ray(-1.0, b, -b * b / k)
        for b, k in np.column_stack([np.geomspace(0.3, 3.0, count), np.linspace(1.6, 1.9, count)])
    ]


@pytest.mark.parametrize("power", [3, 4])
def test_persistent_are_the_minimizers_that_are_reached_as_sigma_falls_from_infinity(power):
    """The path is followed in small steps of sigma, and breaks where its minimizer vanishes."""
    breaks = 0
    for ray in rays(6) + banded(6):
        ray = replace(ray, c3=0.0) if power == 3 else ray
        path = np.array([first_minimizer(ray, sigma, power) for sigma in np.geomspace(1e4, 1e-4, 1000)])
        jump = np.flatnonzero(np.diff(path) > 0.2 * path[:-1])
        end = persistent_until(ray, power)
        last = jump[0] if jump.size else -1
        assert path[last] <= end * (1 + 1e-6)
        if jump.size:
            assert end < path[last + 1]
            assert end == pytest.approx(path[last], rel=0.15)
            breaks += 1
    assert breaks == (6 if power == 4 else 0)


def evidence(ray, change, power, sigma):
    ratio = -change / -(ray.c1 + ray.c2 / 2 + ray.c3 / 6)
    miss = Miss(0.0)
    return Evidence(ratio, ratio >= RULE.eta1, 1.0, power, miss, miss, 0.5, lambda: ray, change, sigma)


def at_one(power):
    """Rays whose persistent minimizer is a = 1 for the sigma beside them."""
    for ray in rays(400):
        ray = replace(ray, c3=0.0) if power == 3 else ray
        falls = ray.c1 + ray.c2 / 2 + ray.c3 / 6 < 0
        if falls and slope(ray, 1.0) < -1e-3 and persistent_until(ray, power) > 1.0:
            yield ray, -slope(ray, 1.0)


@pytest.mark.parametrize("power", [3, 4])
def test_after_a_rise_sigma_is_the_smallest_at_which_the_interpolated_f_falls_enough(power):
    inside = 0
    for ray, sigma in at_one(power):
        change = 20.0 * RNG.random()
        new = RULE.next(Control(sigma, sigma), evidence(ray, change, power, sigma)).sigma3
        assert 3.0 * sigma * (1 - 1e-12) <= new <= 100.0 * sigma * (1 + 1e-12)
        if not 3.01 * sigma < new < 99.0 * sigma:
            continue
        inside += 1
        e = change - (ray.c1 + ray.c2 / 2 + ray.c3 / 6)

        def ratio(s, ray=ray, e=e):
            a = first_minimizer(ray, s, power)
            t = a * (ray.c1 + a * (ray.c2 / 2 + a * ray.c3 / 6))
            return (t + e * a**power) / t

        assert ratio(new) == pytest.approx(RULE.eta1, abs=1e-6)
        assert ratio(0.99 * new) < RULE.eta1 < ratio(1.01 * new)
    assert inside > 10


@pytest.mark.parametrize("power", [3, 4])
def test_after_more_than_was_promised_the_regularizer_falls_to_a_hundredth(power):
    inside = 0
    for ray, sigma in at_one(power):
        change = 1.1 * (ray.c1 + ray.c2 / 2 + ray.c3 / 6)
        new = RULE.next(Control(sigma, sigma), evidence(ray, change, power, sigma)).sigma3
        assert new <= sigma
        if new in (0.1 * sigma, 0.5 * sigma):
            continue
        inside += 1
        a = first_minimizer(ray, new, power)
        assert 1.0 <= a <= 2.0
        assert new * a**power == pytest.approx(0.01 * sigma, rel=1e-6)
    assert inside > 10


def test_between_it_is_the_rule_of_three_factors():
    ray, sigma = Ray(-1.0, 0.1), 0.9
    fall = -(ray.c1 + ray.c2 / 2)
    for ratio, factor in ((0.005, 3.0), (0.5, 1.0), (0.97, 0.5)):
        assert RULE.next(Control(sigma, sigma), evidence(ray, -ratio * fall, 4, sigma)).sigma3 == factor * sigma
    lost = replace(evidence(ray, 1.0, 4, sigma), ratio=-np.inf)
    assert RULE.next(Control(sigma, sigma), lost).sigma3 == 100.0 * sigma


@dataclass(frozen=True)
class Far:
    """Gives s = -10 g / sigma along a cubic that bends down, whatever is asked."""

    def prepare(self, taylor):
        return self

    def solve(self, ask):
        s = np.array([10.0 / ask.sigma3])
        c = -100.0
        second = -float(-s[0] + 0.5 * 20.0 * s[0] ** 2)
        cubic = Forecast(second - c * s[0] ** 3 / 6, np.zeros(1))
        return Step(s, Forecast(second, np.zeros(1)), cubic, 1, ask.sigma3)


def test_a_transient_step_is_solved_again_with_more_sigma_and_no_look_at_f():
    step = Persistent(Far(), 3.0).prepare(Taylor(np.array([-1.0]), None, None, True)).solve(Ask(1.0, 1.0))
    assert step.inner > 1
    assert step.sigma == 3.0 ** (step.inner - 1)
    ray = Ray.of(np.array([-1.0]), step)
    assert not transient(ray, 4)
    assert transient(Ray(3.0 * ray.c1, 9.0 * ray.c2, 27.0 * ray.c3), 4)


def wavy(x):
    """A curved valley: (x0 - 1)^2 / 4 + (x1 - 2 x0^2 + 1)^2, and its first three derivatives."""
    u = x[1] - 2 * x[0] ** 2 + 1
    return 0.25 * (x[0] - 1) ** 2 + u * u


def test_on_curved_valleys_it_takes_fewer_looks_than_constant_factors():
    """Chebyshev and Rosenbrock's valley, where the authors see the largest difference."""
    pytest.importorskip("jax")

    spent = {}
    for label, rule in (("interpolation", RULE), ("factors", PaperSigma(gamma=(0.5, 3.0, 3.0), eta1=0.01, eta2=0.95))):
        method = tercet.STM(
            tercet.Full(nested=False), Persistent(), rule, worth=np.inf, noise_aware=False, units=Euclidean()
        )
        looks = 0
        for start in ([-1.0, 1.0], [-2.0, 3.0], [0.0, -3.0], [2.0, -2.0]):
            result = tercet.minimize(wavy, np.array(start), method=method)
            assert result.success
            np.testing.assert_allclose(result.x, [1.0, 1.0], atol=1e-6)
            looks += result.counts.value
        spent[label] = looks
    assert spent["interpolation"] < spent["factors"]


def test_it_is_in_the_catalogue_and_its_settings_are_checked():
    X = RNG.standard_normal((300, 4))
    y = (X @ np.ones(4) + RNG.standard_normal(300) > 0).astype(float)
    problem = tercet.LinearModel(X, y, "sigmoid_squares", l2=1e-3)
    result = tercet.minimize(problem, np.ones(4), method=methods.make(methods.plan("AR3-interpolation")))
    assert result.success
    assert result.counts.third > 0
    for wrong in ({"start": 0.0}, {"eta1": 0.99}, {"shrink": 2.0}, {"part": 1.0}, {"minimum": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Interpolation(**wrong)
    for wrong in ({"subsolver": tercet.Dense}, {"grow": 1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Persistent(**wrong)
