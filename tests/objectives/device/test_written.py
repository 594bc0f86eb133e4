"""A formula that is written down says what the formula says."""

from types import SimpleNamespace

import numpy as np
import pytest

from tercet.objectives.device.losses import NAMES, device_loss
from tercet.objectives.device.written import CUDA, TRITON, written
from tercet.objectives.losses import as_loss

Z = np.concatenate([np.linspace(-8, 8, 41), [-40.0, 40.0]])


def by_triton(lines, value, z, y):
    """The lines as Python, in which Triton is written."""
    tl = SimpleNamespace(exp=np.exp, abs=np.abs, full=lambda shape, one, kind: np.full(shape, one, kind))
    space = {"tl": tl, "libdevice": np, "z": z, "y": y}
    exec("\n".join(line.strip() for line in lines.splitlines()), space)
    return space[value]


def by_cuda(lines, value, z, y):
    """Assignments of numbers of type T, which Python reads without the type and the semicolons."""
    assert all(line.startswith("T v") and line.endswith(";") for line in lines.splitlines())
    space = {"z": z, "y": y, "T": float, "exp": np.exp, "expm1": np.expm1, "log1p": np.log1p, "fabs": np.abs}
    exec("\n".join(line[2:-1] for line in lines.splitlines()), space)
    return space[value] * np.ones_like(z)


@pytest.mark.parametrize(("language", "read"), [(TRITON, by_triton), (CUDA, by_cuda)], ids=["Triton", "CUDA"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_the_lines_make_the_derivatives_of_the_host(name, target, language, read):
    loss, y = as_loss(name, 0.7 if name in ("cauchy", "welsch", "geman_mcclure") else None), np.full_like(Z, target)
    formula = device_loss(loss, name)
    assert formula.writable
    for order, wanted in enumerate(loss.derivatives(Z, y)):
        found = read(*written(formula.part, order, language), Z, 1.0 - 2.0 * y if formula.two_classes else y)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-300, err_msg=f"order {order}")


def test_what_a_language_has_no_word_for_is_told():
    with pytest.raises(AttributeError, match="sinh"):
        written(lambda a, order, z, y: a.xp.sinh(z), 0, CUDA)


def test_a_loss_of_the_users_own_is_not_written_down():
    class Own:
        def derivatives(self, z, y):
            return z, z, z, z

    assert not device_loss(as_loss(Own(), None), None).writable
