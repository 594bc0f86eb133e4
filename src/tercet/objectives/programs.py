"""What a JAX function does, as a text: two functions with the same text are compiled once.

A function is traced at every call, which takes a few milliseconds and sees what it closes over as it is now, unless all
that it is made of is known to be the same (`tercet.objectives.meaning`); compiling it takes a thousand times as long.
What is traced, operation by operation with every number in it, is the key to what was compiled before. Arrays that the
function closes over are arguments of the program, and need not be the same.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from tercet.once import once

KEPT = 128  # programs, traced and compiled
LOCK = Lock()
CACHE: OrderedDict[Any, Any] = OrderedDict()


@dataclass(frozen=True, eq=False)
class Program:
    """A traced function of arrays: its text, the arrays that it closes over, and the shapes of what it gives."""

    closed: Any
    text: str | None  # a digest of it; None: it has parts that cannot be compared
    tree: Any  # the structure of its arguments

    @once
    def consts(self) -> tuple[Any, ...]:
        """The arrays that it closes over."""
        return tuple(np.asarray(c) for c in self.closed.consts)

    @once
    def key(self) -> str | None:
        """Text and arrays."""
        if self.text is None:
            return None
        total = hashlib.sha256(self.text.encode())
        for c in self.consts:
            total.update(np.ascontiguousarray(c).data if c.size else b"")
        return total.hexdigest()

    def runner(self, jax: Any) -> Callable[..., Any]:
        """(consts, *arguments) -> the value; the same for all programs of this text."""
        jaxpr, flatten = self.closed.jaxpr, jax.tree_util.tree_leaves

        def run(consts: Any, *arguments: Any) -> Any:
            return jax.core.eval_jaxpr(jaxpr, consts, *flatten(arguments))[0]

        return run


def traced(jax: Any, function: Callable[..., Any], *arguments: Any, means: Any = None) -> Program:
    """A function of arrays, traced on arguments of these shapes; what it raises is let through.

    Where `means` tells what the function does it is traced once.
    """
    leaves, tree = jax.tree_util.tree_flatten(arguments)

    def trace() -> Program:
        closed = jax.make_jaxpr(function)(*arguments)
        lines: list[str] = []
        known = describe(closed.jaxpr, lines)
        text = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return Program(closed, text if known else None, tree)

    shapes = tuple((np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)
    return compiled(None if means is None else ("traced", means, tree, shapes, jax.config.jax_enable_x64), trace)


def compiled(key: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives, or gave before under the same key; a key of None is never the same."""
    if key is None:
        return make()
    with LOCK:
        found = CACHE.get(key)
        if found is not None:
            CACHE.move_to_end(key)
            return found
    made = make()
    with LOCK:
        made = CACHE.setdefault(key, made)  # another thread may have been first
        while len(CACHE) > KEPT:
            CACHE.popitem(last=False)
    return made


def describe(jaxpr: Any, lines: list[str]) -> bool:
    """Write a jaxpr line by line; False where it has a part that a text does not tell."""
    names: dict[Any, str] = {}

    def name(v: Any) -> str:
        if hasattr(v, "val"):
            value = np.asarray(v.val)
            return f"{v.aval} {value.dtype} {value.tobytes().hex()}"
        return names.setdefault(v, f"v{len(names)}")

    lines.append(" ".join(f"{name(v)}:{v.aval}" for v in (*jaxpr.constvars, *jaxpr.invars)))
    for eqn in jaxpr.eqns:
        lines.append(f"{eqn.primitive.name} {' '.join(name(v) for v in eqn.invars)}")
        for label in sorted(eqn.params):
            lines.append(label)
            if not tell(eqn.params[label], eqn.params, lines):
                return False
        lines.append(" ".join(f"{name(v)}:{v.aval}" for v in eqn.outvars))
    lines.append(" ".join(name(v) for v in jaxpr.outvars))
    return True


def tell(value: Any, among: dict[str, Any], lines: list[str]) -> bool:
    """Write one parameter of an operation."""
    if hasattr(value, "jaxpr") and hasattr(value, "consts"):
        lines.extend(f"{np.asarray(c).dtype} {np.asarray(c).tobytes().hex()}" for c in value.consts)
        return describe(value.jaxpr, lines)
    if hasattr(value, "eqns"):
        return describe(value, lines)
    if isinstance(value, tuple | list):
        return all(tell(each, among, lines) for each in value)
    if isinstance(value, np.ndarray):
        lines.append(f"{value.dtype} {value.shape} {value.tobytes().hex()}")
        return True
    rules = callable(value) or hasattr(value, "call_wrapped")
    if rules and not isinstance(value, type | np.dtype) and "Mesh" not in type(value).__name__:  # of a derivative
        rule = str(getattr(getattr(value, "debug_info", None), "func_src_info", ""))
        inner = getattr(among.get("call_jaxpr"), "jaxpr", None)
        primal = str(getattr(getattr(inner, "debug_info", None), "func_src_info", ""))
        lines.append(f"{rule} {primal}")
        return "/jax/_src/" in rule and "/jax/_src/" in primal  # one of JAX's own, which stays the same
    lines.append(repr(value))
    return " at 0x" not in lines[-1]
