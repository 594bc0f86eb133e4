"""`tercet.torch.Residuals`: the numbers of `tercet.Residuals` for the same function, counts, and what is refused."""

import numpy as np
import pytest

import tercet
from tercet.objectives.base import Priced

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

import tercet.torch  # noqa: E402 - after importorskip, so that a machine without PyTorch skips

RNG = np.random.default_rng(8)
X, Y = RNG.standard_normal((40, 3)), RNG.standard_normal(40)
W = RNG.random(40) + 0.1
P = RNG.standard_normal(4)


def by_torch(p, x, y):
    r = torch.tanh(x @ p[:3]) * torch.exp(p[3]) - y
    return torch.stack([r, p[3] * x[..., 0]], dim=-1)


def by_jax(p, x, y):
    r = jax.numpy.tanh(x @ p[:3]) * jax.numpy.exp(p[3]) - y
    return jax.numpy.stack([r, p[3] * x[0]])


def points(loss="squares", weights=None, rows=None, **options):
    ours = tercet.torch.Residuals(by_torch, (torch.tensor(X), torch.tensor(Y)), loss, weights, **options)
    other = tercet.Residuals(by_jax, (X, Y), loss, weights, scale=options.get("scale", 1.0))
    return (
        ours.bind(torch.tensor(P)).objective.over(rows).at(P),
        other.bind(P).objective.over(rows).at(P),
    )


def plain(answer):
    return answer.result if isinstance(answer, Priced) else answer


@pytest.mark.parametrize("rows", [None, np.arange(0, 40, 3)])
@pytest.mark.parametrize("loss", ["squares", "huber"])
def test_every_number_is_that_of_the_same_residuals_by_jax(loss, rows):
    scale = 1.0 if loss == "squares" else 0.7
    ours, other = points(loss, W, rows, scale=scale, chunk=16)
    s = RNG.standard_normal(4)
    assert ours.value() == pytest.approx(other.value(), rel=1e-12)
    a, b = plain(ours.linear()), plain(other.linear())
    assert a.root.shape[0] <= 5
    np.testing.assert_allclose(a.gram, b.gram, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(a.root.T @ a.root, a.gram, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(a.root.T @ a.image, plain(other.gradient()), rtol=1e-10, atol=1e-13)
    for name in ("gradient", "hessian", "rest"):
        np.testing.assert_allclose(
            plain(getattr(ours, name)()), plain(getattr(other, name)()), rtol=1e-9, atol=1e-12, err_msg=name
        )
    one, two = ours.curve(s), other.curve(s)
    np.testing.assert_allclose(one.slope, two.slope, rtol=1e-9, atol=1e-12)
    assert one.image == pytest.approx(two.image, rel=1e-9)
    assert one.square == pytest.approx(two.square, rel=1e-9)


def test_a_batch_at_once_is_the_same_as_one_example_after_the_other():
    one, _ = points(weights=W)
    batch, _ = points(weights=W, batched=True)
    np.testing.assert_allclose(plain(batch.linear()).gram, plain(one.linear()).gram, rtol=1e-12)
    np.testing.assert_allclose(batch.gradient(), one.gradient(), rtol=1e-12)


def test_the_jacobian_and_the_hessian_are_counted_once():
    ours, _ = points()
    assert ours.linear().gradient == 40
    assert ours.linear().gradient == 0
    rest = ours.rest()
    assert (rest.gradient, rest.hessian) == (0, 40)
    assert ours.hessian().hessian == 0


def test_a_module_is_fitted_and_takes_the_result():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    target = torch.tensor(np.tanh(X @ P[:3]) * 0.5)

    def residual(params, x, y):
        return torch.func.functional_call(net, params, (x,))[..., 0] - y

    problem = tercet.torch.Residuals(residual, (torch.tensor(X), target), module=net)
    result = tercet.minimize(problem, order=1, max_iterations=60)
    assert result.fun < 1e-3 * result.trace["f"][0]
    net.load_state_dict(result.x)
    with torch.no_grad():
        assert 0.5 * float(((net(torch.tensor(X))[:, 0] - target) ** 2).mean()) == pytest.approx(result.fun, rel=1e-9)


def test_what_cannot_be_used_is_refused_with_its_name():
    data = (torch.tensor(X), torch.tensor(Y))
    with pytest.raises(ValueError, match="residual is a function"):
        tercet.torch.Residuals(None, data)
    with pytest.raises(ValueError, match="unknown loss"):
        tercet.torch.Residuals(by_torch, data, "linear")
    with pytest.raises(ValueError, match="weights"):
        tercet.torch.Residuals(by_torch, data, weights=np.ones(3))
    with pytest.raises(ValueError, match="batched"):
        tercet.torch.Residuals(by_torch, data, batched=1)
    with pytest.raises(ValueError, match="nan or inf"):
        tercet.torch.Residuals(by_torch, (torch.tensor(X), torch.full((40,), float("nan"))))


def test_an_operation_without_a_forward_derivative_is_named_before_any_work():
    class Backward(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.saved_tensors[0] * grad

    problem = tercet.torch.Residuals(lambda p, x, y: Backward.apply(x @ p[:3]) - y, (torch.tensor(X), torch.tensor(Y)))
    with pytest.raises(ValueError, match="forward derivative"):
        problem.bind(torch.tensor(P))
