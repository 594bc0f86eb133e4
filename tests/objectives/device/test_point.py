"""A linear model on a device is the one on the host: every answer, every count, the same minimizer."""

import numpy as np
import pytest

import tercet
from tercet.objectives.device.losses import NAMES
from tests.objectives.device.libraries import LIBRARIES, data, place, same

OPTIONS = {
    "plain": {},
    "intercept": {"intercept": True},
    "weights and both penalties": {"alpha": 1e-2, "weights": np.linspace(0.1, 2.0, 700)},
}


def pair(library, loss="sigmoid_squares", **options):
    X, labels, targets = data()
    y = labels if loss in ("sigmoid_squares", "logistic") else targets
    there = place(library)
    return (
        tercet.LinearModel(X, y, loss, l2=1e-2, **options),
        tercet.LinearModel(there(X), there(y), loss, l2=1e-2, **options),
    )


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_answer_is_that_of_the_host(library, options):
    host, device = pair(library, **options)
    rng = np.random.default_rng(1)
    x, u, v = rng.standard_normal((3, host.d))
    V = np.linalg.qr(np.stack([u, v], axis=1))[0]
    a, b = host.over(None).at(x), device.over(None).at(x)
    asks = {
        "value": lambda p: p.value(),
        "gradient": lambda p: p.gradient(),
        "hessian": lambda p: p.hessian(),
        "Bu": lambda p: p.product(2, u),
        "T[u, v]": lambda p: p.product(3, u, v),
        "T[u, u]": lambda p: p.third_square(u).result,
        "its price": lambda p: p.third_square(u).third,
        "tensor": lambda p: p.third_tensor(V),
        "bounds": lambda p: [p.third_bound(V), p.third_bound(V, True), p.third_bound(None)],
        "variances": lambda p: [p.variance(k) for k in (1, 2, 3)],
    }
    for name, ask in asks.items():
        try:
            same(ask(b), ask(a))
        except AssertionError as error:
            raise AssertionError(name) from error
    value, gradient = device.over(None).at(x).first()
    same(value, a.value())
    same(gradient, a.gradient())
    same(device.scales, host.scales)


@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_minimizer_is_that_of_the_host(library, loss):
    host, device = pair(library, loss)
    a, b = tercet.minimize(host), tercet.minimize(device)
    assert a.success
    assert b.success
    assert isinstance(b.x, np.ndarray)
    np.testing.assert_allclose(b.x, a.x, rtol=1e-6, atol=1e-7)
    assert b.fun == pytest.approx(a.fun, rel=1e-12)
    assert "sums in float64" in b.certificate.how


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_look_along_a_step_makes_no_margins_and_a_derivative_there_does(library):
    from tercet.objectives.line import along
    from tercet.objectives.metered import Meter, Metered, engine_of

    _, device = pair(library)
    x, s = np.ones(device.d), np.linspace(-1.0, 1.0, device.d)
    metered = Metered.of(device, Meter(device.n))
    point = metered.over(None).at(x)
    point.value()
    line = along(point, s)
    for t in (1.0, 0.5):
        look, f = line.at(t)
        assert f == look.value() == pytest.approx(device.over(None).at(x + t * s).value(), rel=1e-13)
        assert engine_of(look).margins.whole is None
        assert look.inexact == 0
        same(look.gradient(), device.over(None).at(x + t * s).gradient())
        assert engine_of(look).margins.whole is not None


@pytest.mark.parametrize("library", LIBRARIES)
def test_margins_that_moved_far_are_computed_anew(library):
    from tercet.objectives.line import along
    from tercet.objectives.metered import Meter, Metered

    _, device = pair(library)
    x = np.full(device.d, 1e4)
    metered = Metered.of(device, Meter(device.n))
    point = metered.over(None).at(x)
    line = along(point, -x + 1e-9)
    assert line.at(1.0)[0].inexact == 4  # all that is left of the margins is rounding
    assert line.at(0.5)[0].inexact == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_wide_model_looks_over_spans_as_on_the_host(library, monkeypatch):
    from tercet.objectives.linear import model

    monkeypatch.setattr(model, "DENSE_LIMIT", 3)
    monkeypatch.setattr(model, "DEVICE_DENSE_LIMIT", 3)
    host, device = pair(library, "logistic")
    a, b = tercet.minimize(host), tercet.minimize(device)
    assert a.success
    assert b.success
    np.testing.assert_allclose(b.x, a.x, rtol=1e-5, atol=1e-6)


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    torch = pytest.importorskip("torch")
    X, y, _ = data(6000, 6)
    problem = tercet.LinearModel(torch.asarray(X), torch.asarray(y), l2=1e-3)
    whole, path = tercet.minimize(problem), tmp_path / "run"
    tercet.minimize(problem, checkpoint=path, max_iterations=3)
    again = tercet.resume(path, problem, max_iterations=1000)
    assert again.success
    assert again.nit == whole.nit
    np.testing.assert_array_equal(again.x, whole.x)


def test_nothing_of_the_length_of_the_data_comes_to_the_host(monkeypatch):
    torch = pytest.importorskip("torch")
    from tercet.objectives.device.arrays import TorchArrays

    X, y, _ = data(5000, 4)
    problem, own, sizes = tercet.LinearModel(torch.asarray(X), torch.asarray(y), l2=1e-3), TorchArrays.host, []

    def host(self, *arrays):
        sizes.append(sum(a.numel() for a in arrays))
        return own(self, *arrays)

    monkeypatch.setattr(TorchArrays, "host", host)
    monkeypatch.setattr(torch.Tensor, "numpy", refuse(torch.Tensor.numpy, 16 * 5))
    result = tercet.minimize(problem)
    assert result.success
    assert max(sizes) <= 16 * 4 + 1  # the sums over groups, and f
    assert len(sizes) <= 4 * result.nit + 16  # with those of its start and of its certificate


def refuse(own, most):
    def numpy(self, *arguments, **options):
        assert self.numel() <= most
        return own(self, *arguments, **options)

    return numpy


def test_what_a_device_raises_in_mid_run_is_an_outcome_with_the_best_point(monkeypatch):
    torch = pytest.importorskip("torch")
    from tercet.objectives.device.table import DenseDeviceTable

    X, y, _ = data(5000, 4)
    problem, own, calls = tercet.LinearModel(torch.asarray(X), torch.asarray(y), l2=1e-3), DenseDeviceTable.gram, []

    def gram(self, c):
        calls.append(1)
        if len(calls) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return own(self, c)

    monkeypatch.setattr(DenseDeviceTable, "gram", gram)
    result = tercet.minimize(problem)
    assert result.status is tercet.Status.FUNCTION_ERROR
    assert "out of memory" in result.message
    assert result.fun < problem.over(None).at(np.zeros(4)).value()
