"""`certify` and `assert_minimizer`: points from anywhere, and the four verdicts that a reader meets."""

from __future__ import annotations

import numpy as np
import pytest

import tercet


def hilly(p):
    """A saddle at 0, minima at (0, 1) and (0, -1)."""
    return 0.5 * p[0] ** 2 - 0.5 * p[1] ** 2 + 0.25 * p[1] ** 4


def valley(p):
    """Flat along p[0] = p[1]."""
    return 0.5 * (p[0] - p[1]) ** 2


def test_a_minimum_a_saddle_and_what_is_not_identified():
    assert tercet.certify(hilly, np.array([0.0, 1.0])).verdict.startswith("the only minimizer nearby")
    saddle = tercet.certify(hilly, np.zeros(2))
    assert saddle.verdict.startswith("not a minimizer")
    assert hilly(np.array(saddle.way_down)) < -0.01
    flat = tercet.certify(valley, np.array([2.0, 2.0]))
    assert flat.holds
    assert flat.involved == (0, 1)
    assert "not identified" in flat.verdict


def test_a_point_beside_a_minimizer_has_a_way_down():
    beside = tercet.certify(hilly, np.array([0.1, 0.8]))
    assert not beside.holds
    assert hilly(np.array([0.1, 0.8]) + np.array(beside.way_down)) < hilly(np.array([0.1, 0.8]))


def test_the_assertion_gives_the_certificate_back():
    found = tercet.assert_minimizer(hilly, np.array([0.0, 1.0]), alone=True, digits=7)
    assert found.holds


@pytest.mark.parametrize(
    ("function", "x", "asked", "text"),
    [
        (hilly, [0.0, 0.0], {}, "not certified as a minimizer: not a minimizer"),
        (hilly, [0.0, 0.9], {}, "not certified"),
        (valley, [2.0, 2.0], {"alone": True}, "not the only minimizer"),
        (hilly, [0.0, 1.0], {"digits": 99}, "99 digits of x were asked"),
    ],
)
def test_the_assertion_fails_with_what_is_missing(function, x, asked, text):
    with pytest.raises(AssertionError, match=text):
        tercet.assert_minimizer(function, np.array(x), **asked)


def test_derivatives_are_handed_on():
    asked = []

    def gradient(p):
        asked.append(p)
        return np.array([p[0], -p[1] + p[1] ** 3])

    tercet.assert_minimizer(hilly, np.array([0.0, -1.0]), grad=gradient)
    assert asked
