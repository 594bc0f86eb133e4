"""PyTorch: finite sums and sums of squares of torch functions for `minimize`, and STM as a `torch.optim.Optimizer`.

problem = tercet.torch.FiniteSum(loss, (X, y))
result = tercet.minimize(problem, module)
module.load_state_dict(result.x)

optimizer = tercet.torch.STM(module.parameters())
optimizer.step(lambda: loss_of(module(X), y))
"""

try:
    from tercet.torch.finite_sum import FiniteSum
    from tercet.torch.graph import NotDifferentiableError
    from tercet.torch.optimizer import STM
    from tercet.torch.residuals import Residuals
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError("tercet.torch needs PyTorch: pip install 'tercet[torch]'.") from error

__all__ = ["STM", "FiniteSum", "NotDifferentiableError", "Residuals"]
