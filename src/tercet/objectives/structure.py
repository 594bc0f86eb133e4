"""Names for the coordinates of x, from the structure that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tercet.records import Vector


def places(restore: Callable[[Vector], Any], d: int) -> list[str]:
    """The name of each of d coordinates by its place in the structure: W[0, 1], v[2]; x[j] of a vector."""
    found = [""] * d

    def walk(node: Any, name: str) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                walk(value, f"{name}.{key}" if name else str(key))
        elif isinstance(node, list | tuple):
            for k, value in enumerate(node):
                walk(value, f"{name}[{k}]")
        else:
            entries = np.asarray(node.detach().cpu() if hasattr(node, "detach") else node)
            for index, j in np.ndenumerate(entries):
                at = f"[{', '.join(map(str, index))}]" if index else ""
                if 0 <= int(j) < d:
                    found[int(j)] = (name or "x") + at

    walk(restore(np.arange(d, dtype=np.float64)), "")
    return [name or f"x[{j}]" for j, name in enumerate(found)]
