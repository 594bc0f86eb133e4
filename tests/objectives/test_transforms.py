"""Maps onto intervals: each derivative is that of the one below, and the inverse is one."""

from __future__ import annotations

import numpy as np
import pytest

from tercet import above, below, interval, positive
from tercet.objectives.transforms import Elementwise, Free, as_transform

MAPS = [positive, above(-2.5), below(3.0), interval(-1.0, 4.0), Free()]
U = np.linspace(-4, 4, 33)


@pytest.mark.parametrize("phi", MAPS, ids=repr)
def test_derivatives_and_inverse(phi):
    h = 1e-5
    up, here, down = (phi.derivatives(U + k * h) for k in (1, 0, -1))
    for order in range(3):
        np.testing.assert_allclose((up[order] - down[order]) / (2 * h), here[order + 1], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(phi.inverse(here[0]), U, rtol=1e-10, atol=1e-12)
    assert np.all((phi.low < here[0]) & (here[0] < phi.high))
    assert np.all(here[1] > 0)


def test_each_coordinate_has_its_own():
    maps = Elementwise((positive, Free(), positive, interval(0.0, 1.0)))
    u = np.array([0.3, -1.0, 2.0, 0.5])
    x = maps.derivatives(u)[0]
    np.testing.assert_allclose(x, [np.exp(0.3), -1.0, np.exp(2.0), 1 / (1 + np.exp(-0.5))])
    np.testing.assert_allclose(maps.inverse(x), u)
    assert maps.outside(x) is None
    assert maps.outside(np.array([1.0, 0.0, -1.0, 0.5])) == 2


def test_pairs_are_transforms():
    pairs = [(0, None), (None, 3.0), (-1, 4), (None, None), (-np.inf, np.inf), (0, np.inf)]
    expected = [above(0), below(3.0), interval(-1, 4), Free(), Free(), above(0)]
    assert [as_transform(pair) for pair in pairs] == expected


@pytest.mark.parametrize("given", [(2.0, 1.0), (1.0, 1.0), (np.nan, 1.0), 3.0, "positive", (1, 2, 3)])
def test_what_is_no_interval_is_refused(given):
    with pytest.raises(ValueError, match=r"interval\(|neither a transform"):
        as_transform(given)
