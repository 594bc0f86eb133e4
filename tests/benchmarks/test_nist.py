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
