"""Groups of examples in one graph, and how much of a sum fits in the memory."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tercet.torch  # noqa: E402
from tercet.torch.rounds import Room, can_group, room_of, sums_by_group  # noqa: E402

RNG = np.random.default_rng(0)
DATA = [torch.tensor(RNG.standard_normal((37, 3))), torch.tensor(RNG.standard_normal(37))]


def losses(leaves, batch):
    w, b = leaves
    return torch.tanh(batch[0] @ w + b) * batch[1] + (w @ w)


@pytest.mark.parametrize("m", [37, 32, 16, 7, 1])
def test_sums_by_group_are_those_of_each_group_alone(m):
    own = [torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)]
    own, few, K = [leaf.requires_grad_() for leaf in own], [t[:m] for t in DATA], min(16, m)
    found = sums_by_group(losses, own, few, K)
    assert found.shape == (K, 5)
    for k in range(K):
        total = losses(own, [t[k::K] for t in few]).sum()
        slopes = torch.autograd.grad(total, own)
        alone = torch.cat([total.detach().reshape(1), *(slope.reshape(-1) for slope in slopes)])
        torch.testing.assert_close(found[k], alone, rtol=1e-12, atol=1e-12)


def test_a_loss_that_cannot_be_mapped_over_falls_back_to_one_group_after_the_other():
    own = [
        torch.zeros(3, dtype=torch.float64, requires_grad=True),
        torch.zeros((), dtype=torch.float64, requires_grad=True),
    ]

    def asks(leaves, batch):
        return losses(leaves, batch) * (1.0 if float(leaves[1].detach().sum()) < 9 else 2.0)

    assert can_group(losses, own, [t[:3] for t in DATA])
    assert not can_group(asks, own, [t[:3] for t in DATA])
    X, y = DATA

    def whole(params, a, b):
        return asks([params["w"], params["b"]], [a, b])

    start = {"w": torch.ones(3, dtype=torch.float64), "b": torch.zeros((), dtype=torch.float64)}
    bound = tercet.torch.FiniteSum(whole, (X, y), batched=True).bind(start)
    assert not bound.objective.groups
    rows = np.arange(20)
    value, gradient = bound.objective.over(rows).at(bound.x0).first()
    assert value == pytest.approx(bound.objective.over(rows).at(bound.x0).value())
    np.testing.assert_allclose(gradient, bound.objective.over(rows).at(bound.x0).gradient(), rtol=1e-12)


def test_chunks_and_rows_of_a_hessian_fit_the_room():
    room = Room(budget=1e9, example=1000.0)
    assert room.chunk(10**9) == 10**6
    assert room.chunk(100) == 112  # all of them, a multiple of the groups
    assert room.rows(10**6) == 1
    assert room.rows(10**5) == 10
    assert room.rows(10) == 64
    assert Room(1.0, 1000.0).chunk(50) == 16
    assert room_of(losses, [], DATA) is None  # a CPU
