"""Each formula on a device is that of the host, far out too, and each derivative that of the one below."""

import numpy as np
import pytest

from tercet.objectives.device.arrays import PlainArrays, TorchArrays
from tercet.objectives.device.losses import NAMES, device_loss
from tercet.objectives.losses import as_loss

Z = np.concatenate([np.linspace(-8, 8, 41), [-800.0, 800.0, -40.0, 40.0]])


def arrays(library):
    module = pytest.importorskip(library)
    if library == "torch":
        return TorchArrays(module.device("cpu"), "float64", "float64")
    return PlainArrays(module, module.asarray(0.0).device, "float64", "float64")


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_the_four_derivatives_are_those_of_the_host(library, name, target):
    on, loss = arrays(library), as_loss(name, 0.7 if name in ("cauchy", "welsch", "geman_mcclure") else None)
    y = np.full_like(Z, target)
    formula = device_loss(loss, name)
    targets = on.put(1.0 - 2.0 * y if formula.two_classes else y)
    for order, wanted in enumerate(loss.derivatives(Z, y)):
        found = on.host(formula.part(on, order, on.put(Z), targets))[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-300, err_msg=f"order {order}")


def test_a_loss_of_the_users_own_gets_arrays_of_the_library_and_its_shapes_are_checked():
    torch = pytest.importorskip("torch")
    on = arrays("torch")

    class Quartic:
        def derivatives(self, z, y):
            assert torch.is_tensor(z)
            r = z - y
            return r**4 / 4, r**3, 3 * r**2, 6 * r

    class Short(Quartic):
        def derivatives(self, z, y):
            return super().derivatives(z, y)[:3]

    part = device_loss(as_loss(Quartic(), None), None).part
    np.testing.assert_allclose(on.host(part(on, 2, on.put([3.0]), on.put([1.0])))[0], [12.0])
    with pytest.raises(ValueError, match="four arrays"):
        device_loss(as_loss(Short(), None), None).part(on, 0, on.put([3.0]), on.put([1.0]))


def test_a_jax_function_is_refused_with_the_remedy():
    pytest.importorskip("jax")
    loss = as_loss(lambda z, y: (z - y) ** 2, None)
    with pytest.raises(ValueError, match="derivatives"):
        device_loss(loss, "function")
