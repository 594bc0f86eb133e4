"""The structure of parameters: which entries of a state dict are variables, and the way to a flat vector and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tercet.checks import refuse_masked
from tercet.records import Vector
from tercet.torch.graph import flatten, from_host, to_host

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # what normalization layers call their statistics
LONE = ""  # the name of a tensor that is given by itself


def entries_of(x0: Any, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The named tensors of a module, a state dict or one tensor; NumPy arrays (of a checkpoint) go to the device."""
    if isinstance(x0, torch.nn.Module):
        x0 = x0.state_dict(keep_vars=True)
    entries = {}
    for name, value in (x0 if isinstance(x0, Mapping) else {LONE: x0}).items():
        try:
            refuse_masked(value)
            entries[str(name)] = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value)).to(device)
        except (TypeError, ValueError, RuntimeError) as error:
            where = f"x0[{name!r}]" if name != LONE else "x0"
            raise ValueError(
                f"minimize({where}=...): it is a {type(value).__name__} ({error}); give a module, a dict of "
                "tensors such as a state_dict, or one tensor."
            ) from error
    return entries


def plain_roles(entries: Mapping[str, Tensor]) -> dict[str, str]:
    """Variables by name alone: every floating entry that is not a running statistic stands for itself."""
    return {
        name: name
        for name, entry in entries.items()
        if (entry.is_floating_point() or entry.is_complex()) and name.split(".")[-1] not in BUFFERS
    }


def full_roles(entries: Mapping[str, Tensor]) -> dict[str, str]:
    """Variables and, for each, the first entry that it shares its numbers with.

    Where any entry requires a gradient, those that do are the variables; in a plain state dict all floating ones.
    """
    trained = {name: name for name, entry in entries.items() if entry.requires_grad} or plain_roles(entries)
    owners: dict[Any, str] = {}
    for name in trained:
        entry = entries[name]
        place = (entry.data_ptr(), entry.shape, entry.stride(), entry.device) if entry.numel() else name
        trained[name] = owners.setdefault(place, name)
    return trained


@dataclass(frozen=True, eq=False)
class Structure:
    """The entries of x0; `roles` maps each variable to the entry that holds its numbers, the rest stays as it is."""

    entries: dict[str, Tensor]
    roles: dict[str, str]
    device: torch.device
    dtype: torch.dtype

    @staticmethod
    def of(entries: dict[str, Tensor], roles: dict[str, str], device: torch.device) -> Structure:
        """Checked: there is something to vary, it is finite, and in float32 or float64."""
        for name in roles:
            entry = entries[name]
            if entry.dtype not in (torch.float32, torch.float64):
                raise ValueError(
                    f"minimize(x0=...): {name or 'x0'!r} has dtype {entry.dtype}; give float32 or float64, for "
                    "example by module.float()."
                )
            if not bool(torch.isfinite(entry.detach()).all()):
                raise ValueError(f"minimize(x0=...): {name or 'x0'!r} holds nan or inf; start from finite numbers.")
        kinds = {entries[name].dtype for name in roles}
        whole = Structure(entries, roles, device, torch.float64 if torch.float64 in kinds else torch.float32)
        if sum(whole.sizes) == 0:
            raise ValueError("minimize(x0=...): x0 has no variables; give at least one floating entry to be varied.")
        return whole

    @property
    def owners(self) -> list[str]:
        """The variables, each once."""
        return [name for name, owner in self.roles.items() if name == owner]

    @property
    def sizes(self) -> list[int]:
        """The number of entries of each."""
        return [self.entries[name].numel() for name in self.owners]

    def start(self) -> Vector:
        """x0 as a flat float64 vector."""
        return to_host(flatten([self.entries[name].detach().cpu() for name in self.owners]))

    def split(self, x: Vector) -> list[Tensor]:
        """A flat vector as one tensor per variable, on the device of the data and in the precision of the run."""
        pieces = torch.split(from_host(x, self.dtype, self.device), self.sizes)
        return [piece.view(self.entries[name].shape) for name, piece in zip(self.owners, pieces, strict=True)]

    def fixed(self) -> dict[str, Tensor]:
        """What is no variable, where the loss can use it: floating entries in the precision of the run."""
        rest = {name: entry.detach() for name, entry in self.entries.items() if name not in self.roles}
        return {
            name: entry.to(self.device, self.dtype if entry.is_floating_point() else None)
            for name, entry in rest.items()
        }

    def assemble(self, leaves: Sequence[Tensor], fixed: Mapping[str, Tensor]) -> Any:
        """The parameters as the loss takes them."""
        held = dict(zip(self.owners, leaves, strict=True))
        whole = {name: held[self.roles[name]] if name in self.roles else fixed[name] for name in self.entries}
        return whole[LONE] if list(whole) == [LONE] else whole

    def restore(self, x: Vector) -> Any:
        """The parameters as the user gave them: a dict for `load_state_dict`, in its own dtypes and on its devices."""
        leaves = [
            piece.to(self.entries[name].device, self.entries[name].dtype).clone()
            for name, piece in zip(self.owners, self.split(x), strict=True)
        ]
        rest = {name: entry.detach().clone() for name, entry in self.entries.items() if name not in self.roles}
        return self.assemble(leaves, rest)
