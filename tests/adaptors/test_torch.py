"""PyTorch: finite sums against JAX, differences and torch's own Hessian; STM as an optimizer."""

import copy
import dataclasses
import gc
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import tercet

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (after what may skip the file)
from torch.func import functional_call  # noqa: E402 (likewise)

import tercet.torch  # noqa: E402
from tercet.objectives.finite_sum import GROUPS  # noqa: E402
from tercet.objectives.metered import Meter, Metered  # noqa: E402
from tercet.torch import NotDifferentiableError  # noqa: E402

N = 53  # no multiple of any chunk
RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((N, 3))
LABELS = RNG.integers(0, 2, N)
PARAMS = {"W": RNG.standard_normal((3, 2)), "b": RNG.standard_normal(2), "out": RNG.standard_normal(2)}
D = 10
DATA = (torch.as_tensor(INPUTS), torch.as_tensor(LABELS))
START = {name: torch.as_tensor(value) for name, value in PARAMS.items()}


def mlp(params, x, label):
    """One loss for one example, or one for each of a batch."""
    z = torch.tanh(x @ params["W"] + params["b"]) @ params["out"]
    return torch.nn.functional.softplus(z) - label * z + 0.01 * torch.sum(params["out"] ** 2)


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def jax_mlp(params, x, label):
    import jax.numpy as jnp

    z = jnp.tanh(x @ params["W"] + params["b"]) @ params["out"]
    return jnp.logaddexp(z, 0.0) - label * z + 0.01 * jnp.sum(params["out"] ** 2)


SAMPLES = {
    "all": None,
    "some": np.random.default_rng(1).permutation(N)[:21],
    "one": np.array([7]),
    "repeats": np.array([5, 5, 5, 0, 52, 52, 17]),
    "chunk and one": np.arange(17),
    "more than n": np.random.default_rng(1).integers(0, N, 2 * N),
}


def over(bound, rows):
    """A counted view of some terms."""
    return Metered.of(bound.objective, Meter(bound.objective.n)).over(rows)


@pytest.fixture(scope="module")
def twin():
    pytest.importorskip("jax")
    return tercet.FiniteSum(jax_mlp, (INPUTS, LABELS)).bind(PARAMS)


@pytest.mark.parametrize(("batched", "chunk"), [(False, 16), (True, 16), (True, 4096)])
@pytest.mark.parametrize("rows", SAMPLES)
def test_all_derivatives_equal_those_of_jax(twin, batched, chunk, rows):
    bound = tercet.torch.FiniteSum(mlp, DATA, batched=batched, chunk=chunk).bind(START)
    rng = np.random.default_rng(2)
    x, V = rng.standard_normal(D), rng.standard_normal((D, 3))
    u, v = V.T[:2]
    ours, jaxs = (over(b, SAMPLES[rows]).at(x) for b in (bound, twin))
    np.testing.assert_allclose(ours.value(), jaxs.value(), rtol=1e-12)
    np.testing.assert_allclose(ours.gradient(), jaxs.gradient(), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(ours.errors(), jaxs.errors(), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(ours.hessian(), jaxs.hessian(), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(ours.hessian_product(v), jaxs.hessian_product(v), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.third_product(u, v), jaxs.third_product(u, v), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.third_square(u), jaxs.third_square(u), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.third_tensor(V), jaxs.third_tensor(V), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("rows", SAMPLES)
def test_a_hessian_and_a_third_derivative_are_counted_once_for_each_term_as_over_jax(twin, rows):
    bound = tercet.torch.FiniteSum(mlp, DATA, batched=True, chunk=16).bind(START)
    m = N if SAMPLES[rows] is None else len(SAMPLES[rows])
    for view in (over(bound, SAMPLES[rows]), over(twin, SAMPLES[rows])):
        point = view.at(np.ones(D))
        point.hessian()
        point.third_square(np.ones(D))
        assert point.terms == m
        assert view.meter.tally == {"value": 0, "gradient": 0, "hessian": m, "third": m}


@pytest.mark.parametrize("chunk", [16, 4096])
@pytest.mark.parametrize("first", [False, True], ids=["the gradient alone", "with the value"])
@pytest.mark.parametrize("rows", [name for name, some in SAMPLES.items() if some is not None])
def test_the_gradient_of_a_sample_and_its_errors_come_from_one_pass_over_its_examples(rows, first, chunk):
    seen = []

    def loss(params, x, label):
        seen.extend(label.tolist())
        return mlp(params, x, torch.as_tensor(LABELS)[label])

    numbered = (DATA[0], torch.arange(N))
    bound = tercet.torch.FiniteSum(loss, numbered, batched=True, chunk=chunk).bind(START)
    view = over(bound, SAMPLES[rows])
    seen.clear()
    point = view.first_at(np.ones(D)) if first else view.at(np.ones(D))
    point.gradient()
    point.errors()
    if first:
        point.value()
    assert sorted(seen) == sorted(SAMPLES[rows])
    assert view.meter.tally["gradient"] == len(SAMPLES[rows])


@pytest.mark.parametrize("rows", [name for name, some in SAMPLES.items() if some is not None])
def test_a_sample_has_the_value_and_the_gradient_of_the_mean_over_its_examples(rows):
    """Also where both are made of groups, which come one after the other."""
    bound = tercet.torch.FiniteSum(mlp, DATA, batched=True, chunk=16).bind(START)
    point = over(bound, SAMPLES[rows]).first_at(bound.x0)
    leaves = {name: value.clone().requires_grad_() for name, value in START.items()}
    mean = mlp(leaves, *(t[torch.as_tensor(SAMPLES[rows])] for t in DATA)).mean()
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(mean, list(leaves.values()))])
    np.testing.assert_allclose(point.value(), mean.item(), rtol=1e-13)
    np.testing.assert_allclose(point.gradient(), gradient.numpy(), rtol=1e-11, atol=1e-14)


def test_derivatives_equal_torchs_own_hessian_and_differences_of_it():
    bound = tercet.torch.FiniteSum(mlp, DATA).bind(START)
    sizes, x = [value.numel() for value in START.values()], np.linspace(-1, 1, D)

    def f(flat):
        parts = torch.split(flat, sizes)
        return mlp({k: p.view(START[k].shape) for k, p in zip(START, parts, strict=True)}, *DATA).mean()

    def hessian(point):
        return torch.autograd.functional.hessian(f, torch.as_tensor(point)).numpy()

    u, v, h = np.ones(D), np.arange(D) - 4.0, 1e-4
    point = bound.objective.over(None).at(x)
    np.testing.assert_allclose(point.hessian(), hessian(x), rtol=1e-10, atol=1e-13)
    differences = (hessian(x + h * u) - hessian(x - h * u)) @ v / (2 * h)  # off by h^2/6 of a fifth derivative
    np.testing.assert_allclose(point.product(3, u, v), differences, atol=1e-5)


@pytest.mark.parametrize("linear", [True, False])
def test_derivatives_that_vanish_are_zero(linear):
    """A linear loss has no graph behind its gradient, and PyTorch refuses to differentiate it further."""
    problem = tercet.torch.FiniteSum(lambda p, x: p @ x if linear else (p * p) @ x, torch.ones(4, 2))
    point = problem.bind(torch.ones(2)).objective.over(None).at(np.ones(2))
    np.testing.assert_array_equal(point.hessian(), np.zeros((2, 2)) if linear else 2 * np.eye(2))
    np.testing.assert_array_equal(point.product(3, np.ones(2), np.ones(2)), np.zeros(2))
    np.testing.assert_array_equal(point.third_tensor(np.eye(2)), np.zeros((2, 2, 2)))


@pytest.mark.parametrize("m", [2, 5, GROUPS, 20])
def test_gradient_errors_estimate_the_covariance_of_the_sampled_gradient(m):
    rng = np.random.default_rng(3)
    data = rng.standard_normal((200, 2)) * [1.0, 3.0]
    problem = tercet.torch.FiniteSum(lambda p, x: 0.5 * ((p - x) ** 2).sum(-1), torch.as_tensor(data), batched=True)
    bound, squares = problem.bind(torch.zeros(2, dtype=torch.float64)), []
    for _ in range(400):
        e = over(bound, rng.integers(0, 200, m)).at(np.zeros(2)).errors()
        squares.append(e.T @ e)
    expected = np.cov(data.T, bias=True) / m  # the gradient of one term is -x_i
    mean, error = np.mean(squares, axis=0), np.std(squares, axis=0) / 20
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.all(np.abs(mean - expected) <= 4.5 * error + 1e-12 * scale)


# runs ---------------------------------------------------------------------------------------------------------------


METHODS = {
    "stm": tercet.STM(),
    "ar3": tercet.STM(sizes=tercet.Full(), worth=np.inf),
    "krylov": tercet.STM(subsolver=tercet.Krylov()),
    "fixed": tercet.STM(sizes=tercet.Fixed(0.5, 0.5, 0.5)),
    "scr": tercet.SCR(),
    "sgd": tercet.SGD(),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_run_takes_the_same_path_as_over_jax(name):
    pytest.importorskip("jax")
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    options = {"method": METHODS[name], "seed": 3, "max_iterations": 12}
    ours = tercet.minimize(
        tercet.torch.FiniteSum(mlp, (torch.as_tensor(X), torch.as_tensor(y)), batched=True), START, **options
    )
    jaxs = tercet.minimize(tercet.FiniteSum(jax_mlp, (X, y)), PARAMS, **options)
    np.testing.assert_allclose(ours.trace["f"], jaxs.trace["f"], rtol=1e-7)
    np.testing.assert_allclose(ours.trace["step_norm"], jaxs.trace["step_norm"], rtol=1e-5)
    assert ours.counts == jaxs.counts
    assert ours.status == jaxs.status
    for key, value in jaxs.x.items():
        np.testing.assert_allclose(ours.x[key].numpy(), value, rtol=1e-5, atol=1e-7)


def module_loss(net):
    def loss(params, x, label):
        z = functional_call(net, params, (x,))[..., 0]
        return nn.functional.softplus(z) - label * z + 0.01 * sum((p**2).sum() for p in params.values())

    return loss


@pytest.mark.parametrize("form", ["module", "state_dict", "named_parameters"])
def test_a_module_is_minimized_certified_and_takes_the_result_back(form):
    net = classifier()
    starts = {"module": net, "state_dict": net.state_dict(), "named_parameters": dict(net.named_parameters())}
    result = tercet.minimize(tercet.torch.FiniteSum(module_loss(net), DATA, batched=True), starts[form])
    assert result.success
    assert "PyTorch" in result.certificate.how
    assert list(result.x) == list(net.state_dict())
    assert not any(value.requires_grad for value in result.x.values())
    net.load_state_dict(result.x)
    loss = module_loss(net)(dict(net.named_parameters()), *DATA).mean()
    np.testing.assert_allclose(loss.item(), result.fun, rtol=1e-14)
    gradient = torch.autograd.grad(loss, list(net.parameters()))
    assert sum(float((g**2).sum()) for g in gradient) ** 0.5 <= 1e-8


def test_the_start_is_left_alone_and_a_run_does_not_touch_the_module():
    net = classifier()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    tercet.minimize(tercet.torch.FiniteSum(module_loss(net), DATA, batched=True), net, max_iterations=3)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


def test_a_run_that_is_resumed_goes_on_bit_for_bit(tmp_path):
    net, path = classifier(), tmp_path / "run.npz"
    problem = tercet.torch.FiniteSum(module_loss(net), DATA, batched=True)
    whole = tercet.minimize(problem, net, seed=1)
    tercet.minimize(problem, net, seed=1, max_iterations=4, checkpoint=path)
    again = tercet.torch.FiniteSum(module_loss(net), DATA, batched=True)
    resumed = tercet.resume(path, again, max_iterations=1000)
    assert resumed.success
    assert all(torch.equal(resumed.x[name], value) for name, value in whole.x.items())
    np.testing.assert_array_equal(resumed.trace["f"], whole.trace["f"])
    assert resumed.counts == whole.counts


def test_a_checkpoint_of_another_problem_is_refused(tmp_path):
    net, path = classifier(), tmp_path / "run.npz"
    tercet.minimize(
        tercet.torch.FiniteSum(module_loss(net), DATA, batched=True), net, max_iterations=4, checkpoint=path
    )
    other = (DATA[0] + 1, DATA[1])
    with pytest.raises(tercet.CheckpointError, match="data was"):
        tercet.resume(path, tercet.torch.FiniteSum(module_loss(net), other, batched=True))


def test_a_result_can_be_saved(tmp_path):
    net = classifier()
    result = tercet.minimize(tercet.torch.FiniteSum(module_loss(net), DATA, batched=True), net, max_iterations=2)
    tercet.save(result, tmp_path / "result.npz")
    for name, value in tercet.load(tmp_path / "result.npz").x.items():
        np.testing.assert_array_equal(value, result.x[name].numpy())


def test_a_loss_that_raises_on_the_way_gives_the_best_point_so_far():
    calls = []

    def loss(params, x, label):
        calls.append(1)
        if len(calls) > 12:
            raise ArithmeticError("enough")
        return mlp(params, x, label)

    result = tercet.minimize(tercet.torch.FiniteSum(loss, DATA, batched=True), START)
    assert result.status is tercet.Status.FUNCTION_ERROR
    assert isinstance(result.error, ArithmeticError)
    assert set(result.x) == set(START)


# structure ----------------------------------------------------------------------------------------------------------


def normalized():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Linear(2, 1)).double()
    net(DATA[0])  # running statistics that are not those of a new net
    return net.eval()


def net_loss(net):
    return lambda params, x, label: (functional_call(net, params, (x,))[..., 0] - label) ** 2


@pytest.mark.parametrize("form", ["module", "state_dict"])
def test_running_statistics_stay_fixed_and_come_back(form):
    net = normalized()
    start = net if form == "module" else net.state_dict()
    bound = tercet.torch.FiniteSum(net_loss(net), DATA, batched=True).bind(start)
    assert bound.objective.d == sum(p.numel() for p in net.parameters())
    x = bound.restore(bound.x0 + 1.0)
    assert list(x) == list(net.state_dict())
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(x[name], net.state_dict()[name])
        assert x[name].dtype == net.state_dict()[name].dtype
    assert torch.equal(x["0.weight"], net.state_dict()["0.weight"] + 1.0)
    expected = ((functional_call(net, x, (DATA[0],))[:, 0] - DATA[1]) ** 2).mean()
    np.testing.assert_allclose(bound.objective.over(None).at(bound.x0 + 1.0).value(), expected.item(), rtol=1e-13)


def test_a_module_with_a_frozen_part_is_given_to_the_problem(tmp_path):
    net = classifier()
    net[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"'0.weight'.*module=module"):
        tercet.torch.FiniteSum(net_loss(net), DATA, batched=True).bind(net)
    with pytest.raises(ValueError, match=r"'0.weight'.*module=module"):
        tercet.torch.FiniteSum(net_loss(net), DATA, batched=True).bind(dict(net.named_parameters()))
    problem, path = tercet.torch.FiniteSum(net_loss(net), DATA, batched=True, module=net), tmp_path / "run.npz"
    assert problem.bind(None).objective.d == 9
    tercet.minimize(problem, max_iterations=3, checkpoint=path)
    result = tercet.resume(path, problem, max_iterations=6)
    assert torch.equal(result.x["0.weight"], net[0].weight)
    assert not torch.equal(result.x["0.bias"], net[0].bias)
    with pytest.raises(ValueError, match=r"'2\.bias'"):
        problem.bind({name: value for name, value in net.state_dict().items() if name != "2.bias"})
    net[0].weight.requires_grad_(True)
    with pytest.raises(tercet.CheckpointError, match="module was"):
        tercet.resume(path, problem)


def test_tied_parameters_are_one_variable():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    net[2].weight = net[0].weight

    def loss(params, x, label):
        return (functional_call(net, params, (x,)).sum(-1) - label) ** 2

    for start in (net, net.state_dict()):
        with pytest.raises(ValueError, match="tied"):
            tercet.torch.FiniteSum(loss, DATA, batched=True).bind(start)
    problem = tercet.torch.FiniteSum(loss, DATA, batched=True, module=net)
    bound = problem.bind(net)
    assert bound.objective.d == 15
    x = bound.restore(bound.x0 + 1.0)
    assert torch.equal(x["0.weight"], x["2.weight"])
    net.load_state_dict(x)
    expected = loss(dict(net.named_parameters()), *DATA).mean()
    np.testing.assert_allclose(bound.objective.over(None).at(bound.x0 + 1.0).value(), expected.item(), rtol=1e-13)


def test_one_tensor_is_a_structure_too():
    problem = tercet.torch.FiniteSum(lambda w, x, label: (x @ w - label) ** 2, DATA, batched=True)
    result = tercet.minimize(problem, torch.zeros(3, dtype=torch.float64))
    expected = np.linalg.lstsq(INPUTS, LABELS, rcond=None)[0]
    np.testing.assert_allclose(result.x.numpy(), expected, atol=1e-8)


def test_float32_stays_float32_for_the_user_and_float64_inside():
    seen = set()

    def loss(params, x, label):
        seen.add((params["out"].dtype, x.dtype, label.dtype))
        return mlp(params, x, label)

    small = {name: value.float() for name, value in START.items()}
    bound = tercet.torch.FiniteSum(loss, DATA, batched=True).bind(small)
    point, exact = bound.objective.over(None).at(bound.x0), tercet.torch.FiniteSum(mlp, DATA).bind(START)
    assert point.gradient().dtype == point.hessian().dtype == np.float64
    assert all(value.dtype == torch.float32 for value in bound.restore(bound.x0).values())
    assert seen == {(torch.float32, torch.float32, torch.int64)}
    reference = exact.objective.over(None).at(bound.x0).gradient()
    np.testing.assert_allclose(point.gradient(), reference, atol=2e-6)  # a few float32 roundings of terms near 1
    assert np.any(point.gradient() != reference), "the sums really ran in float32"


def test_mixed_precision_runs_in_float64_and_comes_back_as_it_was():
    mixed = {**START, "b": START["b"].float()}
    bound = tercet.torch.FiniteSum(mlp, DATA, batched=True).bind(mixed)
    x = bound.restore(bound.x0)
    assert {name: value.dtype for name, value in x.items()} == {name: value.dtype for name, value in mixed.items()}


def test_data_of_every_form_is_the_same_problem():
    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, i):
            return DATA[0][i], DATA[1][i]

    forms = [DATA, list(DATA), torch.utils.data.TensorDataset(*DATA), Pairs(), (INPUTS, LABELS)]
    problems = [tercet.torch.FiniteSum(mlp, data, batched=True) for data in forms]
    assert len({str(problem.fingerprint()) for problem in problems}) == 1
    assert len({problem.bind(START).objective.over(None).at(np.ones(D)).value() for problem in problems}) == 1


def test_switching_gradients_off_around_a_run_changes_nothing():
    """Without a graph behind g its derivatives would be taken for zero."""
    problem = tercet.torch.FiniteSum(mlp, DATA, batched=True)
    expected = tercet.minimize(problem, START)
    p = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    q = p.detach().clone().requires_grad_()
    first, second = tercet.torch.STM([p]), tercet.torch.STM([q])
    for _ in range(5):
        first.step(lambda: rosenbrock(p))
    with torch.no_grad():
        result = tercet.minimize(problem, START)
        for _ in range(5):
            second.step(lambda: rosenbrock(q))
    assert result.status is expected.status
    np.testing.assert_array_equal(result.trace["f"], expected.trace["f"])
    assert torch.equal(p, q)


# misuse -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (lambda p, *e: p["W"], "shape"),
        (lambda p, *e: 1.0, "float"),
        (lambda p, *e: None, ""),
        (lambda p, *e: p["nothing"], "KeyError"),
    ],
    ids=["matrix", "number", "none", "raises"],
)
@pytest.mark.parametrize("batched", [True, False])
def test_a_loss_that_does_not_give_one_scalar_per_example_is_refused(loss, text, batched):
    with pytest.raises(ValueError, match=rf"FiniteSum\(loss=.*{text}"):
        tercet.torch.FiniteSum(loss, DATA, batched=batched).bind(START)


@pytest.mark.parametrize(
    "data",
    [
        (torch.ones(5, 2), torch.ones(4)),
        torch.ones(0, 2),
        torch.tensor(3.0),
        (),
        (torch.ones(5), 1.0),
        {"x": torch.ones(5)},
        (torch.ones(5), "text"),
        torch.tensor([1.0, np.nan]),
        torch.tensor([1.0, np.inf]),
    ],
    ids=["lengths", "no examples", "scalar", "nothing", "one scalar", "dict", "text", "nan", "inf"],
)
def test_bad_data_is_refused(data):
    with pytest.raises(ValueError, match=r"FiniteSum\(data="):
        tercet.torch.FiniteSum(mlp, data)


@pytest.mark.parametrize(
    "options",
    [{"chunk": 0}, {"chunk": True}, {"chunk": 2.5}, {"batched": 1}, {"module": mlp}],
    ids=["zero chunk", "true chunk", "half a chunk", "batched by a number", "a function as module"],
)
def test_bad_settings_are_refused_by_name(options):
    with pytest.raises(ValueError, match=rf"FiniteSum\({next(iter(options))}="):
        tercet.torch.FiniteSum(mlp, DATA, **options)


def test_a_loss_that_is_not_a_function_is_refused():
    with pytest.raises(ValueError, match=r"FiniteSum\(loss=3\)"):
        tercet.torch.FiniteSum(3, DATA)


@pytest.mark.parametrize(
    "x0",
    [
        None,
        {**START, "b": torch.tensor([0.0, np.nan])},
        {},
        {"W": torch.tensor([1, 2])},
        {**START, "b": "text"},
        {**START, "b": START["b"].half()},
        {**START, "b": START["b"] + 0j},
        list(classifier().parameters()),
        classifier().parameters(),
    ],
    ids=["none", "nan", "empty", "whole numbers", "text", "half", "complex", "list", "generator"],
)
def test_a_bad_start_is_refused_by_name(x0):
    with pytest.raises(ValueError, match="x0"):
        tercet.torch.FiniteSum(mlp, DATA).bind(x0)


# operations that PyTorch cannot differentiate three times -----------------------------------------------------------


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


def attend(w, x):
    q = (x @ w)[:, None]
    return nn.functional.scaled_dot_product_attention(q, q**2, q).sum((1, 2, 3))


OPERATIONS = {
    "scaled_dot_product": attend,
    "hardsigmoid": lambda w, x: nn.functional.hardsigmoid(x @ w).sum((1, 2)),
    "layer_norm": lambda w, x: (nn.functional.layer_norm(x @ w, (3,)) ** 3).sum((1, 2)),
    "instance_norm": lambda w, x: (nn.functional.instance_norm(x @ w) ** 3).sum((1, 2)),
    "weight_norm": lambda w, x: torch.sin(x @ torch._weight_norm(w, w[:, :1] ** 2, 0)).sum((1, 2)),
    "once_differentiable": lambda w, x: (Once.apply(x @ w) ** 2).sum((1, 2)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_without_three_right_derivatives_is_named_before_the_run(name):
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    w = torch.eye(3, dtype=torch.float64) + 0.1
    with pytest.raises(NotDifferentiableError, match=rf"FiniteSum\(loss=.*{name}"):
        tercet.torch.FiniteSum(OPERATIONS[name], x, batched=True).bind(w)
    p = w.clone().requires_grad_()
    with pytest.raises(NotDifferentiableError, match=rf"STM.step\(closure\).*{name}"):
        tercet.torch.STM([p]).step(lambda: OPERATIONS[name](p, x).sum())
    assert torch.equal(p, w)


def test_the_remedy_for_attention_works():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def loss(w, x):
        with sdpa_kernel(SDPBackend.MATH):
            return attend(w, x)

    x = torch.randn(4, 5, 3, dtype=torch.float64)
    start = torch.eye(3, dtype=torch.float64) + 0.1
    problem = tercet.torch.FiniteSum(loss, x, batched=True)
    tercet.minimize(problem, start, max_iterations=0, check_derivatives=True)


OTHERS = {
    "gru": nn.GRU(3, 2, batch_first=True),
    "lstm": nn.LSTM(3, 2, batch_first=True),
    "group norm": nn.Sequential(nn.Linear(3, 4), nn.Unflatten(-1, (4, 1)), nn.Flatten(1, 2), nn.GroupNorm(5, 20)),
    "gelu": nn.Sequential(nn.Linear(3, 2), nn.GELU(), nn.Linear(2, 2), nn.Mish()),
    "pooling": nn.Sequential(nn.Conv1d(5, 3, 2), nn.SiLU(), nn.MaxPool1d(2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_derivatives_of_common_layers_agree_with_differences(name):
    torch.manual_seed(3)
    net = OTHERS[name].double()
    x = torch.randn(6, 5, 3, dtype=torch.float64)

    def loss(params, x):
        out = functional_call(net, params, (x,))
        out = out[0] if isinstance(out, tuple) else out
        return torch.sin(out.flatten(1) * 1.3).sum(1)

    problem = tercet.torch.FiniteSum(loss, x, batched=True)
    result = tercet.minimize(problem, net, max_iterations=0, check_derivatives=True)
    assert np.isfinite(result.fun)


@pytest.mark.parametrize("batched", [True, False])
def test_random_numbers_in_the_loss_are_refused(batched):
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 1)).double()
    with pytest.raises(ValueError, match=r"FiniteSum\(loss=.*random"):
        tercet.torch.FiniteSum(net_loss(net), DATA, batched=batched).bind(net)
    net.eval()
    assert tercet.torch.FiniteSum(net_loss(net), DATA, batched=batched).bind(net).objective.d == 21


def test_a_loss_that_couples_examples_is_refused():
    problem = tercet.torch.FiniteSum(lambda w, x: ((x - x.mean(0)) @ w) ** 2, DATA[0], batched=True)
    with pytest.raises(ValueError, match="depends on the others"):
        problem.bind(torch.ones(3, dtype=torch.float64))


# the optimizer ------------------------------------------------------------------------------------------------------


def rosenbrock(p):
    return 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2


def test_steps_on_a_full_batch_reach_the_certified_minimum():
    net = classifier()
    loss = module_loss(net)
    optimizer = tercet.torch.STM(net.parameters())
    values = []
    while not isinstance(optimizer.last, tercet.Status) and len(values) < 100:
        values.append(float(optimizer.step(lambda: loss(dict(net.named_parameters()), *DATA).mean())))
    assert optimizer.last is tercet.Status.CERTIFIED
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))
    reference = tercet.minimize(tercet.torch.FiniteSum(loss, DATA, batched=True), net)
    np.testing.assert_allclose(values[-1], reference.fun, rtol=1e-12)


@pytest.mark.parametrize("method", [tercet.STM(), tercet.SCR(), tercet.STM(subsolver=tercet.Krylov())], ids=repr)
def test_rosenbrock(method):
    p = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = tercet.torch.STM([p], method=method)
    for _ in range(60):
        optimizer.step(lambda: rosenbrock(p))
        if optimizer.last is tercet.Status.CERTIFIED:
            break
    np.testing.assert_allclose(p.detach().numpy(), [1.0, 1.0], atol=1e-7)


AS_GIVEN = {"sizes": tercet.Full(), "units": tercet.Euclidean()}  # other units know how far x came from the start


@pytest.mark.parametrize("method", [tercet.STM(worth=50.0, **AS_GIVEN), tercet.SCR(**AS_GIVEN)], ids=["stm", "scr"])
def test_steps_on_all_data_are_the_iterations_of_minimize(method):
    """So sigma, the radius, and whether third derivatives are worth their price go from one step to the next."""
    torch.manual_seed(0)  # with so few variables no Hessian is dear enough to serve for several steps
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(6.0)  # far out, so that some trial steps fail
    loss, options = module_loss(net), {"method": method, "max_iterations": 25}
    result = tercet.minimize(tercet.torch.FiniteSum(loss, DATA, batched=True), net, **options)
    accepted = [row for row in result.trace if row.accepted]
    assert len(accepted) < result.nit, "no step was rejected"
    assert method.order == 2 or {row.third_bought for row in accepted} == {True, False}
    optimizer, rows = tercet.torch.STM(net.parameters(), method=method), []
    for _ in accepted:
        optimizer.step(lambda: loss(dict(net.named_parameters()), *DATA).mean())
        rows.append(optimizer.last)
    np.testing.assert_allclose([row.f for row in rows], [row.f for row in accepted], rtol=1e-6)
    np.testing.assert_allclose([row.step_norm for row in rows], [row.step_norm for row in accepted], rtol=1e-5)
    assert [row.third_bought for row in rows] == [row.third_bought for row in accepted]
    assert [row.iteration for row in rows] == [row.iteration for row in accepted]


def test_a_saddle_is_left_along_negative_curvature():
    p = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = tercet.torch.STM([p])
    for _ in range(30):
        optimizer.step(lambda: p[0] ** 2 - p[1] ** 2 + p[1] ** 4)
    np.testing.assert_allclose(np.abs(p.detach().numpy()), [0.0, 0.5**0.5], atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_run_on_mini_batches_is_resumed_bit_for_bit(dtype, tmp_path):
    nets = [classifier().to(dtype) for _ in range(3)]
    data = [t.to(dtype) if t.is_floating_point() else t for t in DATA]

    def go(net, optimizer, steps):
        loss = module_loss(net)
        for k in steps:
            rows = np.random.default_rng(k).integers(0, N, 32)
            x, label = (t[rows] for t in data)
            optimizer.step(lambda x=x, label=label: loss(dict(net.named_parameters()), x, label).mean())

    whole, half, rest = nets
    go(whole, tercet.torch.STM(whole.parameters()), range(12))
    first = tercet.torch.STM(half.parameters())
    go(half, first, range(6))
    torch.save({"net": half.state_dict(), "optimizer": first.state_dict()}, tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    rest.load_state_dict(saved["net"])
    second = tercet.torch.STM(rest.parameters())
    second.load_state_dict(saved["optimizer"])
    go(rest, second, range(6, 12))
    assert all(torch.equal(a, b) for a, b in zip(rest.parameters(), whole.parameters(), strict=True))
    assert not torch.equal(half[0].weight, whole[0].weight)


def test_a_copied_optimizer_goes_on_like_the_original():
    p = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = tercet.torch.STM([p], method=tercet.SCR())
    optimizer.step(lambda: rosenbrock(p))
    q, twin = copy.deepcopy([p, optimizer])
    for _ in range(3):
        optimizer.step(lambda: rosenbrock(p))
        twin.step(lambda: rosenbrock(q))
    assert dataclasses.replace(twin.last, seconds=0.0) == dataclasses.replace(optimizer.last, seconds=0.0)
    assert torch.equal(p, q)


def test_a_state_of_another_method_is_refused():
    p = torch.ones(2, requires_grad=True)
    saved = tercet.torch.STM([p], method=tercet.SCR()).state_dict()
    with pytest.raises(ValueError, match=r"load_state_dict.*SCR"):
        tercet.torch.STM([p]).load_state_dict(saved)


def test_a_thousand_steps_leave_nothing_behind():
    """No tensor, and no growing memory: a graph that is kept by a cycle would show in both."""
    code = """
import gc, resource, torch, tercet.torch
A = torch.randn(2000, 20, dtype=torch.float64)
p = torch.full((20,), 0.5, dtype=torch.float64, requires_grad=True)
optimizer = tercet.torch.STM([p])
def step():
    optimizer.step(lambda: torch.cos(A @ p).mean() + 0.1 * torch.rand(()) * (p ** 2).sum())
def live():
    return sum(1 for o in gc.get_objects() if issubclass(type(o), torch.Tensor))
gc.disable()
for _ in range(100):
    step()
tensors, memory = live(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(1000):
    step()
print(live() - tensors, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    tensors, kilobytes = map(int, run.stdout.split())
    assert tensors == 0
    assert kilobytes < 20_000, "the graph of one step holds more than 100 kB"


def test_one_group_only():
    a, b = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="one group"):
        tercet.torch.STM([{"params": [a]}, {"params": [b]}])
    optimizer = tercet.torch.STM([{"params": [a]}])
    with pytest.raises(ValueError, match="one group"):
        optimizer.add_param_group({"params": [b]})
    assert len(optimizer.param_groups) == 1


def test_parameters_without_gradient_are_left_out_and_grad_is_left_alone():
    a, b = torch.ones(2, requires_grad=True), torch.full((2,), 2.0)
    a.grad = torch.tensor([7.0, 8.0])
    optimizer = tercet.torch.STM([a, b])
    optimizer.step(lambda: ((a - b) ** 2).sum() + (a**4).sum())
    assert not torch.equal(a.detach(), torch.ones(2))
    assert torch.equal(b, torch.full((2,), 2.0))
    assert b.grad is None
    assert torch.equal(a.grad, torch.tensor([7.0, 8.0]))
    optimizer.zero_grad()
    assert a.grad is None


def test_dropout_is_the_same_within_a_step_and_another_in_the_next():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double()
    masks = []
    net[1].register_forward_hook(lambda module, inputs, output: masks.append(tuple((output != 0).flatten().tolist())))
    optimizer = tercet.torch.STM(net.parameters())
    per_step = []
    for _ in range(4):
        masks.clear()
        optimizer.step(lambda: ((net(DATA[0])[:, 0] - DATA[1]) ** 2).mean())
        assert len(masks) >= 2
        assert optimizer.last.accepted
        per_step.append(set(masks))
    assert [len(seen) for seen in per_step] == [1, 1, 1, 1]
    assert len(set.union(*per_step)) == 4


@pytest.mark.parametrize("error", [ArithmeticError, KeyboardInterrupt])
def test_an_exception_in_the_closure_passes_and_the_parameters_stay(error):
    p = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = tercet.torch.STM([p])
    calls = []

    def closure():
        calls.append(1)
        if len(calls) == 2:  # at the trial point
            assert not torch.equal(p.detach(), torch.tensor([-1.2, 1.0], dtype=torch.float64))
            raise error("enough")
        return rosenbrock(p)

    with pytest.raises(error, match="enough"):
        optimizer.step(closure)
    assert torch.equal(p.detach(), torch.tensor([-1.2, 1.0], dtype=torch.float64))
    optimizer.step(lambda: rosenbrock(p))
    assert optimizer.last.accepted


def test_a_loss_that_is_not_finite_is_told_and_the_parameters_stay():
    p = torch.tensor([-1.0], requires_grad=True)
    optimizer = tercet.torch.STM([p])
    with pytest.warns(RuntimeWarning, match="not finite"):
        value = optimizer.step(lambda: torch.log(p).sum())
    assert torch.isnan(value)
    assert optimizer.last is tercet.Status.NOT_FINITE
    assert p.item() == -1.0


def test_a_trial_point_where_the_loss_is_not_finite_is_taken_back():
    p = torch.tensor([1e-3], dtype=torch.float64, requires_grad=True)
    optimizer = tercet.torch.STM([p])
    for _ in range(40):
        optimizer.step(lambda: (p - torch.log(p)).sum())
        assert p.item() > 0
    np.testing.assert_allclose(p.item(), 1.0, rtol=1e-8)


def test_after_the_tries_the_parameters_stay_and_the_radius_has_shrunk():
    p = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    optimizer, calls = tercet.torch.STM([p], tries=3), []

    def closure():
        calls.append(1)
        return (p**2).sum() + (10.0 if p.item() != 0.5 else 0.0)  # a cliff around the start

    optimizer.step(closure)
    assert not optimizer.last.accepted
    assert p.item() == 0.5
    assert len(calls) == 4
    assert 0.0 < optimizer.state_dict()["state"][0]["radius"] < 0.5  # the first step went to 0


@pytest.mark.parametrize(
    ("closure", "text"),
    [
        (lambda p: 3.0, "returned 3.0"),
        (lambda p: p * 2, "shape"),
        (lambda p: (p**2).sum().detach(), "detached"),
        (lambda p: None, "returned None"),
    ],
    ids=["number", "vector", "detached", "none"],
)
def test_a_closure_that_gives_no_differentiable_scalar_is_refused(closure, text):
    p = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=rf"STM.step\(closure\).*{text}"):
        tercet.torch.STM([p]).step(lambda: closure(p))


def test_a_closure_that_calls_backward_is_told_not_to():
    p = torch.ones(2, requires_grad=True)

    def closure():
        loss = torch.sin(p).exp().sum()
        loss.backward()
        return loss

    with pytest.raises(NotDifferentiableError, match=r"without calling backward\(\)"):
        tercet.torch.STM([p]).step(closure)


@pytest.mark.parametrize(
    "options",
    [{"tries": 0}, {"tries": True}, {"tol": 0.0}, {"tol": "1"}, {"order": 4}, {"method": tercet.SGD()}],
    ids=str,
)
def test_bad_settings_of_the_optimizer_are_refused_by_name(options):
    with pytest.raises(ValueError, match=rf"STM\({next(iter(options))}="):
        tercet.torch.STM([torch.ones(2, requires_grad=True)], **options)


def test_an_optimizer_without_closure_or_variables_is_refused():
    with pytest.raises(ValueError, match="closure"):
        tercet.torch.STM([torch.ones(2, requires_grad=True)]).step()
    with pytest.raises(ValueError, match="requires a gradient"):
        tercet.torch.STM([torch.ones(2)]).step(lambda: torch.ones(()))
    with pytest.raises(ValueError, match="float16"):
        tercet.torch.STM([torch.ones(2, dtype=torch.float16, requires_grad=True)])


# devices ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_data_on_a_gpu_gives_the_same_run_and_x_comes_back_where_it_was(tmp_path):
    data = tuple(t.cuda() for t in DATA)
    cpu = tercet.minimize(tercet.torch.FiniteSum(mlp, DATA, batched=True), START, max_iterations=8)
    for start in (START, {name: value.cuda() for name, value in START.items()}):
        result = tercet.minimize(tercet.torch.FiniteSum(mlp, data, batched=True), start, max_iterations=8)
        np.testing.assert_allclose(result.trace["f"], cpu.trace["f"], rtol=1e-7)
        assert result.counts == cpu.counts
        assert {value.device.type for value in result.x.values()} == {start["W"].device.type}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_on_a_gpu_is_resumed(tmp_path):
    data, start = tuple(t.cuda() for t in DATA), {name: value.cuda() for name, value in START.items()}
    problem = tercet.torch.FiniteSum(mlp, data, batched=True)
    whole = tercet.minimize(problem, start, max_iterations=8)
    tercet.minimize(problem, start, max_iterations=4, checkpoint=tmp_path / "run.npz")
    resumed = tercet.resume(tmp_path / "run.npz", problem, max_iterations=8)
    np.testing.assert_allclose(resumed.trace["f"], whole.trace["f"], rtol=1e-9)
    assert {value.device.type for value in resumed.x.values()} == {"cuda"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_optimizer_works_on_a_gpu():
    net = classifier().cuda()
    loss, data = module_loss(net), tuple(t.cuda() for t in DATA)
    optimizer = tercet.torch.STM(net.parameters())
    for _ in range(100):
        optimizer.step(lambda: loss(dict(net.named_parameters()), *data).mean())
        if optimizer.last is tercet.Status.CERTIFIED:
            return
    pytest.fail(f"not certified: {optimizer.last}")


def test_tercet_itself_does_not_import_torch():
    code = "import sys, tercet\nprint('torch' in sys.modules, 'tercet.torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]


def test_without_torch_the_error_says_how_to_get_it():
    code = "import sys\nsys.modules['torch'] = None\nimport tercet.torch"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'tercet[torch]'" in run.stderr.splitlines()[-1]


def test_a_run_leaves_no_graph_behind():
    def live():
        gc.collect()
        return sum(1 for o in gc.get_objects() if issubclass(type(o), torch.Tensor))

    problem = tercet.torch.FiniteSum(mlp, DATA, batched=True)
    before = live()
    tercet.minimize(problem, START, max_iterations=3)
    assert live() == before
