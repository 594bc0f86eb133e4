"""NIST StRD: `curve_fit` has the certified parameters and their certified standard errors."""

import numpy as np
import pytest

pytest.importorskip("jax")
import tercet
from benchmarks import nist_models
from benchmarks.nist import agreement, positional


@pytest.mark.skipif(not nist_models.folder().exists(), reason="the NIST files are not here")
@pytest.mark.parametrize("name", ["Chwirut2", "DanWood", "Misra1d", "MGH17", "Rat42"])
def test_parameters_to_nine_digits_and_standard_errors_to_six(name):
    p = nist_models.read(name)
    fit = tercet.curve_fit(positional(p), p.x, p.y, p.starts[0])
    assert fit.success
    assert p.digits(fit.popt) >= 9.0
    assert agreement(fit.errors, p.deviations) >= 6.0
    freedom = len(p.y) - len(fit.popt)
    np.testing.assert_allclose(np.sqrt(fit.residuals @ fit.residuals / freedom), np.sqrt(p.rss / freedom), rtol=1e-8)


def test_references_have_thirty_digits():
    """b_0 + b_1 x through whole numbers: [[4, 7], [7, 21]] b = [12, 27]."""
    pytest.importorskip("mpmath")
    from benchmarks import nist_digits

    x, y, mp = np.array([0.0, 1.0, 2.0, 4.0]), np.array([1.0, 3.0, 4.0, 4.0]), nist_digits.mp
    exactly = [mp.mpf(12 * 21 - 7 * 27) / 35, mp.mpf(4 * 27 - 7 * 12) / 35]
    about = np.array([1.8, 0.69])
    line = nist_models.Regression("line", lambda b, x: b[0] + b[1] * x, x, y, (about, about), about, about, 0.0)
    found = nist_digits.reference(line)
    assert all(abs(a - b) < 1e-30 for a, b in zip(found, exactly, strict=True))
    assert nist_digits.digits([float(v) for v in exactly], exactly) > 15
    assert nist_digits.digits([1.801, float(exactly[1])], exactly) == pytest.approx(3.25, abs=0.01)
