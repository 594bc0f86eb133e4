"""`tercet.torch.FiniteSum`: the mean over examples of any PyTorch function of parameters and one example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tercet.checks import refuse_masked
from tercet.objectives.base import Bound, Traits, digest, name_of
from tercet.objectives.device.arrays import DeviceShuffle, TorchArrays
from tercet.objectives.device.table import COPIED
from tercet.objectives.finite_sum import GROUPS, sum_traits
from tercet.once import once
from tercet.records import Matrix, Rows, Vector
from tercet.torch.graph import Graph, Latest, differentiate, to_host
from tercet.torch.point import TorchPoint
from tercet.torch.rounds import CPU_CHUNK, CPU_ROWS, Room, can_group, room_of, sums_by_group
from tercet.torch.structure import Structure, entries_of, full_roles, plain_roles

PROBED = 3  # the loss is tried on this many examples before a run


class FiniteSum:
    """f(params) = (1/n) sum_i loss(params, *example_i) for a PyTorch function `loss` that returns a scalar.

    `params` is what `torch.func.functional_call(module, params, (x,))` takes: a dict of tensors with the names of x0,
    which is a module, its `state_dict()`, a dict of `named_parameters()`, or one tensor. The result's x has the same
    names, ready for `module.load_state_dict`. Running statistics of normalization layers and whole numbers stay fixed.
    A module with other buffers, with parameters that require no gradient or with tied ones is given as `module`, which
    then is also the default of x0.

    `data` is a tensor, a tuple of tensors with the examples along the first axis, or a torch `Dataset`. Sums run on its
    device, over chunks of `chunk` examples (default: 4096 on a CPU, elsewhere as many as a fifth of the free memory has
    room for); memory is that of the graph of one chunk. The loss sees one example at a time and is batched by
    `torch.func.vmap`; with `batched=True` it takes a batch and returns one loss for each of its examples, which is
    faster and asks less of the operations. It must not draw random numbers, nor couple examples: put a module with
    dropout or batch normalization in eval mode. The precision is that of x0: float32 where all of it is float32, else
    float64; floating data is taken in the same. Derivatives of all orders are by reverse mode.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        data: Any,
        *,
        batched: bool = False,
        module: torch.nn.Module | None = None,
        chunk: int | None = None,
    ):
        if not callable(loss):
            raise ValueError(f"FiniteSum(loss={loss!r}): loss is a function loss(params, *example).")
        if not isinstance(batched, bool):
            raise ValueError(f"FiniteSum(batched={batched!r}): batched is True or False.")
        if module is not None and not isinstance(module, torch.nn.Module):
            raise ValueError(f"FiniteSum(module={module!r}): module is a torch.nn.Module.")
        if isinstance(chunk, bool) or not isinstance(chunk, int | None) or (chunk is not None and chunk < 1):
            raise ValueError(f"FiniteSum(chunk={chunk!r}): chunk is a positive number of examples.")
        self.loss, self.batched, self.module = loss, batched, module
        self.data = check_data(data)
        self.n = len(self.data[0])
        self.chunk = chunk

    def fingerprint(self) -> dict[str, str]:
        """The loss's name and code, the data, and which entries of the module are variables."""
        roles = None if self.module is None else full_roles(entries_of(self.module))
        return {
            "loss": name_of(self.loss),
            "data": digest(*(to_host(t) if t.is_floating_point() else t.cpu().numpy() for t in self.data)),
            "batched": repr(self.batched),
            "module": "none" if roles is None else digest(np.array(sorted(roles.items()))),
        }

    def bind(self, x0: Any) -> Bound:
        """Check x0, and the loss with its derivatives on a few examples."""
        structure = self.structure(x0)
        fixed = structure.fixed()
        data = [t.to(structure.dtype) if t.is_floating_point() else t for t in self.data]
        objective = SumObjective(self.losses(structure, fixed), data, structure, self.n, GROUPS)
        with torch.enable_grad():
            graph = probe(objective, self.batched)
            graph.check("FiniteSum(loss=...)")
            few, leaves, batches = [t[:PROBED] for t in data], graph.leaves, graph.can_batch()
            groups = can_group(objective.losses, leaves, few)
            room = room_of(objective.losses, leaves, data)
        fits = CPU_CHUNK if room is None else room.chunk(self.n)
        chunk = GROUPS * -(-min(self.chunk or fits, self.n) // GROUPS)
        objective = replace(objective, chunk=chunk, batches=batches, groups=groups, room=room)
        return Bound(objective, structure.start(), structure.restore)

    def structure(self, x0: Any) -> Structure:
        """The variables of x0, by the module that was given or by what x0 itself says."""
        device = self.data[0].device
        if x0 is None and self.module is None:
            raise ValueError("minimize(x0=None): a FiniteSum needs its parameters; pass a module or its state_dict.")
        entries = entries_of(self.module if x0 is None else x0, device)
        if self.module is not None:
            roles = full_roles(entries_of(self.module))
            names = sorted({*self.module.state_dict()} ^ {*entries})
            if names:
                raise ValueError(f"minimize(x0=...): x0 and the problem's module differ in {names}; give its entries.")
            return Structure.of(entries, roles, device)
        roles = plain_roles(entries)
        odd = sorted({*full_roles(entries).items()} ^ {*roles.items()})
        if odd:
            # A checkpoint holds arrays only, so this has to be known to the problem, which is given again to `resume`.
            raise ValueError(
                f"minimize(x0=...): {odd[0][0]!r} is a buffer, is not trained, or is tied to another entry, which a "
                "dict of arrays cannot tell; give the module to the problem, FiniteSum(..., module=module)."
            )
        return Structure.of(entries, roles, device)

    def losses(self, structure: Structure, fixed: dict[str, Tensor]) -> Callable[..., Tensor]:
        """The losses of a batch, as a function of the variables and the batch."""
        if self.batched:
            return lambda leaves, batch: self.loss(structure.assemble(leaves, fixed), *batch)

        def mapped(leaves: Sequence[Tensor], batch: Sequence[Tensor]) -> Tensor:
            params = structure.assemble(leaves, fixed)
            each = torch.func.vmap(lambda *example: self.loss(params, *example), randomness="error")
            return each(*batch)

        return mapped


def check_data(data: Any) -> tuple[Tensor, ...]:
    """The examples as tensors of one length on one device."""
    if isinstance(data, torch.utils.data.TensorDataset):
        data = data.tensors
    elif isinstance(data, torch.utils.data.Dataset):
        if not hasattr(data, "__len__"):
            raise ValueError("FiniteSum(data=...): the Dataset has no length; give one that can be indexed.")
        data = torch.utils.data.default_collate([data[i] for i in range(len(data))]) if len(data) else ()
    parts = tuple(data) if isinstance(data, tuple | list) else (data,)
    try:
        for part in parts:
            refuse_masked(part)
        tensors = tuple(
            part.detach() if isinstance(part, Tensor) else torch.as_tensor(np.asarray(part)) for part in parts
        )
    except (TypeError, ValueError) as error:
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise ValueError(f"FiniteSum(data=...): give a tensor or a tuple of tensors, not {kinds} ({error}).") from error
    sizes = {t.shape[0] if t.ndim else 0 for t in tensors}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"FiniteSum(data=...): the tensors have {sorted(sizes)} examples along their first axis; "
            "all must have the same number, at least one."
        )
    devices = {str(t.device) for t in tensors}
    if len(devices) != 1:
        raise ValueError(f"FiniteSum(data=...): the tensors are on {sorted(devices)}; move them to one device.")
    for t in tensors:
        if t.is_floating_point() and not all(bool(torch.isfinite(end)) for end in torch.aminmax(t)):
            raise ValueError("FiniteSum(data=...): data holds nan or inf; drop or fill those entries first.")
    return tensors


def probe(objective: SumObjective, batched: bool) -> Graph:
    """The loss at x0 on the first examples, or a ValueError that says what is wrong with it."""
    shape = "loss(params, *batch)" if batched else "loss(params, *example)"
    leaves = [leaf.requires_grad_() for leaf in objective.structure.split(objective.structure.start())]
    few = [t[:PROBED] for t in objective.data]
    before = random_states(objective.structure.device)
    try:
        losses = objective.losses(leaves, few)
        alone = objective.losses(leaves, [t[:1] for t in few])
    except Exception as error:
        hint = "" if batched else " (a loss that takes a batch, with batched=True, need not go through vmap)"
        raise ValueError(f"FiniteSum(loss=...): {shape} raised {type(error).__name__}: {error}{hint}") from error
    if not isinstance(losses, Tensor) or losses.shape != (len(few[0]),):
        what = f"a tensor of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"FiniteSum(loss=...): {shape} gives {what} for {len(few[0])} examples, but one scalar per example is "
            "needed."
        )
    if any(not torch.equal(a, b) for a, b in zip(before, random_states(objective.structure.device), strict=True)):
        raise ValueError("FiniteSum(loss=...): the loss draws random numbers; put its module in eval mode (dropout).")
    if not torch.allclose(losses[:1], alone, rtol=1e-2, atol=1e-5, equal_nan=True):
        raise ValueError(
            "FiniteSum(loss=...): the loss of an example depends on the others of its batch; put the module in eval "
            "mode (batch normalization), and give one loss per example."
        )
    return Graph(losses.sum(), leaves)


def random_states(device: torch.device) -> list[Tensor]:
    """The states of the generators that a loss on this device can draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@dataclass(frozen=True, eq=False)
class SumObjective:
    """A finite sum over PyTorch of a flat vector."""

    losses: Callable[..., Tensor]
    data: list[Tensor]
    structure: Structure
    n: int
    chunk: int
    batches: bool = True  # whether rows of a Hessian can be taken some at once
    groups: bool = False  # whether gradients over groups can be taken at once
    room: Room | None = None  # for graphs; None on a CPU

    @once
    def d(self) -> int:
        """The number of variables."""
        return sum(self.structure.sizes)

    @property
    def traits(self) -> Traits:
        """A Hessian is a product for each variable, some of them at once."""
        of_any = sum_traits(self.d, "derivatives by PyTorch", float(torch.finfo(self.structure.dtype).eps))
        return of_any if self.structure.device.type == "cpu" else replace(of_any, on_device=True, scattered=COPIED)

    def over(self, rows: Rows | None) -> SumView:
        """The mean over the given examples."""
        if rows is None:
            return SumView(self, None, self.n)
        if isinstance(rows, Tensor):  # of `shuffle`
            return SumView(self, rows, len(rows))
        return SumView(self, torch.from_numpy(np.array(rows, dtype=np.int64)).to(self.structure.device), len(rows))

    def shuffle(self, seed: int) -> DeviceShuffle | None:
        """An order of the examples whose beginnings are samples, on a device that is no CPU."""
        place = self.structure.device
        return None if place.type == "cpu" else DeviceShuffle(TorchArrays(place, "float64", "float64"), self.n, seed)

    def rows_at_once(self, m: int) -> int:
        """Rows of a Hessian over m examples that are taken at once."""
        return CPU_ROWS if self.room is None else self.room.rows(m)


@dataclass(eq=False)
class SumView:
    """The mean over some examples. Where they are one chunk, the graph of the latest x is kept for more products."""

    objective: SumObjective
    rows: Tensor | None
    terms: int
    latest: Latest = field(default_factory=Latest)

    @property
    def sampled(self) -> bool:
        """Whether these are some of the examples."""
        return self.rows is not None

    def at(self, x: Vector, carry: None = None) -> TorchPoint:
        """These examples at x."""
        return TorchPoint(self, x)

    @once
    def collected(self) -> list[Tensor] | None:
        """The examples of a small sample side by side; those of a larger one are collected anew in each pass."""
        small = self.rows is not None and self.terms <= self.objective.traits.scattered * self.objective.n
        return [t[self.rows] for t in self.objective.data] if small and self.objective.traits.on_device else None

    def batches(self) -> Iterator[list[Tensor]]:
        """The examples, a chunk at a time."""
        for begin in range(0, self.terms, self.objective.chunk):
            part = slice(begin, min(begin + self.objective.chunk, self.terms))
            if self.collected is not None:
                yield [t[part] for t in self.collected]
            else:
                yield [t[part if self.rows is None else self.rows[part]] for t in self.objective.data]

    def sums(self, leaves: Sequence[Tensor]) -> Iterator[Tensor]:
        """The sum of the losses over each chunk."""
        for batch in self.batches():
            yield self.objective.losses(leaves, batch).sum()

    def leaves(self, x: Vector) -> list[Tensor]:
        """The variables, ready to be differentiated by."""
        return [piece.requires_grad_() for piece in self.objective.structure.split(x)]

    def graphs(self, x: Vector) -> Iterator[Graph]:
        """The sum over each chunk."""
        if self.terms <= self.objective.chunk:
            yield self.latest.graph(x, lambda: next(self.new_graphs(x)))
        else:
            yield from self.new_graphs(x)

    def new_graphs(self, x: Vector) -> Iterator[Graph]:
        """The same, none of them kept."""
        leaves = self.leaves(x)
        at_once = self.objective.rows_at_once(min(self.terms, self.objective.chunk))
        for total in self.sums(leaves):
            yield Graph(total, leaves, self.objective.batches, at_once)

    def value(self, x: Vector) -> float:
        """f(x)."""
        with torch.no_grad():
            return float(to_host(sum_up(self.sums(self.objective.structure.split(x))))) / self.terms

    def both(self, x: Vector) -> tuple[float, Vector]:
        """f(x) and its gradient, from one graph, in one transfer to the host."""
        leaves = self.leaves(x)
        mean = to_host(sum_up(with_gradient(total, leaves) for total in self.sums(leaves))) / self.terms
        return float(mean[0]), mean[1:]

    def groups(self, x: Vector) -> tuple[float, Matrix]:
        """f(x), and sums of gradients over groups, to which the examples are dealt in turn."""
        leaves, K = self.leaves(x), min(GROUPS, self.terms)
        if self.objective.groups:
            sums = to_host(sum_up(sums_by_group(self.objective.losses, leaves, batch, K) for batch in self.batches()))
            return float(sums[:, 0].sum()) / self.terms, sums[:, 1:]
        totals = [torch.zeros(1 + self.objective.d, dtype=leaves[0].dtype, device=leaves[0].device)] * GROUPS
        for batch in self.batches():
            for k in range(min(GROUPS, len(batch[0]))):
                losses = self.objective.losses(leaves, [t[k::GROUPS] for t in batch])
                totals[k] = totals[k] + with_gradient(losses.sum(), leaves)
        sums = to_host(torch.stack(totals[:K]))
        return float(sums[:, 0].sum()) / self.terms, sums[:, 1:]


def with_gradient(total: Tensor, leaves: Sequence[Tensor]) -> Tensor:
    """A scalar and its gradient in one vector, which takes one transfer to the host."""
    gradient = differentiate(total, leaves, keep=False)
    return torch.cat([total.detach().to(gradient).reshape(1), gradient])


def sum_up(parts: Iterator[Tensor]) -> Tensor:
    """The sum of tensors that come one at a time."""
    total = next(parts)
    for part in parts:
        total = total + part
    return total
